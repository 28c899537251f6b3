"""The errors that a user can cause: each carries one sentence that says what is wrong, where, and what was expected."""

LONGEST = 300  # characters of a sentence


def readable(text: str) -> str:
    """The text on one line that can be printed anywhere and read by a person: what is long loses its middle."""
    text = text if len(text) <= 10 * LONGEST else text[: 5 * LONGEST] + text[-5 * LONGEST :]
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2 - 2]} ... {line[-LONGEST // 2 + 3 :]}"


class NormMatchError(ValueError):
    """Something the caller can mend. The command line prints its sentence and exits with 2."""

    def __init__(self, sentence: str) -> None:
        super().__init__(readable(sentence))


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
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
