"""The names of labels in parts of words: how similar they are to texts, and which labels they suggest.

One sparse row per label, scored as the re-ranker scores words. Only labels that no text was learnt for are searched by
parts: for all others this finds next to nothing that the classifier and whole words do not (docs/lab-book.md).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from shortlist.arrays import INT8_MAX, Arrays, ArraySpec, Ragged
from shortlist.kernels.reranker import score_parts
from shortlist.lazy import sparse
from shortlist.stages.evidence import index_names, similar
from shortlist.stages.pages import n_pages, paged, unpaged
from shortlist.text.parts import N_PARTS, WordParts
from shortlist.text.tokenizer import Tokenizer

PAGES = n_pages(N_PARTS)
PARTS_SPEC = {
    "parts.idf": ArraySpec("float32", (N_PARTS,), optional=True),
    "parts.starts": ArraySpec("int64", ("n_part_starts",), optional=True, indptr="n_parts_of_names"),
    "parts.words": ArraySpec("uint16", ("n_parts_of_names",), optional=True),
    "parts.weights": ArraySpec("int8", ("n_parts_of_names",), optional=True),
}


class PartsOfNames:
    """
    arrays    idf of all parts; starts, words (parts) and weights (in 127ths) of the labels' rows: see pages.py
    is_named  the labels that are known by name only
    searches  whether there are any
    """

    def __init__(self, tokenizer: Tokenizer, arrays: Arrays, is_named: np.ndarray) -> None:
        self.reader = WordParts(tokenizer, arrays["idf"])
        self._rows = arrays["starts"], PAGES, arrays["words"], arrays["weights"]
        self._is_named = is_named
        self.searches = bool(is_named.any())

    def similarity(self, texts: Ragged, ids: np.ndarray) -> np.ndarray:
        """The cosine of each text and the name of each of its candidates (texts × K); 0 for no label or no name."""
        cosines = np.empty(ids.shape, np.float32)
        ids = np.ascontiguousarray(ids, np.int32)
        score_parts(texts.indptr, texts.values, texts.weights, *self._rows, ids, cosines)
        return cosines

    def with_more(self, texts: Ragged, ids: np.ndarray, n_more: int) -> np.ndarray:
        """The candidates, followed by the labels known by name only whose names are the most similar."""
        if not self.searches:
            return ids
        return similar(self._index, texts, Ragged.empty(len(ids)), ids, n_more)[0]

    def searching(self, is_searched: np.ndarray) -> PartsOfNames:
        """The same, but these labels are searched."""
        starts, _, words, weights = self._rows
        arrays = {"idf": self.reader.idf, "starts": starts, "words": words, "weights": weights}
        return PartsOfNames(self.reader.tokenizer, arrays, is_searched)

    @cached_property
    def _index(self) -> tuple[np.ndarray, ...]:
        """For each part the labels that are searched."""
        starts, _, words, weights = self._rows
        rows = unpaged(Ragged(starts, words, weights), self._is_named.astype(np.float32) / INT8_MAX, N_PARTS)
        rows.eliminate_zeros()
        return tuple(index_names(rows).values())


def rows_of_parts(names: sparse.csr_array) -> Arrays:
    """The arrays of `PartsOfNames` but idf, from one row of parts per label."""
    names = sparse.csr_array(names).sorted_indices()
    starts, words = paged(names.indptr.astype(np.int64), names.indices, N_PARTS)
    weights = np.rint(INT8_MAX * np.minimum(names.data, 1)).astype(np.int8)
    return {"parts.starts": starts, "parts.words": words, "parts.weights": weights}
