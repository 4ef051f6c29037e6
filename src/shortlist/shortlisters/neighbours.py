"""Nearest neighbours by cosine: exactly while that is quick, else by HNSW graphs (Malkov and Yashunin 2018) of faiss.

A graph that several threads build at once comes out differently every time. So the vectors are dealt out to a fixed
number of parts; each part's graph is built by one thread, and a search asks all parts and merges what they find.
That makes the same index with any number of threads. Four small graphs are less work to build than a large one; at
the same recall a search makes half as many comparisons again, but in batches takes no longer (see the lab book).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import msgspec
import numpy as np

from shortlist.errors import DataError, ModelError, OptionError, ShortlistError
from shortlist.files import safetensors_header, write_atomically
from shortlist.kernels.threads import use_threads
from shortlist.kernels.top_k import best_of_row, top_columns

# At 90,000 vectors, comparing with all of them takes 0.7 ms a query in batches, graphs at a recall of 96 % take 1.2 ms,
# and there is no graph to build. More vectors would make a query that comes alone slow: here it takes 9 ms.
EXACT_UP_TO = 100_000
PARTS = 4
ROWS_AT_ONCE = 8192
QUERIES_AT_ONCE = 512
COSINES_AT_ONCE = 1 << 20
MANY_COSINES = 1 << 24
FEW = 128  # lists up to here are kept in order as they fill
FORMAT, FORMAT_VERSION = "shortlist-neighbours", 1
WRITE_BUFFER = 1 << 20
_LIMIT_LOCK = Lock()  # faiss has one limit for the whole process


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says about the index in it. `sha256` is that of everything behind the file's header."""

    format: str
    format_version: int
    n_vectors: int
    dimensions: int
    search_effort: int
    sha256: str


class NeighbourIndex:
    """Finds the vectors with the largest cosine to a query.

    >>> index = NeighbourIndex.build(np.asarray([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
    >>> ids, similarities = index.search(np.asarray([[5.0, 1.0]]), k=2)
    >>> ids, similarities.round(3)
    (array([[0, 2]], dtype=int32), array([[0.981, 0.832]], dtype=float32))
    """

    def __init__(
        self, content: np.ndarray | list[Any], n_vectors: int, dimensions: int, search_effort: int, buffer: Any = None
    ) -> None:
        """Not for callers: see `build` and `load`. The content is vectors of length 1, or faiss's graphs over them."""
        self._vectors = content if isinstance(content, np.ndarray) else None
        self._graphs = [] if isinstance(content, np.ndarray) else content
        self._buffer = buffer  # what graphs that were loaded point into
        self.n_vectors, self.dimensions, self.search_effort = n_vectors, dimensions, search_effort

    @property
    def exact(self) -> bool:
        """Whether queries are compared with all vectors."""
        return self._vectors is not None

    def __len__(self) -> int:
        return self.n_vectors

    def __repr__(self) -> str:
        return f"NeighbourIndex({self.n_vectors:,} × {self.dimensions}, {'exact' if self.exact else 'HNSW'})"

    @staticmethod
    def build(
        vectors: np.ndarray,
        *,
        exact: bool | None = None,
        links: int = 32,
        build_effort: int = 100,
        search_effort: int = 100,
        seed: int = 0,
        threads: int | None = None,
    ) -> NeighbourIndex:
        """An index of the vectors, one a row, by their directions; a zero vector has similarity 0 to everything.

        `exact` compares with all vectors; by default it does up to `EXACT_UP_TO` of them. Otherwise each vector is
        linked with `links` others (twice as many at the bottom), found among `build_effort` candidates, and a search
        keeps `search_effort` candidates in each part, or k if that is more. The same vectors, options and seed
        make the same index, whatever the number of threads.
        """
        vectors = _checked(vectors)
        for name, value, least in [("links", links, 2), ("build_effort", build_effort, 1)]:
            if value < least:
                raise OptionError(f"{name} must be at least {least}, not {value}")
        _check_search_effort(search_effort)
        if exact is None:
            exact = len(vectors) <= EXACT_UP_TO
        if exact:
            return NeighbourIndex(_unit_rows(vectors), len(vectors), vectors.shape[1], search_effort)
        faiss = _import_faiss()
        n_parts = max(1, min(PARTS, len(vectors)))

        def build_part(part: int) -> Any:
            graph = faiss.IndexHNSWFlat(vectors.shape[1], links, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = build_effort
            graph.hnsw.rng = faiss.RandomGenerator(seed * PARTS + part)
            graph.add(_unit_rows(vectors[part::n_parts]))
            return graph

        graphs = _in_threads(faiss, build_part, range(n_parts), threads)
        return NeighbourIndex(graphs, len(vectors), vectors.shape[1], search_effort)

    def search(self, queries: np.ndarray, k: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The ids (int32) and cosines (float32) of each query's k nearest, best first, of equals the lower id first.

        Where there are fewer, -1 and -inf follow.
        """
        if k < 1:
            raise OptionError(f"k must be at least 1, not {k}")
        queries = _checked(queries)
        if queries.shape[1] != self.dimensions:
            raise DataError(
                f"the queries have {queries.shape[1]} dimensions, the index has {self.dimensions}. "
                "Use the vectors of the encoder that the index was built with."
            )
        queries = _unit_rows(queries)
        found = min(k, self.n_vectors)
        ids, similarities = np.full((len(queries), k), -1, np.int32), np.full((len(queries), k), -np.inf, np.float32)
        if found and len(queries):
            search = self._search_exactly if self.exact else self._search_graphs
            ids[:, :found], similarities[:, :found] = search(queries, found, threads)
        return ids, similarities

    def _search_exactly(self, queries: np.ndarray, k: int, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
        assert self._vectors is not None
        if k > FEW:
            return self._choose_exactly(queries, k, threads)
        ids, similarities = np.full((len(queries), k), -1, np.int32), np.full((len(queries), k), -np.inf, np.float32)
        vectors_at_once = COSINES_AT_ONCE // min(len(queries), QUERIES_AT_ONCE)
        with use_threads(threads):
            for first in range(0, len(queries), QUERIES_AT_ONCE):
                some = slice(first, first + QUERIES_AT_ONCE)
                for begin in range(0, self.n_vectors, vectors_at_once):
                    cosines = queries[some] @ self._vectors[begin : begin + vectors_at_once].T
                    best_of_row(cosines, begin, min(begin, k), ids[some], similarities[some])
        return ids, similarities

    def _choose_exactly(self, queries: np.ndarray, k: int, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
        """For long lists it is quicker to choose among all cosines at once than to keep lists in order."""
        assert self._vectors is not None
        ids, similarities = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
        queries_at_once = max(1, min(QUERIES_AT_ONCE, MANY_COSINES // self.n_vectors))
        with use_threads(threads):
            for first in range(0, len(queries), queries_at_once):
                some = slice(first, first + queries_at_once)
                cosines = queries[some] @ self._vectors.T
                top_columns(cosines, k, ids[some])
                chosen = np.take_along_axis(cosines, ids[some], axis=1)
                order = np.argsort(-chosen, axis=1, kind="stable")
                ids[some] = np.take_along_axis(ids[some], order, axis=1)
                similarities[some] = np.take_along_axis(chosen, order, axis=1)
        return ids, similarities

    def _search_graphs(self, queries: np.ndarray, k: int, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
        faiss = _import_faiss()
        n_parts = len(self._graphs)
        parameters = faiss.SearchParametersHNSW(efSearch=min(max(self.search_effort, k), self.n_vectors))

        def search_all_parts(first: int) -> tuple[np.ndarray, np.ndarray]:
            some = queries[first : first + QUERIES_AT_ONCE]
            found = [graph.search(some, min(k, graph.ntotal), params=parameters) for graph in self._graphs]
            similarities = np.concatenate([cosines for cosines, _ in found], axis=1)
            ids = np.concatenate(
                [np.where(places < 0, -1, places * n_parts + part) for part, (_, places) in enumerate(found)], axis=1
            )
            similarities[ids < 0] = -np.inf
            best = np.lexsort((ids, -similarities))[:, :k]
            return np.take_along_axis(ids, best, axis=1), np.take_along_axis(similarities, best, axis=1)

        results = _in_threads(faiss, search_all_parts, range(0, len(queries), QUERIES_AT_ONCE), threads)
        return np.concatenate([ids for ids, _ in results]), np.concatenate([cosines for _, cosines in results])

    def save(self, path: str | Path) -> None:
        """Write the index into one file: all or nothing, and the same bytes for the same index.

        It is a safetensors file with the array `vectors`, or with the bytes of faiss's graphs, and a checksum.
        """
        # Written twice, first only to learn sizes and checksum: that needs no second copy in memory.
        digest = hashlib.sha256()
        sizes = [write(digest.update) for write in self._writers()]
        facts = _Facts(FORMAT, FORMAT_VERSION, self.n_vectors, self.dimensions, self.search_effort, digest.hexdigest())
        with write_atomically(path) as file:
            _write_header(file, facts, sizes, exact=self.exact)
            for write in self._writers():
                write(file.write)

    def _writers(self) -> list[Callable[[Callable[[bytes], Any]], int]]:
        """For each array of the file, a function that passes its bytes on and says how many they were."""
        if self._vectors is not None:
            return [partial(_pass_rows, self._vectors)]
        return [partial(_pass_graph, graph) for graph in self._graphs]

    @staticmethod
    def load(
        path: str | Path, *, memory_mapped: bool = True, verify: bool = True, search_effort: int | None = None
    ) -> NeighbourIndex:
        """An index from its file, which must not be written into as long as the index is in use (replacing it is fine).

        Memory-mapped, pages are read when first needed, and shared between processes. `verify` compares the
        checksum first, which reads all of the file; leave it out where that was done already, as for the files of
        a model folder. `search_effort` replaces the saved one. A file that is damaged is a ModelError.
        """
        path = Path(path)
        if search_effort is not None:
            _check_search_effort(search_effort)
        try:
            content = np.memmap(path, np.uint8, "r") if memory_mapped else np.fromfile(path, np.uint8)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}.") from None
        except ValueError:  # an empty file cannot be mapped
            content = np.zeros(0, np.uint8)
        return NeighbourIndex.of_content(content, path, verify=verify, search_effort=search_effort)

    @staticmethod
    def of_content(
        content: Any, path: Path, *, verify: bool = True, search_effort: int | None = None
    ) -> NeighbourIndex:
        """As `load`, where the content of the file is there already; `path` is for messages."""
        content = np.frombuffer(content, np.uint8)
        facts, start, arrays = _read_header(content, path)
        buffer = content[start:]
        if verify and hashlib.sha256(buffer.data).hexdigest() != facts.sha256:
            raise _damaged(path, "its checksum differs")
        effort = facts.search_effort if search_effort is None else search_effort
        shape = facts.n_vectors, facts.dimensions
        if "vectors" in arrays:
            return NeighbourIndex(buffer.view(np.float32).reshape(shape), *shape, effort)
        graphs = [_graph_of(buffer[slice(*arrays[name])], path) for name in arrays]
        expected = [len(range(part, facts.n_vectors, len(graphs))) for part in range(len(graphs))]
        if [graph.ntotal for graph in graphs] != expected or any(graph.d != facts.dimensions for graph in graphs):
            raise _damaged(path, "its parts do not make up the index they should")
        return NeighbourIndex(graphs, *shape, effort, buffer)


def _checked(vectors: np.ndarray) -> np.ndarray:
    """Vectors as float32, if they can be compared at all."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise DataError(f"expected vectors as rows of a matrix, not an array of shape {vectors.shape}")
    with np.errstate(over="ignore"):
        vectors = vectors.astype(np.float32, copy=False)
    for begin in range(0, len(vectors), ROWS_AT_ONCE):
        fine = np.isfinite(vectors[begin : begin + ROWS_AT_ONCE]).all(axis=1)
        if not fine.all():
            raise DataError(
                f"vector {begin + int(fine.argmin())} has a value that is infinite or not a number. "
                "If the vectors come from training, it has diverged: lower the learning rate."
            )
    return vectors


def _check_search_effort(search_effort: int) -> None:
    if search_effort < 1:
        raise OptionError(f"search_effort must be at least 1, not {search_effort}")


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """A copy with each row scaled to length 1; rows of zeros stay."""
    scaled = np.empty(vectors.shape, np.float32)
    for begin in range(0, len(vectors), ROWS_AT_ONCE):
        # In 64 bits, squares of the largest and the smallest float32 are still numbers.
        rows = vectors[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        lengths[lengths == 0] = 1
        scaled[begin : begin + ROWS_AT_ONCE] = rows / lengths[:, None]
    return scaled


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ShortlistError(
            "an approximate index of nearest neighbours needs faiss, which is not installed: "
            'pip install "faiss-cpu>=1.15"'
        ) from None
    return faiss


def _in_threads(faiss: Any, work: Callable[[int], Any], tasks: Sequence[int], threads: int | None) -> list[Any]:
    """work(task) of every task, in order; faiss itself keeps to one thread in each."""

    def alone(task: int) -> Any:
        with _one_thread_of(faiss):
            return work(task)

    with use_threads(threads) as n_threads:
        pass
    if min(n_threads, len(tasks)) == 1:
        return [alone(task) for task in tasks]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(alone, tasks))


@contextmanager
def _one_thread_of(faiss: Any) -> Iterator[None]:
    """Within the block, what this thread calls in faiss starts no further threads."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _pass_rows(vectors: np.ndarray, take: Callable[[bytes], Any]) -> int:
    for begin in range(0, len(vectors), ROWS_AT_ONCE):
        take(vectors[begin : begin + ROWS_AT_ONCE].astype("<f4", copy=False).tobytes())
    return vectors.nbytes


def _pass_graph(graph: Any, take: Callable[[bytes], Any]) -> int:
    faiss, size = _import_faiss(), 0

    def count_and_take(data: bytes) -> None:
        nonlocal size
        size += len(data)
        take(data)

    writer = faiss.BufferedIOWriter(faiss.PyCallbackIOWriter(count_and_take, WRITE_BUFFER), WRITE_BUFFER)
    faiss.write_index(graph, writer)
    del writer  # its last bytes go out only now
    return size


def _write_header(file: BinaryIO, facts: _Facts, sizes: list[int], *, exact: bool) -> None:
    """The header of a safetensors file: its length, then JSON that says where each array is."""
    ends = np.cumsum(sizes).tolist()
    header: dict[str, Any] = {"__metadata__": {"index": msgspec.json.encode(facts).decode()}}
    for part, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        name, dtype, shape = f"graph-{part}", "U8", [size]
        if exact:
            name, dtype, shape = "vectors", "F32", [facts.n_vectors, facts.dimensions]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end - size, end]}
    content = msgspec.json.encode(header)
    content += b" " * (-len(content) % 64)
    file.write(len(content).to_bytes(8, "little") + content)


def _read_header(content: np.ndarray, path: Path) -> tuple[_Facts, int, dict[str, tuple[int, int]]]:
    """What the file says about itself, where its arrays begin, and which bytes from there on belong to each."""
    try:
        header, more, start = safetensors_header(content)
        facts = msgspec.json.decode(more["index"], type=_Facts)
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise _damaged(path, f"not a readable index: {error}") from None
    if facts.format != FORMAT or facts.format_version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: holds {facts.format!r} of version {facts.format_version}, this release reads {FORMAT!r} of "
            f"version {FORMAT_VERSION}. Use the release that wrote it, or train the model again."
        )
    shape, size = [facts.n_vectors, facts.dimensions], len(content) - start
    fits = facts.search_effort >= 1 and facts.dimensions >= 1 and len(header) >= 1
    if "vectors" in header:
        vectors = header["vectors"]
        of_floats = (vectors.dtype, vectors.shape) == ("F32", shape) and size == 4 * shape[0] * shape[1]
        fits = fits and len(header) == 1 and of_floats
    if not fits or start % 4:
        raise _damaged(path, "what it says about itself does not fit together")
    return facts, start, {name: array.data_offsets for name, array in header.items()}


def _graph_of(content: np.ndarray, path: Path) -> Any:
    """faiss's graph in these bytes; it points into them and does not copy them."""
    faiss = _import_faiss()
    try:
        with _at_most(faiss, len(content)):
            graph = faiss.read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(content), len(content)))
    except (RuntimeError, MemoryError) as error:
        raise _damaged(path, f"faiss: {str(error).splitlines()[0]}") from None
    if not isinstance(graph, faiss.IndexHNSWFlat) or graph.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise _damaged(path, "a part is not an HNSW graph")
    return graph


@contextmanager
def _at_most(faiss: Any, n_bytes: int) -> Iterator[None]:
    """Within the block, faiss believes no array to be larger: by a damaged length, it would fill all memory."""
    with _LIMIT_LOCK:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path}: the index is damaged; train or fetch the model again ({what}).")
