"""One training step's arithmetic: a batch in, losses and accuracy out. This is what is compiled and distributed."""

from typing import Any

import torch
from torch import Tensor, nn

from normmatch.config import LossConfig
from normmatch.losses import MatchingLoss
from normmatch.model.backbone import compiled_parts
from normmatch.model.matcher import NormMatch
from normmatch.model.sampling import Nodes, read_nodes
from normmatch.training.frozen import describe_by_size


class TrainStep(nn.Module):
    """The network with its losses.

    Args:
        classes: (T,) the class of each keypoint name, for the name loss.
    """

    def __init__(self, model: NormMatch, loss: LossConfig, classes: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.loss = MatchingLoss(loss, classes, model.config.dim)
        self.read = read_nodes

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        points = {key: value for key, value in batch.items() if not key.startswith(("image", "features"))}
        known = "features0" in batch  # a frozen backbone has seen the images before
        nodes0, nodes1 = (batch["features0"], batch["features1"]) if known else self._see(batch)
        if known and points["mask0"].device.type == "cpu":  # on another device, sorting by size would wait for it
            output = describe_by_size(self.model.head, nodes0, nodes1, points)
        else:
            output = self.model.head.describe(nodes0, nodes1, points)
        return {**self.loss(output, points), "accuracy": accuracy(output["similarity"], points)}

    def _see(self, batch: dict[str, Any]) -> tuple[Nodes, Nodes]:
        """Both images at their keypoints."""
        features0, features1 = self.model.encode_pair(batch["image0"], batch["image1"])
        return self.read(features0, batch["keypoints0"]), self.read(features1, batch["keypoints1"])

    def compile(self) -> None:  # type: ignore[override]
        """Compile part by part; a ViT's blocks share their code, and so do the transformer's layers."""
        self.read = torch.compile(self.read, dynamic=False)
        for part in [*compiled_parts(self.model.backbone), *self.model.head.compiled_parts(), self.loss]:
            part.compile(dynamic=False)


@torch.no_grad()
def accuracy(similarity: Tensor, points: dict[str, Tensor]) -> Tensor:
    """The share of the true matches that a plain arg-max finds: Sinkhorn is for evaluation."""
    known = points["matches0"] >= 0
    likely = similarity.masked_fill(~points["mask1"].unsqueeze(1), -2.0).argmax(2)
    right = known & (likely == points["matches0"])
    return right.sum() / points.get("count_matches", known.sum().clamp_min(1))
