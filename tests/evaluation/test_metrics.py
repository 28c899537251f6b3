"""Scores on small cases worked out by hand."""

import numpy as np
import pytest

from normmatch.evaluation.metrics import accuracy_by_class, mean_accuracy, mean_and_deviation, precision_recall_f1

LABELS = ["cat", "cat", "bus", "dog"]
CORRECT = np.array([1, 8, 3, 0])
TOTAL = np.array([2, 8, 4, 0])


def test_keypoints_of_a_class_count_together() -> None:
    assert accuracy_by_class(CORRECT, TOTAL, LABELS) == {"bus": 0.75, "cat": 0.9}


def test_pairs_of_a_class_count_alike() -> None:
    assert accuracy_by_class(CORRECT, TOTAL, LABELS, "pairs") == {"bus": 0.75, "cat": 0.75}


def test_the_mean_is_over_classes() -> None:
    assert mean_accuracy({"bus": 0.75, "cat": 0.9}) == pytest.approx(0.825)


def test_precision_recall_and_f1_by_threshold() -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.1])
    matched, right, known = np.array([1, 1, 1, 0], bool), np.array([1, 0, 1, 0], bool), np.array([1, 0, 1, 1], bool)
    found = precision_recall_f1(scores, matched, right, known, np.array([0.0, 0.5, 0.6, 1.0]))
    np.testing.assert_allclose(found[0], [2 / 3, 2 / 3, 1, 1])
    np.testing.assert_allclose(found[1], [2 / 3, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(found[2], [2 / 3, 2 / 3, 1 / 2, 0])


def test_the_deviation_is_that_of_a_sample() -> None:
    assert mean_and_deviation([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_deviation([1.0]) == (1.0, 0.0)
