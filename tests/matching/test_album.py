"""A folder of photographs whose landmarks are proposed anew with each one that a person has set."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch.errors import InputError
from normmatch.matching.album import Album, Marked, Status
from tests.matching.locating_scene import FakeEncoder, photograph, points

PLACES = points(0, 6, 200, 160)
MOVES = {f"{i}.png": (10 * i, 8 * (i % 3)) for i in range(5)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same thing at five places of five photographs."""
    for i, (name, (x, y)) in enumerate(MOVES.items()):
        scene = photograph(50 + i, 260, 200, 4)
        scene[y : y + 160, x : x + 200] = photograph(0, 200, 160)
        Image.fromarray(scene).save(tmp_path / name)
    return tmp_path


def make_album(folder: Path, **options: Any) -> tuple[Album, FakeEncoder]:
    encoder = FakeEncoder()
    return Album({name: folder / name for name in MOVES}, encoder, **options), encoder


def work_until_idle(album: Album) -> list[Status]:
    """A worker of its own, stopped when nothing is left."""
    stop, heard = threading.Event(), list[Status]()
    worker = threading.Thread(target=album.work, args=(stop, heard.append))
    worker.start()
    end = time.monotonic() + 30
    while not album.status.idle and time.monotonic() < end:
        time.sleep(0.01)
    stop.set()
    worker.join(5)
    assert not worker.is_alive()
    return heard


def off(album: Album, name: str) -> float:
    return float(np.median(np.linalg.norm(album.proposals[name].keypoints - PLACES - MOVES[name], axis=1)))


def test_each_reference_renews_the_proposals_without_encoding_photographs_again(folder: Path) -> None:
    album, encoder = make_album(folder)
    assert [one.encoded for one in work_until_idle(album)] == [1, 2, 3, 4, 5]
    assert not album.proposals
    assert encoder.seen == 5
    album.fit({"0.png": Marked(PLACES)})
    assert sorted(album.proposals) == ["1.png", "2.png", "3.png", "4.png"]
    assert encoder.seen == 6  # the reference, close
    heard = work_until_idle(album)
    assert heard[-1] == Status(5, 5, 4, 1, {}, True)
    assert max(off(album, name) for name in album.proposals) < 5
    album.fit({"0.png": Marked(PLACES), "3.png": Marked(PLACES + MOVES["3.png"])})
    assert sorted(album.proposals) == ["1.png", "2.png", "4.png"]
    assert max(off(album, name) for name in album.proposals) < 8


def test_a_photograph_that_is_opened_is_looked_at_twice_and_at_once(folder: Path) -> None:
    album, _ = make_album(folder)
    with pytest.raises(InputError, match="expected a reference first"):
        album.locate("2.png")
    album.fit({"0.png": Marked(PLACES)})
    found = album.locate("2.png")
    assert np.linalg.norm(found.keypoints - PLACES - MOVES["2.png"], axis=1).max() < 6
    assert album.locate("2.png") is found
    assert album.proposals["2.png"] is found
    album.fit({})
    assert not album.proposals


def test_a_box_is_kept_with_its_photograph(folder: Path) -> None:
    album, _ = make_album(folder, boxes={"1.png": (10, 8, 200, 160)})
    album.fit({"0.png": Marked(PLACES, (0, 0, 200, 160))})
    assert album.locate("1.png").box == (10, 8, 200, 160)
    album.draw("2.png", (20, 16, 200, 160))
    assert album.proposals["2.png"].box == (20, 16, 200, 160)
    album.draw("2.png", None)
    assert album.proposals["2.png"].box == (0, 0, 260, 200)


def test_an_album_opens_at_once_the_next_time(folder: Path) -> None:
    first, _ = make_album(folder, cache=folder / "cells")
    work_until_idle(first)
    second, encoder = make_album(folder, cache=folder / "cells")
    work_until_idle(second)
    assert encoder.seen == 1  # is it the same network?
    for album in (first, second):
        album.fit({"0.png": Marked(PLACES)})
    np.testing.assert_array_equal(first.proposals["1.png"].keypoints, second.proposals["1.png"].keypoints)


def test_what_another_network_has_seen_is_not_used(folder: Path) -> None:
    work_until_idle(make_album(folder, cache=folder / "cells")[0])
    album, encoder = make_album(folder, cache=folder / "cells")
    probe = folder / "cells" / "probe.npy"
    np.save(probe, -np.load(probe))
    album = Album({name: folder / name for name in MOVES}, encoder, cache=folder / "cells")
    work_until_idle(album)
    assert encoder.seen == 2 + 5


def test_a_photograph_that_cannot_be_read_is_named_and_passed_over(folder: Path) -> None:
    (folder / "1.png").write_bytes(b"nothing")
    album, _ = make_album(folder)
    album.fit({"0.png": Marked(PLACES)})
    work_until_idle(album)
    assert list(album.status.failed) == ["1.png"]
    assert sorted(album.proposals) == ["2.png", "3.png", "4.png"]


def test_mistakes_leave_the_album_as_it_was(folder: Path) -> None:
    album, _ = make_album(folder)
    album.fit({"0.png": Marked(PLACES)})
    for wrong in ({"9.png": Marked(PLACES)}, {"0.png": Marked(PLACES), "1.png": Marked(PLACES[:2])}):
        with pytest.raises(InputError):
            album.fit(wrong)
    assert list(album.references) == ["0.png"]


def test_people_need_not_wait_for_the_worker(folder: Path) -> None:
    """Threads that fit, open and read beside the worker neither fail nor wait for each other for ever."""
    album, _ = make_album(folder)
    stop = threading.Event()
    threads = [threading.Thread(target=album.work, args=(stop,))]
    wrong: list[BaseException] = []

    def use(name: str) -> None:
        try:
            for count in range(3):
                album.fit({name: Marked(PLACES + MOVES[name]), f"{count}.png": Marked(PLACES + MOVES[f"{count}.png"])})
                album.locate("4.png")
                assert name not in album.references or name not in album.proposals
        except BaseException as error:
            wrong.append(error)

    threads += [threading.Thread(target=use, args=(f"{i}.png",)) for i in (0, 3)]
    for one in threads:
        one.start()
    for one in threads[1:]:
        one.join(60)
    stop.set()
    threads[0].join(10)
    assert not wrong
    assert not any(one.is_alive() for one in threads)
