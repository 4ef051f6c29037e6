"""Nearest neighbours: exact search against numpy, graphs against exact search, and damaged arrays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import replaced
from shortlist.errors import DataError, MissingExtraError, ModelError, OptionError
from shortlist.kernels.threads import use_threads
from shortlist.stages.candidates import neighbours
from shortlist.stages.candidates.neighbours import EXACT_UP_TO, NeighbourIndex

NAN, INF = float("nan"), float("inf")
BOTH = pytest.mark.parametrize("exact", [True, False], ids=["exact", "graphs"])


def cosines_of(queries, vectors):
    lengths = [np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) for rows in (queries, vectors)]
    a, b = (rows / np.where(length == 0, 1, length) for rows, length in zip((queries, vectors), lengths, strict=True))
    return a @ b.T


def check_against_numpy(queries, vectors, k, ids, similarities):
    """The right cosines in descending order, each with an id that has it; of equals, the lower id first."""
    cosines = cosines_of(queries, vectors)
    found = min(k, len(vectors))
    assert ids.shape == similarities.shape == (len(queries), k)
    assert ids.dtype == np.int32 and similarities.dtype == np.float32
    np.testing.assert_allclose(similarities[:, :found], -np.sort(-cosines, axis=1)[:, :found], atol=1e-5)
    np.testing.assert_allclose(similarities[:, :found], np.take_along_axis(cosines, ids[:, :found], 1), atol=1e-5)
    assert (ids[:, found:] == -1).all() and (similarities[:, found:] == -INF).all()
    for line, values in zip(ids[:, :found], similarities[:, :found], strict=True):
        assert len(set(line.tolist())) == found
        assert (np.lexsort((line, -values)) == np.arange(found)).all()


def clustered(n, dimensions=24, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, dimensions))
    return (centres[rng.integers(0, 40, n)] + 0.6 * rng.standard_normal((n, dimensions))).astype(np.float32)


@pytest.fixture(scope="module")
def vectors():
    return clustered(4000)


@pytest.fixture(scope="module")
def queries():
    return clustered(300, seed=1)


@pytest.fixture(scope="module")
def graphs(vectors):
    return NeighbourIndex.build(vectors, exact=False)


class TestExact:
    @given(
        seed=st.integers(0, 10_000),
        n=st.integers(1, 40),
        dimensions=st.integers(1, 19),
        n_queries=st.integers(0, 5),
        k=st.integers(1, 50),
        whole=st.booleans(),
    )
    def test_equals_numpy(self, seed, n, dimensions, n_queries, k, whole):
        rng = np.random.default_rng(seed)

        def draw(rows):  # whole numbers: zero vectors and duplicates
            return rng.integers(-1, 2, (rows, dimensions)) if whole else rng.standard_normal((rows, dimensions))

        vectors, queries = draw(n), draw(n_queries)
        index = NeighbourIndex.build(vectors)
        assert index.exact and len(index) == n
        check_against_numpy(queries, vectors, k, *index.search(queries, k))

    def test_several_blocks_of_queries(self, monkeypatch, vectors, queries):
        index = NeighbourIndex.build(vectors)
        for queries_per_block, cosines_per_block in ((64, 1 << 24), (512, 9 * 4000), (512, 1)):
            monkeypatch.setattr(neighbours, "QUERIES_PER_BLOCK", queries_per_block)
            monkeypatch.setattr(neighbours, "COSINES_PER_BLOCK", cosines_per_block)
            check_against_numpy(queries, vectors, 20, *index.search(queries, 20))

    def test_one_query_as_in_a_batch(self, vectors, queries):
        index = NeighbourIndex.build(vectors)
        ids, similarities = index.search(queries, 5)
        alone = index.search(queries[7:8], 5)
        assert alone[0].tolist() == ids[7:8].tolist()
        np.testing.assert_allclose(alone[1], similarities[7:8], atol=1e-6)

    def test_lengths_of_vectors_do_not_matter(self):
        directions = np.asarray([[1, 0], [1, 1], [0, 1]], np.float32)
        vectors = directions * np.asarray([[3e38], [1], [1e-40]], np.float32)
        ids, similarities = NeighbourIndex.build(vectors).search(np.asarray([[2e38, 1e38]], np.float32), 3)
        assert ids.tolist() == [[1, 0, 2]]
        np.testing.assert_allclose(similarities, [[3 / 10**0.5, 2 / 5**0.5, 1 / 5**0.5]], rtol=1e-4)

    def test_is_the_default_for_few_vectors(self, monkeypatch):
        assert EXACT_UP_TO > 1000
        monkeypatch.setattr(neighbours, "EXACT_UP_TO", 10)
        assert NeighbourIndex.build(np.eye(10)).exact
        assert not NeighbourIndex.build(np.eye(11)).exact
        assert NeighbourIndex.build(np.eye(11), exact=True).exact


class TestGraphs:
    def test_find_nearly_what_exact_search_finds(self, graphs, vectors, queries):
        expected, _ = NeighbourIndex.build(vectors, exact=True).search(queries, 10)
        ids, similarities = graphs.search(queries, 10)
        recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
        assert recall >= 0.95
        np.testing.assert_allclose(
            similarities, np.take_along_axis(cosines_of(queries, vectors), ids, axis=1), atol=1e-5
        )

    @pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9])
    def test_few_vectors_are_all_found(self, n):
        vectors, queries = clustered(n, 3), clustered(4, 3, seed=1)
        check_against_numpy(queries, vectors, 7, *NeighbourIndex.build(vectors, exact=False).search(queries, 7))

    def test_of_equals_the_lower_id_comes_first(self):
        vectors = np.repeat(np.eye(3), 8, axis=0)[np.random.default_rng(0).permutation(24)]
        index = NeighbourIndex.build(vectors, exact=False)
        for direction in range(3):
            ids, similarities = index.search(np.eye(3)[[direction]], 8)
            assert ids[0].tolist() == np.flatnonzero(vectors[:, direction]).tolist()
            assert similarities.tolist() == [[1] * 8]

    def test_zero_vectors_do_not_lower_recall(self, queries):
        vectors = clustered(2000)
        vectors[np.random.default_rng(0).permutation(2000)[:700]] = 0
        index = NeighbourIndex.build(vectors, exact=False)
        best = -np.sort(-cosines_of(queries, vectors), axis=1)[:, 9:10]
        assert (index.search(queries, 10)[1] >= best - 1e-5).mean() >= 0.95
        ids, similarities = index.search(np.zeros((1, vectors.shape[1])), 10)
        assert (ids >= 0).all() and (similarities == 0).all()

    @pytest.mark.slow
    def test_a_larger_search_breadth_raises_recall(self, vectors, queries):
        expected, _ = NeighbourIndex.build(vectors, exact=True).search(queries, 10)
        found = [
            (
                NeighbourIndex.build(vectors, exact=False, links=4, search_breadth=breadth).search(queries, 10)[0]
                == expected
            )
            for breadth in (1, 200)
        ]
        assert found[0].mean() < found[1].mean()

    def test_the_number_of_threads_of_faiss_stays_as_it_was(self, graphs, queries):
        import faiss

        before = faiss.omp_get_max_threads()
        graphs.search(queries, 3)
        assert faiss.omp_get_max_threads() == before

    def test_a_missing_faiss_is_an_error_that_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(MissingExtraError, match=r"an HNSW graph needs .*pip install .*ann"):
            NeighbourIndex.build(np.eye(3), exact=False)
        assert NeighbourIndex.build(np.eye(3)).search(np.eye(3), 1)[0].tolist() == [[0], [1], [2]]


@BOTH
class TestBoth:
    def test_no_vectors_no_queries(self, exact):
        index = NeighbourIndex.build(np.zeros((0, 4)), exact=exact)
        ids, similarities = index.search(np.ones((2, 4)), 3)
        assert (ids == -1).all() and (similarities == -INF).all() and ids.shape == (2, 3)
        assert NeighbourIndex.build(np.eye(4), exact=exact).search(np.zeros((0, 4)), 3)[0].shape == (0, 3)

    def test_threads_change_nothing(self, exact, vectors, queries):
        many = np.repeat(queries, 3, axis=0)  # more than one block
        results = []
        for threads in (1, 2):
            with use_threads(threads):
                index = NeighbourIndex.build(vectors, exact=exact)
                results.append([*index.arrays().values(), *index.search(many, 10)])
        assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))

    def test_arrays_round_trip(self, exact, vectors, queries):
        index = NeighbourIndex.build(vectors, exact=exact, search_breadth=37)
        assert set(index.arrays()) == ({"vectors"} if exact else {f"graph.{part}" for part in range(4)})
        again = NeighbourIndex.from_arrays(index.arrays(), 37)
        assert (again.exact, again.search_breadth, len(again)) == (exact, 37, len(vectors))
        assert again.n_features == index.n_features == vectors.shape[1]
        assert repr(again) == f"NeighbourIndex(4,000 vectors, {'exact' if exact else 'HNSW'})"
        for a, b in zip(again.search(queries, 10), index.search(queries, 10), strict=True):
            assert (a == b).all()
        for name, array in again.arrays().items():
            assert np.array_equal(array, index.arrays()[name])

    def test_an_index_without_vectors_round_trips(self, exact):
        arrays = NeighbourIndex.build(np.zeros((0, 4)), exact=exact).arrays()
        assert NeighbourIndex.from_arrays(arrays, 9).search(np.ones((1, 4)), 1)[0].tolist() == [[-1]]

    @pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e300])
    def test_nan_and_infinity_are_refused(self, exact, bad):
        vectors = np.ones((9000, 2))
        vectors[8999, 1] = bad
        with pytest.raises(DataError, match=r"vector 8999 contains NaN or infinity"):
            NeighbourIndex.build(vectors, exact=exact)
        with pytest.raises(DataError, match="contains NaN or infinity"):
            NeighbourIndex.build(np.eye(2), exact=exact).search(vectors, 1)

    def test_other_shapes_are_refused(self, exact):
        for vectors in (np.zeros(3), np.zeros((2, 0)), np.zeros((1, 2, 3))):
            with pytest.raises(DataError, match="one vector per row"):
                NeighbourIndex.build(vectors, exact=exact)
        index = NeighbourIndex.build(np.eye(3), exact=exact)
        with pytest.raises(DataError, match="queries have 4 dimensions; the index has 3"):
            index.search(np.zeros((2, 4)), 1)
        with pytest.raises(DataError, match="one vector per row"):
            index.search(np.zeros(3), 1)

    def test_options_out_of_range_are_refused(self, exact):
        for options in ({"links": 1}, {"build_breadth": 0}, {"search_breadth": 0}):
            with pytest.raises(OptionError, match="must be at least"):
                NeighbourIndex.build(np.eye(3), exact=exact, **options)
        with pytest.raises(OptionError, match="k must be at least 1"):
            NeighbourIndex.build(np.eye(3), exact=exact).search(np.eye(3), 0)


class TestDamagedGraphs:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"graph.0": lambda a: a[:0]}, "cannot be read"),
            ({"graph.0": lambda a: a[: len(a) // 2]}, "cannot be read"),
            ({"graph.1": lambda a: a[:-1]}, "cannot be read"),
            ({"graph.2": lambda a: np.frombuffer(b"not a graph at all, but long enough", np.uint8)}, "cannot be read"),
            ({"graph.0": None}, "'graph.0' is missing"),
            ({f"graph.{part}": None for part in range(4)}, "do not make up one index"),
        ],
    )
    def test_are_refused(self, graphs, change, message):
        with pytest.raises(ModelError, match=message):
            NeighbourIndex.from_arrays(replaced(graphs.arrays(), change), 50)

    def test_graphs_in_another_order_are_refused(self):
        arrays = NeighbourIndex.build(clustered(41), exact=False).arrays()
        swapped = {**arrays, "graph.0": arrays["graph.1"], "graph.1": arrays["graph.0"]}
        with pytest.raises(ModelError, match="do not make up one index"):
            NeighbourIndex.from_arrays(swapped, 50)

    def test_graphs_of_different_indexes_are_refused(self, graphs):
        others = [NeighbourIndex.build(clustered(4000, 5), exact=False), NeighbourIndex.build(np.eye(24), exact=False)]
        for other in others:
            with pytest.raises(ModelError, match=r"different dimensions|do not make up one index"):
                NeighbourIndex.from_arrays({**graphs.arrays(), "graph.2": other.arrays()["graph.2"]}, 50)

    def test_an_index_of_another_kind_is_refused(self):
        import faiss

        content = faiss.serialize_index(faiss.IndexFlatIP(4))
        with pytest.raises(ModelError, match="not an HNSW graph"):
            NeighbourIndex.from_arrays({"graph.0": content}, 50)

    @pytest.mark.slow
    def test_changed_bytes_do_not_crash(self, graphs, tmp_path):
        """Models compare checksums before; whoever can write those must still not crash a server."""
        graphs.arrays()["graph.0"].tofile(tmp_path / "graph")
        program = f"""
import numpy as np
from shortlist.errors import ModelError
from shortlist.stages.candidates.neighbours import NeighbourIndex
content = np.fromfile({str(tmp_path / "graph")!r}, np.uint8)
rng = np.random.default_rng(0)
for _ in range(60):
    changed = content.copy()
    at = rng.integers(0, len(content), 40) if rng.random() < 0.5 else rng.integers(0, 300, 1)
    changed[at] = rng.integers(0, 256, len(at))
    try:
        NeighbourIndex.from_arrays({{"graph.0": changed}}, 50).search(np.ones((9, 24)), 20)
    except ModelError:
        pass
"""
        finished = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
        assert finished.returncode == 0, finished.stderr.decode()[-2000:]


@pytest.mark.slow
def test_faiss_is_not_loaded_before_it_is_needed():
    program = (
        "import sys; import numpy as np; from shortlist.stages.candidates.neighbours import NeighbourIndex; "
        "NeighbourIndex.build(np.eye(3)).search(np.eye(3), 1); sys.exit('faiss' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.slow
def test_faiss_does_not_say_how_it_is_loaded():
    program = (
        "import logging, numpy as np; from shortlist.stages.candidates.neighbours import NeighbourIndex; "
        "logging.basicConfig(level=logging.INFO); NeighbourIndex.build(np.eye(3), exact=False)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not finished.stderr
