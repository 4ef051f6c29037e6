"""Is one system better than another, or were the texts kind to it? A paired bootstrap of the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.errors import OptionError
from shortlist.evaluation.bootstrap import percentile_interval, resample, two_sided_p
from shortlist.evaluation.evaluation import Evaluation
from shortlist.evaluation.metrics import per_text
from shortlist.tables import Table, Tabular


@dataclass(frozen=True)
class Difference:
    """By how many per cent points the first system is ahead, with its 95 % interval and two-sided p-value."""

    value: float
    low: float
    high: float
    p: float


@dataclass
class Comparison(Tabular):
    """`comparison["P@1"]` is one `Difference`; `print(comparison)` shows all."""

    differences: dict[str, Difference]
    texts: int
    resamples: int

    def __getitem__(self, name: str) -> Difference:
        try:
            return self.differences[name]
        except KeyError:
            raise KeyError(f"{name!r} was not compared; there are {', '.join(self.differences)}") from None

    def to_json(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "resamples": self.resamples,
            "differences": {
                name: {"value": one.value, "low": one.low, "high": one.high, "p": one.p}
                for name, one in self.differences.items()
            },
        }

    def _render(self, table: Table) -> str:
        rows = [
            [name, f"{one.value:+.2f}", f"[{one.low:+.2f}, {one.high:+.2f}]", f"{one.p:.3f}"]
            for name, one in self.differences.items()
        ]
        return table(["%", "difference", "95 % interval", "p"], rows)


def compare(first: Evaluation, second: Evaluation, *, resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare two systems evaluated on the same texts: first minus second, metric by metric.

    Both are measured on the same resamples, so what is hard for both cancels out. Macro-F1 and coverage
    are not made of shares of texts and are left out.

    >>> from shortlist.evaluation import evaluate
    >>> truth = [["hats"], ["shoes"]]
    >>> better, worse = evaluate([["hats"], ["shoes"]], truth), evaluate([["hats"], ["hats"]], truth)
    >>> compare(better, worse)["P@1"].value
    50.0
    """
    if first.hits is None or second.hits is None:
        raise OptionError("compare needs two results of evaluate()")
    if not np.array_equal(first.hits.n_true, second.hits.n_true):
        raise OptionError(
            f"the two were not evaluated on the same truth ({first.texts:,} and {second.texts:,} texts): "
            "evaluate both with the same truth, train, unseen and filter pairs"
        )
    ks = [k for k in first.k if k in second.k]
    one, other = per_text(first.hits, ks), per_text(second.hits, ks)
    names = [name for name in first.values if name in one and name in other]
    if not names:
        raise OptionError(f"the two systems have no metric in common: k was {first.k} and {second.k}")
    # The same seed draws the same texts for both: this is what pairs them.
    one_values = resample({name: one[name] for name in names}, resamples, seed)
    other_values = resample({name: other[name] for name in names}, resamples, seed)
    differences = {}
    for name in names:
        moved = 100 * (one_values[name] - other_values[name])
        value = 100 * (one[name].value - other[name].value)
        differences[name] = Difference(value, *percentile_interval(moved), two_sided_p(moved))
    return Comparison(differences, first.texts, resamples)
