"""How an option that may be left out is read: `Path | None` and the like, in commands and in settings."""

from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

METAVARS: dict[Any, str] = {int: "INT", float: "NUMBER", Path: "PATH"}
OPTIONAL_VALUES = ConstructorRegistry()


def plain_number(kind: type[int] | type[float], word: str) -> float:
    """A number as people write it: Python would read "1_0" as ten."""
    if "_" in word or not word.isascii():
        raise ValueError(f"invalid number: {word!r}")
    return kind(word)


@OPTIONAL_VALUES.primitive_rule
def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Whole numbers and others, read by `plain_number`."""
    if info.type not in (int, float):
        return None
    kind: type[int] | type[float] = info.type  # type: ignore[assignment]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda words: plain_number(kind, words[0]),
        is_instance=lambda value: isinstance(value, kind if kind is int else int | float),
        str_from_instance=lambda value: [str(value)],
    )


@OPTIONAL_VALUES.primitive_rule
def optional_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Without this the help of `Path | None = None` would read {None}|PATH; it says PATH, and none for the default."""
    kinds = set(get_args(info.type)) - {type(None)}
    if len(kinds) != 1 or type(None) not in get_args(info.type):
        return None
    (kind,) = kinds
    parts = get_args(kind) or (kind,)  # tuple[float, float] has two
    read = [part if part is Path else partial(plain_number, part) for part in parts]
    if not METAVARS.keys() >= set(parts):
        return None

    def parse(words: list[str]) -> Any:
        if words[0] == "none":
            return None
        values = tuple(part(word) for part, word in zip(read, words, strict=True))
        return values if get_args(kind) else values[0]

    return PrimitiveConstructorSpec(
        nargs=len(parts),
        metavar=" ".join(METAVARS[part] for part in parts),
        instance_from_str=parse,
        is_instance=lambda value: value is None or isinstance(value, get_origin(kind) or kind),
        str_from_instance=lambda value: (
            ["none"] if value is None else [str(v) for v in (value if len(parts) > 1 else [value])]
        ),
    )
