"""Threads for kernels: shares, errors, nesting, forks, and the same results with any number of threads."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels import (
    candidates,
    classifier,
    encoders,
    evidence,
    label_rows,
    metrics,
    reranker,
    threads,
    top_k,
    word_vectors,
)
from shortlist.kernels.threads import n_cores, run_ranges, run_shares, use_cores, use_threads

SECONDS = 100
MODULES = candidates, classifier, encoders, evidence, label_rows, metrics, reranker, top_k, word_vectors


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    """As on a machine with four cores, and with shares of any size."""
    monkeypatch.setattr(threads, "n_cores", lambda: 4)
    monkeypatch.setattr(threads._Process, "pool", None)
    for module in (threads, *MODULES):
        if hasattr(module, "run_ranges"):
            monkeypatch.setattr(module, "run_ranges", lambda serial, n, least, *rest: run_ranges(serial, n, 1, *rest))
    yield
    if threads._Process.pool is not None:
        threads._Process.pool.shutdown()


@pytest.mark.parametrize(("asked", "used"), [(None, 4), (1, 1), (3, 3), (99, 4)])
def test_threads_are_limited_to_the_cores(asked, used):
    for block in (use_threads, use_cores):
        with block(2), block(asked) as n_threads:
            assert n_threads == used


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "2"])
def test_wrong_numbers_of_threads_are_refused(wrong):
    for block in (use_threads, use_cores):
        with pytest.raises(OptionError, match="threads"):
            block(wrong)


def test_use_threads_ends_with_its_block_and_belongs_to_its_thread():
    with use_threads(1):
        with use_threads(3):
            pass
        assert threads._local.limit() == 1
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(threads._local.limit).result() == 4
    assert threads._local.limit() == 4


def test_use_cores_limits_blas_until_the_last_user_leaves():
    # A BLAS on OpenMP (faiss brings one) keeps a number per thread, so another thread cannot restore this one's.
    libraries = [library for library in threads._blas_libraries(True) if library.threading_layer != "openmp"]
    before = [library.num_threads for library in libraries]
    other = use_cores(1)
    with ThreadPoolExecutor(1) as another_thread:
        with use_cores(1):
            another_thread.submit(other.__enter__).result()
        assert [library.num_threads for library in libraries] == [1] * len(libraries)
        another_thread.submit(other.__exit__).result()
    assert [library.num_threads for library in libraries] == before


TRAINING = """
import shortlist
from threadpoolctl import threadpool_info
from shortlist.text import learnt_vectors

texts = [f"word{i % 7} thing{i % 5} stuff{i % 11}" for i in range(300)]
shortlist.train([(text, ["label"]) for text in texts], recipe="centroid").predict(texts)
factorise, seen = learnt_vectors._factorise, []

def watched(*arguments):
    factors = factorise(*arguments)
    seen.append({info["filepath"]: info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"})
    return factors

learnt_vectors._factorise = watched
pairs = [(text, [f"label {i % 9}"]) for i, text in enumerate(texts)]
shortlist.train(pairs, recipe="astec", n_epochs=1, n_surrogate_epochs=1)
assert seen and all(set(threads.values()) == {1} for threads in seen), seen
"""


def test_training_limits_all_blas_libraries():
    """scipy.linalg has its own, which is loaded later than numpy's."""
    subprocess.run([sys.executable, "-c", TRAINING], check=True, timeout=SECONDS)


@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from([None, 1, 2, 3]))
def test_ranges_cover_everything_once_and_are_not_too_short(n, minimum, n_threads):
    ranges = []
    with use_threads(n_threads):
        run_ranges(lambda begin, end: ranges.append((begin, end)), n, minimum)
    assert sorted(i for begin, end in ranges for i in range(begin, end)) == list(range(n))
    assert len(ranges) == 1 or min(end - begin for begin, end in ranges) >= minimum


def test_work_is_shared_with_other_threads_that_use_one_thread_each():
    met, seen = threading.Barrier(4, timeout=SECONDS), set()

    def work(share):
        met.wait()
        with use_threads(None) as n_threads:
            seen.add((threading.get_ident(), n_threads))

    run_shares(work, 4)
    assert len(seen) == 4
    assert {n_threads for _, n_threads in seen} == {1}


def test_one_thread_works_inline():
    seen = []
    with use_threads(1):
        run_shares(lambda share: seen.append((share, threading.get_ident())), 5)
    assert seen == [(share, threading.get_ident()) for share in range(5)]
    assert threads._Process.pool is None


@pytest.mark.parametrize("in_caller", [True, False])
def test_an_error_reaches_the_caller_when_all_have_stopped(in_caller):
    caller, both, running = threading.get_ident(), threading.Barrier(2, timeout=SECONDS), []

    def work(share):
        if share > 1:
            running.append(share)
            return
        both.wait()
        if (threading.get_ident() == caller) == in_caller:
            raise ZeroDivisionError("broken")

    with use_threads(2), pytest.raises(ZeroDivisionError, match="broken"):
        run_shares(work, 2)
    with use_threads(2):
        run_shares(running.append, 3)  # the pool still works
    assert sorted(running) == [0, 1, 2]


def test_nested_shares_and_a_busy_pool_do_not_block():
    done = []

    def outer(share):
        run_shares(lambda inner: done.append((share, inner)), 3)

    run_shares(outer, 40)
    assert sorted(done) == [(share, inner) for share in range(40) for inner in range(3)]
    free = threading.Event()
    busy = threading.Thread(target=run_shares, args=(lambda _: free.wait(SECONDS), 8))
    busy.start()
    run_shares(done.append, 8)  # though the other caller's shares take all threads of the pool
    free.set()
    busy.join()
    assert sorted(done[-8:]) == list(range(8))


def kernel_calls(rng):
    """Every parallel kernel with arguments; some of these take the results."""

    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def ids(high, *shape, low=-1):
        return rng.integers(low, high, shape).astype(np.int32)

    def lists(n, width, high):
        return np.stack([rng.permutation(high)[:width] for _ in range(n)]).astype(np.int32)

    def ragged(n, high):
        rows = Ragged.from_lists([np.sort(rng.permutation(high)[: rng.integers(0, 6)]) for _ in range(n)])
        return rows.indptr, rows.values.astype(np.int32)

    def empty(*shape, kind=np.float32):
        return np.zeros(shape, kind)

    n, d, labels = 37, 5, 50
    lists_out = (empty(n, 4, kind=np.int32), empty(n, 4))
    texts, truth = ragged(n, 20), ragged(n, labels)
    weights, ones = floats(labels, d), np.ones(labels, np.float32)
    row_state = (weights, floats(labels), (ones * 0.1, ones * 0.1, np.ones(labels, np.int32)))
    clusters = lists(n, 3, 10)
    by_cluster = label_rows.samples_by_cluster(clusters, 10)
    starts = np.arange(0, 51, 5)
    cuts = label_rows.even_shares(*by_cluster[:2], starts, 6)
    positives = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, "f4")
    rate = np.float32(0.1)
    rates = (rate, rate, np.float32(1e-6))
    word_starts, word_labels = ragged(20, labels)
    label_starts, label_words = ragged(labels, 20)
    by_label = reranker.texts_of_labels(lists(n, 5, labels), *truth, labels)
    # Room for all 20 words in each label: threads must not write to the same places.
    learnt = np.zeros(labels, np.int64), empty(20 * labels, kind=np.int32), empty(20 * labels)
    room = 20 * np.arange(labels)
    rows = ids(9, 20, low=0), floats(9, d), np.ones(9, "f4"), floats(20), 4, floats(n, d)
    yield encoders.sum_words, (*texts, floats(len(texts[1])), *rows)
    yield top_k.best_of_row, (floats(n, 30), 0, 0, *lists_out)
    yield top_k.top_columns, (floats(n, 30), 4, lists_out[0])
    yield classifier.score_rows, (weights, ones, ones, floats(n, d), ids(labels, n, 6), empty(n, 6))
    yield classifier.score_all_rows, (weights, ones, ones, floats(3, d), empty(3, labels))
    yield (
        classifier.best_of_clusters,
        (weights, ones, ones, starts, floats(n, d), clusters, floats(n, 10), True, *lists_out),
    )
    index = (word_starts, word_labels, floats(len(word_labels)), labels)
    yield candidates.top_labels, (*texts, floats(len(texts[1])), *index, *lists_out)
    cells = (floats(10, d), np.ones(10, "f4"), starts, weights, ones)
    yield candidates.search_cells, (floats(n, d), *cells, 3, *lists_out)
    centres = (np.arange(labels + 1), rng.permutation(labels))
    yield candidates.cosines_of_labels, (floats(n, d), ids(labels, n, 6), *centres, weights, ones, empty(n, 6))
    found = (lists(n, 6, labels), floats(n, 6), np.arange(labels, dtype=np.int32) // 2, lists(n, 5, n), floats(n, 5))
    for as_sums in (False, True):
        share = np.float32(0.3)
        yield candidates.merge_neighbours, (*found, *truth, share, as_sums, labels, *lists_out, empty(n, 4))
    yield candidates.join_shortlists, (ids(labels, n, 4), rng.permutation(n), ids(labels, n, 2), *truth, ids(9, n, 20))
    yield metrics.sort_rows, (truth[0], rng.permutation(truth[1]), empty(len(truth[1]), kind=np.bool_))
    yield metrics.find_hits, (ids(labels, n, 5), *truth, empty(5, n, kind=np.int32), empty(5, n, kind=np.bool_))
    yield metrics.best_gains, (*truth, rng.random(labels), empty(3, n, kind=np.float64))
    yield metrics.top_of_rows, (*truth, rng.random(len(truth[1])), empty(n, 3, kind=np.int32))
    yield label_rows.entropy, (floats(n, labels), ones, rate, empty(n, labels), empty(n, kind=np.float64))
    yield label_rows.move_rows, (*row_state, floats(labels, d), floats(labels), rates)
    step = (*row_state, floats(n, d), starts, *by_cluster, *positives, cuts, rates, rate)
    some, bounds = np.arange(labels, dtype=np.int32), np.arange(0, 2 * labels + 1, 2)
    terms = ids(n, 2 * labels, low=0), floats(2 * labels)
    yield label_rows.move_some_rows, (*row_state, some, bounds, *terms, floats(n, d), rates)
    yield label_rows.cluster_step, (*step, rate / 10, empty(6, n, d), empty(6, kind=np.float64))
    yield (
        reranker.learn_labels,
        (
            *texts,
            floats(len(texts[1])),
            20,
            *by_label,
            np.zeros(0, "f4"),
            np.zeros(0, "f4"),
            np.arange(0, 51, 5),
            rate,
            rate,
            room,
            *learnt,
        ),
    )
    pages = (label_starts, 1, label_words.astype(np.uint16), floats(len(label_words)), ones, ones)
    yield reranker.score_candidates, (*texts, floats(len(texts[1])), *pages, ids(labels, n, 6), empty(n, 6))
    parts = (*pages[:3], ids(127, len(label_words), low=0).astype(np.int8))
    yield reranker.score_parts, (*texts, floats(len(texts[1])), *parts, ids(labels, n, 6), empty(n, 6))
    names = (word_starts, word_labels, ids(256, len(word_labels), low=0).astype(np.uint8))
    found = (ids(labels, n, 9), empty(n, 9), empty(n, 9, kind=np.bool_))
    yield evidence.gather_evidence, (*texts, floats(len(texts[1])), *names, *truth, 4, *found)
    yield word_vectors.sparse_times_dense, (*texts, floats(len(texts[1])), floats(20, d), empty(n, d))


def test_threads_do_not_change_a_bit():
    """`positive_information` has this test in test_text_learnt_vectors.py."""
    for kernel, arguments in kernel_calls(np.random.default_rng(0)):
        results = []
        for n_threads in (1, 4):
            copies = [*copy.deepcopy(arguments)]
            with use_threads(n_threads):
                copies.append(kernel(*copies))
            results.append(copies)
        assert any(not np.array_equal(*pair) for pair in zip(arguments, copies, strict=False)), kernel
        for one, four in zip(*results, strict=True):
            assert np.array_equal(one, four), kernel


def test_every_parallel_kernel_is_among_these():
    parallel = {
        function
        for module in MODULES
        for function in vars(module).values()
        if isinstance(function, FunctionType) and function.__module__ == module.__name__
        if "run_ranges" in function.__code__.co_names
    }
    tested = {kernel for kernel, _ in kernel_calls(np.random.default_rng(0))} | {word_vectors.positive_information}
    assert parallel - tested == {candidates.search_codes}  # in test_kernels_native.py


PREDICTION = """
import multiprocessing, os, sys, threading
from pathlib import Path
import numpy as np
from shortlist.kernels import threads
threads.n_cores = lambda: 2
import shortlist

pairs = [(f"word{i % 7} thing{i % 5} stuff{i}", [f"label {i % 7}"]) for i in range(1200)]
texts = [text for text, _ in pairs]
model = shortlist.train(pairs, recipe="centroid")
expected = model.predict(texts, k=3)
assert threads._Process.pool is not None  # the kernels did use threads

def predict(_=0):
    return model.predict(texts, k=3) == expected
"""

FORK = """
child = os.fork()
if not child:
    os._exit(0 if predict() else 1)
assert os.waitpid(child, 0)[1] == 0
assert predict()
"""

POOL = """
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map_async(predict, range(6)).get(100))
assert predict()
"""

TWO_THREADS = """
right = []
both = [threading.Thread(target=lambda: right.extend(predict() for _ in range(20))) for _ in range(2)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
assert right == [True] * 40
"""

NO_OPENMP = """
maps = Path("/proc/self/maps").read_text()
assert "openblas" in maps or "numpy" in maps
assert [name for name in ("libgomp", "libomp", "libiomp", "libtbb") if name in maps] == []
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", [FORK, POOL, TWO_THREADS, NO_OPENMP], ids=["fork", "pool", "two threads", "no OpenMP"])
def test_after_a_prediction(then):
    if then is NO_OPENMP and not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    subprocess.run([sys.executable, "-c", PREDICTION + then], check=True, timeout=SECONDS)


def test_cores_are_counted():
    assert 1 <= n_cores() <= (os.cpu_count() or 1)
