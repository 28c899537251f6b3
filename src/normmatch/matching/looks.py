"""Looks: a first one at the whole object, a second one at each landmark's own crop. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normmatch.matching.references import Background, Cells, Filters, Looks, around, log_likelihood, solve
from normmatch.matching.shape import SLACK, Decision, Shape, add_template, decide, make_shape

FEW = 10  # references: with fewer a template and unlabelled photographs join in; with 20 they lost 2 points
ROUNDS = 2  # of self-training
GIVEN = 3.0  # how much a reference counts beside a photograph that was read by the model itself
SURE = 0.5  # share of the photographs, the surest for each landmark, that teach it


@dataclass(frozen=True, eq=False)
class FirstLook:
    """Reads one crop of an object for all landmarks together."""

    filters: Filters  # of the landmarks, then of the template's points
    shape: Shape
    landmarks: int

    def read(self, cells: Cells) -> tuple[np.ndarray, Decision]:
        """What the picture says of each landmark and template point, (K', P) log-probabilities; and the decision."""
        logs = log_likelihood(self.filters.answer(cells), self.filters.known)
        return logs, decide(logs, cells.grid, self.shape)


def fit_first(
    cells: Sequence[Cells], places: np.ndarray, unlabelled: Sequence[Cells] = (), scale: float = 1.0
) -> FirstLook:
    """From references' crops and their landmarks' places (R, K, 2), shares of the crop; NaN: not shown."""
    few = len(cells) < FEW
    landmarks = places.shape[1]
    places = add_template(places) if few else places  # (R, K', 2)
    looks = Looks.none(places.shape[1], cells[0].features.shape[1])
    for one, place in zip(cells, places, strict=True):
        looks.add(one, place, GIVEN)
    background = Background.of([*cells, *unlabelled])
    slack = SLACK if few else SLACK / 2
    model = FirstLook(solve(looks, background), make_shape(places, slack, scale), landmarks)
    for _ in range(ROUNDS if few and len(unlabelled) > 1 else 0):
        model = _teach(model, looks, places, unlabelled, background, scale)
    return model


def _teach(
    model: FirstLook, looks: Looks, places: np.ndarray, unlabelled: Sequence[Cells], background: Background, scale: float
) -> FirstLook:
    """One round of self-training: photographs nobody has labelled, read by the model, teach the next one."""
    found = [model.read(cells)[1] for cells in unlabelled]
    doubt = np.stack([decision.variance.sum(1) for decision in found])  # (U, K')
    sure = doubt <= np.quantile(doubt, SURE, axis=0)
    looks = looks.copy()
    for cells, decision, chosen in zip(unlabelled, found, sure, strict=True):
        looks.add(cells, decision.mean, chosen.astype(float))
    means = np.stack([decision.mean for decision in found])  # (U, K', 2)
    spread = np.stack([decision.variance for decision in found]).mean(0)
    shape = make_shape(np.concatenate([*[places] * int(GIVEN), means]), SLACK, scale, spread=0.3 * spread)
    return FirstLook(solve(looks, background), shape, model.landmarks)
