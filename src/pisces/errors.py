"""What can go wrong by the user's doing. A bug is any other exception.

    PiscesError
    +-- ConfigError                 a key, a value or a combination of them breaks a rule
    |   +-- MissingPackageError     it needs a package that is not installed
    +-- DataError                   a dataset, trace or model file is not what it should be
    |   +-- MissingDataError        a dataset, or a part of it, is not there: get it
    +-- RunError                    a run folder cannot be read or written
    +-- PolicyError                 a policy (of yours, probably) broke its contract
    +-- RefusedError                a server does not let this client take part

The message says the rule, the value and the remedy; the command line prints it without a traceback.
"""


class PiscesError(Exception):
    """Base of all errors the user can mend."""


class ConfigError(PiscesError, ValueError):
    """A setting breaks a rule."""


class MissingPackageError(ConfigError):
    """A setting needs a package that is not installed; the message names the extra."""


class DataError(PiscesError):
    """A data, trace or model file cannot be read or is not what it should be."""


class MissingDataError(DataError):
    """A dataset, or a part of it, is not there; the message says where, and how to get it."""


class RunError(PiscesError):
    """A run folder cannot be read or written."""


class Terminated(KeyboardInterrupt):
    """The process was told to end (SIGTERM), or its terminal is gone (SIGHUP): as after Ctrl-C."""


class FinishedError(RunError):
    """A run is at its end, and was to go on."""


class PolicyError(PiscesError):
    """A policy broke its contract."""


class RefusedError(PiscesError):
    """A server does not let this client take part, and will not."""
