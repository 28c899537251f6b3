"""The account of what is left out."""

import warnings
from pathlib import Path

import pytest

from normmatch.datasets.layout import Skipped, main_reasons


def damaged() -> Skipped:
    skipped = Skipped()
    skipped.add("objects that are difficult", "cat/1.xml", expected=True, times=14496)
    for number in range(5):
        skipped.add("images missing", Path(f"/data/voc/JPEGImages/{number}.jpg"))
    skipped.add("lists broken", "val.txt")
    return skipped


def test_main_reasons_name_the_first_damaged_file() -> None:
    assert main_reasons(damaged()) == (
        "14,496 objects that are difficult; 5 images missing (first: JPEGImages/0.jpg); 1 lists broken (first: val.txt)"
    )
    assert main_reasons(Skipped()) == "nothing was found"


def test_counts() -> None:
    assert damaged() == {"objects that are difficult": 14496, "images missing": 5, "lists broken": 1}


def test_only_damage_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="not whole") as caught:
        damaged().warn("voc")
    sentence = (
        "voc is not whole, left out: 5 images missing (first: JPEGImages/0.jpg); 1 lists broken (first: val.txt)."
    )
    assert [str(warning.message) for warning in caught] == [sentence]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = Skipped()
        quiet.add("objects that are difficult", "cat/1.xml", expected=True)
        quiet.warn("voc")
