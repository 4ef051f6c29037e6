"""Nearest neighbours by cosine: exact, or with HNSW graphs of faiss, as published for Astec.

A graph that several threads build at once differs every time. So the vectors are dealt out to a fixed number of parts;
one thread builds each part's graph, and a search merges what all parts find. The index is then the same with any number
of threads. faiss (extra `ann`) is needed for graphs only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays, gather_positions
from shortlist.errors import DataError, MissingExtraError, ModelError, OptionError
from shortlist.kernels.candidates import cosines_of_labels
from shortlist.kernels.threads import n_threads
from shortlist.kernels.top_k import top_columns

# With 90,000 vectors, exact search takes 0.7 ms per query in batches; graphs with a recall of 96 % take 1.2 ms.
EXACT_UP_TO = 100_000
N_GRAPHS = 4
ROWS_PER_BLOCK = 8192
QUERIES_PER_BLOCK = 512
COSINES_PER_BLOCK = 1 << 24
_BYTE_LIMIT_LOCK = Lock()  # faiss has one byte limit per process


class GraphSizes(NamedTuple):
    """The parameters of an HNSW graph, as published: M, efConstruction and efSearch.

    links           links per vector
    build_breadth   candidates kept while building
    search_breadth  candidates kept in each part while searching
    """

    links: int = 32
    build_breadth: int = 100
    search_breadth: int = 100

    @staticmethod
    def parse(sizes: str) -> GraphSizes:
        """The sizes in a string such as "100/300/300".

        >>> GraphSizes.parse("100/300/400").search_breadth
        400
        """
        return GraphSizes(*map(int, sizes.split("/")))


class NeighbourIndex:
    """Finds the vectors with the largest cosine to a query.

    >>> index = NeighbourIndex.build(np.asarray([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
    >>> ids, cosines = index.search(np.asarray([[5.0, 1.0]]), k=2)
    >>> ids, cosines.round(3)
    (array([[0, 2]], dtype=int32), array([[0.981, 0.832]], dtype=float32))
    """

    def __init__(self, arrays: Arrays, graphs: list[Any], search_breadth: int) -> None:
        """Use `build` or `from_arrays`. Without graphs, `arrays` has the vectors; with graphs, their bytes."""
        self._arrays, self._graphs, self.search_breadth = arrays, graphs, search_breadth
        self._vectors = arrays.get("vectors")

    # A search effort of 1 is the search breadth; there is no smaller one to look for in training.
    max_searched = 1
    n_searched_in_training = 1

    @property
    def exact(self) -> bool:
        """Whether a query is compared with every vector."""
        return self._vectors is not None

    def __len__(self) -> int:
        return sum(graph.ntotal for graph in self._graphs) if self._vectors is None else len(self._vectors)

    def __repr__(self) -> str:
        return f"NeighbourIndex({len(self):,} vectors, {'exact' if self.exact else 'HNSW'})"

    @property
    def n_features(self) -> int:
        return self._graphs[0].d if self._vectors is None else self._vectors.shape[1]

    @staticmethod
    def build(
        vectors: np.ndarray,
        *,
        exact: bool | None = None,
        links: int = 32,
        build_breadth: int = 100,
        search_breadth: int = 100,
        seed: int = 0,
    ) -> NeighbourIndex:
        """An index of the directions of the vectors, one per row. A zero vector has a cosine of 0 with everything.

        exact                                 compare with every vector; by default up to 100,000 vectors
        links, build_breadth, search_breadth  of the graphs, see `GraphSizes`
        """
        vectors = _checked(vectors)
        for name, value in GraphSizes(links, build_breadth, search_breadth)._asdict().items():
            least = 2 if name == "links" else 1
            if value < least:
                raise OptionError(f"{name} must be at least {least}, not {value}")
        if exact if exact is not None else len(vectors) <= EXACT_UP_TO:
            return NeighbourIndex({"vectors": _unit_rows(vectors)}, [], search_breadth)
        faiss = _import_faiss()
        n_graphs = max(1, min(N_GRAPHS, len(vectors)))

        def build_graph(part: int) -> Any:
            graph = faiss.IndexHNSWFlat(vectors.shape[1], links, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = build_breadth
            graph.hnsw.rng = faiss.RandomGenerator(seed * N_GRAPHS + part)
            graph.add(_unit_rows(vectors[part::n_graphs]))
            return graph

        graphs = _in_threads(faiss, build_graph, range(n_graphs))
        arrays = {f"graph.{part}": faiss.serialize_index(graph) for part, graph in enumerate(graphs)}
        return NeighbourIndex(arrays, graphs, search_breadth)

    def arrays(self) -> Arrays:
        """`vectors`, or the bytes of faiss's graphs."""
        return self._arrays

    @staticmethod
    def from_arrays(arrays: Arrays, search_breadth: int) -> NeighbourIndex:
        """The index again. Graphs point into their bytes and do not copy them."""
        if "vectors" in arrays:
            return NeighbourIndex(arrays, [], search_breadth)
        names = [f"graph.{part}" for part in range(len(arrays))]
        missing = [name for name in names if name not in arrays]
        if missing:
            raise ModelError(f"array {missing[0]!r} is missing")
        graphs = [_graph_of(arrays[name]) for name in names]
        sizes = [graph.ntotal for graph in graphs]
        if not graphs or sizes != [len(range(part, sum(sizes), len(sizes))) for part in range(len(sizes))]:
            raise ModelError(f"graphs of {sizes} vectors do not make up one index")
        if len({graph.d for graph in graphs}) != 1:
            raise ModelError("the graphs of an index have different dimensions")
        return NeighbourIndex(arrays, graphs, search_breadth)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The vectors with these ids."""
        if self._vectors is not None:
            return self._vectors[ids]
        n = len(self._graphs)
        vectors = [self._graphs[i % n].reconstruct(i // n) for i in np.asarray(ids).tolist()]
        return np.stack(vectors) if vectors else np.zeros((0, self.n_features), np.float32)

    def places_of(self, ids: np.ndarray) -> np.ndarray:
        """The ids themselves, for `cosines_of`."""
        return ids

    def cosines_of(
        self, queries: np.ndarray, ids: np.ndarray, bounds: np.ndarray, places: np.ndarray, cosines: np.ndarray
    ) -> None:
        """The cosines of unit queries and the nearest of each label's vectors: see `cosines_of_labels`."""
        labels = np.unique(ids[ids >= 0])
        positions, own_bounds = gather_positions(bounds, labels)
        vectors, own_places = self.take(places[positions]), np.arange(len(positions))
        own_ids = np.where(ids >= 0, np.searchsorted(labels, ids), -1).astype(np.int32)
        scales = np.ones(len(vectors), np.float32)
        cosines_of_labels(queries, own_ids, own_bounds, own_places, vectors, scales, cosines)

    def search(
        self, queries: np.ndarray, k: int, n_searched: int = 1, ordered: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids (int32) and cosines of each query's k nearest, best first, lower ids first among equals.

        Where there are fewer, -1 and −∞ follow. `n_searched` multiplies the search breadth. The order comes for free,
        so `ordered`, which other indexes have, makes no difference.
        """
        if k < 1:
            raise OptionError(f"k must be at least 1, not {k}")
        queries = _checked(queries)
        if queries.shape[1] != self.n_features:
            raise DataError(f"the queries have {queries.shape[1]} dimensions; the index has {self.n_features}")
        queries = _unit_rows(queries)
        n_found = min(k, len(self))
        ids, cosines = np.full((len(queries), k), -1, np.int32), np.full((len(queries), k), -np.inf, np.float32)
        if n_found and len(queries):
            search = self._search_exactly if self.exact else self._search_graphs
            ids[:, :n_found], cosines[:, :n_found] = search(queries, n_found, n_searched)
        return ids, cosines

    def multiply_adds(self, n_searched: int) -> float | None:
        """The cost of a query; unknown for a graph."""
        return None if self._vectors is None else float(self._vectors.size)

    def _search_exactly(self, queries: np.ndarray, k: int, n_searched: int) -> tuple[np.ndarray, np.ndarray]:
        assert self._vectors is not None
        ids, cosines = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
        per_block = max(1, min(QUERIES_PER_BLOCK, COSINES_PER_BLOCK // len(self._vectors)))
        for begin in range(0, len(queries), per_block):
            block = slice(begin, begin + per_block)
            products = queries[block] @ self._vectors.T
            top_columns(products, k, ids[block])
            found = np.take_along_axis(products, ids[block], axis=1)
            order = np.argsort(-found, axis=1, kind="stable")
            ids[block] = np.take_along_axis(ids[block], order, axis=1)
            cosines[block] = np.take_along_axis(found, order, axis=1)
        return ids, cosines

    def _search_graphs(self, queries: np.ndarray, k: int, n_searched: int) -> tuple[np.ndarray, np.ndarray]:
        faiss, n_graphs = _import_faiss(), len(self._graphs)
        breadth = min(max(n_searched * self.search_breadth, k), len(self))
        parameters = faiss.SearchParametersHNSW(efSearch=breadth)

        def search_block(begin: int) -> tuple[np.ndarray, np.ndarray]:
            block = queries[begin : begin + QUERIES_PER_BLOCK]
            found = [graph.search(block, min(k, graph.ntotal), params=parameters) for graph in self._graphs]
            cosines = np.concatenate([of_part for of_part, _ in found], axis=1)
            ids = np.concatenate(
                [np.where(places < 0, -1, places * n_graphs + part) for part, (_, places) in enumerate(found)], axis=1
            )
            cosines[ids < 0] = -np.inf
            best = np.lexsort((ids, -cosines))[:, :k]
            return np.take_along_axis(ids, best, axis=1), np.take_along_axis(cosines, best, axis=1)

        blocks = _in_threads(faiss, search_block, range(0, len(queries), QUERIES_PER_BLOCK))
        return np.concatenate([ids for ids, _ in blocks]), np.concatenate([cosines for _, cosines in blocks])


def _checked(vectors: np.ndarray) -> np.ndarray:
    """Finite float32 vectors, or a DataError."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise DataError(f"expected a matrix with one vector per row, not an array of shape {vectors.shape}")
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32, copy=False)
    for begin in range(0, len(vectors), ROWS_PER_BLOCK):
        finite = np.isfinite(vectors[begin : begin + ROWS_PER_BLOCK]).all(axis=1)
        if not finite.all():
            raise DataError(
                f"vector {begin + int(finite.argmin())} contains NaN or infinity. If the vectors come from training, "
                "it diverged: lower the learning rate."
            )
    return vectors


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """A copy with each row scaled to length 1; rows of zeros stay."""
    scaled = np.empty(vectors.shape, np.float32)
    for begin in range(0, len(vectors), ROWS_PER_BLOCK):
        # In float64, the squares of the largest and the smallest float32 do not overflow or vanish.
        rows = vectors[begin : begin + ROWS_PER_BLOCK].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        lengths[lengths == 0] = 1
        scaled[begin : begin + ROWS_PER_BLOCK] = rows / lengths[:, None]
    return scaled


def _import_faiss() -> Any:
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells which instruction sets it has no library for
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("an HNSW graph", "ann") from None
    return faiss


def _in_threads(faiss: Any, work: Callable[[int], Any], tasks: Sequence[int]) -> list[Any]:
    """work(task) for every task, in order. Within each, faiss keeps to one thread."""

    def alone(task: int) -> Any:
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            return work(task)
        finally:
            faiss.omp_set_num_threads(before)

    if min(n_threads(), len(tasks)) == 1:
        return [alone(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(alone, tasks))


def _graph_of(content: np.ndarray) -> Any:
    """faiss's graph in these bytes."""
    faiss = _import_faiss()
    try:
        with _byte_limit(faiss, len(content)):
            graph = faiss.read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(content), len(content)))
    except (RuntimeError, MemoryError) as error:
        raise ModelError(f"a graph of the index cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(graph, faiss.IndexHNSWFlat) or graph.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ModelError("a part of the index is not an HNSW graph")
    return graph


@contextmanager
def _byte_limit(faiss: Any, n_bytes: int) -> Iterator[None]:
    """Within the block, faiss refuses to read longer arrays: a damaged length would fill all memory."""
    with _BYTE_LIMIT_LOCK:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)
