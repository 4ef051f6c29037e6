"""The second look at a first stage's best labels: each label's own words, weighed against the first score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, check_finite
from shortlist.data.texts import Texts
from shortlist.errors import ModelError
from shortlist.evaluation.calibration import is_relevant
from shortlist.heads.word_rows import WordRows
from shortlist.kernels.classifier import mixture_odds
from shortlist.lazy import sparse
from shortlist.model.best import best_of
from shortlist.model.calibration import fit_odds
from shortlist.model.folder import ModelReader, ModelWriter, finite_number, whole_number
from shortlist.odds import SUREST, expit, log_odds
from shortlist.text import TfIdf, Vocabulary
from shortlist.text.word_features import WordFeatures

ROWS, PIECES = "word_rows.safetensors", "pieces.txt"

# When the mixture is set, what was held out for it is learnt from, too, if it is this share of the texts.
WORTH_LEARNING = 0.01
SHOWN = 5  # labels of each held-out text


@dataclass(frozen=True)
class Mixture:
    """The odds of a label: `first` · (log-odds of the first stage) + `words` · (score of its words) + `bias`.

    As it stands, what cooking-se's held-out texts say: only where there are few texts is none held out.
    """

    first: float = 0.6
    words: float = 2.5
    bias: float = 0.4

    def odds(self, probabilities: np.ndarray, word_scores: np.ndarray) -> np.ndarray:
        """Log-odds; −∞ where there is no candidate."""
        odds = np.empty(word_scores.shape, np.float32)
        factors = self.first, self.words, self.bias
        mixture_odds(probabilities.ravel(), word_scores.ravel(), *factors, SUREST, odds.ravel())
        return odds

    @staticmethod
    def fit(probabilities: np.ndarray, word_scores: np.ndarray, right: np.ndarray) -> Mixture:
        """The mixture that makes what is seen likeliest: logistic regression, by Newton's steps.

        Pairs of a text and a candidate that the mixture has not been learnt on, and whether each is right.
        """
        there = np.isfinite(word_scores)
        start = Mixture()
        inputs = np.stack([log_odds(probabilities[there]), word_scores[there]], axis=1)
        first, words, bias = fit_odds(inputs, right[there], np.array([start.first, start.words, start.bias]))
        return Mixture(first, words, bias)


class Reranker:
    """Rescores the labels that a first stage ranks best."""

    def __init__(self, features: WordFeatures, rows: WordRows, mixture: Mixture, n_candidates: int) -> None:
        self.features, self.rows, self.mixture, self.n_candidates = features, rows, mixture, n_candidates
        # If held-out texts were learnt from in the end: their best labels and probabilities before that.
        self.held_out_best: tuple[np.ndarray, np.ndarray] | None = None

    @staticmethod
    def learn(
        vocabulary: Vocabulary,
        train: tuple[Texts, Ragged],
        candidates: np.ndarray,
        held_out: tuple[Texts, Ragged],
        held_out_ranks: tuple[np.ndarray, np.ndarray],
        n_labels: int,
        cost: float = 0.5,
        threads: int | None = None,
    ) -> Reranker:
        """Learn from the mistakes of a first stage.

        train           texts and labels that the first stage has learnt from
        candidates      the labels that it ranks best for them (texts × K)
        held_out        texts and labels that it has not learnt from: these set the mixture
        held_out_ranks  the labels that it ranks best for these, and their probabilities
        """
        texts, labels = train
        features = WordFeatures.fit(texts, vocabulary)
        rows = features.transform(texts)
        word_rows = WordRows.learn(rows, labels, n_labels, candidates, cost, threads)
        mixture, held_out_best = Mixture(), None
        if len(held_out[0]):
            ids, probabilities = held_out_ranks
            scores = word_rows.scores(features.rows(held_out[0]), ids, threads)
            mixture = Mixture.fit(probabilities, scores, is_relevant(ids, held_out[1], n_labels))
        if len(held_out[0]) and len(held_out[0]) >= WORTH_LEARNING * len(texts):
            held_out_best = best_of(ids, mixture.odds(probabilities, scores), SHOWN)
            rows = sparse.vstack([rows, features.transform(held_out[0])], format="csr")
            all_ids = np.concatenate([candidates, held_out_ranks[0]])
            labels = Ragged.concatenate([labels, held_out[1]])
            word_rows = WordRows.learn(rows, labels, n_labels, all_ids, cost, threads)
        reranker = Reranker(features, word_rows, mixture, candidates.shape[1])
        reranker.held_out_best = held_out_best
        return reranker

    def rerank(
        self,
        texts: Sequence[str],
        word_ids: Ragged,
        ids: np.ndarray,
        probabilities: np.ndarray,
        k: int,
        threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of the candidates `ids` (texts × K; -1 for none) the k best and their probabilities."""
        odds = self._odds(texts, word_ids, ids, probabilities, threads)
        return best_of(ids, odds, k)

    def scores(
        self,
        texts: Sequence[str],
        word_ids: Ragged,
        ids: np.ndarray,
        probabilities: np.ndarray,
        threads: int | None = None,
    ) -> np.ndarray:
        """The probabilities of the candidates, in their order."""
        return expit(self._odds(texts, word_ids, ids, probabilities, threads))

    def _odds(
        self,
        texts: Sequence[str],
        word_ids: Ragged,
        ids: np.ndarray,
        probabilities: np.ndarray,
        threads: int | None,
    ) -> np.ndarray:
        word_scores = self.rows.scores(self.features.rows(texts, word_ids), ids, threads)
        return self.mixture.odds(probabilities, word_scores)

    def write(self, writer: ModelWriter) -> dict[str, Any]:
        """Put its files in place; what the config should hold."""
        idf = {"idf": self.features.word_weights.idf, "pieces_idf": self.features.piece_weights.idf}
        rows = self.rows.in_8_bits() if writer.bits == 8 else self.rows
        writer.arrays(ROWS, rows.to_arrays() | idf)
        self.features.pieces.save(writer.path(PIECES))
        return {
            "pieces": self.features.pieces.to_config(),
            "mixture": vars(self.mixture),
            "candidates": self.n_candidates,
        }

    @staticmethod
    def read(reader: ModelReader, config: dict[str, Any], vocabulary: Vocabulary, n_labels: int) -> Reranker:
        arrays = reader.arrays(ROWS, "starts", "words", "weights", "biases", "idf", "pieces_idf")
        pieces = Vocabulary.of_content(reader.content(PIECES), reader.path(PIECES), config["pieces"])
        idf, pieces_idf = arrays.pop("idf"), arrays.pop("pieces_idf")
        for known, values in ((vocabulary, idf), (pieces, pieces_idf)):
            if values.shape != (len(known),) or values.dtype != np.float32:
                raise ModelError(f"there are {len(known):,} words, but weights of {values.shape}")
            check_finite("idf", values)
        features = WordFeatures(vocabulary, pieces, TfIdf(idf), TfIdf(pieces_idf))
        rows = WordRows.from_arrays(arrays, n_labels, features.n_features)
        mixture = Mixture(**{name: finite_number(value, name) for name, value in config["mixture"].items()})
        return Reranker(features, rows, mixture, whole_number(config["candidates"], "candidates"))
