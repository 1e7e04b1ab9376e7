"""Every error a person can meet, as one tree.

    TrainvitalsError            what happened, where, what to do
    ├── SettingsError           a setting is unknown, has the wrong type or an impossible value
    ├── InputError              a file cannot be read as what it claims to be
    ├── StoreError              the store refused or could not be reached
    │   └── StoreUnavailable    it may work later: keep the data and try again
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


class ControlError(TrainvitalsError):
    """A control request was refused."""

    exit_code = 1


class ControlConflict(ControlError):
    """Somebody else wrote the same sequence number first."""
