"""Left and right in the names of keypoints."""

import re

_SIDES = {"l": "r", "L": "R", "left": "right", "Left": "Right", "LEFT": "RIGHT"}
_SIDES |= {right: left for left, right in _SIDES.items()}
_SIDE = re.compile(  # a whole word, or Left and Right as a word of a CamelCase name
    r"(?<![A-Za-z])(?:[lLrR]|left|right|LEFT|RIGHT)(?![A-Za-z])|(?<![A-Z])(?:Left|Right)(?![a-z])"
)


def swap_left_right(name: str) -> str:
    """The name that a keypoint has in the mirrored image: L_Eye becomes R_Eye, Handle_Left_Junction the right one."""
    return _SIDE.sub(lambda word: _SIDES[word.group()], name)
