"""One training step's arithmetic: a batch in, losses and accuracy out. This is what is compiled and distributed."""

from typing import Any

import torch
from torch import Tensor, nn

from normmatch.config import LossConfig
from normmatch.model.backbone import compiled_parts
from normmatch.model.network import NormMatch
from normmatch.training.frozen import describe_by_size
from normmatch.training.losses import MatchingLoss


class TrainStep(nn.Module):
    """The network with its losses.

    Args:
        classes: (T,) the class of each keypoint name, for the name loss.
    """

    def __init__(self, model: NormMatch, loss: LossConfig, classes: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.loss = MatchingLoss(loss, classes, model.config.dim)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        points = {key: value for key, value in batch.items() if not key.startswith(("image", "features"))}
        if "features0" in batch and points["mask0"].device.type == "cpu":  # elsewhere sorting by size would wait
            output = describe_by_size(self.model.head, batch["features0"], batch["features1"], points)
        else:
            output = self.model.head.describe(*self.model.features(batch), points)
        return {**self.loss(output, points), "accuracy": accuracy(output["similarity"], points)}

    def compile(self) -> None:  # type: ignore[override]
        """Compile part by part; a ViT's blocks share their code, and so do the transformer's layers."""
        for part in [*compiled_parts(self.model.backbone), *self.model.head.compiled_parts(), self.loss]:
            part.compile(dynamic=False)


@torch.no_grad()
def accuracy(similarity: Tensor, points: dict[str, Tensor]) -> Tensor:
    """The share of the true matches that a plain arg-max finds: Sinkhorn is for evaluation."""
    known = points["gt_matches0"] >= 0
    likely = similarity.masked_fill(~points["mask1"].unsqueeze(1), -2.0).argmax(2)
    right = known & (likely == points["gt_matches0"])
    return right.sum() / points.get("count_matches", known.sum().clamp_min(1))
