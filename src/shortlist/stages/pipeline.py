"""A pipeline: the stages of a model in order. Texts, or rows of features, go in; label ids and scores come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import ModelError, OptionError
from shortlist.kernels.threads import run_shares, use_cores
from shortlist.lazy import sparse
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.candidates import Candidates, CandidateStage
from shortlist.stages.classifier import Classifier
from shortlist.stages.columns import Columns
from shortlist.stages.encoders import Encoder, NoEncoder
from shortlist.stages.network_reranker import NetworkReranker
from shortlist.stages.reranker import Reranker
from shortlist.text import Vocabulary
from shortlist.text.texts import Texts

TEXTS_PER_BLOCK = 512

Ranking = tuple[np.ndarray, np.ndarray]


@dataclass(eq=False)
class Pipeline:
    """vocabulary → encoder → candidates → classifier → re-ranker.

    vocabulary  what reads the inputs: the words of texts, the columns of features, or nothing, if they do not matter
    """

    vocabulary: Vocabulary | Columns | None
    encoder: Encoder
    candidates: CandidateStage
    classifier: Classifier
    reranker: Reranker | NetworkReranker | None = None

    def __post_init__(self) -> None:
        n_words = 0 if self.vocabulary is None else self.vocabulary.n_learnt
        if self.encoder.n_words != n_words:
            raise ModelError(f"the vocabulary has {n_words:,} words, the encoder {self.encoder.n_words:,}")
        if self.encoder.dense != (isinstance(self.vocabulary, Columns) and self.vocabulary.dense):
            raise ModelError("one of encoder and vocabulary takes dense features, the other does not")
        for name, n_features in (
            ("classifier", self.classifier.n_features),
            ("candidates", self.candidates.n_features),
        ):
            if n_features is not None and n_features != self.encoder.n_features:
                raise ModelError(
                    f"the encoder gives {self.encoder.n_features:,} features, the {name} takes {n_features:,}"
                )

    def rank(self, inputs: Any, k: int, search_effort: float = 1.0, allowed: AllowedLabels | None = None) -> Ranking:
        """The k best labels of each text and their scores, -1 where there are fewer; blocks of texts share cores.

        Where more labels are wanted than the re-ranker usually rescores, there are more candidates, too.
        With `allowed`, the k best of these labels: among candidates from an index of these labels, or from one of all
        labels, enlarged if few are allowed; all of them are scored for texts for which it finds fewer than k.
        """
        narrowed = None if allowed is None else allowed.narrowed(self.candidates)
        stage = narrowed or self.candidates
        n_searched = max(1, round(min(search_effort * stage.n_searched, 2**31)))
        if self.reranker is not None and k > self.reranker.n_candidates:
            stage = stage.scaled(k / self.reranker.n_candidates)
        if allowed is None:
            pipeline = self if stage is self.candidates else replace(self, candidates=stage)
            return self.in_blocks(lambda block: pipeline._rank_block(block, k, n_searched), inputs)
        n_candidates = stage.n_candidates(n_searched, self.classifier.n_labels)
        factor = 1.0 if narrowed else allowed.widening(n_candidates, k)
        wider = replace(self, candidates=stage.scaled(factor))
        n_searched = min(round(factor * n_searched), 2**31)
        return self.in_blocks(lambda block: wider._rank_allowed(block, k, n_searched, allowed), inputs)

    def first_rank(self, read: Any, k: int, n_searched: int) -> Ranking:
        """The k best labels before re-ranking, from this many clusters or cells, for what the encoder takes."""
        return self.in_blocks(lambda block: self._first_rank(block, k, n_searched), read)

    def in_blocks(self, rank: Callable[[Any], Ranking], inputs: Any) -> Ranking:
        """`rank` of blocks of the inputs, which share cores."""
        return in_blocks(rank, inputs)

    def _rank_block(self, inputs: Any, k: int, n_searched: int) -> Ranking:
        texts, words, read = self._read(inputs)
        if self.reranker is None:
            return self._first_rank(read, k, n_searched)
        features = self.encoder.encode(read)
        found = self.candidates.find(features, n_searched)
        ids, probabilities = self.classifier.best(features, found, max(k, self.reranker.n_candidates))
        evidence: Any = self.reranker.gather(texts, words, ids)
        return self.reranker.best(evidence, self.with_more(features, probabilities, evidence.ids, found), k)

    def _rank_allowed(self, inputs: Any, k: int, n_searched: int, allowed: AllowedLabels) -> Ranking:
        """`_rank_block` among some labels only."""
        texts, words, read = self._read(inputs)
        features = self.encoder.encode(read)
        found = self.candidates.find(features, n_searched)
        n_wanted = k if self.reranker is None else max(k, self.reranker.n_candidates)
        if found.ids is not None:
            found = found._replace(ids=allowed.only(found.ids))
            ids, scores = self.classifier.best(features, found, n_wanted)
        else:  # the best of clusters, or of all labels, have others among them
            n_best = round(2 * n_wanted * len(allowed.is_allowed) / len(allowed.ids))
            ids, scores = self.classifier.best(features, found, min(n_best, self.classifier.n_labels))
            ids, scores = moved_up(allowed.only(ids), scores, n_wanted)
        if self.reranker is not None:
            evidence: Any = self.reranker.gather(texts, words, ids)
            evidence = evidence._replace(ids=allowed.only(evidence.ids))
            ids, scores = self.reranker.best(evidence, self.with_more(features, scores, evidence.ids, found), k)
        k = min(k, len(allowed.ids))
        ids, scores = ids[:, :k], scores[:, :k]
        if ids.shape[1] < k:
            missing = (0, 0), (0, k - ids.shape[1])
            ids, scores = np.pad(ids, missing, constant_values=-1), np.pad(scores, missing)
        short = np.flatnonzero((ids < 0).any(axis=1))
        if len(short):
            some = inputs[short] if hasattr(inputs, "shape") else Texts.from_strings([inputs[int(i)] for i in short])
            ids[short], scores[short] = allowed.rank(self.scores, some, k)
        return ids, scores

    def _first_rank(self, read: Any, k: int, n_searched: int) -> Ranking:
        features = self.encoder.encode(read)
        return self.classifier.best(features, self.candidates.find(features, n_searched), k)

    def with_more(
        self, features: Any, probabilities: np.ndarray, ids: np.ndarray, found: Candidates | None = None
    ) -> np.ndarray:
        """The probabilities of all candidates, given those of the first; the re-ranker has found the others.

        found  what the candidate stage found, if it was searched already
        """
        more = np.ascontiguousarray(ids[:, probabilities.shape[1] :])
        if not (more >= 0).any():
            return np.pad(probabilities, ((0, 0), (0, more.shape[1])))
        return np.concatenate([probabilities, self._probabilities(features, more, found)], axis=1)

    def _probabilities(self, features: Any, ids: np.ndarray, found: Candidates | None = None) -> np.ndarray:
        """The classifier's probabilities of these labels, whether or not they are candidates; any number for -1."""
        evidence = self.candidates.evidence(features, ids, self.candidates.n_searched, found)
        return self.classifier.scores(features, ids, evidence)

    def scores(self, inputs: Any, ids: np.ndarray) -> np.ndarray:
        """The scores of these labels (texts × K), whether or not they are candidates."""
        texts, words, read = self._read(inputs)
        probabilities = self._probabilities(self.encoder.encode(read), ids)
        if self.reranker is None:
            return probabilities
        evidence: Any = self.reranker.gather(texts, words, ids, 0)
        return self.reranker.scores(evidence, probabilities)

    def _read(self, inputs: Any) -> tuple[Any, Any, Any]:
        """The texts, their word ids, and what the encoder takes: word ids, word pieces, or rows of features."""
        is_matrix = hasattr(inputs, "shape")
        if self.vocabulary is None:
            return inputs, inputs, inputs
        if isinstance(self.vocabulary, Columns):
            if not is_matrix:
                columns = f"{len(self.vocabulary):,} columns, one row per text"
                raise OptionError(f"this model was trained on features; give it a matrix of {columns}")
            read = self.vocabulary.encode(inputs)
            return inputs, read, read
        if is_matrix:
            raise OptionError("this model was trained on texts; it got a matrix of features. Give it texts.")
        texts = Texts.from_strings(inputs)
        words = self.vocabulary.encode(texts)
        return texts, words, self.encoder.read(texts, self.vocabulary.learnt(words))

    def with_quick_search(self) -> Pipeline:
        """The same pipeline with candidates in 8 bits, as predictions search, which takes a third of the time."""
        return replace(self, candidates=self.candidates.quantized())

    def quantized(self) -> Pipeline:
        """The same pipeline with matrices in 8 bits."""
        return replace(
            self,
            encoder=self.encoder.quantized(),
            candidates=self.candidates.quantized(),
            classifier=self.classifier.quantized(),
            reranker=None if self.reranker is None else self.reranker.quantized(),
        )

    def multiply_adds(self, inputs: Any) -> float | None:
        """The mean number of multiply-adds of one prediction for these texts; None where it is unknown.

        A multiply-add counts once, as in InceptionXML's tables. Additions alone, comparisons, and finding the words of
        a text do not count.
        """
        texts, words, read = self._read(inputs)
        counts = read.counts if isinstance(read, Ragged) else np.zeros(n_inputs(inputs))
        features = None if isinstance(self.encoder, NoEncoder) else self.encoder.encode(read)
        n_searched = self.candidates.n_searched
        n_candidates = self.candidates.n_candidates(n_searched, self.classifier.n_labels)
        costs = [
            self.encoder.multiply_adds(counts),
            self.candidates.multiply_adds(n_searched),
            self.classifier.multiply_adds(n_candidates, features),
            0.0 if self.reranker is None else self.reranker.multiply_adds(texts, words),
        ]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None


def moved_up(ids: np.ndarray, scores: np.ndarray, k: int) -> Ranking:
    """The first k labels of each row without the -1 between them."""
    order = np.argsort(ids < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def n_inputs(inputs: Any) -> int:
    return inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)


def in_blocks(rank: Callable[[Any], Ranking], inputs: Any) -> Ranking:
    """`rank` of blocks of the inputs, each block the work of one core from words to labels.

    One core for a single block, too: matrix products on two cores round differently.
    """
    starts = range(0, max(n_inputs(inputs), 1), TEXTS_PER_BLOCK)
    if len(starts) == 1:
        with use_cores(1):
            return rank(inputs)
    if sparse.issparse(inputs):
        inputs = sparse.csr_array(inputs)  # some formats have no rows to slice

    blocks: list[Ranking | None] = [None] * len(starts)

    def rank_block(i: int) -> None:
        with use_cores(1):
            blocks[i] = rank(inputs[starts[i] : starts[i] + TEXTS_PER_BLOCK])

    run_shares(rank_block, len(starts))
    ids, scores = (np.concatenate(parts) for parts in zip(*filter(None, blocks), strict=True))
    return ids, scores
