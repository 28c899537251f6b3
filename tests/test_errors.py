"""Errors are one line that can be printed and read, whatever they are about."""

import pytest

from normmatch.errors import LONGEST, InputError, NormMatchError, first_line


@pytest.mark.parametrize("text", ["short.", "x" * LONGEST])
def test_what_can_be_read_stays(text: str) -> None:
    assert str(NormMatchError(text)) == text


@pytest.mark.parametrize("text", ["a" * 10**6, "line\n" * 500, "\udcff" * 400, "\x1b[31m" * 200])
def test_what_cannot_is_shortened_and_escaped(text: str) -> None:
    sentence = str(InputError(f"begin {text} end."))
    assert len(sentence) <= LONGEST
    assert sentence.startswith("begin")
    assert sentence.endswith("end.")
    assert sentence.isprintable()
    sentence.encode("utf-8")


def test_first_line_of_anything() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("\n two")) == "two"
    assert first_line(KeyError()) == "KeyError"
