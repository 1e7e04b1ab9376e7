"""Trainvitals: the health of a large pre-training run on one screen.

The package is importable without Streamlit; ``trainvitals.hook`` needs only the standard library.
"""

__version__ = "0.1.0"
