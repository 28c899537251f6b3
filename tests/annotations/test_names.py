"""Left and right in the names of keypoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normmatch.annotations.names import swap_left_right


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("L_Eye", "R_Eye"),
        ("Left_Eye", "Right_Eye"),
        ("L_F_Elbow", "R_F_Elbow"),
        ("Hull_Mid_Left_Bot", "Hull_Mid_Right_Bot"),
        ("BackRest_Top_Left", "BackRest_Top_Right"),
        ("Handle_Left_Junction", "Handle_Right_Junction"),
        ("left_shoulder", "right_shoulder"),
        ("left shoulder", "right shoulder"),
        ("LeftEye", "RightEye"),
        ("EyeLeft", "EyeRight"),
        ("L_HeadLight", "R_HeadLight"),
        ("eye-l", "eye-r"),
        ("L", "R"),
    ],
)
def test_swap_left_right(left: str, right: str) -> None:
    assert swap_left_right(left) == right
    assert swap_left_right(right) == left


@pytest.mark.parametrize(
    "name", ["Nose", "TailLight", "Upright", "Leftover", "cleft", "Lower_Neck_Base", "12", "", "LR"]
)
def test_names_without_a_side_stay(name: str) -> None:
    assert swap_left_right(name) == name


@given(st.from_regex(r"([LRlr]|Left|Right|left|Eye|[A-Z_]){0,6}", fullmatch=True))
def test_swapping_twice_is_nothing(name: str) -> None:
    assert swap_left_right(swap_left_right(name)) == name
