"""`Model`: what training leaves. It predicts labels by name, explains them, and saves itself as plain files.

From a text to the answer: `predict` calls `rank`, which calls `raw_rank`, and this walks the stages
(`Pipeline._rank_block` in stages/pipeline.py): words → features → candidates → scores → re-ranked scores. `rank` makes
probabilities of these, leaves out labels below the threshold, and applies the tail. `predict` adds the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import OptionError
from shortlist.kernels.threads import use_cores
from shortlist.model.checks import (
    check_same_fields,
    checked_inputs,
    checked_k,
    checked_levels,
    checked_min_score,
    checked_search_effort,
    checked_tail,
    without_nan,
)
from shortlist.model.ensemble import best_of_means
from shortlist.model.label_lookup import LabelChoice
from shortlist.model.levels import N_ROLLED_UP, Levels
from shortlist.model.own_labels import ModelLabels
from shortlist.model.prediction import Prediction, WordEffect
from shortlist.model.uninformed import DEFAULTS, RankOptions, limit_scores
from shortlist.odds import log_odds
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.calibration import N_RANKED, Calibration
from shortlist.stages.pipeline import Pipeline, in_blocks, n_inputs
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds
from shortlist.text.texts import Texts

if TYPE_CHECKING:
    from shortlist.data.dataset import Dataset
    from shortlist.evaluation.thresholds import ThresholdTable
    from shortlist.labels.hierarchy import Hierarchy
    from shortlist.text.fields import TextFields

MAX_EXPLAINED_WORDS = 64
WARM_UP_TEXTS = 8
# Each member of an ensemble ranks at least this many labels: one that it ranks low still counts for something.
MIN_RANKED_BY_MEMBER = 50
# With a tail, this many candidates of each text are put into another order.
TAIL_CANDIDATES = 100

Tail = float | Literal["auto"]
Fields = Mapping[str, str | None]


class Model(ModelLabels):
    """A trained model.

    recipe        the name of the recipe that it was trained with
    options       the options that it was trained with
    pipelines     its stages; several pipelines are an ensemble, which averages their scores
    facts         what training found out, for the card
    records       the training curves: one record per epoch
    thresholds    the scores that labels need where a prediction sets no `min_score`; None: any score will do
    tail_ranking  how rare each label is, for predictions with a `tail`; None: unknown
    lists         named lists of labels for `allow` and `deny`; `store_list` sets them
    hierarchy     which labels are above which; `set_hierarchy` sets it
    text_fields   the text fields that it was trained on, if there are several
    kept_texts    training texts as JSON lines, if it was asked to store some
    """

    def __init__(
        self,
        recipe: str,
        options: dict[str, Any],
        pipelines: list[Pipeline],
        label_names: Sequence[str],
        display_names: Mapping[str, str] | Sequence[str] = (),
        calibration: Calibration | None = None,
        facts: dict[str, Any] | None = None,
        records: list[dict[str, Any]] | None = None,
        thresholds: Thresholds | None = None,
        tail_ranking: TailRanking | None = None,
        lists: Mapping[str, Sequence[str]] | None = None,
        hierarchy: Hierarchy | None = None,
        text_fields: TextFields | None = None,
    ) -> None:
        """`display_names`: by label, or one per label in order, empty where there is none."""
        self.recipe, self.options, self.pipelines, self.calibration = recipe, options, pipelines, calibration
        self._labels, self._display_names = label_names, display_names
        self.facts, self.records = facts or {}, records or []
        self.thresholds, self.tail_ranking, self.lists = thresholds, tail_ranking, lists or {}
        self.hierarchy, self.text_fields = hierarchy, text_fields
        self.kept_texts = b""

    def __repr__(self) -> str:
        return f"Model({self.title}, {self.n_labels:,} labels)"

    @overload
    def predict(  # type: ignore[overload-overlap]
        self,
        texts: str | Fields,
        k: int = 5,
        threads: int | None = None,
        min_score: float | None = None,
        explain: bool = False,
        search_effort: float = 1.0,
        tail: Tail = 0.0,
        allow: LabelChoice = None,
        deny: LabelChoice = None,
        levels: Levels | None = None,
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self,
        texts: Iterable[str | Fields | tuple[str | None, ...]],
        k: int = 5,
        threads: int | None = None,
        min_score: float | None = None,
        explain: bool = False,
        search_effort: float = 1.0,
        tail: Tail = 0.0,
        allow: LabelChoice = None,
        deny: LabelChoice = None,
        levels: Levels | None = None,
    ) -> list[list[Prediction]]: ...
    def predict(
        self,
        texts: str | Fields | Iterable[str | Fields | tuple[str | None, ...]],
        k: int = 5,
        threads: int | None = None,
        min_score: float | None = None,
        explain: bool = False,
        search_effort: float = 1.0,
        tail: Tail = 0.0,
        allow: LabelChoice = None,
        deny: LabelChoice = None,
        levels: Levels | None = None,
    ) -> list[Prediction] | list[list[Prediction]]:
        """The k best labels of one text, or of each of several; fewer if the model knows no more.

        A model that was trained on features takes a matrix, dense or sparse, with one row per text. One that was
        trained on several text fields takes {field: text} in place of a text, or in a list also tuples.

        threads        number of threads; by default, all cores
        min_score      leave out labels with a lower score. None: the model's threshold, if it has one (see
                       `choose_threshold`); 0: no threshold. An empty list means "not sure"
        explain        say how much each word moved each label's score; features have no words
        search_effort  2 searches twice as many candidates, a little more accurate and slower; 0.5 half as many
        tail           above 0, up to 1: rank rare labels higher, by score × (1 / propensity)^tail. The scores stay
                       probabilities, so they need not fall. "auto": the value that training chose
        allow, deny    labels that may, or must not, be predicted: labels, display names, prefixes such as "J45*", and
                       "@name" for a list that is stored with the model (`store_list`)
        levels         with a hierarchy (`set_hierarchy`). "leaves": only labels without children. "roll-up": parents,
                       too, each with the probability that it or a label below it is right. "back-off": the most
                       specific of these labels that reach the threshold

        >>> model.predict("jbl wireless headphones", k=3)  # doctest: +SKIP
        [Prediction(label='headphones', score=0.71, name='headphones'), …]
        """
        if isinstance(texts, str | Mapping):
            return self.predict([texts], k, threads, min_score, explain, search_effort, tail, allow, deny, levels)[0]
        read = checked_inputs(texts, self.text_fields)
        if explain and levels in ("roll-up", "back-off"):
            raise OptionError(f"explain is for labels of the model; levels={levels!r} also predicts labels above them")
        ids, scores = self.rank(read, k, threads, min_score, search_effort, tail, allow, deny, levels)
        predictions = [
            [self._prediction(label, score) for label, score in zip(row, row_scores, strict=True) if label >= 0]
            for row, row_scores in zip(ids.tolist(), scores.tolist(), strict=True)
        ]
        if not explain or self.tokenizer is None:  # features have no words
            return predictions
        return [
            self._explain(text, row[row >= 0], found, threads)
            for text, row, found in zip(read, ids, predictions, strict=True)
        ]

    def rank(
        self,
        inputs: Any,
        k: int = 5,
        threads: int | None = None,
        min_score: float | None = None,
        search_effort: float = 1.0,
        tail: Tail = 0.0,
        allow: LabelChoice = None,
        deny: LabelChoice = None,
        levels: Levels | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `predict`, but as arrays: label ids (texts × k, -1 where there are fewer) and their scores."""
        inputs, k = checked_inputs(inputs, self.text_fields), checked_k(k)
        search_effort = checked_search_effort(search_effort)
        thresholds = self.thresholds if min_score is None else Thresholds.of(checked_min_score(min_score))
        tail = checked_tail(tail, self.tail_ranking)
        parents = checked_levels(levels, tail, thresholds) in ("roll-up", "back-off")
        allowed = None
        if allow is not None or deny is not None:
            allowed = (self.levels.lookup if parents else self.labels).allowed(allow, deny)
        if levels == "leaves":
            allowed = self.levels.only_leaves(allowed)
        with use_cores(threads):
            n_ranked = max(k, N_ROLLED_UP if parents else TAIL_CANDIDATES if tail else N_RANKED)
            how = RankOptions(n_ranked, search_effort, None if parents else allowed)
            ids, raw = self.raw_rank(inputs, *how)
            scores = self.calibrated(inputs, raw, how=how)
        if parents:
            return self.levels.best(ids, scores, k, thresholds, allowed, most_specific=levels == "back-off")
        if thresholds is not None:
            ids = np.where(thresholds.passes(ids, scores), ids, -1)
        if tail and self.tail_ranking is not None:
            order = self.tail_ranking.order(ids, raw, tail)
        elif thresholds is not None and thresholds.per_label:
            order = np.argsort(ids < 0, axis=1, kind="stable")  # what is left moves up
        else:
            return ids[:, :k], scores[:, :k]
        order = order[:, :k]
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def raw_rank(
        self, inputs: Any, k: int, search_effort: float = 1.0, allowed: AllowedLabels | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best label ids of each text and their scores before calibration.

        With `allowed`, the best of these labels. Few are all scored, so that none that is better can be missed.
        """
        if allowed is not None and allowed.are_few([pipeline.candidates for pipeline in self.pipelines]):
            return in_blocks(lambda block: allowed.rank(self._raw_scores, block, k), inputs)
        if len(self.pipelines) == 1:
            return without_nan(*self.pipelines[0].rank(inputs, k, search_effort, allowed))
        n_ranked = max(k, MIN_RANKED_BY_MEMBER)
        rankings = [pipeline.rank(inputs, n_ranked, search_effort, allowed) for pipeline in self.pipelines]
        ids, scores = (np.concatenate(parts, axis=1) for parts in zip(*rankings, strict=True))
        # Means are taken before calibration, whose curve may be flat where the order still says something.
        return without_nan(*best_of_means(ids, scores, len(rankings), k))

    def scores(self, inputs: Any, ids: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The scores of these labels (ids, texts × K), whether or not they are among the best."""
        inputs = checked_inputs(inputs, self.text_fields)
        with use_cores(threads):
            best = self.raw_rank(inputs, N_RANKED)[1]
            return self.calibrated(inputs, self._raw_scores(inputs, ids), best)

    def _raw_scores(self, inputs: Any, ids: np.ndarray) -> np.ndarray:
        scores = [pipeline.scores(inputs, ids) for pipeline in self.pipelines]
        return np.nan_to_num(scores[0] if len(scores) == 1 else np.mean(scores, axis=0))

    def calibrated(
        self, inputs: Any, scores: np.ndarray, best: np.ndarray | None = None, how: RankOptions = DEFAULTS
    ) -> np.ndarray:
        """Probabilities for scores of `raw_rank`. `best` has those of each text's best labels, if they are others."""
        known, first = self.known_share(inputs), (scores if best is None else best)[:, 0]
        if self.calibration is not None:
            scores = self.calibration.apply(scores, known, best)
        return limit_scores(np.clip(scores, 0, 1), first, known, self, how)

    def known_share(self, inputs: Any) -> np.ndarray:
        """The share of each text's words that are in the vocabulary; 1 for features, 0 for a text without words."""
        if self.vocabulary is None:
            return np.ones(n_inputs(inputs))
        return self.vocabulary.known_share(inputs)

    def _explain(
        self, text: str, ids: np.ndarray, predictions: list[Prediction], threads: int | None
    ) -> list[Prediction]:
        """The predictions with the effect of each word: how much the log-odds fall without it."""
        assert self.tokenizer is not None
        spans = self.tokenizer.spans(text)[:MAX_EXPLAINED_WORDS]
        if not predictions or not spans:
            return predictions
        without = [text[:start] + " " + text[end:] for start, end in spans]
        texts, ids = Texts.from_strings([text, *without]), np.tile(ids, (1 + len(spans), 1))
        with use_cores(threads):
            # Before calibration: where that curve is flat, nothing would seem to move.
            odds = log_odds(self._raw_scores(texts, ids))
        moved = (odds[0] - odds[1:]).T.tolist()
        return [
            prediction._replace(words=tuple(WordEffect(*span, by) for span, by in zip(spans, row, strict=True)))
            for prediction, row in zip(predictions, moved, strict=True)
        ]

    def _prediction(self, label_id: int, score: float) -> Prediction:
        if label_id >= self.n_labels:  # of the hierarchy only
            label = self.all_labels[label_id]
            return Prediction(label, score, self.all_names.get(label, label))
        label, names = self._labels[label_id], self._display_names
        if isinstance(names, Mapping):
            return Prediction(label, score, names.get(label, label))
        return Prediction(label, score, (names[label_id] or label) if names else label)

    def predict_dataset(
        self,
        dataset: Dataset,
        k: int = 5,
        threads: int | None = None,
        search_effort: float = 1.0,
        tail: Tail = 0.0,
        min_score: float | None = 0.0,
        allow: LabelChoice = None,
        deny: LabelChoice = None,
        levels: Levels | None = None,
    ) -> Dataset:
        """Predictions as a data set: the same texts, the predicted labels best first, scores as weights.

        Metrics at k count a label that is left out as a miss, so the model's threshold applies only with
        `min_score=None`. With a tail there are no weights, because `evaluate` would rank by them.
        """
        from shortlist.data.dataset import Dataset

        check_same_fields(dataset.text_fields, self.text_fields)
        inputs = dataset.texts if dataset.features is None else dataset.features
        ids, scores = self.rank(inputs, k, threads, min_score, search_effort, tail, allow, deny, levels)
        found = ids >= 0
        indptr = counts_to_indptr(found.sum(axis=1))
        weights = None if checked_tail(tail, self.tail_ranking) else scores[found].astype(np.float32)
        labels = Ragged(indptr, ids[found].astype(np.int32), weights)
        names = (self.all_labels, self.all_names) if levels else (self.label_names, self.display_names)
        return Dataset(dataset.texts, labels, *names)

    def choose_threshold(
        self,
        data: Any,
        *,
        precision: float | None = None,
        coverage: float | None = None,
        cost_wrong: float | None = None,
        cost_missing: float | None = None,
        guarantee: float | None = None,
        per_label: bool = False,
        k: int = 5,
        threads: int | None = None,
    ) -> ThresholdTable:
        """Choose the score that labels need, on texts that the model has not learnt from, and store it in the model.

        From then on, predictions without `min_score` use it. `save` keeps it. Give one goal:

        precision     the lowest threshold with at least this share of the predicted labels right
        coverage      the highest threshold that leaves at least this share of the texts a label
        cost_wrong    the lowest cost per text, if this is the cost of a wrong label
        cost_missing  and this the cost of a right label that is left out
        guarantee     the highest threshold with which the answer to a fresh text from the same source has a right label
                      with at least this probability (split-conformal prediction)

        data       a `Dataset`, or anything that `shortlist.read` reads
        per_label  thresholds of their own for labels with at least 50 predictions; for a precision, or costs
        k          labels per text

        If the goal cannot be reached, a warning says so, `reached` of the table is False, and nothing is stored.

        >>> table = model.choose_threshold(data, precision=0.9)  # doctest: +SKIP
        >>> table.min_score  # doctest: +SKIP
        0.437
        """
        from shortlist.evaluation.goals import Goal
        from shortlist.model.choosing import choose_and_store

        goal = Goal(precision, coverage, cost_wrong, cost_missing, guarantee)
        return choose_and_store(self, data, goal, per_label, checked_k(k), threads)

    def multiply_adds(self, inputs: Any) -> float | None:
        """The mean number of multiply-adds of one prediction for these texts; None where it is unknown."""
        costs = [pipeline.multiply_adds(checked_inputs(inputs, self.text_fields)) for pipeline in self.pipelines]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def quantized(self) -> Model:
        """The same model with its matrices in 8 bits."""
        model = copy(self)
        model.pipelines = [pipeline.quantized() for pipeline in self.pipelines]
        return model

    def save(self, folder: str | Path, bits: int = 8) -> None:
        """Write the model to a folder, all or nothing. An older model there is replaced.

        Matrices are stored in 8 bits, or, with `bits=32`, as they were learnt: four times as large. The card says what
        8 bits cost on held-out texts.
        """
        from shortlist.model.folder import save_model

        save_model(self, folder, bits)

    def warm_up(self, threads: int | None = None, search_effort: float = 1.0) -> None:
        """Load and prepare everything that predictions need, so that the first one does not wait."""
        if self.columns is not None:
            from shortlist.data.feature_rows import FeatureRow, stack_rows

            inputs: Any = stack_rows([FeatureRow([0], [1.0], len(self.columns))] * WARM_UP_TEXTS)
        else:
            # With unknown words, some kernels would have nothing to do.
            words = [] if self.vocabulary is None else self.vocabulary.words[: 5 * WARM_UP_TEXTS]
            inputs = [" ".join(words[5 * i : 5 * i + 5]) for i in range(WARM_UP_TEXTS)]
        for some, explain in ((inputs[:1], True), (inputs, False), (inputs, True)):
            # Without a threshold, which could leave nothing to explain.
            self.predict(some, threads=threads, min_score=0, explain=explain, search_effort=search_effort)
        if self.hierarchy is not None:  # a large one takes a second
            self.predict(inputs, threads=threads, levels="roll-up")
