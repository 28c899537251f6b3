"""Taking a validation split out of training objects."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation
from normmatch.errors import ConfigError

FEWEST_OF_A_CLASS = 2  # a class with fewer objects on one side has no pair there

Objects = tuple[Annotation, ...]


def validation_split(
    objects: Iterable[Annotation],
    share: float,
    seed: int,
    fewest_shared: int = 2,
    photograph: Callable[[Annotation], Path] = attrgetter("path"),
) -> tuple[Objects, Objects]:
    """Training and validation objects: about `share` of every class, no photograph on both sides.

    Whole images move, since two objects of one photograph look alike. On either side a class has a pair, two objects
    that share `fewest_shared` names; a class that is too small for that stays in training with all its images.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"val_share is {share}; expected at least 0 and less than 1.")
    by_image: dict[Path, list[Annotation]] = defaultdict(list)
    for obj in objects:
        by_image[photograph(obj)].append(obj)
    images = sorted(by_image)
    order = [images[i] for i in np.random.default_rng(seed).permutation(len(images))] if share else []
    barred: set[str] = set()  # classes that cannot have a pair in validation
    while True:
        allowed = [image for image in order if barred.isdisjoint(obj.label for obj in by_image[image])]
        val = _choose(by_image, allowed, share, fewest_shared)
        lonely = _lonely((obj for image in val for obj in by_image[image]), fewest_shared)
        if not lonely:
            break
        barred |= lonely  # and choose again: each round bars one class more, so this ends
    return (
        tuple(obj for image, group in by_image.items() if image not in val for obj in group),
        tuple(obj for image, group in by_image.items() if image in val for obj in group),
    )


def can_pair(names: Iterable[Collection[str]], fewest_shared: int = 2) -> bool:
    """Whether two of the objects with these keypoint names share enough of them."""
    seen: list[set[str]] = []
    for row in map(set, names):
        if any(len(row & other) >= fewest_shared for other in seen):
            return True
        seen.append(row)
    return False


def _choose(
    by_image: Mapping[Path, Sequence[Annotation]], order: Sequence[Path], share: float, fewest_shared: int
) -> set[Path]:
    """Images for validation: rare classes choose first, each until it has its share; training keeps a pair of each."""
    left: dict[str, dict[Path, list[set[str]]]] = defaultdict(lambda: defaultdict(list))  # names by class and image
    for image, group in by_image.items():
        for obj in group:
            left[obj.label][image].append(set(obj.names))
    total = {label: sum(map(len, groups.values())) for label, groups in left.items()}
    wanted = {label: max(FEWEST_OF_A_CLASS, round(share * count)) for label, count in total.items()}
    held: dict[str, list[set[str]]] = defaultdict(list)
    val: set[Path] = set()
    for label in sorted(wanted, key=lambda name: (wanted[name], name)):
        for image in order:
            if len(held[label]) >= wanted[label] and can_pair(held[label], fewest_shared):
                break
            if image not in left[label]:  # not of this class, or held out already
                continue
            labels = {obj.label for obj in by_image[image]}
            if all(_pair_without(left[name], image, fewest_shared) for name in labels):
                val.add(image)
                for name in labels:
                    held[name] += left[name].pop(image)
    return val


def _pair_without(groups: Mapping[Path, Sequence[set[str]]], image: Path, fewest_shared: int) -> bool:
    """Whether a class still has a training pair when this image goes."""
    return can_pair((names for path, group in groups.items() if path != image for names in group), fewest_shared)


def _lonely(objects: Iterable[Annotation], fewest_shared: int) -> set[str]:
    """The classes that have objects but no pair."""
    names: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for obj in objects:
        names[obj.label].append(obj.names)
    return {label for label, rows in names.items() if not can_pair(rows, fewest_shared)}
