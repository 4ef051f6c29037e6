"""Nearest neighbours by cosine: vectors are grouped into cells, and a query is compared with its nearest cells.

Vectors are stored cell by cell in one array, so that a cell is read from first to last. For lists of hundreds of
neighbours, which candidates are, this is several times as fast as a graph (docs/lab-book.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, counts_to_indptr
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.kernels.candidates import cosines_of_labels, search_cells, search_codes
from shortlist.kernels.native import native
from shortlist.labels.centroids import nearest_centroid, normalize_rows, spherical_kmeans

ONE_CELL_UP_TO = 2048  # vectors
CODES_FROM = 1024  # vectors; codes of fewer are not worth their while
CODES_PER_BLOCK, FEATURES_PER_GROUP, BYTES_PER_GROUP = 32, 16, 128
# Vectors that are compared in full after a first look, relative to those wanted. The codes of short ones say less.
COMPARED, COMPARED_FEATURES = 1.5, 256
SAMPLE_PER_CELL = 32  # vectors that k-means looks at


@dataclass(frozen=True, eq=False)
class CellIndex:
    """Vectors of length 1, cell by cell.

    cells    the direction of each cell
    starts   where each cell begins, and where the last one ends
    order    the id of the vector at each position
    vectors  the vector at each position

    >>> index = CellIndex.build(np.asarray([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
    >>> ids, cosines = index.search(np.asarray([[5.0, 1.0]], np.float32), k=2, n_cells=1)
    >>> ids, cosines.round(3)
    (array([[0, 2]], dtype=int32), array([[0.981, 0.832]], dtype=float32))
    """

    cells: QuantizedMatrix
    starts: np.ndarray
    order: np.ndarray
    vectors: QuantizedMatrix

    spec: ClassVar[dict[str, ArraySpec]] = {
        "cells": ArraySpec("rows", ("n_cells", "n_features"), finite=False),
        "starts": ArraySpec("int64", ("n_cells+1",), indptr="n_vectors"),
        "order": ArraySpec("int32", ("n_vectors",), below="n_vectors", unique=True),
        "vectors": ArraySpec("rows", ("n_vectors", "n_features"), finite=False),
    }

    @staticmethod
    def build(vectors: np.ndarray, seed: int = 0, cells: np.ndarray | None = None) -> CellIndex:
        """An index of the directions of the vectors, one per row. A zero vector has a cosine of 0 with everything.

        cells  their directions, if they are known
        """
        vectors = normalize_rows(np.asarray(vectors, np.float32))
        if cells is None:
            cells = CellIndex.find_cells(len(vectors), vectors.shape[1], vectors.__getitem__, seed)
        own = nearest_centroid(vectors, cells)
        order = np.argsort(own, kind="stable").astype(np.int32)
        starts = counts_to_indptr(np.bincount(own, minlength=len(cells)))
        return CellIndex(QuantizedMatrix.of_floats(cells), starts, order, QuantizedMatrix.of_floats(vectors[order]))

    @staticmethod
    def find_cells(n_vectors: int, n_features: int, take: Callable[[np.ndarray], np.ndarray], seed: int) -> np.ndarray:
        """The directions of the cells for this many vectors; `take` gives some of these."""
        if n_vectors <= ONE_CELL_UP_TO:
            return np.zeros((1, n_features), np.float32)
        rng = np.random.default_rng(seed)
        n_cells = 1 << round(np.log2(4 * np.sqrt(n_vectors)))
        sample = np.sort(rng.choice(n_vectors, min(n_vectors, SAMPLE_PER_CELL * n_cells), replace=False))
        return spherical_kmeans(take(sample), n_cells, rng)

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"CellIndex({len(self):,} × {self.cells.shape[1]} in {len(self.cells):,} cells)"

    def search(self, queries: np.ndarray, k: int, n_cells: int, ordered: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The ids and cosines of each query's k nearest vectors in its nearest cells; -1 and −∞ where there are fewer.

        Best first, unless `ordered` is false, which is a little faster.
        """
        if k < 1:
            raise OptionError(f"k must be at least 1, not {k}")
        if queries.ndim != 2 or queries.shape[1] != self.cells.shape[1]:
            raise DataError(f"the queries have shape {queries.shape}; the index has {self.cells.shape[1]} dimensions")
        places = np.empty((len(queries), min(k, len(self))), np.int32)
        cosines = np.empty(places.shape, np.float32)
        n_cells = max(1, min(n_cells, len(self.cells)))
        cells, vectors = ((rows.values, rows.scales) for rows in (self.cells, self.vectors))
        queries = normalize_rows(np.asarray(queries, np.float32))
        if self._codes is None:
            search_cells(queries, *cells, self.starts, *vectors, n_cells, places, cosines)
        else:
            of_cells, of_vectors = self._codes
            n_compared = int(max(COMPARED, COMPARED_FEATURES / self.n_features) * k)
            search_codes(
                queries, *of_cells, *cells, *of_vectors, *vectors, self.starts, n_cells, n_compared, places, cosines
            )
        if ordered:
            order = np.argsort(-cosines, axis=1, kind="stable")
            places, cosines = np.take_along_axis(places, order, axis=1), np.take_along_axis(cosines, order, axis=1)
        return np.where(places >= 0, self.order[places], -1), cosines

    def only(self, kept: np.ndarray, n_cells: int) -> tuple[CellIndex, int]:
        """The vectors at these positions, which are their new ids; and how many cells to search instead of `n_cells`.

        As many vectors are searched as before, in more cells. Where these have fewer vectors than a block of codes, a
        single cell is quicker.
        """
        positions = np.flatnonzero(kept)
        vectors, order = self.vectors.take(positions), np.arange(len(positions), dtype=np.int32)
        n_cells = min(round(n_cells * len(self) / len(positions)), len(self.cells))
        if len(positions) <= n_cells * CODES_PER_BLOCK:
            cell = self.cells.take(np.zeros(1, np.int64))  # any direction will do
            return CellIndex(cell, np.array([0, len(positions)]), order, vectors), 1
        return CellIndex(self.cells, np.searchsorted(positions, self.starts), order, vectors), n_cells

    @cached_property
    def _codes(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]] | None:
        """Short codes of cells and vectors for a first look; None where there are none."""
        if len(self) < CODES_FROM or not self.cells.values.dtype == self.vectors.values.dtype == np.int8:
            return None
        return _codes_of(self.cells, np.array([0, len(self.cells)])), _codes_of(self.vectors, self.starts)

    @property
    def n_features(self) -> int:
        return self.cells.shape[1]

    @property
    def max_searched(self) -> int:
        """Half of the cells have practically all neighbours."""
        return max(1, len(self.cells) // 2)

    @property
    def n_searched_in_training(self) -> int:
        """An eighth of the cells has nearly all neighbours, and training does not miss the others."""
        return max(1, len(self.cells) // 8)

    def places_of(self, ids: np.ndarray) -> np.ndarray:
        """The positions of these vectors, for `cosines_of`."""
        return np.argsort(self.order)[ids]

    def cosines_of(
        self, queries: np.ndarray, ids: np.ndarray, bounds: np.ndarray, places: np.ndarray, cosines: np.ndarray
    ) -> None:
        """The cosines of unit queries and the nearest of each label's vectors: see `cosines_of_labels`."""
        cosines_of_labels(queries, ids, bounds, places, self.vectors.values, self.vectors.scales, cosines)

    def multiply_adds(self, n_cells: int) -> float:
        """The cost of a query that searches this many cells."""
        return self.cells.values.size + self.vectors.values.size * min(n_cells, len(self.cells)) / len(self.cells)

    def arrays(self) -> Arrays:
        rows = self.cells.to_arrays("cells") | self.vectors.to_arrays("vectors")
        return {"starts": self.starts, "order": self.order, **rows}

    @staticmethod
    def from_arrays(arrays: Arrays) -> CellIndex:
        """The index again, from arrays that were checked against `spec`."""
        cells, vectors = (QuantizedMatrix.of_arrays(arrays, name) for name in ("cells", "vectors"))
        if not len(cells):
            raise ModelError("an index needs at least one cell")
        return CellIndex(cells, arrays["starts"], arrays["order"], vectors)


def _codes_of(rows: QuantizedMatrix, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The standard deviation of each feature, the first block of each cell, and the codes: see c/codes.c."""
    deviations = np.empty(rows.shape[1], np.float32)
    first_block = counts_to_indptr(-(-np.diff(starts) // CODES_PER_BLOCK))
    codes = np.empty((first_block[-1], -(-rows.shape[1] // FEATURES_PER_GROUP) * BYTES_PER_GROUP), np.uint8)
    native.code_vectors(rows.values, rows.scales, starts, deviations, first_block, codes)
    return deviations, first_block, codes
