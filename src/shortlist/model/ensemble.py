"""Several models of one recipe, trained with different seeds, that predict together.

An ensemble is no recipe of its own: it says how often one is trained. So its `recipe` is that of its members, and how
many there are stands among its options: `shortlist.train(data, model.recipe, **model.options)` trains it again,
whatever the recipe, and `shortlist recipes` lists nothing that cannot be trained by that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from shortlist.model.base import Model
from shortlist.model.calibration import Calibration
from shortlist.model.folder import ModelReader, ModelWriter

if TYPE_CHECKING:
    from shortlist.text import Tokenizer

# The option that makes a model an ensemble.
ENSEMBLE = "ensemble"

# Each member ranks at least so many labels: one that it puts in a low place still counts for something.
FEWEST_RANKED = 50
TEXTS_PER_BLOCK = 4096


class _Member(msgspec.Struct):
    """What the config of an ensemble holds about a member."""

    options: dict[str, Any]
    extra: dict[str, Any]


class _Extra(msgspec.Struct):
    members: list[_Member]


class EnsembleModel(Model):
    """Members over the same labels; the score of a label is the mean of theirs, 0 from one that does not rank it.

    Means are taken before calibration, whose curve may be flat where the order still says something; then the mean of
    the members' curves says what they mean.
    """

    def __init__(self, members: list[Model], **common: Any) -> None:
        super().__init__(**common)
        self.members = members
        self.recipe = members[0].recipe

    @staticmethod
    def of(members: list[Model]) -> EnsembleModel:
        """The ensemble of models that were trained on the same data."""
        first = members[0]
        options = {**first.options, ENSEMBLE: len(members)}
        ensemble = EnsembleModel(
            members, label_names=first.label_names, display_names=first.display_names, options=options
        )
        ensemble.calibration = Calibration.mean([member.calibration for member in members])
        ensemble.facts = {name: first.facts[name] for name in ("data", "examples") if name in first.facts}
        return ensemble

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title}, {self.n_labels:,} labels)"

    @property
    def title(self) -> str:
        return f"{self.recipe} × {len(self.members)}"

    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        ranked = [member._rank(inputs, max(k, FEWEST_RANKED), threads, search_effort) for member in self.members]
        ids, scores = (np.concatenate(parts, axis=1) for parts in zip(*ranked, strict=True))
        blocks = [
            best_of_means(ids[begin : begin + TEXTS_PER_BLOCK], scores[begin : begin + TEXTS_PER_BLOCK], len(ranked), k)
            for begin in range(0, max(len(ids), 1), TEXTS_PER_BLOCK)
        ]
        best, means = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return best, means

    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        return np.mean([member._scores(inputs, ids, threads) for member in self.members], axis=0)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.members[0].tokenizer

    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        members = [
            {"options": member.options, "extra": member.write_part(writer.part(f"{number}."))}
            for number, member in enumerate(self.members)
        ]
        return {"members": members}

    @classmethod
    def _read(cls, reader: ModelReader, common: dict[str, Any]) -> EnsembleModel:
        from shortlist.model.registry import list_recipes

        try:
            members = msgspec.convert(reader.config.extra, _Extra).members
        except msgspec.ValidationError as error:
            raise reader.damaged(f"what its config says about the members: {error}") from None
        if not members or len(members) != common["options"][ENSEMBLE]:
            raise reader.damaged(f"it has {len(members)} members, and {common['options'][ENSEMBLE]} by its options")
        member_class = list_recipes()[reader.config.recipe].model_class()
        parts = [reader.part(f"{number}.", member.options, member.extra) for number, member in enumerate(members)]
        return cls(
            [member_class.read_part(part, {**common, "options": part.config.options}) for part in parts], **common
        )


def best_of_means(ids: np.ndarray, scores: np.ndarray, n_members: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Of rankings side by side (-1 for none; each has a label once), the k labels with the best means.

    >>> best_of_means(np.asarray([[7, 4, 4, -1]]), np.asarray([[0.75, 0.5, 0.5, 0.0]]), n_members=2, k=2)
    (array([[4, 7]]), array([[0.5  , 0.375]], dtype=float32))
    """
    order = np.argsort(ids, axis=1, kind="stable")
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    sums = scores.astype(np.float64)
    for later in range(1, min(n_members, ids.shape[1])):
        sums[:, :-later] += np.where(ids[:, later:] == ids[:, :-later], scores[:, later:], 0)
    # The first of a label's places has the whole sum.
    first = ids >= 0
    first[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    means = np.where(first, sums / n_members, -np.inf).astype(np.float32)
    best = np.argsort(-means, axis=1, kind="stable")[:, :k]  # of equals the lower id first, as they stand
    means = np.take_along_axis(means, best, axis=1)
    there = means > -np.inf
    return np.where(there, np.take_along_axis(ids, best, axis=1), -1), np.where(there, means, np.float32(0))
