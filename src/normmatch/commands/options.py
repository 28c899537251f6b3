"""Kinds of options that several commands share."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

# Options that may be left out; without this their help reads "{None}|PATH ... (default: None)".
Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Score = Annotated[float | None, arg(metavar="SCORE", help_behavior_hint="")]
Root = Annotated[Path, arg(metavar="DIR")]
Range = Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH", help_behavior_hint="")]
Words = Annotated[tuple[str, ...], arg(metavar="LABEL=VALUES ...", help_behavior_hint="")]
