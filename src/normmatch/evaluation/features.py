"""Encoded images, kept: each goes through the backbone once, whatever pairs, keypoints and protocols it is in."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor

from normmatch.datasets.batches import read_images
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import DataError, WeightsError
from normmatch.model.network import NormMatch
from normmatch.model.sampling import Nodes

ENCODE_BATCH = 64
Precision = Literal["auto", "bf16-mixed", "16-mixed", "32-true"]
DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class FeatureCache:
    """The feature maps of some objects of some splits, as unit vectors in half precision on the model's device.

    Half precision, because 1,670 images at 378 px are 1.9 GB then; unit vectors, because that is how they are read,
    and so that none overflows. Equal images, such as those that two protocols have in common, are encoded once.

    Args:
        objects: which objects (n,) of which split.
        precision: of the backbone; auto is bf16-mixed on cuda and 32-true elsewhere.
    """

    def __init__(
        self,
        model: NormMatch,
        objects: Sequence[tuple[PreparedSplit, np.ndarray]],
        precision: Precision = "auto",
        progress: bool = True,
    ) -> None:
        self.device = next(model.parameters()).device
        usual = "bf16-mixed" if self.device.type == "cuda" else "32-true"
        self.precision = usual if precision == "auto" else precision
        self.rows: list[tuple[PreparedSplit, Tensor]] = []
        fresh: list[tuple[PreparedSplit, list[int]]] = []  # the objects that show an image for the first time
        known: dict[bytes, int] = {}
        for split, wanted in objects:
            rows = self._rows_of(split)
            fresh.append((split, []))
            for i in np.setdiff1d(wanted, np.flatnonzero(rows.numpy() >= 0)).tolist():
                digest = hashlib.sha1(np.asarray(split.images[i]).tobytes(), usedforsecurity=False).digest()
                if digest not in known:
                    known[digest] = len(known)
                    fresh[-1][1].append(i)
                rows[i] = known[digest]
        self._encode(model, fresh, len(known), progress)

    @torch.inference_mode()
    def _encode(
        self, model: NormMatch, fresh: list[tuple[PreparedSplit, list[int]]], count: int, progress: bool
    ) -> None:
        starts = [(split, index, start) for split, index in fresh for start in range(0, len(index), ENCODE_BATCH)]
        self.maps: list[Tensor] = []  # of each feature map: (n, h, w, C)
        done = 0
        for split, index, start in track(starts, "encoding", disable=not progress, transient=True):
            images = read_images(split, np.array(index[start : start + ENCODE_BATCH])).to(self.device)
            with torch.autocast(self.device.type, DTYPES.get(self.precision), enabled=self.precision in DTYPES):
                found = model.encode(images.float() / 255)
            if not found.pooled.isfinite().all():
                raise WeightsError(f"the backbone's features are not finite in {self.precision}; expected finite ones")
            if not self.maps:  # now the sizes are known; filled in place, as joining parts would take the space twice
                self.size = found.size
                shapes = [(count, *m.shape[2:], m.shape[1]) for m in found.maps]
                self.maps = [torch.empty(shape, dtype=torch.float16, device=self.device) for shape in shapes]
                self.pooled = torch.empty((count, found.pooled.shape[1]), device=self.device)
            here = slice(done, done + len(images))
            for kept, new in zip(self.maps, found.maps, strict=True):
                kept[here] = F.normalize(new.float(), dim=1).permute(0, 2, 3, 1)
            self.pooled[here] = found.pooled
            done += len(images)

    def _rows_of(self, split: PreparedSplit) -> Tensor:
        """(n,) where the image of each object of a split is; -1 where it is not."""
        for known, rows in self.rows:
            if known is split:
                return rows
        self.rows.append((split, torch.full((len(split.objects),), -1)))
        return self.rows[-1][1]

    def nodes(self, split: PreparedSplit, index: Tensor, keypoints: Tensor) -> Nodes:
        """Objects index (B,) of a split, read at keypoints (B, N, 2): as by `node_features`, to half precision."""
        place = self._rows_of(split)[index.cpu()]  # (B,)
        if (place < 0).any():
            raise DataError("the feature cache lacks an object of the pair list; expected one that was made for it.")
        place = place.to(self.device)
        height, width = self.size
        relative = keypoints / keypoints.new_tensor((width, height))  # (B, N, 2)
        return Nodes(torch.cat([_read(m, place, relative) for m in self.maps], -1), self.pooled[place])


def _read(kept: Tensor, place: Tensor, relative: Tensor) -> Tensor:
    """Bilinear reading (B, N, C) of maps (n, h, w, C) at rows `place` (B,) and relative positions (B, N, 2).

    The same as `sampling.sample`, which would copy whole maps to read a few points of each.
    """
    _, height, width, _ = kept.shape
    x = (relative[..., 0] * width - 0.5).clamp(0, width - 1)  # (B, N), in cells; the border is repeated
    y = (relative[..., 1] * height - 0.5).clamp(0, height - 1)
    left, top = x.long(), y.long()
    right, bottom = (left + 1).clamp_max(width - 1), (top + 1).clamp_max(height - 1)
    dx, dy, rows = (x - left).unsqueeze(-1), (y - top).unsqueeze(-1), place.unsqueeze(1)
    above = torch.lerp(kept[rows, top, left].float(), kept[rows, top, right].float(), dx)  # (B, N, C)
    below = torch.lerp(kept[rows, bottom, left].float(), kept[rows, bottom, right].float(), dx)
    return torch.lerp(above, below, dy)
