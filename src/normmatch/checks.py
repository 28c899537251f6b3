"""What callers hand over besides images and points: flags, numbers, words, lists, paths. Each is refused in a sentence.

numpy is not imported here, because settings are checked before anything is loaded.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short
from typing import Any

from normmatch.errors import ConfigError, InputError, NormMatchError

FLAGS = ("builtins.bool", "numpy.bool", "numpy.bool_")  # numpy's first name is that of version 2


def shown(value: Any) -> str:
    """A value as messages show it: on one line, in short, whatever its `repr` does."""
    try:
        return f"{value:g}" if type(value) is float else " ".join(short(value).split())
    except Exception:  # an integer of too many digits, lists that are too deep, anybody's `__repr__`
        return f"a {type(value).__name__}"


def check_flag(value: Any, name: str) -> bool:
    """True or False and nothing else: "no" would be true."""
    if f"{type(value).__module__}.{type(value).__name__}" not in FLAGS:
        raise InputError(f"{name} is {shown(value)}; expected True or False.")
    return bool(value)


def check_number(value: Any, name: str, low: float, high: float, what: str = "a number") -> float:
    """A real number in a range; NaN is in none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= value <= high:  # type: ignore[operator]
        raise InputError(f"{name} is {shown(value)}; expected {what} from {low:,g} to {high:,g}.")
    return float(value)


def check_count(
    value: Any, name: str, low: int, high: int, what: str = "a whole number", kind: type[NormMatchError] = InputError
) -> int:
    """A whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= value <= high:  # type: ignore[operator]
        raise kind(f"{name} is {shown(value)}; expected {what} from {low:,} to {high:,}.")
    return int(value)


def check_ranges(settings: Any, prefix: str, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse a setting, or one of a tuple of them, that is not in its range; both ends belong to it."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if not all(low <= each <= high for each in (value if isinstance(value, tuple) else (value,))):  # nor is NaN
            expected = f"at least {low:,g}" if high == math.inf else f"{low:,g} to {high:,g}"
            raise ConfigError(f"{prefix}{name} is {shown(value)}, expected {expected}")


def check_word(value: Any, name: str, words: Sequence[str], kind: type[NormMatchError] = InputError) -> str:
    """One of the words."""
    if not isinstance(value, str) or value not in words:
        raise kind(f"{name} is {shown(value)}; expected {', '.join(words[:-1])} or {words[-1]}.")
    return value


def check_iterator(values: Any, name: str, what: str = "a list") -> Iterator[Any]:
    """Goes through a list, a tuple, an array or a generator; text, bytes, dicts and sets are none of these."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | bytearray | Mapping | Set):
        with suppress(TypeError, RuntimeError, NotImplementedError):  # no dimensions; a sparse tensor
            return iter(values)
    raise InputError(f"{name} is {shown(values)}; expected {what}.")


def check_list(values: Any, name: str, what: str = "a list") -> list[Any]:
    """What `check_iterator` goes through."""
    return list(check_iterator(values, name, what))


def check_path(value: Any, name: str, kind: type[NormMatchError] = InputError) -> Path:
    """A path that the disk can be asked about, whether or not something lies there."""
    if not isinstance(value, str | Path) or str(value) == "":
        raise kind(f"{name} is {shown(value)}; expected a path.")
    try:
        os.stat(value)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long, a null byte, a circle of links, no permission
        raise kind(f"{name} {shown(str(value))} cannot be opened: {getattr(error, 'strerror', 0) or error}.") from None
    return Path(value)


def read_number(value: Any) -> float:
    """The number that a value from a file is, also as text; nan where it is none. "1_0" is none."""
    plain = value.isascii() and "_" not in value if isinstance(value, str) else type(value) in (int, float)
    try:
        return float(value) if plain else math.nan
    except (ValueError, OverflowError):
        return math.nan
