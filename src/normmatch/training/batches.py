"""Training batches, as a map-style dataset: number k gives the whole batch k.

A batch depends on nothing but the seed and its number, so the number of workers changes nothing, and training resumes
exactly where it stopped:

    loader = DataLoader(batches, batch_size=None, sampler=range(start, stop), num_workers=k, persistent_workers=True)
    for batch in loader:
        image0, image1 = batch_images({key: value.to(device) for key, value in batch.items()}, images)

The pixels either travel in the batch (`with_images`), or lie on the device already, as an `ImagesOnDevice`.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from normmatch.annotations.names import swap_left_right
from normmatch.config import AugmentConfig
from normmatch.datasets.batches import collate, read_images
from normmatch.datasets.pairs import ClassPairs, class_pairs
from normmatch.datasets.types import Images, KeypointPair, PreparedSplit, Sampling, pair_points
from normmatch.errors import ConfigError, DataError
from normmatch.training.augmentation import add_noise, draw_params, fit_params, render


class ImagesOnDevice:
    """All crops of a split in the memory of a device (PascalVOC's training crops at 378 px: 3 GB)."""

    def __init__(self, images: Images, device: torch.device | str) -> None:
        self.images = torch.empty(images.shape, dtype=torch.uint8, device=device)  # (n, S, S, 3)
        for start in range(0, len(images), 256):  # in pieces, so that a memory map is never in RAM as a whole
            self.images[start : start + 256] = torch.from_numpy(np.array(images[start : start + 256]))

    def __getitem__(self, index: Tensor) -> Tensor:
        """The images (B, 3, S, S) uint8 of objects index (B,)."""
        return self.images[index].permute(0, 3, 1, 2)


def batch_images(batch: Mapping[str, Tensor], source: ImagesOnDevice | None = None) -> tuple[Tensor, Tensor]:
    """The images of both sides, (B, 3, S, S) float32 in [0, 1], augmented by the batch's parameters, if it has any.

    The pixels come from `source`, or else from the batch. All is done on the device they are on.
    """
    if source is not None:
        images = source[torch.cat([batch["index0"], batch["index1"]])]  # (2B, 3, S, S)
    else:
        images = torch.cat([batch["image0"], batch["image1"]])
    rendered = render(images, batch) if "augment_affine" in batch else images.float() / 255
    image0, image1 = rendered.chunk(2)
    return image0, image1


class KeypointTable:
    """The keypoints of a split by name: column v of a class is the same name in each of its n objects.

    With names as columns, sharing a name, losing a point and mirroring are array operations over a whole batch.

    Args:
        names: of each class; without them those that the split shows, and their mirror images.
    """

    def __init__(self, split: PreparedSplit, names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.names = _class_names(split) if names is None else names
        columns = {label: {name: v for v, name in enumerate(row)} for label, row in self.names.items()}
        every = [(label, name) for label in sorted(self.names) for name in self.names[label]]
        self.numbers = {key: number for number, key in enumerate(every)}  # of all T names of all classes
        self.columns = np.array([columns[label][name] for label, name in every], np.int64)  # (T,)
        self.classes = np.unique([label for label, _ in every], return_inverse=True)[1]  # (T,): number of the class
        shape = (len(split.objects), max(map(len, self.names.values()), default=0))
        self.present = np.zeros(shape, bool)  # (n, V)
        self.keypoints = np.zeros((*shape, 2), np.float32)  # (n, V, 2)
        self.swap = np.tile(np.arange(shape[1]), (shape[0], 1))  # (n, V): column of the name in a mirror
        for i, item in enumerate(split.objects):
            column = columns[item.label]
            seen = [column[name] for name in item.names]
            self.present[i, seen] = True
            self.keypoints[i, seen] = item.keypoints
            self.swap[i, : len(column)] = [column[swap_left_right(name)] for name in column]


def _class_names(split: PreparedSplit) -> dict[str, tuple[str, ...]]:
    """The keypoint names of each class; it knows a name's mirror image even where no object shows it."""
    names: dict[str, set[str]] = {}
    for item in split.objects:
        names.setdefault(item.label, set()).update(item.names)
    return {key: tuple(sorted(row | {swap_left_right(name) for name in row})) for key, row in names.items()}


class TrainBatches(Dataset[dict[str, Tensor]]):
    """An endless row of training batches: `batches[step]` is a pure function of the seed and the step.

    Classes are drawn with equal chances, then one of all pairs of the class that share `min_shared` names. A split
    that comes with its own pairs gives each of those the same chance. `skipped` counts, by reason, what gives no pair.
    """

    def __init__(
        self,
        split: PreparedSplit,
        batch_size: int,
        seed: int,
        sampling: Sampling = "intersection",
        augment: AugmentConfig | None = None,
        min_shared: int = 2,
        with_images: bool = False,
        points: int | None = None,
        table: KeypointTable | None = None,
    ) -> None:
        if min_shared < 2:
            raise ConfigError(f"min_shared is {min_shared}, but a training pair needs 2 keypoints in common or more.")
        self.split, self.batch_size, self.seed, self.points = split, batch_size, seed, points
        self.sampling: Sampling = sampling
        self.augment, self.min_shared, self.with_images = augment, min_shared, with_images
        self.table = table or KeypointTable(split)
        self.skipped: Counter[str] = Counter()
        self.sources: list[ClassPairs | np.ndarray] = self._own_pairs() if split.pairs is not None else self._classes()
        if not self.sources:
            raise DataError(f"there is nothing to train on: no two objects of a class share {min_shared} keypoints.")

    def _classes(self) -> list[ClassPairs | np.ndarray]:
        possible = class_pairs(self.split, self.min_shared)
        self.skipped.update(f"class {label} gives no pair" for label, pairs in possible.items() if not len(pairs))
        return [pairs for pairs in possible.values() if len(pairs)]

    def _own_pairs(self) -> list[ClassPairs | np.ndarray]:
        pairs = np.asarray(self.split.pairs)
        labels = np.array([item.label for item in self.split.objects])[pairs]  # (P, 2)
        crossing = np.flatnonzero(labels[:, 0] != labels[:, 1])
        if len(crossing):
            raise DataError(f"pair {crossing[0]} joins {' and '.join(labels[crossing[0]])}; expected one class.")
        shared = (self.table.present[pairs[:, 0]] & self.table.present[pairs[:, 1]]).sum(1)  # (P,)
        pairs = pairs[shared >= self.min_shared]
        if len(pairs) < len(shared):
            self.skipped[f"pair shares fewer than {self.min_shared} keypoints"] = len(shared) - len(pairs)
        return [pairs] if len(pairs) else []

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((self.seed, step))
        index = self._draw(rng)  # (2, B)
        keypoints, present = self.table.keypoints[index], self.table.present[index]  # (2, B, V, 2), (2, B, V)
        params = None
        if self.augment is not None:
            size = self.split.images.shape[1]
            params = draw_params(rng, self.augment, self.batch_size, size)
            swap = self.table.swap[index[0]]  # (B, V)
            params, keypoints, present = fit_params(params, keypoints, present, swap, size, self.min_shared)
            keypoints = add_noise(rng, keypoints, self.augment.noise)
        batch = collate(self._pairs(rng, index, keypoints, present), self.points, self.table.numbers)
        if params is not None:
            batch |= params.tensors()
        if self.with_images:
            batch |= {"image0": read_images(self.split, index[0]), "image1": read_images(self.split, index[1])}
        return batch

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        """The objects of each pair: (2, B)."""
        source = rng.integers(len(self.sources), size=self.batch_size)
        number = rng.random(self.batch_size)
        drawn = np.array([self.sources[s][int(u * len(self.sources[s]))] for s, u in zip(source, number, strict=True)])
        return rng.permuted(drawn, axis=1).T  # which of the two is image 0 is up to chance as well

    def _pairs(
        self, rng: np.random.Generator, index: np.ndarray, keypoints: np.ndarray, present: np.ndarray
    ) -> list[KeypointPair]:
        """From columns to pairs: only now does each point get its random place."""
        pairs = []
        for b, (index0, index1) in enumerate(index.T.tolist()):
            label = self.split.objects[index0].label
            names = self.table.names[label]
            keep0, keep1 = np.flatnonzero(present[0, b]), np.flatnonzero(present[1, b])
            side0 = [names[v] for v in keep0], keypoints[0, b, keep0]
            side1 = [names[v] for v in keep1], keypoints[1, b, keep1]
            pairs.append(pair_points((index0, index1), label, *side0, *side1, rng, self.sampling))
        return pairs
