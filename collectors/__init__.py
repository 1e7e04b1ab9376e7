"""One file per outside source. ``python -m collectors NAME --once --stdout`` prints its records as JSON lines."""
