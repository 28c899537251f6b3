"""The errors that a user can cause: each carries one sentence that says what is wrong, where, and what was expected."""


class NormMatchError(ValueError):
    """Something the caller can mend. The command line prints its sentence and exits with 2."""


class ConfigError(NormMatchError):
    """A configuration that cannot be."""


class InputError(NormMatchError):
    """An image, a set of keypoints or a batch that cannot be matched."""


class WeightsError(NormMatchError):
    """A weights file that is missing, unreadable or does not fit the model."""


class DataError(NormMatchError):
    """A dataset, an annotation or a cache that is missing or wrong."""


class ExportError(NormMatchError):
    """A network that cannot be exported, or not to where it should go."""


class DeviceError(NormMatchError):
    """A device that cannot do what is asked of it."""


def first_line(error: Exception) -> str:
    """What somebody else's error says, in short; its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
