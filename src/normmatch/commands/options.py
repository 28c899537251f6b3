"""Kinds of options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, get_args

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

# Options that may be left out; without this their help reads "{None}|PATH ... (default: None)".
Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Root = Annotated[Path, arg(metavar="DIR")]
Range = Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH", help_behavior_hint="")]
Words = Annotated[tuple[str, ...], arg(metavar="LABEL=VALUES ...", help_behavior_hint="")]

METAVARS = {int: "INT", float: "NUMBER", Path: "PATH"}
REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def optional_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """The `float | None` and the like of settings that know nothing of the command line."""
    kinds = set(get_args(info.type)) - {type(None)}
    if len(kinds) != 1 or len(get_args(info.type)) != 2 or not kinds <= METAVARS.keys():
        return None
    (kind,) = kinds
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=METAVARS[kind],
        instance_from_str=lambda text: kind(text[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )
