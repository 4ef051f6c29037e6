"""`cross_validate`: how good a recipe is on a data set, and how much that depends on which texts were held out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.data.read import read
from shortlist.data.split import folds as split_folds
from shortlist.errors import OptionError
from shortlist.evaluation import Evaluation, evaluate
from shortlist.evaluation.evaluation import metrics_table
from shortlist.evaluation.filters import places_needed
from shortlist.evaluation.metrics import DEFAULT_K, check_k
from shortlist.evaluation.overlap import COUNTED, Unseen
from shortlist.recipes.auto import AUTO
from shortlist.recipes.recipe import Recipe, get_recipe
from shortlist.tables import Table, Tabular, wrapped
from shortlist.training.train import train

log = logging.getLogger("shortlist")


@dataclass
class CrossValidation(Tabular):
    """The evaluation of each fold. `result["P@1"]` is the mean over the folds; `print(result)` shows all."""

    evaluations: list[Evaluation]
    texts: int

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    @property
    def values(self) -> dict[str, float]:
        """The mean of each metric over the folds, in per cent."""
        names = self.evaluations[0].values
        return {name: float(np.mean([one[name] for one in self.evaluations])) for name in names}

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviation of each metric over the folds, in percentage points."""
        return {name: float(np.std([one[name] for one in self.evaluations], ddof=1)) for name in self.values}

    @property
    def ceilings(self) -> dict[str, float]:
        """The largest mean that any rankings could reach."""
        names = self.evaluations[0].ceilings
        return {name: float(np.mean([one.ceilings[name] for one in self.evaluations])) for name in names}

    @property
    def notes(self) -> list[str]:
        n_folds = len(self.evaluations)
        overlaps = [one.overlap for one in self.evaluations if one.overlap is not None]
        labels = 100 * np.mean([one.unseen_labels / max(one.labels, 1) for one in overlaps])
        pairs = 100 * np.mean([one.unseen_pairs / max(one.pairs, 1) for one in overlaps])
        return [
            f"Mean ± standard deviation over {n_folds} folds. Each of {n_folds} models was trained on the texts of "
            f"{n_folds - 1} folds and measured on those of the other. The folds are random"
            + ("." if overlaps[0].leaks is None else "; texts with the same words are in one fold."),
            f"Unseen labels: on average, {labels:.1f} % of the test labels, in {pairs:.1f} % of the (text, label) "
            f"pairs, do not occur in training. {COUNTED[overlaps[0].unseen]}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries, lists and numbers."""
        return {
            "texts": self.texts,
            "values": self.values,
            "deviations": self.deviations,
            "at_most": self.ceilings,
            "folds": [one.to_json() for one in self.evaluations],
            "notes": self.notes,
        }

    def _render(self, table: Table) -> str:
        deviations = self.deviations
        cells = {name: f"{value:.2f} ± {deviations[name]:.2f}" for name, value in self.values.items()}
        metrics = metrics_table(table, self.evaluations[0].k, cells, self.ceilings)
        return "\n\n".join([metrics, f"texts: {self.texts:,}", *map(wrapped, self.notes)])


def cross_validate(
    data: Any,
    recipe: str | Recipe = AUTO,
    folds: int = 5,
    *,
    k: int | Iterable[int] = DEFAULT_K,
    unseen: Unseen = "count",
    a: float = 0.55,
    b: float = 1.5,
    seed: int = 0,
    **options: Any,
) -> CrossValidation:
    """Train and measure a recipe once per fold: each time on another part of the texts, trained on all others.

    data     a data set, or anything that `shortlist.read` reads
    recipe   as for `shortlist.train`; so are the options
    folds    number of folds. They are plain random; texts with the same words are in one fold
    k, unseen, a, b  as for `shortlist.evaluate`
    seed     random seed of the folds and of the recipe

    >>> data = [(f"a {color} {thing} {i}", [thing]) for i in range(9) for color in ("red", "blue") for thing in "xyz"]
    >>> cross_validate(data, "centroid", folds=3)["P@1"]
    100.0
    """
    ks = check_k(k)
    if options.get("checkpoint_dir"):
        raise OptionError("cross-validation trains several models and keeps no checkpoints: leave out checkpoint_dir")
    if recipe == AUTO or "seed" in (recipe if isinstance(recipe, Recipe) else get_recipe(recipe)).option_names:
        options["seed"] = seed
    dataset = read(data)
    evaluations: list[Evaluation] = []
    for train_part, test_part in split_folds(dataset, folds, seed):
        log.info("fold %d of %d: %s training texts", len(evaluations) + 1, folds, f"{len(train_part):,}")
        model = train(train_part, recipe, **options)
        predicted = model.predict_dataset(test_part, places_needed(max(ks), test_part.filter_pairs))
        evaluations.append(evaluate(predicted, test_part, train=train_part, k=ks, unseen=unseen, a=a, b=b))
    return CrossValidation(evaluations, sum(one.texts + one.left_out for one in evaluations))
