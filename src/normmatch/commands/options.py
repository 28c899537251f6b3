"""How an option that may be left out is read: `Path | None` and the like, in commands and in settings."""

from pathlib import Path
from typing import Any, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

METAVARS: dict[Any, str] = {int: "INT", float: "NUMBER", Path: "PATH"}
OPTIONAL_VALUES = ConstructorRegistry()


@OPTIONAL_VALUES.primitive_rule
def optional_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Without this the help of `Path | None = None` would read {None}|PATH; it says PATH, and none for the default."""
    kinds = set(get_args(info.type)) - {type(None)}
    if len(kinds) != 1 or type(None) not in get_args(info.type):
        return None
    (kind,) = kinds
    parts = get_args(kind) or (kind,)  # tuple[float, float] has two
    if not METAVARS.keys() >= set(parts):
        return None

    def parse(words: list[str]) -> Any:
        if words[0] == "none":
            return None
        values = tuple(part(word) for part, word in zip(parts, words, strict=True))
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
