"""Sinkhorn's rounds as one kernel give what they give as many: through Triton's interpreter, and on a GPU."""

import pytest
import torch

from normmatch.model.assignment import Iterations, log_sinkhorn, sinkhorn_iterations
from tests.interpreter import run_interpreted

pytest.importorskip("triton")

EPSILON = 0.035


def compare(
    how: Iterations, n: int, rounds: int, device: str = "cpu", mask: float = 0.7, epsilon: float = EPSILON
) -> None:
    """Pairs with more points on either side, with as many, with none on one side, and with none at all."""
    rng = torch.Generator().manual_seed(n)
    similarity = 2 * torch.rand(8, n, n, generator=rng) - 1
    mask0, mask1 = (torch.rand(8, n, generator=rng) < mask for _ in "01")
    mask0[:2], mask1[1:3] = False, False
    mask0[3], mask1[3] = True, True
    given = [tensor.to(device) for tensor in (similarity, mask0, mask1)]
    found = log_sinkhorn(*given, epsilon, rounds, how).cpu()
    expected = log_sinkhorn(similarity.double(), mask0, mask1, epsilon, rounds)
    assert torch.equal(found.isneginf(), expected.isneginf())
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)


def run_all(device: str) -> None:
    from normmatch.model.compiled.sinkhorn_kernel import fused_iterations

    for n, rounds in ((1, 27), (5, 1), (16, 2), (20, 27), (33, 27)):
        compare(fused_iterations, n, rounds, device)
    compare(fused_iterations, 3, 27, device, mask=1.0)
    compare(fused_iterations, 20, 27, device, epsilon=0.01)  # too far apart for factors


def test_one_kernel_is_many_in_the_interpreter() -> None:
    run_interpreted(__file__)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_kernel_is_many_on_a_gpu() -> None:
    from normmatch.model.compiled.sinkhorn_kernel import fused_iterations

    run_all("cuda")
    for n in (64, 100, 128, 150):
        compare(fused_iterations, n, 27, "cuda")


def test_more_than_fits_is_done_the_plain_way() -> None:
    from normmatch.model.compiled.sinkhorn_kernel import MOST_POINTS, fused_iterations

    for shape, dtype, span in (
        ((1, MOST_POINTS + 1, MOST_POINTS + 1), torch.float32, 50.0),
        ((1, 4, 5), torch.float32, 50.0),
        ((1, 4, 4), torch.float64, 50.0),
        ((1, 4, 4), torch.float32, 80.0),
    ):
        scores = torch.randn(shape, dtype=dtype)
        masks = torch.ones(1, shape[1], dtype=torch.bool), torch.ones(1, shape[2], dtype=torch.bool)
        found, expected = (how(scores, *masks, 3, span) for how in (fused_iterations, sinkhorn_iterations))
        assert torch.equal(found, expected)
