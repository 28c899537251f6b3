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
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from normmatch.annotations.names import swap_left_right
from normmatch.config import AugmentConfig
from normmatch.datasets.batches import collate, read_images
from normmatch.datasets.pairs import ClassPairs, class_pairs
from normmatch.datasets.types import Images, KeypointPair, PreparedSplit, Sampling, pair_points
from normmatch.errors import ConfigError, DataError
from normmatch.training.augmentation import AugmentParams, add_noise, draw_params, fit_params, render

OWN_POINTS = 20  # of a pair of one photograph, at most


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
    if "image_side" in batch and len(batch["image_side"]) != images.shape[-1]:
        sides = [len(batch["image_side"])] * 2
        images = F.interpolate(images.float(), sides, mode="bilinear", antialias=True, align_corners=False)
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

    Classes are drawn with equal chances, or datasets by `shares` and then their classes; then one of all pairs of the
    class that share `min_shared` names. A split that comes with its own pairs gives each of those the same chance.
    `skipped` counts, by reason, what gives no pair.

    Args:
        shares: how often each dataset of a mixture is shown, by what its classes' names begin with.
        places: tell also where all points of both objects are, for the locating loss:
            places0, places1 (B, V, 2) as shares of an image, present0, present1 (B, V); column v is one name.
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
        shares: Mapping[str, float] | None = None,
        places: bool = False,
    ) -> None:
        if min_shared < 2:
            raise ConfigError(f"min_shared is {min_shared}, but a training pair needs 2 keypoints in common or more.")
        self.split, self.batch_size, self.seed, self.points = split, batch_size, seed, points
        self.sampling: Sampling = sampling
        self.augment, self.min_shared, self.with_images, self.places = augment, min_shared, with_images, places
        self.table = table or KeypointTable(split)
        self.skipped: Counter[str] = Counter()
        self.sources: list[ClassPairs | np.ndarray] = []
        self.labels: list[str] = []  # of the sources that are classes
        if split.pairs is not None:
            self._own_pairs()
        else:
            self._classes()
        if not self.sources:
            raise DataError(f"there is nothing to train on: no two objects of a class share {min_shared} keypoints.")
        self.chances = _chances(self.labels, shares) if shares else None  # of the sources

    def _classes(self) -> None:
        for label, pairs in class_pairs(self.split, self.min_shared).items():
            if len(pairs):
                self.sources.append(pairs)
                self.labels.append(label)
            else:
                self.skipped[f"class {label} gives no pair"] += 1

    def _own_pairs(self) -> None:
        pairs = np.asarray(self.split.pairs)
        labels = np.array([item.label for item in self.split.objects])[pairs]  # (P, 2)
        crossing = np.flatnonzero(labels[:, 0] != labels[:, 1])
        if len(crossing):
            raise DataError(f"pair {crossing[0]} joins {' and '.join(labels[crossing[0]])}; expected one class.")
        shared = (self.table.present[pairs[:, 0]] & self.table.present[pairs[:, 1]]).sum(1)  # (P,)
        pairs = pairs[shared >= self.min_shared]
        if len(pairs) < len(shared):
            self.skipped[f"pair shares fewer than {self.min_shared} keypoints"] = len(shared) - len(pairs)
        self.sources += [pairs] if len(pairs) else []

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((self.seed, step))
        index = self._draw(rng)  # (2, B)
        stored = self.split.images.shape[1]
        size = self._size(rng)
        keypoints, present = self.table.keypoints[index], self.table.present[index]  # (2, B, V, 2), (2, B, V)
        if size != stored:
            keypoints = keypoints * np.float32(size / stored)
        own = np.zeros(self.batch_size, bool)  # (B,): pairs of one photograph
        params, extra = None, {}
        if self.augment is not None:
            own[: round(self.augment.self_pairs * self.batch_size)] = True
            index[1, own] = index[0, own]
            params, keypoints, present = self._augment(rng, index, keypoints, present, own, size)
            extra = params.tensors()
        if self.places:
            extra |= {f"places{i}": torch.from_numpy(keypoints[i] / np.float32(size)) for i in (0, 1)}
            extra |= {f"present{i}": torch.from_numpy(present[i]) for i in (0, 1)}
        if self.augment is not None:
            keypoints = add_noise(rng, keypoints, self.augment.noise)
        shown = present & ~own[:, None]  # points without names are for locating alone
        batch = collate(self._pairs(rng, index, keypoints, shown), self.points, self.table.numbers) | extra
        if params is not None and params.mirror.any():
            for i in "01":  # a mirrored left is a right, which its learned vector must not be taught
                batch[f"name_ids{i}"][params.mirror[: self.batch_size]] = -1
        if self.augment is not None and self.augment.sizes:
            batch["image_side"] = torch.zeros(size, dtype=torch.uint8)  # its length; a number would be waited for
        if self.with_images:
            batch |= {"image0": read_images(self.split, index[0]), "image1": read_images(self.split, index[1])}
        return batch

    def _size(self, rng: np.random.Generator) -> int:
        """The side of a step's images."""
        sizes = self.augment.sizes if self.augment is not None else ()
        return int(rng.choice(sizes)) if sizes else self.split.images.shape[1]

    def _augment(
        self,
        rng: np.random.Generator,
        index: np.ndarray,
        keypoints: np.ndarray,
        present: np.ndarray,
        own: np.ndarray,
        size: int,
    ) -> tuple[AugmentParams, np.ndarray, np.ndarray]:
        """Draw parameters and move the points (2, B, V, 2) by them; pairs of one photograph get points of their own."""
        assert self.augment is not None
        params = draw_params(rng, self.augment, self.batch_size, size)
        if own.any():
            columns = keypoints.shape[2]
            keypoints[:, own] = rng.uniform(0.02 * size, 0.98 * size, (int(own.sum()), columns, 2)).astype(np.float32)
            present[:, own] = False  # so that they hold no map back
        swap = self.table.swap[index[0]]  # (B, V)
        params, keypoints, present = fit_params(params, keypoints, present, swap, size, self.min_shared)
        if own.any():
            inside = np.all((keypoints >= 0) & (keypoints <= size), axis=-1)  # (2, B, V)
            present[:, own] = inside[:, own] & (np.arange(keypoints.shape[2]) < OWN_POINTS)
        return params, keypoints, present

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        """The objects of each pair: (2, B)."""
        if self.chances is None:
            source = rng.integers(len(self.sources), size=self.batch_size)
        else:
            source = rng.choice(len(self.sources), self.batch_size, p=self.chances)
        number = rng.random(self.batch_size)
        drawn = np.array([self.sources[s][int(u * len(self.sources[s]))] for s, u in zip(source, number, strict=True)])
        return rng.permuted(drawn, axis=1).T  # which of the two is image 0 is up to chance as well

    def _pairs(
        self, rng: np.random.Generator, index: np.ndarray, keypoints: np.ndarray, present: np.ndarray
    ) -> list[KeypointPair]:
        """From columns to pairs: only now does each point get its random place."""
        pairs = []
        strays = self.augment.strays if self.augment is not None else 0.0
        everything = rng.random(self.batch_size) < strays if strays else np.zeros(self.batch_size, bool)
        for b, (index0, index1) in enumerate(index.T.tolist()):
            label = self.split.objects[index0].label
            names = self.table.names[label]
            keep0, keep1 = np.flatnonzero(present[0, b]), np.flatnonzero(present[1, b])
            side0 = [names[v] for v in keep0], keypoints[0, b, keep0]
            side1 = [names[v] for v in keep1], keypoints[1, b, keep1]
            sampling: Sampling = "all" if everything[b] else self.sampling
            pairs.append(pair_points((index0, index1), label, *side0, *side1, rng, sampling))
        return pairs


def _chances(labels: list[str], shares: Mapping[str, float]) -> np.ndarray:
    """The chance of each class: its dataset's share, the same for all classes of that."""
    datasets = [label.partition("/")[0] for label in labels]
    chances = np.array([shares[dataset] / datasets.count(dataset) for dataset in datasets])
    return chances / chances.sum()
