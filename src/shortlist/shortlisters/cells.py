"""Nearest neighbours by cosine among many vectors: these lie in cells, and a query looks into the nearest cells.

This is how clusters of labels are searched everywhere in this house: vectors stand cell by cell in one array, in 8 bits
where wanted, so that a cell is read from first to last. A list of hundreds of neighbours, as shortlists are, comes
several times as fast as from a graph, and there is nothing to load but arrays. See docs/lab-book.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shortlist.arrays import QuantizedMatrix, counts_to_indptr
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.kernels.candidates import search_cells
from shortlist.kernels.threads import use_threads
from shortlist.shortlisters.centres import kmeans, nearest, unit

# With no more vectors than this, a query looks at all of them.
FEW = 2048
PER_CELL = 32  # vectors that k-means looks at


@dataclass(frozen=True, eq=False)
class CellIndex:
    """Vectors of length 1, cell by cell.

    cells     the direction of each cell
    starts    where each cell begins, and where the last one ends
    order     the number of the vector in each place
    vectors   the vectors by place

    >>> index = CellIndex.build(np.asarray([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
    >>> ids, cosines = index.search(np.asarray([[5.0, 1.0]], np.float32), k=2, n_cells=1)
    >>> ids, cosines.round(3)
    (array([[0, 2]], dtype=int32), array([[0.981, 0.832]], dtype=float32))
    """

    cells: QuantizedMatrix
    starts: np.ndarray
    order: np.ndarray
    vectors: QuantizedMatrix

    @staticmethod
    def build(vectors: np.ndarray, seed: int = 0) -> CellIndex:
        """An index of the vectors, one a row, by their directions; a zero vector has similarity 0 to everything."""
        vectors = unit(np.asarray(vectors, np.float32))
        cells = np.zeros((1, vectors.shape[1]), np.float32)
        if len(vectors) > FEW:
            rng = np.random.default_rng(seed)
            n_cells = 1 << round(np.log2(4 * np.sqrt(len(vectors))))
            some = np.sort(rng.choice(len(vectors), min(len(vectors), PER_CELL * n_cells), replace=False))
            cells = kmeans(vectors[some], n_cells, rng)
        own = nearest(vectors, cells)
        order = np.argsort(own, kind="stable").astype(np.int32)
        starts = counts_to_indptr(np.bincount(own, minlength=len(cells)))
        return CellIndex(QuantizedMatrix.of_floats(cells), starts, order, QuantizedMatrix.of_floats(vectors[order]))

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"CellIndex({len(self):,} × {self.cells.shape[1]} in {len(self.cells):,} cells)"

    def search(
        self, queries: np.ndarray, k: int, n_cells: int, threads: int | None = None, ordered: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids and cosines of each query's k nearest in its n nearest cells, best first; -1 and −∞ for none.

        If they need not be `ordered`, it is a little quicker.
        """
        if k < 1:
            raise OptionError(f"k must be at least 1, not {k}")
        if queries.ndim != 2 or queries.shape[1] != self.cells.shape[1]:
            raise DataError(
                f"the queries are {queries.shape}, the index has {self.cells.shape[1]} dimensions. "
                "Use the vectors of the encoder that the index was built with."
            )
        places = np.empty((len(queries), min(k, len(self))), np.int32)
        cosines = np.empty(places.shape, np.float32)
        with use_threads(threads):
            search_cells(
                unit(queries),
                self.cells.values,
                self.cells.scales,
                self.starts,
                self.vectors.values,
                self.vectors.scales,
                max(1, min(n_cells, len(self.cells))),
                ordered,
                places,
                cosines,
            )
        return np.where(places >= 0, self.order[places], -1), cosines

    def to_arrays(self) -> dict[str, np.ndarray]:
        rows = self.cells.to_arrays("cells") | self.vectors.to_arrays("vectors")
        return {"starts": self.starts, "order": self.order, **rows}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> CellIndex:
        """What `to_arrays` gave, looked at before a compiled loop follows it blindly."""
        kinds = {"starts": (1, np.int64), "order": (1, np.int32)}
        for name, (axes, kind) in kinds.items():
            if name not in arrays or arrays[name].ndim != axes or arrays[name].dtype != kind:
                raise ModelError(f"the index has no array {name!r} of {np.dtype(kind).name} with {axes} axes")
        starts, order = (arrays[name] for name in kinds)
        cells, vectors = (QuantizedMatrix.of_arrays(arrays, name) for name in ("cells", "vectors"))
        if vectors.shape != (len(order), cells.shape[1]) or len(starts) != len(cells) + 1 or not len(cells):
            raise ModelError("the arrays of the index are not of one length")
        if starts[0] != 0 or starts[-1] != len(order) or np.any(np.diff(starts) < 0):
            raise ModelError("the cells of the index do not follow upon each other")
        if len(order) and not 0 <= order.min() <= order.max() < len(order):
            raise ModelError(f"the index names vectors beyond the {len(order):,} there are")
        if len(order) and np.bincount(order).max() > 1:  # some label would be found twice, another never
            raise ModelError("the index names a vector twice")
        return CellIndex(cells, starts, order, vectors)
