"""The re-ranker: a sparse linear classifier per label over words, prefixes and word pairs rescores the best candidates.

Dense label rows of a few hundred features cannot hold what a weight per word and label can: that this very word means
this very label. The re-ranker only has to tell a label from those that it is confused with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from shortlist.arrays import INT8_MAX, Arrays, ArraySpec, Ragged, check_arrays, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.evidence import evidence_odds, gather_evidence
from shortlist.kernels.reranker import score_candidates
from shortlist.odds import CLIP, expit
from shortlist.stages.classifier import best_of
from shortlist.stages.evidence import EVIDENCE_SPEC, Evidence, nothing_taught, taught_labels
from shortlist.stages.stage import Stage, finite_number, whole_number
from shortlist.text import LexicalFeatures, TfIdf, Vocabulary
from shortlist.text.features import Words

PAGE = 1 << 16
N_MORE = 20  # candidates by name, or by texts with the same words, beside those of the classifier


@dataclass(frozen=True)
class Mixture:
    """How the evidence for a label adds up to its log-odds; held-out texts set the weights.

    first            of the classifier's log-odds
    words            of the score of the label's words
    names            of the similarity of the label's name and the text
    same_name        of its fourth power, which is next to nothing unless name and text are almost the same
    frequency        of the logarithm of the label's frequency, as a share of the largest
    first_frequency  by how much `first` grows with that
    words_frequency  by how much `words` grows with that
    known            for labels of a training text with the same words
    other            for all other labels, where there is such a text

    Labels of a training text with the same words come first in any case (see `evidence_odds`). The defaults count only
    where too few texts could be held out.
    """

    first: float = 0.6
    words: float = 2.5
    names: float = 2.0
    same_name: float = 0.0
    frequency: float = 0.0
    first_frequency: float = 0.0
    words_frequency: float = 0.0
    known: float = 4.0
    other: float = -4.0
    bias: float = 0.4

    def log_odds(
        self, evidence: Evidence, probabilities: np.ndarray, word_scores: np.ndarray, frequencies: np.ndarray
    ) -> np.ndarray:
        """Log-odds of the candidates; −∞ where there is none."""
        odds = np.empty(word_scores.shape, np.float32)
        known = evidence.names, evidence.known, evidence.is_known
        weights, probabilities = tuple(vars(self).values()), np.asarray(probabilities, np.float32)
        evidence_odds(evidence.ids, probabilities, word_scores, *known, frequencies, weights, CLIP, odds)
        return odds


class Reranker(Stage):
    """Rescores the `n_candidates` labels that the classifier ranks best, and further ones that their names suggest.

    The features of a label are sorted and grouped into pages of 65,536 ids, so that an id within its page needs 16
    bits: those of label l on page p are at `starts[l * n_pages + p]` to `starts[l * n_pages + p + 1]`. Weights are
    float32, or int8 times the label's scale.
    """

    kind = "words"
    spec = {
        "starts": ArraySpec("int64", ("n_starts",), indptr="n_weights"),
        "words": ArraySpec("uint16", ("n_weights",)),
        "weights": ArraySpec("float32|int8", ("n_weights",), finite=False),
        "scales": ArraySpec("float32", ("n_labels",)),
        "biases": ArraySpec("float32", ("n_labels",)),
        "idf": ArraySpec("float32", ("n_words",)),
        "subword_idf": ArraySpec("float32", ("n_subwords",)),
        **EVIDENCE_SPEC,
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any], words: Words, subwords: Vocabulary) -> None:
        super().__init__(arrays, config)
        self.n_candidates = whole_number(config, "n_candidates")
        mixture = config.get("mixture", {})
        self.mixture = Mixture(**{field.name: finite_number(mixture, field.name) for field in fields(Mixture)})
        self.subwords = subwords
        self.features = LexicalFeatures(words, subwords, TfIdf(arrays["idf"]), TfIdf(arrays["subword_idf"]))
        self.n_labels, self._n_pages = len(arrays["biases"]), n_pages(self.features.n_features)

    @classmethod
    def from_arrays(  # type: ignore[override]
        cls, arrays: Arrays, config: dict[str, Any], words: Words, subwords: Vocabulary, n_labels: int
    ) -> Reranker:
        """The re-ranker again, from arrays that may come from a file; both vocabularies are those it was saved with."""
        sizes = check_arrays(
            arrays,
            cls.spec,
            n_labels=n_labels,
            n_words=len(words),
            n_subwords=len(subwords),
            n_features=len(words) + len(subwords),
        )
        expected = n_labels * n_pages(len(words) + len(subwords)) + 1
        if sizes["n_starts"] != expected:
            raise ModelError(f"array 'starts' has {sizes['n_starts']:,} values; expected {expected:,}")
        hashes = arrays["taught.hashes"]
        if (hashes[1:] <= hashes[:-1]).any():
            raise ModelError("array 'taught.hashes' must increase")
        return cls(arrays, config, words, subwords)

    def config(self) -> dict[str, Any]:
        return {"n_candidates": self.n_candidates, "mixture": asdict(self.mixture)}

    def quantized(self) -> Reranker:
        """The same with each weight rounded to one of 255 steps of its label."""
        weights, starts = self._arrays["weights"], self._arrays["starts"][:: self._n_pages]
        if weights.dtype == np.int8:
            return self
        largest = np.maximum.reduceat(np.append(np.abs(weights), 0), np.minimum(starts[:-1], len(weights)))
        scales = np.where(np.diff(starts) > 0, largest / INT8_MAX, 0).astype(np.float32)
        steps = np.rint(weights / np.repeat(np.where(scales > 0, scales, 1), np.diff(starts))).astype(np.int8)
        packed = {**self._arrays, "weights": steps, "scales": scales}
        return Reranker(packed, self.config(), self.features.words, self.subwords)

    def without_taught(self) -> Reranker:
        """The same without the texts that it was taught, of which it always knows the labels."""
        return self.with_arrays(nothing_taught())

    def with_arrays(self, arrays: Arrays) -> Reranker:
        """The same with some arrays replaced."""
        return Reranker({**self._arrays, **arrays}, self.config(), self.features.words, self.subwords)

    @property
    def learns_on(self) -> bool:
        return True

    def gather(self, texts: Any, word_ids: Ragged, ids: np.ndarray, n_more: int = N_MORE) -> Evidence:
        """What is known about the candidates (texts × K ids, -1 for none), and about up to `n_more` further ones."""
        taught = Ragged.empty(len(ids))
        if isinstance(self.features.words, Vocabulary):
            taught = taught_labels(self._arrays, texts, self.features.words.tokenizer)
        return self.gather_rows(self.features.rows(texts, word_ids), taught, ids, n_more)

    def gather_rows(self, rows: Ragged, taught: Ragged, ids: np.ndarray, n_more: int = N_MORE) -> Evidence:
        """The same from the lexical features of texts, and the labels of training texts with the same words."""
        arrays, n_given = self._arrays, ids.shape[1]
        has_more = len(arrays["names.labels"]) + len(arrays["taught.labels"]) > 0
        size = len(ids), n_given + n_more * has_more
        all_ids, names, known = np.empty(size, np.int32), np.empty(size, np.float32), np.empty(size, np.bool_)
        all_ids[:, :n_given] = ids
        index = arrays["names.indptr"], arrays["names.labels"], arrays["names.weights"]
        gather_evidence(
            rows.indptr, rows.values, rows.weights, *index, taught.indptr, taught.values, n_given, all_ids, names, known
        )
        return Evidence(all_ids, rows, names, known, taught.counts > 0)

    def best(self, evidence: Evidence, probabilities: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best candidates and their probabilities, given those by the classifier."""
        return best_of(evidence.ids, self.log_odds(evidence, probabilities), k)

    def scores(self, evidence: Evidence, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities of all candidates, in their order."""
        return expit(self.log_odds(evidence, probabilities))

    def log_odds(self, evidence: Evidence, probabilities: np.ndarray) -> np.ndarray:
        """The log-odds of all candidates, given their probabilities by the classifier; −∞ where there is none."""
        word_scores = self.word_scores(evidence.rows, evidence.ids)
        return self.mixture.log_odds(evidence, probabilities, word_scores, self._arrays["frequencies"])

    def word_scores(self, features: Ragged, ids: np.ndarray) -> np.ndarray:
        """The score of each candidate (texts × K) from its words; −∞ where there is none."""
        scores, arrays = np.empty(ids.shape, np.float32), self._arrays
        score_candidates(
            features.indptr,
            features.values,
            features.weights,
            arrays["starts"],
            self._n_pages,
            arrays["words"],
            arrays["weights"],
            arrays["scales"],
            arrays["biases"],
            np.ascontiguousarray(ids, np.int32),
            scores,
        )
        return scores

    def multiply_adds(self, texts: Sequence[str], word_ids: Ragged) -> float:
        """The mean cost of a text, at most: words that a label has no weight for cost nothing."""
        return self.n_candidates * float(self.features.rows(texts, word_ids).counts.mean())


def n_pages(n_features: int) -> int:
    return max(1, -(-n_features // PAGE))


def paged_weights(bounds: np.ndarray, words: np.ndarray, weights: np.ndarray, biases: np.ndarray, n: int) -> Arrays:
    """The arrays of a re-ranker: label l has `weights[bounds[l]:bounds[l + 1]]` for `words[…]`, of n features."""
    page_of = np.repeat(np.arange(len(biases)) * n_pages(n), np.diff(bounds)) + words // PAGE
    starts = counts_to_indptr(np.bincount(page_of, minlength=len(biases) * n_pages(n)))
    words, scales = (words % PAGE).astype(np.uint16), np.ones(len(biases), np.float32)
    return {"starts": starts, "words": words, "weights": weights, "scales": scales, "biases": biases}
