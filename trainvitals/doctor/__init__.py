"""What is wrong around a run before it costs a night: settings, store, rights, file systems, control, logs, driver, clock.

Everything here only looks; a probe file is written where nothing else tells, and taken away again. One file per subject.
"""
