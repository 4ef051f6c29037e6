"""Indexes for nearest neighbours: faiss, usearch, ours, and exact search.

    python benchmarks/indexes.py DATA/tibkat-sid

The vectors are those that the recipes search: texts as tf-idf weighted sums of learnt word vectors followed by a ReLU,
and labels as centroids of their texts. Queries are test texts. Recall is that of the 100 nearest vectors by cosine.
Work on one thread is measured in CPU seconds, because other programs affect them least; builds with two threads and
loading in wall-clock seconds. The benchmark also checks whether builds are reproducible, and what happens with damaged
files (each in a process of its own, and without the checksums of a model folder). The ratio is the batch time of exact
search over that of our graphs, among texts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from common import make_parser, print_json, read_splits, show, timed, unit
from shortlist.kernels.threads import use_cores
from shortlist.model.format import arrays_of, mapped
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.candidates.neighbours import NeighbourIndex
from shortlist.stages.stage import quantize_rows
from shortlist.text import TfIdf, Vocabulary, learn_vectors

K = 100
LINKS, BUILD_EFFORT = 32, 100
HNSW_EFFORTS, CELL_EFFORTS = (100, 300), (16, 64)
N_SMALL = 5_000  # vectors for the checks of files and of repeated builds
SLOW_BUILD = 15  # seconds; slower builds are not repeated with two threads
MEMORY_LIMIT = 6 << 30  # for loading damaged files
DAMAGES = {"cut off": 4, "1 of the first 200 bytes": 12, "64 bytes anywhere": 8}  # how often each is tried


def load_arrays(path, as_map):
    """The arrays of a safetensors file, mapped as those of a model are, or read."""
    if not as_map:
        return load_file(path)
    with path.open("rb") as file:
        return arrays_of(mapped(file), path)


class Ours:
    """Exact search, or faiss's graphs over a quarter of the vectors each."""

    def __init__(self, exact):
        self.exact, self.efforts = exact, (0,) if exact else (100, 200)

    def build(self, vectors, threads):
        with use_cores(threads):
            self.index = NeighbourIndex.build(vectors, exact=self.exact, links=LINKS, build_breadth=BUILD_EFFORT)

    def search(self, queries, effort):
        if effort:
            self.index.search_breadth = effort
        with use_cores(1):
            return self.index.search(queries, K)[0]

    def save(self, path):
        save_file(self.index.arrays(), path)

    def load(self, path, as_map):
        self.index = NeighbourIndex.from_arrays(load_arrays(path, as_map), search_breadth=100)


class Cells:
    """Our index of labels: cells with 8 bits per number. The effort is the number of cells searched."""

    efforts = CELL_EFFORTS

    def build(self, vectors, threads):
        with use_cores(threads):
            index = CellIndex.build(vectors)
        self.index = CellIndex.from_arrays(quantize_rows(index.arrays(), CellIndex.spec))

    def search(self, queries, effort):
        with use_cores(1):
            return self.index.search(queries, K, effort)[0]

    def save(self, path):
        save_file(self.index.arrays(), path)

    def load(self, path, as_map):
        self.index = CellIndex.from_arrays(load_arrays(path, as_map))


class Faiss:
    """An index of faiss's factory. The effort is efSearch of a graph, or the number of cells searched."""

    def __init__(self, factory):
        self.factory, self.is_graph = factory, factory.startswith("HNSW")
        self.efforts = HNSW_EFFORTS if self.is_graph else CELL_EFFORTS

    def build(self, vectors, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        description = self.factory.format(n_cells=int(4 * len(vectors) ** 0.5))
        self.index = faiss.index_factory(vectors.shape[1], description, faiss.METRIC_INNER_PRODUCT)
        if self.is_graph:
            self.index.hnsw.efConstruction = BUILD_EFFORT
        else:
            self.index.cp.min_points_per_centroid = 1  # avoids warnings
        self.index.train(vectors)
        self.index.add(vectors)
        faiss.omp_set_num_threads(1)

    def search(self, queries, effort):
        if self.is_graph:
            self.index.hnsw.efSearch = effort
        else:
            self.index.nprobe = effort
        return self.index.search(queries, K)[1]

    def save(self, path):
        import faiss

        faiss.write_index(self.index, str(path))

    def load(self, path, as_map):
        import faiss

        self.index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if as_map else 0)


class Usearch:
    efforts = HNSW_EFFORTS

    def __init__(self, dtype):
        self.dtype = dtype

    def build(self, vectors, threads):
        from usearch.index import Index

        options = {"connectivity": LINKS, "expansion_add": BUILD_EFFORT}
        self.index = Index(ndim=vectors.shape[1], metric="ip", dtype=self.dtype, **options)
        self.index.add(np.arange(len(vectors)), vectors, threads=threads)

    def search(self, queries, effort):
        self.index.expansion_search = effort
        return np.atleast_2d(self.index.search(queries, K, threads=1).keys.astype(np.int64))

    def save(self, path):
        self.index.save(str(path))

    def load(self, path, as_map):
        from usearch.index import Index

        self.index = Index.restore(str(path), view=as_map)
        if self.index is None:
            raise ValueError("refused without a reason")


EXACT, OUR_GRAPHS = "exact", "Shortlist, 4 graphs"
INDEXES = {
    EXACT: lambda: Ours(exact=True),
    "faiss HNSW": lambda: Faiss(f"HNSW{LINKS},Flat"),
    "faiss HNSW, 8 bits": lambda: Faiss(f"HNSW{LINKS}_SQ8"),
    "faiss HNSW, fp16": lambda: Faiss(f"HNSW{LINKS}_SQfp16"),
    "faiss IVF": lambda: Faiss("IVF{n_cells},Flat"),
    "faiss IVF, 8 bits": lambda: Faiss("IVF{n_cells},SQ8"),
    "usearch HNSW": lambda: Usearch("f32"),
    "usearch HNSW, bf16": lambda: Usearch("bf16"),
    "usearch HNSW, i8": lambda: Usearch("i8"),
    OUR_GRAPHS: lambda: Ours(exact=False),
    "Shortlist, cells": Cells,
}
AMONG_TEXTS = [EXACT, "faiss HNSW", "faiss IVF", "usearch HNSW, bf16", OUR_GRAPHS]
DAMAGED = ["faiss HNSW", "faiss IVF", "usearch HNSW", OUR_GRAPHS]


def built(name, vectors, threads=1):
    index = INDEXES[name]()
    index.build(vectors, threads)
    return index


def vectors_of(folder):
    """Unit vectors of texts, labels and queries."""
    train, test = read_splits(folder)
    vocabulary, word_ids = Vocabulary.build_and_encode(train.texts, min_count=2)
    words = learn_vectors(word_ids, len(vocabulary), seed=1, labels=train.labels, n_labels=train.n_labels)
    tf_idf = TfIdf.fit(word_ids, len(vocabulary))
    texts = unit(np.maximum(tf_idf.transform(word_ids) @ words, 0))
    queries = unit(np.maximum(tf_idf.transform(vocabulary.encode(test.texts)) @ words, 0))
    return texts, unit(train.labels.to_csr(train.n_labels).T @ texts), queries


def compare(title, names, vectors, queries, folder):
    """Print and return one result per index and search effort."""
    print(f"\n{title}: {len(vectors):,} × {vectors.shape[1]}, {len(queries):,} queries")
    nearest, results = None, []
    for name in names:
        build_seconds, index = timed(lambda name=name: built(name, vectors), time.process_time)
        two_threads = None
        if build_seconds < SLOW_BUILD:
            two_threads = round(timed(lambda name=name: built(name, vectors, threads=2))[0], 1)
        path = folder / "index"
        index.save(path)
        load_ms = {as_map: load_milliseconds(name, path, as_map) for as_map in (True, False)}
        for effort in index.efforts:
            search = partial(index.search, effort=effort)
            search(queries[:2])
            seconds, found = timed(partial(search, queries), time.process_time)
            nearest = found if nearest is None else nearest
            singles = [queries[i : i + 1] for i in range(min(100, len(queries)))]
            alone = [timed(partial(search, single), time.process_time)[0] for single in singles]
            common = [len(np.intersect1d(a, b)) for a, b in zip(found, nearest, strict=True)]
            results.append(
                {
                    "": name,
                    "build s": round(build_seconds, 1),
                    "2 threads": two_threads,
                    "effort": effort or None,
                    "recall": round(float(np.mean(common)) / K, 4),
                    "batch µs": round(1e6 * seconds / len(queries)),
                    "alone µs": round(1e6 * float(np.median(alone))),
                    "file MB": round(path.stat().st_size / 1e6, 1),
                    "mapped ms": load_ms[True],
                    "read ms": load_ms[False],
                }
            )
    show(results)
    return results


def load_milliseconds(name, path, as_map):
    return round(1e3 * min(timed(lambda: INDEXES[name]().load(path, as_map))[0] for _ in range(3)), 1)


def check_repeated_builds(names, vectors, folder):
    """Whether builds of the same vectors give the same file."""
    print(f"\nreproducible builds of {len(vectors):,} vectors")
    results = []
    for name in names:
        files = {1: set(), 2: set()}
        for threads in (1, 1, 2, 2, 2):
            built(name, vectors, threads).save(folder / "repeat")
            files[threads].add((folder / "repeat").read_bytes())
        same = {"1 thread": len(files[1]) == 1, "2 threads": len(files[2]) == 1, "both": len(files[1] | files[2]) == 1}
        results.append({"": name, **{key: "yes" if value else "no" for key, value in same.items()}})
    show(results)


def check_damaged_files(names, vectors, queries, folder):
    """What happens when a damaged file is mapped and searched."""
    print("\ndamaged files")
    np.save(folder / "queries.npy", queries[:100])
    results = []
    for name in names:
        index = built(name, vectors)
        index.save(folder / "whole")
        np.save(folder / "expected.npy", index.search(queries[:100], index.efforts[0]))
        content, rng = np.fromfile(folder / "whole", np.uint8), np.random.default_rng(0)
        result = {"": name}
        for damage, times in DAMAGES.items():
            outcomes = Counter()
            for _ in range(times):
                damaged(content, damage, rng).tofile(folder / "damaged")
                outcomes[outcome_of(name, folder)] += 1
            result[damage] = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        results.append(result)
    show(results)


def damaged(content, damage, rng):
    content = content.copy()
    if damage == "cut off":
        return content[: rng.integers(1, len(content))]
    at = rng.integers(0, 200, 1) if damage.startswith("1") else rng.integers(0, len(content), 64)
    content[at] ^= rng.integers(1, 256, len(at)).astype(np.uint8)
    return content


def outcome_of(name, folder):
    command = [sys.executable, __file__, str(folder), "--damaged", name]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "hangs"
    return result.stdout.strip() if result.returncode == 0 else "crash"


def search_damaged_file(name, folder):
    """Load and search in this process; return what happened."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    index = INDEXES[name]()
    try:
        index.load(folder / "damaged", True)
    except Exception as error:  # noqa: BLE001 - any error counts as a refusal
        return "out of memory" if isinstance(error, MemoryError) else "refused"
    try:
        found = index.search(np.load(folder / "queries.npy"), index.efforts[0])
    except Exception:  # noqa: BLE001
        return "error in search"
    return "harmless" if np.array_equal(found, np.load(folder / "expected.npy")) else "wrong results"


def main():
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a data set with train and test")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--damaged", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.damaged:
        print(search_damaged_file(arguments.damaged, arguments.folder))
        return

    texts, labels, queries = vectors_of(arguments.folder)
    queries = queries[: arguments.queries]
    for name in (EXACT, OUR_GRAPHS):
        built(name, labels[:10]).search(queries[:2], 0)  # loads what is needed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_repeated_builds([name for name in INDEXES if name != EXACT], labels[:N_SMALL], folder)
        check_damaged_files(DAMAGED, labels[:N_SMALL], queries, folder)
        among_labels = compare("labels", INDEXES, labels, queries, folder)
        among_texts = compare("texts", AMONG_TEXTS, texts, queries, folder)
    exact = among_texts[0]
    ours = next(result for result in among_texts if result[""] == OUR_GRAPHS)
    ratio = round(exact["batch µs"] / ours["batch µs"], 3)
    print_json("indexes", ratio=ratio, n_vectors=len(texts), among_labels=among_labels, among_texts=among_texts)


if __name__ == "__main__":
    main()
