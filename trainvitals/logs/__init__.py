"""Training logs read live: framing of bytes into lines, one grammar per trainer, attempts, and files that rotate.

Nothing here imports pandas: a log is read at the speed of the disk, one line at a time, in bounded memory.
"""
