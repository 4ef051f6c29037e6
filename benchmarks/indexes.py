"""Which index finds nearest neighbours best: faiss's, usearch's, or none at all?

    python benchmarks/indexes.py DATA/tibkat-sid

The vectors are those that the recipes search among: texts as tf-idf weighted sums of learnt word vectors behind a
ReLU, and labels as centroids of their texts; queries are texts of the test part. Recall is that of the 100 nearest
by cosine. All on one thread is timed as CPU seconds, which other work on the machine disturbs least; builds on two
threads and loading as seconds on the clock. Damaged files go to a process each.
The ratio is the time of a batch by exact search over that by our index, among the texts: above 1, graphs are faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import shortlist
from shortlist.kernels.threads import use_cores
from shortlist.model.folder import mapped_arrays
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.neighbours import NeighbourIndex
from shortlist.text import TfIdf, Vocabulary, learn_vectors

K = 100
LINKS, BUILD_EFFORT = 32, 100
EFFORTS = (100, 300)
FEW = 5_000  # vectors in the tests of files and of repeated builds
SLOW = 15  # seconds; what takes longer to build is built once only


class Exact:
    """Products with all vectors, in blocks."""

    efforts = (0,)

    def build(self, vectors, threads):
        self.index = NeighbourIndex.build(vectors, exact=True, threads=threads)

    def search(self, queries, effort):
        if effort:
            self.index.search_effort = effort
        return self.index.search(queries, K, threads=1)[0]

    def save(self, path):
        self.index.save(path)

    def load(self, path, mapped):
        self.index = NeighbourIndex.load(path, memory_mapped=mapped)


class Parts(Exact):
    """Our index: faiss's graphs over a quarter of the vectors each."""

    efforts = (100, 200)

    def build(self, vectors, threads):
        self.index = NeighbourIndex.build(vectors, exact=False, links=LINKS, build_effort=BUILD_EFFORT, threads=threads)


class Faiss:
    efforts = EFFORTS

    def __init__(self, kind=""):
        self.kind = kind

    def build(self, vectors, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        dimensions, metric = vectors.shape[1], faiss.METRIC_INNER_PRODUCT
        if self.kind:
            quantiser = getattr(faiss.ScalarQuantizer, self.kind)
            self.index = faiss.IndexHNSWSQ(dimensions, quantiser, LINKS, metric)
            self.index.train(vectors)
        else:
            self.index = faiss.IndexHNSWFlat(dimensions, LINKS, metric)
        self.index.hnsw.efConstruction = BUILD_EFFORT
        self.index.add(vectors)
        faiss.omp_set_num_threads(1)

    def search(self, queries, effort):
        self.index.hnsw.efSearch = effort
        return self.index.search(queries, K)[1]

    def save(self, path):
        import faiss

        faiss.write_index(self.index, str(path))

    def load(self, path, mapped):
        import faiss

        self.index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)


class FaissIvf(Faiss):
    """Inverted lists; the effort is how many of them a query visits."""

    efforts = (16, 64)
    form = "Flat"

    def build(self, vectors, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        n_lists = int(4 * len(vectors) ** 0.5)
        self.index = faiss.index_factory(vectors.shape[1], f"IVF{n_lists},{self.form}", faiss.METRIC_INNER_PRODUCT)
        self.index.cp.min_points_per_centroid = 1  # no warnings
        self.index.train(vectors)
        self.index.add(vectors)
        faiss.omp_set_num_threads(1)

    def search(self, queries, effort):
        self.index.nprobe = effort
        return self.index.search(queries, K)[1]


class FaissIvf8(FaissIvf):
    """The same with 8 bits a number."""

    form = "SQ8"


class Cells:
    """Our index of labels: cells, 8 bits a number; the effort is how many cells a query visits."""

    efforts = (16, 64)

    def build(self, vectors, threads):
        with use_cores(threads):
            index = CellIndex.build(vectors)
        self.index = replace(index, vectors=index.vectors.in_8_bits())

    def search(self, queries, effort):
        return self.index.search(queries, K, effort, threads=1)[0]

    def save(self, path):
        save_file(self.index.to_arrays(), path)

    def load(self, path, mapped):
        self.index = CellIndex.from_arrays(mapped_arrays(path) if mapped else load_file(path))


class Usearch:
    efforts = EFFORTS

    def __init__(self, kind):
        self.kind = kind

    def build(self, vectors, threads):
        from usearch.index import Index

        self.index = Index(
            ndim=vectors.shape[1],
            metric="ip",
            dtype=self.kind,
            connectivity=LINKS,
            expansion_add=BUILD_EFFORT,
        )
        self.index.add(np.arange(len(vectors)), vectors, threads=threads)

    def search(self, queries, effort):
        self.index.expansion_search = effort
        return np.atleast_2d(self.index.search(queries, K, threads=1).keys.astype(np.int64))

    def save(self, path):
        self.index.save(str(path))

    def load(self, path, mapped):
        from usearch.index import Index

        self.index = Index.restore(str(path), view=mapped)
        if self.index is None:
            raise ValueError("refused without a reason")


INDEXES = {
    "exact": Exact,
    "faiss HNSW": Faiss,
    "faiss HNSW, 8 bits": lambda: Faiss("QT_8bit"),
    "faiss HNSW, fp16": lambda: Faiss("QT_fp16"),
    "faiss IVF": FaissIvf,
    "faiss IVF, 8 bits": FaissIvf8,
    "usearch HNSW": lambda: Usearch("f32"),
    "usearch HNSW, bf16": lambda: Usearch("bf16"),
    "usearch HNSW, i8": lambda: Usearch("i8"),
    "Shortlist, 4 parts": Parts,
    "Shortlist, cells": Cells,
}
AMONG_TEXTS = ["exact", "faiss HNSW", "faiss IVF", "usearch HNSW, bf16", "Shortlist, 4 parts"]
TRIED_WITH_DAMAGE = ["faiss HNSW", "faiss IVF", "usearch HNSW", "Shortlist, 4 parts"]


def vectors_of(folder):
    """Unit vectors of texts, of labels, and of queries."""
    data, test = shortlist.read(folder, part="train"), shortlist.read(folder, part="test")
    vocabulary, word_ids = Vocabulary.build_and_encode(data.texts, min_count=2)
    words = learn_vectors(word_ids, len(vocabulary), seed=1, labels=data.labels, n_labels=data.n_labels)
    tf_idf = TfIdf.fit(word_ids, len(vocabulary))
    texts = unit(np.maximum(tf_idf.transform(word_ids) @ words, 0))
    queries = unit(np.maximum(tf_idf.transform(vocabulary.encode(test.texts)) @ words, 0))
    return texts, unit(data.labels.to_csr(data.n_labels).T @ texts), queries


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def recall_of(found, nearest):
    return np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, nearest, strict=True)]) / K


def seconds_of(work, clock=time.process_time):
    start = clock()
    result = work()
    return clock() - start, result


def compare(title, names, vectors, queries, folder):
    """Print a table; all numbers by name and effort."""
    print(f"\n{title}: {len(vectors):,} × {vectors.shape[1]}, {len(queries):,} queries, µs a query")
    print(f"{'':20}{'build s':>8}{'2 thr.':>7}{'effort':>7}{'recall':>8}{'batch':>7}{'alone':>7}", end="")
    print(f"{'file MB':>9}{'mapped ms':>10}{'read ms':>8}")
    nearest, numbers = None, {}
    for name in names:
        index = INDEXES[name]()
        build, _ = seconds_of(lambda index=index: index.build(vectors, 1))
        both = None
        if build < SLOW:
            both, _ = seconds_of(lambda name=name: INDEXES[name]().build(vectors, 2), time.perf_counter)
        size, loads = file_facts(name, index, folder / "index")
        for effort in index.efforts:
            index.search(queries[:2], effort)
            batch, found = seconds_of(lambda index=index, effort=effort: index.search(queries, effort))
            nearest = found if nearest is None else nearest
            alone = [
                seconds_of(lambda i=i, index=index, effort=effort: index.search(queries[i : i + 1], effort))[0]
                for i in range(100)
            ]
            one = numbers[name, effort] = {
                "build_s": round(build, 1),
                "build_2_threads_s": both and round(both, 1),
                "recall": round(float(recall_of(found, nearest)), 4),
                "batch_us": round(1e6 * batch / len(queries)),
                "alone_us": round(1e6 * float(np.median(alone))),
            }
            print(
                f"{name:20}{build:8.1f}{one['build_2_threads_s'] or '':>7}{effort or '':>7}{one['recall']:8.4f}", end=""
            )
            print(f"{one['batch_us']:7}{one['alone_us']:7}{size:9.1f}{loads[0]:10.1f}{loads[1]:8.1f}", flush=True)
    return numbers


def file_facts(name, index, path):
    """Size in MB; milliseconds until the index is loaded, mapped and read."""
    index.save(path)
    loads = [
        min(seconds_of(lambda mapped=mapped: INDEXES[name]().load(path, mapped), time.perf_counter)[0] for _ in "123")
        for mapped in (True, False)
    ]
    return path.stat().st_size / 1e6, [1e3 * load for load in loads]


def print_repeats(names, vectors, folder):
    print(f"\nthe same file from builds of the same {len(vectors):,} vectors with 1, with 2 threads; with 1 as with 2")
    for name in names:
        files = {1: set(), 2: set()}
        for threads in (1, 1, 2, 2, 2):
            index = INDEXES[name]()
            index.build(vectors, threads)
            index.save(folder / "repeat")
            files[threads].add((folder / "repeat").read_bytes())
        answers = [len(files[1]) == 1, len(files[2]) == 1, len(files[1] | files[2]) == 1]
        print(f"{name:20}" + "".join(f"{'yes' if answer else 'no':>5}" for answer in answers), flush=True)


def print_damage(names, vectors, queries, folder):
    print("\nwhat damage to a file leads to (mapped), in so many of the cases")
    np.save(folder / "queries.npy", queries[:100])
    for name in names:
        index = INDEXES[name]()
        index.build(vectors, 1)
        index.save(folder / "whole")
        np.save(folder / "expected.npy", index.search(queries[:100], index.efforts[0]))
        content = np.fromfile(folder / "whole", np.uint8)
        rng, outcomes = np.random.default_rng(0), {}
        for damage, times in [("cut off", 4), ("1 of the first 200 bytes", 12), ("64 bytes anywhere", 8)]:
            outcomes[damage] = Counter()
            for _ in range(times):
                changed = content.copy()
                if damage == "cut off":
                    changed = changed[: rng.integers(1, len(changed))]
                else:
                    at = rng.integers(0, 200, 1) if damage.startswith("1") else rng.integers(0, len(changed), 64)
                    changed[at] ^= rng.integers(1, 256, len(at)).astype(np.uint8)
                changed.tofile(folder / "damaged")
                outcomes[damage][outcome_of(name, folder)] += 1
        texts = [f"{damage}: " + ", ".join(f"{n} {what}" for what, n in c.items()) for damage, c in outcomes.items()]
        print(f"{name:20}" + "; ".join(texts), flush=True)


def outcome_of(name, folder):
    command = [sys.executable, __file__, str(folder), "--damaged", name]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "hangs"
    return result.stdout.strip() if result.returncode == 0 else "crash"


def try_damaged(name, folder):
    """In a process of its own: load, search, say what happened."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    index = INDEXES[name]()
    try:
        index.load(folder / "damaged", True)
    except Exception as error:  # noqa: BLE001 - what it is does not matter here, only that it is one
        return "out of memory" if isinstance(error, MemoryError) else "refused"
    try:
        found = index.search(np.load(folder / "queries.npy"), index.efforts[0])
    except Exception:  # noqa: BLE001
        return "error in search"
    expected = np.load(folder / "expected.npy")
    same = found.shape == expected.shape and (found == expected).all()
    return "harmless" if same else "wrong results"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a data set with a training and a test part")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--damaged", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.damaged:
        print(try_damaged(chosen.damaged, chosen.folder))
        return

    texts, labels, queries = vectors_of(chosen.folder)
    queries = queries[: chosen.queries]
    Exact().build(labels[:10], 1)
    NeighbourIndex.build(labels[:10]).search(queries[:2], 1, threads=1)  # compiles, or loads from the cache
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print_repeats([name for name in INDEXES if name != "exact"], labels[:FEW], folder)
        print_damage(TRIED_WITH_DAMAGE, labels[:FEW], queries, folder)
        compare("labels", INDEXES, labels, queries, folder)
        numbers = compare("texts", AMONG_TEXTS, texts, queries, folder)
    exact, ours = numbers["exact", 0], numbers["Shortlist, 4 parts", 100]
    result = {
        "benchmark": "indexes",
        "ratio": round(exact["batch_us"] / ours["batch_us"], 3),
        "ratio_is": "batch time of exact search / our graphs at effort 100, among the texts",
        "n_vectors": len(texts),
        "exact": exact,
        "ours": ours,
        "faiss_at_300": numbers["faiss HNSW", 300],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
