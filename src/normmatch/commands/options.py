"""Kinds of options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

# Options that may be left out; without this their help reads "{None}|PATH ... (default: None)".
Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Root = Annotated[Path, arg(metavar="DIR")]
Range = Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH", help_behavior_hint="")]
Words = Annotated[tuple[str, ...], arg(metavar="LABEL=VALUES ...", help_behavior_hint="")]

METAVARS: dict[Any, str] = {int: "INT", float: "NUMBER", Path: "PATH"}
REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def optional_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """`float | None` and the like in settings that know nothing of the command line; their help says none, not None."""
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
