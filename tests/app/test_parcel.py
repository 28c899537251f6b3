"""What the page sends is taken apart, or refused whole."""

import json

import pytest

from normmatch.app.parcel import MAX_LINE, File, file_name, unpack
from normmatch.errors import InputError
from tests.app.client import parcel


def test_files_come_out_as_they_went_in() -> None:
    files = b"\n{}\n", b"", bytes(range(256))
    asked, found = unpack(parcel({"a": [1]}, *files), 3)
    assert found == [File("a.png", data) for data in files]
    assert asked["a"] == [1]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The page sent a request that cannot be read"),
        (b"[1]\n", "The page sent a request that cannot be read"),
        (b'{"files": [1]}\n', "The page sent a request that cannot be read"),
        (b'{"files": [], "a": NaN}\n', "The page sent a request that cannot be read"),
        (b'{"files": ' + b"[" * 100_000, "The page sent a request that cannot be read"),
        (b" " * MAX_LINE + b"{}\n", "The page sent more than 1,000,000 bytes of JSON"),
        (parcel({}, b"abc")[:-1], "The page sent files of other sizes than it says"),
        (parcel({}, b"abc") + b"d", "The page sent files of other sizes than it says"),
        (parcel({}, b"abc").rstrip(b"abc").rstrip(), "The page sent files of other sizes than it says"),
        (parcel({}), "The page sent 0 files; expected 1"),
    ],
)
def test_what_cannot_be_taken_apart(body: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        unpack(body, 1)
    assert str(error.value).startswith(sentence)


def test_sizes_that_agree_only_in_sum() -> None:
    line = json.dumps({"files": [{"name": "a", "size": 9}, {"name": "b", "size": -3}]}).encode()
    with pytest.raises(InputError, match="other sizes"):
        unpack(line + b"\n" + b"abcdef", 2)


def test_names_of_files_are_names_only() -> None:
    assert file_name("../../etc/passwd") == "passwd"
    assert file_name("C:\\photos\\b\n.png") == "b.png"
    assert file_name("x" * 500 + ".png") == "x" * 76 + ".png"
    assert file_name("") == "the picture"
