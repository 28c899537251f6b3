"""A ViT's first layer as a matrix product: its patches do not overlap, and cuDNN is slow at that in bf16."""

import torch.nn.functional as F
from torch import Tensor, nn


class PatchProduct(nn.Conv2d):
    """A convolution with its kernel as stride, with another `forward`; its weights are the convolution's own."""

    def forward(self, image: Tensor) -> Tensor:
        """Patches of images (B, 3, H, W), whose sides are multiples of the patch, as (B, C, h, w)."""
        rows, columns = self.kernel_size
        patches = image.unflatten(3, (-1, columns)).unflatten(2, (-1, rows))  # (B, 3, h, rows, w, columns)
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)  # (B, h, w, 3 * rows * columns)
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def use_patch_product(net: nn.Module) -> None:
    """Let a network that begins with patches multiply; others stay as they are."""
    first = getattr(getattr(net, "patch_embed", None), "proj", None)
    if type(first) is nn.Conv2d and first.kernel_size == first.stride:
        first.__class__ = PatchProduct  # what it holds stays what it was, so weights load as before
