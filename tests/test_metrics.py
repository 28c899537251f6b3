"""Scores on small cases worked out by hand."""

import numpy as np
import pytest

from normmatch.metrics import accuracy_by_class, mean_accuracy

LABELS = ["cat", "cat", "bus", "dog"]
CORRECT = np.array([1, 8, 3, 0])
TOTAL = np.array([2, 8, 4, 0])


def test_keypoints_of_a_class_count_together() -> None:
    assert accuracy_by_class(CORRECT, TOTAL, LABELS) == {"bus": 0.75, "cat": 0.9}


def test_pairs_of_a_class_count_alike() -> None:
    assert accuracy_by_class(CORRECT, TOTAL, LABELS, "pairs") == {"bus": 0.75, "cat": 0.75}


def test_the_mean_is_over_classes() -> None:
    assert mean_accuracy({"bus": 0.75, "cat": 0.9}) == pytest.approx(0.825)
