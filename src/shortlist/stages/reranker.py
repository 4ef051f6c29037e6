"""The re-ranker: a sparse linear classifier per label over words, prefixes and word pairs rescores the best candidates.

Dense label rows of a few hundred features cannot hold what a weight per word and label can: that this very word means
this very label. The re-ranker only has to tell a label from those that it is confused with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shortlist.arrays import INT8_MAX, Arrays, ArraySpec, Ragged, check_arrays, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.classifier import mixture_odds
from shortlist.kernels.reranker import score_candidates
from shortlist.odds import CLIP, expit
from shortlist.stages.classifier import best_of
from shortlist.stages.stage import Stage, finite_number, whole_number
from shortlist.text import LexicalFeatures, TfIdf, Vocabulary
from shortlist.text.features import Words

PAGE = 1 << 16


@dataclass(frozen=True)
class Mixture:
    """A label's log-odds: first · (log-odds of the classifier) + words · (score of its words) + bias.

    The defaults are what cooking-se's held-out texts gave; they count only where too few texts could be held out.
    """

    first: float = 0.6
    words: float = 2.5
    bias: float = 0.4

    def log_odds(self, probabilities: np.ndarray, word_scores: np.ndarray) -> np.ndarray:
        """Log-odds of the candidates; −∞ where there is none."""
        odds = np.empty(word_scores.shape, np.float32)
        weights = self.first, self.words, self.bias
        mixture_odds(probabilities.ravel(), word_scores.ravel(), *weights, CLIP, odds.ravel())
        return odds


class Reranker(Stage):
    """Rescores the `n_candidates` labels that the classifier ranks best.

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
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any], words: Words, subwords: Vocabulary) -> None:
        super().__init__(arrays, config)
        self.n_candidates = whole_number(config, "n_candidates")
        mixture = config.get("mixture", {})
        self.mixture = Mixture(**{name: finite_number(mixture, name) for name in ("first", "words", "bias")})
        self.subwords = subwords
        self.features = LexicalFeatures(words, subwords, TfIdf(arrays["idf"]), TfIdf(arrays["subword_idf"]))
        self.n_labels, self._n_pages = len(arrays["biases"]), n_pages(self.features.n_features)

    @classmethod
    def from_arrays(  # type: ignore[override]
        cls, arrays: Arrays, config: dict[str, Any], words: Words, subwords: Vocabulary, n_labels: int
    ) -> Reranker:
        """The re-ranker again, from arrays that may come from a file; both vocabularies are those it was saved with."""
        sizes = check_arrays(arrays, cls.spec, n_labels=n_labels, n_words=len(words), n_subwords=len(subwords))
        expected = n_labels * n_pages(len(words) + len(subwords)) + 1
        if sizes["n_starts"] != expected:
            raise ModelError(f"array 'starts' has {sizes['n_starts']:,} values; expected {expected:,}")
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

    def rerank(
        self, texts: Sequence[str], word_ids: Ragged, ids: np.ndarray, probabilities: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best of the candidates (texts × K ids, -1 for none) and their probabilities."""
        return best_of(ids, self._log_odds(texts, word_ids, ids, probabilities), k)

    def scores(self, texts: Sequence[str], word_ids: Ragged, ids: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities of the candidates, in their order."""
        return expit(self._log_odds(texts, word_ids, ids, probabilities))

    def _log_odds(
        self, texts: Sequence[str], word_ids: Ragged, ids: np.ndarray, probabilities: np.ndarray
    ) -> np.ndarray:
        return self.mixture.log_odds(probabilities, self.word_scores(self.features.rows(texts, word_ids), ids))

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
