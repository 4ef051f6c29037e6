"""The re-ranker: a sparse linear classifier per label over words, prefixes and word pairs rescores the best candidates.

Dense label rows of a few hundred features cannot hold what a weight per word and label can: that this very word means
this very label. The re-ranker only has to tell a label from those that it is confused with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from shortlist.arrays import INT8_MAX, Arrays, ArraySpec, Ragged, check_arrays
from shortlist.errors import ModelError
from shortlist.kernels.reranker import score_candidates
from shortlist.odds import expit
from shortlist.stages.classifier import best_of
from shortlist.stages.evidence import EVIDENCE_SPEC, Evidence, nothing_taught, similar, taught_labels
from shortlist.stages.mixture import ByName, Mixture
from shortlist.stages.pages import n_pages
from shortlist.stages.parts_of_names import PARTS_SPEC, PartsOfNames
from shortlist.stages.stage import Stage, finite_number, whole_number, without_prefix
from shortlist.text import LexicalFeatures, TfIdf, Vocabulary
from shortlist.text.features import Words
from shortlist.text.parts import N_PARTS

# Candidates by name, or by texts with the same words, in addition to the classifier's; and as many by parts of words.
N_MORE = 20


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
        **PARTS_SPEC,
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any], words: Words, subwords: Vocabulary) -> None:
        super().__init__(arrays, config)
        self.n_candidates = whole_number(config, "n_candidates")
        self.C = finite_number({"C": 0.5, **config}, "C", 0)  # what updates learn with; older models had 0.5
        mixture = {"parts": 0.0, "same_parts": 0.0, **config.get("mixture", {})}  # older models have no parts
        self.mixture = Mixture(**{field.name: finite_number(mixture, field.name) for field in fields(Mixture)})
        by_name = config.get("by_name", asdict(ByName()))
        self.by_name = ByName(**{field.name: finite_number(by_name, field.name) for field in fields(ByName)})
        self.subwords = subwords
        self.features = LexicalFeatures(words, subwords, TfIdf(arrays["idf"]), TfIdf(arrays["subword_idf"]))
        self.n_labels, self._n_pages = len(arrays["biases"]), n_pages(self.features.n_features)
        self.parts: PartsOfNames | None = None
        if "parts.idf" in arrays and isinstance(words, Vocabulary):
            self.parts = PartsOfNames(words.tokenizer, without_prefix("parts", arrays), arrays["frequencies"] == 0)

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
        missing = [name for name in PARTS_SPEC if name not in arrays]
        if len(missing) not in (0, len(PARTS_SPEC)):
            raise ModelError(f"array {missing[0]!r} is missing")
        if not missing and len(arrays["parts.starts"]) != n_labels * n_pages(N_PARTS) + 1:
            raise ModelError(
                f"array 'parts.starts' has {sizes['n_part_starts']:,} values; expected one per label and page"
            )
        hashes = arrays["taught.hashes"]
        if (hashes[1:] <= hashes[:-1]).any():
            raise ModelError("array 'taught.hashes' must increase")
        return cls(arrays, config, words, subwords)

    def config(self) -> dict[str, Any]:
        mixture, by_name = asdict(self.mixture), asdict(self.by_name)
        return {"n_candidates": self.n_candidates, "C": self.C, "mixture": mixture, "by_name": by_name}

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

    def without_parts(self) -> Reranker:
        """The same without the names in parts of words."""
        arrays = {name: array for name, array in self._arrays.items() if not name.startswith("parts.")}
        return Reranker(arrays, self.config(), self.features.words, self.subwords)

    @property
    def learns_on(self) -> bool:
        return True

    def gather(self, texts: Any, word_ids: Ragged, ids: np.ndarray, n_more: int = N_MORE) -> Evidence:
        """What is known about the candidates (texts × K ids, -1 for none), and about up to `n_more` further ones."""
        taught = Ragged.empty(len(ids))
        if isinstance(self.features.words, Vocabulary):
            taught = taught_labels(self._arrays, texts, self.features.words.tokenizer)
        parts = None if self.parts is None else self.parts.reader.rows(texts)
        return self.gather_rows(self.features.rows(texts, word_ids), taught, ids, n_more, parts)

    def gather_rows(
        self, rows: Ragged, taught: Ragged, ids: np.ndarray, n_more: int = N_MORE, parts: Ragged | None = None
    ) -> Evidence:
        """The same from the features of texts, and the labels of training texts with the same words.

        rows, parts  lexical features, and parts of words
        """
        arrays = self._arrays
        if self.parts is not None and parts is not None:
            ids = self.parts.with_more(parts, ids, n_more)
        has_more = len(arrays["names.labels"]) + len(arrays["taught.labels"]) > 0
        index = tuple(arrays[f"names.{name}"] for name in ("indptr", "labels", "weights"))
        ids, names, known = similar(index, rows, taught, ids, n_more * has_more)
        in_parts = None if self.parts is None or parts is None else self.parts.similarity(parts, ids)
        return Evidence(ids, rows, names, known, taught.counts > 0, in_parts)

    def best(self, evidence: Evidence, probabilities: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best candidates and their probabilities, given those by the classifier."""
        return best_of(evidence.ids, self.log_odds(evidence, probabilities), k)

    def scores(self, evidence: Evidence, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities of all candidates, in their order."""
        return expit(self.log_odds(evidence, probabilities))

    def log_odds(self, evidence: Evidence, probabilities: np.ndarray) -> np.ndarray:
        """The log-odds of all candidates, given their probabilities by the classifier; −∞ where there is none."""
        word_scores = self.word_scores(evidence.rows, evidence.ids)
        by_name = self.by_name if self.parts is not None and self.parts.searches else None
        return self.mixture.log_odds(evidence, probabilities, word_scores, self._arrays["frequencies"], by_name)

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
