"""The validation split: whole images, a pair of every class on either side or none, fixed by the seed."""

from collections import Counter

import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.datasets.validation_split import can_pair, validation_split
from normmatch.errors import ConfigError


def obj(image: str, label: str, names: str = "eye nose tail") -> Annotation:
    words = tuple(names.split())
    return Annotation(image, words, np.zeros((len(words), 2)), label=label)


def labels(objects: tuple[Annotation, ...]) -> dict[str, int]:
    return dict(Counter(item.label for item in objects))


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 0), (3, 0), (4, 2), (5, 2), (20, 4)])
def test_at_least_two_of_a_class_or_none(count: int, held: int) -> None:
    objects = [obj(f"{i}.jpg", "cat") for i in range(count)]
    train, val = validation_split(objects, 0.2, seed=0)
    assert (len(train), len(val)) == (count - held, held)


def test_a_small_class_keeps_its_images_out_of_validation() -> None:
    # Every photograph has ten birds, three of them a cat as well: of three cats no two can be held out.
    birds = [obj(f"{i}.jpg", "bird") for i in range(6) for _ in range(10)]
    cats = [obj(f"{i}.jpg", "cat") for i in range(3)]
    for seed in range(10):
        train, val = validation_split(birds + cats, 0.5, seed)
        assert labels(train) == {"bird": 30, "cat": 3}
        assert labels(val) == {"bird": 30}
        assert not {item.image for item in train} & {item.image for item in val}


def test_a_passenger_of_another_class_gets_a_partner() -> None:
    # Dogs are rare and choose first; each comes with a cat, and cats must have a pair in validation, too.
    objects = [obj(f"{i}.jpg", label) for i in range(8) for label in ("dog", "cat")]
    objects += [obj(f"{i}.jpg", "cat") for i in range(8, 30)]
    for seed in range(10):
        val = labels(validation_split(objects, 0.1, seed)[1])
        assert val["dog"] == 2
        assert val["cat"] >= 3


def test_both_sides_have_a_pair_that_shares_names() -> None:
    # Half of the cats show the left side, half the right, with one name in common: two of a kind are a pair.
    objects = [obj(f"{i}.jpg", "cat", "nose ear_L paw_L" if i % 2 else "nose ear_R paw_R") for i in range(12)]
    for seed in range(20):
        for side in validation_split(objects, 0.1, seed):
            assert can_pair(item.names for item in side)
    assert not validation_split(objects, 0.1, 0, fewest_shared=4)[1]


def test_seed_fixes_the_choice_whatever_the_order() -> None:
    objects = [obj(f"{i}.jpg", "cat") for i in range(20)]
    first, again = validation_split(objects, 0.2, 0)[1], validation_split(objects[::-1], 0.2, 0)[1]
    assert {item.image for item in first} == {item.image for item in again}
    assert {item.image for item in first} != {item.image for item in validation_split(objects, 0.2, 1)[1]}


def test_share() -> None:
    objects = [obj(f"{i}.jpg", "cat") for i in range(20)]
    assert validation_split(objects, 0, 0) == (tuple(objects), ())
    with pytest.raises(ConfigError, match="val_share is 1"):
        validation_split(objects, 1, 0)
