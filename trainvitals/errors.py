"""Every error a person can meet, as one tree.

    TrainvitalsError            what happened, where, what to do
    ├── SettingsError           a setting is unknown, has the wrong type or an impossible value
    ├── InputError              a file cannot be read as what it claims to be
    ├── StoreError              the store refused or could not be reached
    │   ├── StoreUnavailable    it may work later: keep the data and try again
    │   │   └── StoreMissing    nothing is at its path: it was not made yet, or it is gone
    │   └── StoreRejected       it will never take (some of) these points: halve the batch to find which
    └── ControlError            a control request was refused
        └── ControlConflict     somebody else wrote the same sequence number first: reload and look

Messages are sentences for people: what, where, what to do. They hold no secrets.
"""


class TrainvitalsError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""

    exit_code = 2


class SettingsError(TrainvitalsError):
    """A setting is unknown, has the wrong type or an impossible value."""


class InputError(TrainvitalsError):
    """A file cannot be read as what it claims to be."""


class StoreError(TrainvitalsError):
    """The store refused an operation, and would refuse it again."""


class StoreUnavailable(StoreError):
    """The store could not be reached or was busy: keep the data and try again."""


class StoreMissing(StoreUnavailable):
    """Nothing is at the store's path. The store cannot know whether it was there before; who read it can say that it is gone."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class StoreRejected(StoreError):
    """The store will never take at least one of these points (HTTP 400, 413 or 422); others of them may be stored."""


class ControlError(TrainvitalsError):
    """A control request was refused."""

    exit_code = 1


class ControlConflict(ControlError):
    """Somebody else wrote the same sequence number first."""
