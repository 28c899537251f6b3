"""One training step's arithmetic: a batch in, losses and accuracy out. This is what is compiled and distributed."""

from typing import Any

import torch
from torch import Tensor, nn

from normmatch.config import LossConfig
from normmatch.losses import MatchingLoss
from normmatch.model.backbone import Features, vit_blocks
from normmatch.model.matcher import NormMatch
from normmatch.model.sampling import Nodes
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

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        points = {key: value for key, value in batch.items() if not key.startswith(("image", "features"))}
        if "features0" not in batch:
            return self.losses(*self.model.encode_pair(batch["image0"], batch["image1"]), points)
        features = batch["features0"], batch["features1"]  # a frozen backbone has seen the images before
        if points["mask0"].device.type != "cpu":  # sorting by size would wait for the device
            return self.losses(*features, points)
        return self.judge(describe_by_size(self.model.head, *features, points), points)

    def losses(
        self, features0: Features | Nodes, features1: Features | Nodes, points: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        return self.judge(self.model.head.describe(features0, features1, points), points)

    def judge(self, output: dict[str, Tensor], points: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = self.loss(output, points)
        with torch.no_grad():  # by plain arg-max: Sinkhorn is for evaluation
            similarity = output["similarity"].masked_fill(~points["mask1"].unsqueeze(1), -2.0)
            known = points["matches0"] >= 0
            right = known & (similarity.argmax(2) == points["matches0"])
            accuracy = right.sum() / points.get("count_matches", known.sum().clamp_min(1))
        return {**losses, "accuracy": accuracy}

    def compile(self) -> None:  # type: ignore[override]
        """Compile the head with the losses as one graph, and a ViT's blocks as one that all of them share."""
        self.losses = torch.compile(self.losses, dynamic=False)  # type: ignore[method-assign]
        for part in vit_blocks(self.model.backbone) or [self.model.backbone]:
            part.compile(dynamic=False)
