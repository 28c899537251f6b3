"""SwinV2's window attention as one kernel gives what it gives as many: through Triton's interpreter, and on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from timm.models.swin_transformer_v2 import WindowAttention

from normmatch.model.backbone import make_backbone
from normmatch.model.window_attention import attend, use_window_kernel

pytest.importorskip("triton")


def compare(n: int, heads: int, windows: int, images: int, dtype: torch.dtype = torch.float32, d: int = 32) -> None:
    """Keys and queries of all lengths, one of none; a tenth of the logits are those of a mask."""
    from normmatch.model.window_kernel import fused_attend

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = torch.Generator().manual_seed(n)
    qkv = 3 * torch.randn(images * windows, n, 3 * heads * d, generator=rng)
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
def compare_network() -> None:
    """A SwinV2 whose first two stages have windows of 256 tokens, four of them and shifted, and one."""
    torch.manual_seed(0)
    plain = make_backbone("swinv2_tiny_window16_256", (0, 1), 128, "random", fused=False).eval()
    for module in plain.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)  # timm starts those of the blocks at 0
        if isinstance(module, WindowAttention):
            torch.nn.init.normal_(module.cpb_mlp[2].weight)
            torch.nn.init.normal_(module.q_bias)
    fused = make_backbone("swinv2_tiny_window16_256", (0, 1), 128, "random").eval()
    fused.load_state_dict(plain.state_dict())
    use_window_kernel(fused)
    image = torch.rand(2, 3, 128, 128)
    for found, expected in zip(fused(image).maps, plain(image).maps, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def run_all() -> None:
    compare_network()
    compare(64, 2, 1, 2)
    compare(128, 1, 2, 1)  # blocks that fill a window
    compare(144, 2, 3, 2)  # and some that do not
    compare(30, 3, 4, 1, d=16)
    compare(144, 2, 3, 2, torch.float16)  # the interpreter has no bfloat16


def test_one_kernel_is_many_in_the_interpreter() -> None:
    """In a process of its own: Triton asks once, when it is imported, whether to interpret."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['run_all']()"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", code, str(Path(__file__))], env=environment, check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_kernel_is_many_on_a_gpu(dtype: torch.dtype) -> None:
    for shape in ((64, 2, 1, 2), (144, 2, 3, 2), (576, 4, 1, 3), (576, 2, 4, 2)):
        compare(*shape, dtype)
