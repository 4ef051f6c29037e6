"""Minimum scores: what each costs and gains on texts with known labels, and which one meets a goal.

A text has an answer if at least one of its k best labels has the minimum score. Precision is the share of all labels in
answers that are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shortlist.errors import DataError, OptionError
from shortlist.evaluation.goals import Goal
from shortlist.tables import Table, Tabular

# Thresholds that can be chosen. Scores are float32, and so is the comparison with a minimum score.
GRID = (np.arange(1001) / 1000).astype(np.float32)
MIN_PREDICTIONS = 50  # at or above a threshold; and of a label, for a threshold of its own
MIN_PREDICTIONS_OF_LABEL = 10  # at or above the label's own threshold
SHRINKAGE = 100  # the common threshold counts as much as this many predictions of a label
N_PARTS = 5  # a threshold is measured on one of them and chosen on the others
STEPS = (0.1, 0.05, 0.02, 0.01)  # of the thresholds in a table
MAX_SHOWN = 0.95
MAX_POINTS = 40  # of a curve
Z = 1.959964  # 95 %
MARK = " <-"


class Interval(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(n_hits: int, n: int) -> Interval:
    """A share with Wilson's interval.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.9, 0.596, 0.982]
    """
    if not n:
        return Interval(0.0, 0.0, 1.0)
    share, spread = n_hits / n, Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
    return Interval(share, max(middle - half, 0.0), min(middle + half, 1.0))


def mean_interval(values: np.ndarray) -> Interval:
    mean = float(values.mean())
    half = Z * float(values.std()) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True, eq=False)
class Judged:
    """The k best labels of each text (ids and scores, texts × k, -1 for none), and which of them are right."""

    ids: np.ndarray
    scores: np.ndarray
    right: np.ndarray
    n_true: np.ndarray  # labels of each text, found or not

    @property
    def present(self) -> np.ndarray:
        return self.ids >= 0

    def take(self, rows: np.ndarray) -> Judged:
        return Judged(self.ids[rows], self.scores[rows], self.right[rows], self.n_true[rows])


@dataclass(frozen=True)
class ThresholdRow:
    """What a threshold does. `min_score` is None if labels have thresholds of their own.

    answered         share of the texts with an answer
    right            precision: share of the labels in answers that are right
    labels_per_text  mean number of labels per text, texts without an answer included
    found            share of the texts with labels whose answer has a right one
    cost             mean cost per text, if the goal has costs
    """

    min_score: float | None
    answered: Interval
    right: Interval
    labels_per_text: Interval
    found: Interval
    cost: float | None = None


@dataclass
class ThresholdTable(Tabular):
    """Thresholds and what they do; `print(table)` shows it.

    rows              round thresholds, and the chosen one
    chosen            the row of the chosen threshold, for all labels; if the goal was not reached, of the best one
    reached           whether the goal was reached
    with_own          what thresholds of labels do, if there are any
    label_min_scores  the thresholds of labels that have one of their own
    fresh             answered and right, on texts that the threshold was not chosen on: each fifth by the other four
    k                 number of labels per text that were ranked
    """

    goal: Goal
    rows: list[ThresholdRow]
    chosen: ThresholdRow
    reached: bool
    n_texts: int
    k: int
    fresh: tuple[Interval, Interval] | None = None
    with_own: ThresholdRow | None = None
    label_min_scores: dict[str, float] = field(default_factory=dict)

    @property
    def min_score(self) -> float:
        """The chosen threshold."""
        assert self.chosen.min_score is not None
        return self.chosen.min_score

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries, lists and numbers."""
        return asdict(self) | {"goal": str(self.goal)}

    def _render(self, table: Table) -> str:
        goal, shown = self.goal, [*self.rows, *([] if self.with_own is None else [self.with_own])]
        header = ["min_score", "% texts with an answer", "% right", "labels per text"]
        if goal.guarantee is not None:
            header.append("% with a right label")
        if goal.cost_wrong is not None:
            header.append("cost per text")
        lines = [table(header, [self._cells(row) for row in shown]), "", *self.summary()]
        return "\n".join(lines)

    def _cells(self, row: ThresholdRow) -> list[str]:
        name = "by label" if row.min_score is None else f"{row.min_score:.3f}"
        if row == self.chosen and self.with_own is None:
            name += MARK
        if row == self.with_own:
            name += MARK
        right = _percent(row.right) if row.labels_per_text.value else "–"
        cells = [name, _percent(row.answered), right, _in_brackets(row.labels_per_text, 2)]
        if self.goal.guarantee is not None:
            cells.append(_percent(row.found))
        return cells if row.cost is None else [*cells, f"{row.cost:.3f}"]

    def summary(self) -> list[str]:
        """What was chosen, in words."""
        lines = [f"{self.outcome()}."]
        if self.label_min_scores:
            lines.append(f"Labels with a threshold of their own: {len(self.label_min_scores):,}.")
        if self.goal.guarantee is not None and self.reached:
            lines.append(
                "This holds for fresh texts from the same source that have a label, if they are predicted with a k of "
                f"at least {self.k}."
            )
        elif self.fresh is not None:
            answered, right = self.fresh
            lines.append(
                f"On texts that it was not chosen on (each fifth by the other four): {_percent(right)} % right, "
                f"{_percent(answered)} % of the texts with an answer."
            )
        lines.append(f"Measured on {self.n_texts:,} texts and their {self.k} best labels. In brackets: 95 % intervals.")
        return lines

    def outcome(self) -> str:
        """What was chosen, in one sentence."""
        goal, row = self.goal, self.chosen
        at = f"min_score {self.min_score:.3f}"
        if goal.precision is not None:
            if self.reached:
                return f"{at}: the lowest with at least {100 * goal.precision:g} % of the labels right"
            return f"{goal} cannot be reached: the best is {row.right.value:.3f}, at {at}"
        if goal.coverage is not None:
            if self.reached:
                return f"{at}: the highest that leaves at least {100 * goal.coverage:g} % of the texts an answer"
            return f"{goal} cannot be reached: even without a threshold it is {row.answered.value:.3f}"
        if goal.guarantee is not None:
            if self.reached:
                return f"{at}: a right label is in the answer for at least {100 * goal.guarantee:g} % of fresh texts"
            return (
                f"{goal} cannot be reached: even without a threshold, {100 * row.found.value:.1f} % of the texts with "
                f"labels have a right one among their {self.k} best. A larger k may help"
            )
        return f"{at}: the lowest cost per text"


def _percent(interval: Interval) -> str:
    return _in_brackets(Interval(*(100 * value for value in interval)), 1)


def _in_brackets(interval: Interval, digits: int) -> str:
    value, low, high = (f"{end:.{digits}f}" for end in interval)
    return f"{value} [{low}, {high}]"


class Choice(NamedTuple):
    """A position in `GRID`, and whether the goal is reached there; otherwise it is the best that can be reached."""

    place: int
    reached: bool


def choose_threshold(judged: Judged, goal: Goal, label_names: Sequence[str], per_label: bool = False) -> ThresholdTable:
    """The threshold that meets the goal on these texts, in a table with others."""
    if per_label and not goal.by_label:
        raise OptionError("thresholds of labels are chosen for a precision or for costs; leave per_label out")
    choice = _choose(judged, goal)
    own = _choose_of_labels(judged, goal, choice) if per_label and choice.reached else {}
    row = threshold_row(judged, float(f"{GRID[choice.place]:.3f}"), goal)
    rows = [threshold_row(judged, min_score, goal) for min_score in shown_thresholds(judged)]
    rows = sorted([*(one for one in rows if one.min_score != row.min_score), row], key=lambda one: one.min_score or 0)
    return ThresholdTable(
        goal,
        rows,
        row,
        choice.reached,
        n_texts=len(judged.ids),
        k=judged.ids.shape[1],
        fresh=_fresh(judged, goal, per_label) if choice.reached else None,
        with_own=passing_row(judged, _passing(judged, choice, own), goal=goal) if own else None,
        label_min_scores={label_names[label]: float(f"{GRID[place]:.3f}") for label, place in own.items()},
    )


def shown_thresholds(judged: Judged) -> list[float]:
    """About ten round thresholds, from 0 up to the highest scores."""
    highest = float(judged.scores[judged.present].max(initial=0))
    step = next((step for step in STEPS if highest >= 5 * step), STEPS[-1])
    shown = [round(n * step, 2) for n in range(round(1 / step)) if n * step <= highest]
    return [*shown, MAX_SHOWN] if step == STEPS[0] and highest >= MAX_SHOWN else shown


def risk_coverage(judged: Judged) -> list[tuple[float, float]]:
    """The risk-coverage curve: share of the texts with an answer, and share of the labels in answers that are wrong.

    One point for each threshold that changes something, with a few labels left, and not too many of them.
    """
    n_predicted, n_right, answered = (_at_or_above(scores) for scores in _scores_of(judged))
    places = np.flatnonzero(n_predicted >= min(MIN_PREDICTIONS_OF_LABEL, n_predicted[0]))
    _, first = np.unique(answered[places], return_index=True)
    places = places[first[np.linspace(0, len(first) - 1, min(MAX_POINTS, len(first))).astype(int)]]
    shares = answered[places] / len(judged.ids), 1 - n_right[places] / np.maximum(n_predicted[places], 1)
    return list(zip(*(values.tolist() for values in shares), strict=True))


def _scores_of(judged: Judged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scores of all predictions, of the right ones, and the best score of each text that has a prediction."""
    best = np.where(judged.present, judged.scores, -1).max(axis=1, initial=-1)
    return judged.scores[judged.present], judged.scores[judged.present & judged.right], best[best >= 0]


def threshold_row(judged: Judged, min_score: float, goal: Goal | None = None) -> ThresholdRow:
    return passing_row(judged, judged.scores >= np.float32(min_score), min_score, goal)


def passing_row(
    judged: Judged, passing: np.ndarray, min_score: float | None = None, goal: Goal | None = None
) -> ThresholdRow:
    """What happens if these of the predicted labels are the answers."""
    passing = passing & judged.present
    n_labels, right = passing.sum(axis=1), passing & judged.right
    n_right, labelled = int(right.sum()), judged.n_true > 0
    cost = None
    if goal is not None and goal.cost_wrong is not None and goal.cost_missing is not None:
        n_missing, n_wrong = int(judged.n_true.sum()) - n_right, int(n_labels.sum()) - n_right
        cost = (goal.cost_wrong * n_wrong + goal.cost_missing * n_missing) / len(passing)
    return ThresholdRow(
        min_score,
        wilson(int((n_labels > 0).sum()), len(passing)),
        wilson(n_right, int(n_labels.sum())),
        mean_interval(n_labels),
        wilson(int(right.any(axis=1).sum()), int(labelled.sum())),
        cost,
    )


def _at_or_above(scores: np.ndarray) -> np.ndarray:
    """How many of the scores are at or above each threshold of the grid."""
    places = np.searchsorted(GRID, scores, side="right") - 1
    return np.cumsum(np.bincount(places, minlength=len(GRID))[::-1])[::-1]


def _choose(judged: Judged, goal: Goal) -> Choice:
    if goal.guarantee is not None:
        return _conformal(judged, goal.guarantee)
    n_predictions = int(judged.present.sum())
    if n_predictions < MIN_PREDICTIONS:
        raise DataError(
            f"there are {n_predictions:,} predictions to choose a threshold on; at least {MIN_PREDICTIONS} are needed. "
            "Give more texts."
        )
    if goal.coverage is not None:
        answered = _at_or_above(_scores_of(judged)[2])
        enough = np.flatnonzero(answered >= goal.coverage * len(judged.ids) - 1e-9)
        return Choice(int(enough[-1]), True) if len(enough) else Choice(0, False)
    return _choose_by_label(judged.scores[judged.present], judged.right[judged.present], goal, MIN_PREDICTIONS)


def _choose_by_label(scores: np.ndarray, right: np.ndarray, goal: Goal, least: int) -> Choice:
    """By goals that labels can have on their own. For a precision, `least` predictions must be left."""
    n_predicted, n_right = _at_or_above(scores), _at_or_above(scores[right])
    if goal.cost_wrong is not None and goal.cost_missing is not None:
        return Choice(int(np.argmin(goal.cost_wrong * (n_predicted - n_right) - goal.cost_missing * n_right)), True)
    assert goal.precision is not None
    precision = np.where(n_predicted >= least, n_right / np.maximum(n_predicted, 1), -1)
    enough = np.flatnonzero(precision >= goal.precision - 1e-9)
    return Choice(int(enough[0]), True) if len(enough) else Choice(int(np.argmax(precision)), False)


def _choose_of_labels(judged: Judged, goal: Goal, choice: Choice) -> dict[int, int]:
    """The thresholds (places in the grid) of labels with enough predictions.

    A label that cannot reach the precision gets the threshold at which it is most precise. Few predictions say little,
    so each is drawn towards the common threshold.
    """
    ids, scores, right = (array[judged.present] for array in (judged.ids, judged.scores, judged.right))
    order = np.argsort(ids, kind="stable")
    labels, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
    own = {}
    for label, start, count in zip(labels.tolist(), starts.tolist(), counts.tolist(), strict=True):
        if count >= MIN_PREDICTIONS:
            rows = order[start : start + count]
            place = _choose_by_label(scores[rows], right[rows], goal, MIN_PREDICTIONS_OF_LABEL).place
            own[label] = round((count * place + SHRINKAGE * choice.place) / (count + SHRINKAGE))
    return own


def _passing(judged: Judged, choice: Choice, own: dict[int, int]) -> np.ndarray:
    """Which predictions reach the chosen threshold, or that of their label."""
    least = np.full(judged.ids.shape, GRID[choice.place])
    for label, place in own.items():
        least[judged.ids == label] = GRID[place]
    return judged.present & (judged.scores >= least)


def _conformal(judged: Judged, share: float) -> Choice:
    """Split-conformal prediction: the threshold is a quantile of the scores of right labels.

    Of n + 1 texts from one source, a fresh one is equally likely to be at any rank. So with the m-th lowest of n scores
    as the threshold, it is below it with a probability of at most m / (n + 1), which may be 1 − share.
    """
    labelled = judged.n_true > 0
    best = np.where(judged.right, judged.scores, -1).max(axis=1, initial=-1)[labelled]
    m = math.floor((1 - share) * (len(best) + 1) + 1e-9)
    if m < 1:
        raise DataError(
            f"there are {len(best):,} texts with labels; a guarantee of {share:g} takes at least "
            f"{math.ceil(share / (1 - share) - 1e-9):,}. Give more texts, or ask for less."
        )
    lowest = float(np.sort(best)[m - 1])
    # Rounded down: a lower threshold only adds labels.
    return Choice(int(np.searchsorted(GRID, lowest, side="right")) - 1, True) if lowest >= 0 else Choice(0, False)


def _fresh(judged: Judged, goal: Goal, per_label: bool) -> tuple[Interval, Interval] | None:
    """Answered and right if each part of the texts is measured with the threshold of the other parts."""
    part_of = np.arange(len(judged.ids)) % N_PARTS
    n_answered = n_labels = n_right = 0
    for part in range(N_PARTS):
        chosen_on, measured_on = judged.take(part_of != part), judged.take(part_of == part)
        try:
            choice = _choose(chosen_on, goal)
        except DataError:  # too few texts
            return None
        own = _choose_of_labels(chosen_on, goal, choice) if per_label else {}
        passing = _passing(measured_on, choice, own)
        n_answered += int(passing.any(axis=1).sum())
        n_labels += int(passing.sum())
        n_right += int((passing & measured_on.right).sum())
    return wilson(n_answered, len(judged.ids)), wilson(n_right, n_labels)
