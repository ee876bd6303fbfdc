"""What can go wrong by the user's doing. A bug is any other exception.

    PiscesError
    +-- ConfigError     a key, a value or a combination of them breaks a rule
    +-- DataError       a dataset, trace or model file is missing or not what it should be
    +-- RunError        a run folder cannot be read or written
    +-- PolicyError     a policy (of yours, probably) broke its contract

The message says the rule, the value and the remedy; the command line prints it without a traceback.
"""


class PiscesError(Exception):
    """Base of all errors the user can mend."""


class ConfigError(PiscesError, ValueError):
    """A setting breaks a rule."""


class DataError(PiscesError):
    """A data, trace or model file is missing or not what it should be."""


class RunError(PiscesError):
    """A run folder cannot be read or written."""


class PolicyError(PiscesError):
    """A policy broke its contract."""
