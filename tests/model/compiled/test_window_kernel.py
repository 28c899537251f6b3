"""SwinV2's window attention as one kernel gives what it gives as many: through Triton's interpreter, and on a GPU."""

import pytest
import torch

from normmatch.model.backbone import make_backbone
from normmatch.model.compiled.compile import use_window_kernel
from normmatch.model.window_attention import attend
from tests.interpreter import run_interpreted
from tests.swin import wake

pytest.importorskip("triton")


def compare(
    shape: tuple[int, int, int, int], device: str, dtype: torch.dtype = torch.float32, channels: int = 32
) -> None:
    """Keys and queries of all lengths, one of none; a tenth of the logits are those of a mask."""
    from normmatch.model.compiled.window_kernel import fused_attend

    n, heads, windows, images = shape
    rng = torch.Generator().manual_seed(n)
    qkv = 3 * torch.randn(images * windows, n, 3 * heads * channels, generator=rng)
    qkv[0, 0] = 0.0
    scale = 1 + 50 * torch.rand(heads, 1, 1, generator=rng)
    logits = 16 * torch.rand(windows, heads, n, n, generator=rng)
    logits = logits - 100.0 * (torch.rand(logits.shape, generator=rng) < 0.1)
    if dtype == torch.float32:
        logits -= 40.0  # which a softmax does not notice, unless there are others
    given = qkv.to(dtype), scale, logits
    expected = attend(*(t.double() for t in given))
    found = fused_attend(*(t.to(device) for t in given)).cpu()
    assert found.dtype == dtype
    exact = dtype == torch.float32 and device == "cpu"  # on a GPU it is TF32
    close = 1e-4 if exact else 0.6 if dtype == torch.bfloat16 else 0.1  # twice what roundings amount to
    torch.testing.assert_close(found.double(), expected, atol=close, rtol=0)
    assert (found.double() - expected).abs().mean() < close / 20


@torch.no_grad()
def compare_network(device: str) -> None:
    """A SwinV2 whose first two stages have windows of 256 tokens, four of them and shifted, and one."""
    torch.manual_seed(0)
    plain = make_backbone("swinv2_tiny_window16_256", (0, 1), 128, "random", fused=False).eval()
    wake(plain)
    fused = make_backbone("swinv2_tiny_window16_256", (0, 1), 128, "random").eval().to(device)
    fused.load_state_dict(plain.state_dict())
    use_window_kernel(fused)
    image = torch.rand(2, 3, 128, 128)
    for found, expected in zip(fused(image.to(device)).maps, plain(image).maps, strict=True):
        if device == "cpu":
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        else:
            assert torch.cosine_similarity(found.cpu(), expected, dim=1).min() > 0.9999  # TF32


def run_all(device: str) -> None:
    compare((64, 2, 1, 2), device)
    compare((128, 1, 2, 1), device)  # blocks that fill a window
    compare((144, 2, 3, 2), device)  # and some that do not
    compare((144, 2, 3, 2), device, torch.float16)
    compare((30, 3, 4, 1), device, channels=16)
    compare_network(device)


def test_one_kernel_is_many_in_the_interpreter() -> None:
    run_interpreted(__file__)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_kernel_is_many_on_a_gpu() -> None:
    run_all("cuda")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((144, 2, 3, 2), (576, 4, 1, 3), (576, 2, 4, 2)):
            compare(shape, "cuda", dtype)
