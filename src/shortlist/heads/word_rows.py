"""`WordRows`: for each label a weight for each word that speaks for or against it.

Label rows over a few hundred features cannot hold what a weight for every word and label can: that this very word
means this very label. Word rows can, and only have to tell a label from those it is mistaken for, since they are
learnt on candidates that another stage puts forward. Each label is learnt on its own, so the result does not depend
on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shortlist.arrays import LARGEST, Ragged, check_finite, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.reranker import learn_labels, score_candidates, texts_of_labels
from shortlist.kernels.threads import use_threads
from shortlist.lazy import sparse
from shortlist.progress import Progress

# Weights nearer to zero are not kept: they are most of the weights, and what they change is not for the better.
LEAST_WEIGHT = 0.1
# Words of texts that a block of labels sees: what is learnt is first put down with room for all of them.
WORDS_PER_BLOCK = 30_000_000
PAGE = 1 << 16


@dataclass(frozen=True, eq=False)
class WordRows:
    """For each label the weights of some words, in rising order, and a bias.

    Words have numbers beyond 16 bits, and there are many weights: so a label's words stand page by page, 65,536
    numbers a page, and only by their place on it. Those of label l on page p are from `starts[l * n_pages + p]` on.
    Weights are float32, or int8 times the label's scale.
    """

    starts: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    scales: np.ndarray
    biases: np.ndarray

    @property
    def n_pages(self) -> int:
        return (len(self.starts) - 1) // max(len(self.biases), 1)

    @staticmethod
    def of_words(
        bounds: np.ndarray, words: np.ndarray, weights: np.ndarray, biases: np.ndarray, n_words: int
    ) -> WordRows:
        """Label l has `weights[bounds[l]:bounds[l + 1]]` for `words[…]`, of n_words that there are."""
        n_pages = max(1, -(-n_words // PAGE))
        page_of = np.repeat(np.arange(len(biases)) * n_pages, np.diff(bounds)) + words // PAGE
        starts = counts_to_indptr(np.bincount(page_of, minlength=len(biases) * n_pages))
        scales = np.ones(len(biases), np.float32)
        return WordRows(starts, (words % PAGE).astype(np.uint16), weights, scales, biases)

    def in_8_bits(self) -> WordRows:
        """The same, with each weight rounded to one of 255 steps of its label."""
        if self.weights.dtype == np.int8:
            return self
        label_starts = self.starts[:: self.n_pages]
        largest = np.maximum.reduceat(
            np.append(np.abs(self.weights), 0), np.minimum(label_starts[:-1], len(self.weights))
        )
        scales = np.where(np.diff(label_starts) > 0, largest / LARGEST, 0).astype(np.float32)
        steps = self.weights / np.repeat(np.where(scales > 0, scales, 1), np.diff(label_starts))
        return replace(self, weights=np.rint(steps).astype(np.int8), scales=scales)

    @staticmethod
    def learn(
        features: sparse.csr_array,
        labels: Ragged,
        n_labels: int,
        candidates: np.ndarray,
        cost: float = 0.5,
        threads: int | None = None,
        show_progress: bool = True,
    ) -> WordRows:
        """Learn to tell the labels of each text from its other candidates.

        features    a row a text, a column a word
        candidates  texts × K label ids; -1 for none. Labels of the text among them are no mistakes
        cost        what a mistake costs beside large weights; smaller for smoother classifiers
        """
        features = sorted_rows(features)
        arrays = (features.indptr.astype(np.int64), features.indices.astype(np.int32), features.data)
        starts, texts, right = texts_of_labels(
            np.ascontiguousarray(candidates, np.int32), labels.indptr, labels.values, n_labels
        )
        words_before = np.append(0, np.cumsum(np.diff(arrays[0])[texts]))[starts]  # seen by all labels before each
        learnt: list[tuple[np.ndarray, ...]] = []
        with use_threads(threads) as n_shares, Progress("word rows", n_labels, "labels", show_progress) as progress:
            begin = 0
            while begin < n_labels:
                most = words_before[begin] + WORDS_PER_BLOCK
                end = max(int(np.searchsorted(words_before, most, side="right")) - 1, begin + 1)
                cuts = np.searchsorted(words_before, np.linspace(words_before[begin], words_before[end], n_shares + 1))
                cuts = np.clip(cuts, begin, end)
                cuts[0], cuts[-1] = begin, end
                room = words_before[begin : end + 1] - words_before[begin]
                found = np.zeros(end - begin, np.int64)
                out, weights = np.empty(room[-1], np.int32), np.empty(room[-1], np.float32)
                biases = learn_labels(
                    *arrays,
                    features.shape[1],
                    starts,
                    texts,
                    right,
                    cuts,
                    np.float32(cost),
                    np.float32(LEAST_WEIGHT),
                    room,
                    found,
                    out,
                    weights,
                )
                kept = Ragged(room, out, weights).keep(_first_of_each(room, found))
                learnt.append((found, kept.values, kept.weights, biases))  # type: ignore[arg-type]
                progress.advance(end - begin)
                begin = end
        counts, words, all_weights, all_biases = (np.concatenate(parts) for parts in zip(*learnt, strict=True))
        return WordRows.of_words(counts_to_indptr(counts), words, all_weights, all_biases, features.shape[1])

    def scores(self, features: Ragged, candidates: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The score of each candidate (texts × K); −∞ where there is none.

        `features` are the words of each text, rising, and their weights.
        """
        scores = np.empty(candidates.shape, np.float32)
        with use_threads(threads):
            score_candidates(
                features.indptr,
                features.values,
                features.weights,
                self.starts,
                self.n_pages,
                self.words,
                self.weights,
                self.scales,
                self.biases,
                np.ascontiguousarray(candidates, np.int32),
                scores,
            )
        return scores

    def to_arrays(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    @staticmethod
    def from_arrays(arrays: dict[str, np.ndarray], n_labels: int, n_words: int) -> WordRows:
        """What `to_arrays` gave, looked at before a compiled loop follows it blindly."""
        kinds = {"starts": np.int64, "words": np.uint16, "scales": np.float32, "biases": np.float32}
        for name, kind in kinds.items():
            if name not in arrays or arrays[name].dtype != kind or arrays[name].ndim != 1:
                raise ModelError(f"the word rows have no array {name!r} of {np.dtype(kind).name}")
        weights = arrays.get("weights", np.zeros(0))
        if weights.dtype not in (np.float32, np.int8) or weights.shape != arrays["words"].shape:
            raise ModelError("the word rows do not have one weight, float32 or int8, for each word")
        rows = WordRows(weights=weights, **{name: arrays[name] for name in kinds})
        n_pages = max(1, -(-n_words // PAGE))
        if len(rows.starts) != n_labels * n_pages + 1 or not n_labels == len(rows.biases) == len(rows.scales):
            raise ModelError(f"the word rows are not those of {n_labels:,} labels and {n_words:,} words")
        if rows.starts[0] != 0 or rows.starts[-1] != len(weights) or np.any(np.diff(rows.starts) < 0):
            raise ModelError("the word rows do not follow upon each other")
        check_finite("scales", rows.scales)
        check_finite("biases", rows.biases)
        return rows


def sorted_rows(features: sparse.csr_array) -> sparse.csr_array:
    """The same with the columns of each row in rising order, as float32."""
    features = sparse.csr_array(features, dtype=np.float32)
    if not features.has_sorted_indices:
        features = features.sorted_indices()
    return features


def _first_of_each(bounds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A mask over runs with these bounds: the first so many of each."""
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return positions < np.repeat(counts, np.diff(bounds))
