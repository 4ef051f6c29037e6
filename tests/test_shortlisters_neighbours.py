"""Nearest neighbours: exact search against plain numpy, graphs against exact search, damaged files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from shortlist.errors import DataError, ModelError, OptionError, ShortlistError
from shortlist.shortlisters import neighbours
from shortlist.shortlisters.neighbours import EXACT_UP_TO, NeighbourIndex

NAN, INF = float("nan"), float("inf")
BOTH = pytest.mark.parametrize("exact", [True, False], ids=["exact", "graphs"])


def cosines_of(queries, vectors):
    lengths = [np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) for rows in (queries, vectors)]
    a, b = (rows / np.where(length == 0, 1, length) for rows, length in zip((queries, vectors), lengths, strict=True))
    return a @ b.T


def check_against_numpy(queries, vectors, k, ids, similarities):
    """The right similarities in falling order, each with an id that has it; of exact equals, the lower id first."""
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
    return NeighbourIndex.build(vectors, exact=False, threads=1)


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

    def test_several_blocks_of_vectors_and_queries(self, monkeypatch, vectors, queries):
        monkeypatch.setattr(neighbours, "QUERIES_AT_ONCE", 64)
        monkeypatch.setattr(neighbours, "COSINES_AT_ONCE", 64 * 700)
        check_against_numpy(queries, vectors, 20, *NeighbourIndex.build(vectors).search(queries, 20))

    def test_one_query_as_in_a_batch(self, vectors, queries):
        index = NeighbourIndex.build(vectors)
        ids, similarities = index.search(queries, 5)
        alone = index.search(queries[7:8], 5)
        assert alone[0].tolist() == ids[7:8].tolist()
        np.testing.assert_allclose(alone[1], similarities[7:8], atol=1e-6)

    def test_lengths_do_not_matter_however_extreme(self):
        directions = np.asarray([[1, 0], [1, 1], [0, 1]], np.float32)
        vectors = directions * np.asarray([[3e38], [1], [1e-40]], np.float32)
        ids, similarities = NeighbourIndex.build(vectors).search(np.asarray([[2e38, 1e38]], np.float32), 3)
        assert ids.tolist() == [[1, 0, 2]]
        np.testing.assert_allclose(similarities, [[3 / 10**0.5, 2 / 5**0.5, 1 / 5**0.5]], rtol=1e-4)

    def test_is_the_choice_for_few_vectors_only(self, monkeypatch):
        assert EXACT_UP_TO > 1000
        monkeypatch.setattr(neighbours, "EXACT_UP_TO", 10)
        assert NeighbourIndex.build(np.eye(10)).exact
        assert not NeighbourIndex.build(np.eye(11)).exact
        assert NeighbourIndex.build(np.eye(11), exact=True).exact


class TestGraphs:
    def test_find_what_exact_search_finds(self, graphs, vectors, queries):
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

    def test_zero_vectors_do_not_get_in_the_way(self, queries):
        vectors = clustered(2000)
        vectors[np.random.default_rng(0).permutation(2000)[:700]] = 0
        index = NeighbourIndex.build(vectors, exact=False)
        best = -np.sort(-cosines_of(queries, vectors), axis=1)[:, 9:10]
        assert (index.search(queries, 10)[1] >= best - 1e-5).mean() >= 0.95
        ids, similarities = index.search(np.zeros((1, vectors.shape[1])), 10)
        assert (ids >= 0).all() and (similarities == 0).all()

    def test_effort_raises_recall(self, vectors, queries):
        expected, _ = NeighbourIndex.build(vectors, exact=True).search(queries, 10)
        found = [
            (
                NeighbourIndex.build(vectors, exact=False, links=4, search_effort=effort).search(queries, 10)[0]
                == expected
            )
            for effort in (1, 200)
        ]
        assert found[0].mean() < found[1].mean()

    def test_a_caller_s_number_of_faiss_threads_is_left_as_it_was(self, graphs, queries):
        import faiss

        before = faiss.omp_get_max_threads()
        graphs.search(queries, 3, threads=1)
        assert faiss.omp_get_max_threads() == before

    def test_what_to_install_if_faiss_is_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(ShortlistError, match="pip install"):
            NeighbourIndex.build(np.eye(3), exact=False)
        assert NeighbourIndex.build(np.eye(3)).search(np.eye(3), 1)[0].tolist() == [[0], [1], [2]]


@BOTH
class TestBoth:
    def test_no_vectors_no_queries(self, exact):
        index = NeighbourIndex.build(np.zeros((0, 4)), exact=exact)
        ids, similarities = index.search(np.ones((2, 4)), 3)
        assert (ids == -1).all() and (similarities == -INF).all() and ids.shape == (2, 3)
        assert NeighbourIndex.build(np.eye(4), exact=exact).search(np.zeros((0, 4)), 3)[0].shape == (0, 3)

    def test_threads_change_nothing(self, exact, vectors, queries, tmp_path):
        one, two = (NeighbourIndex.build(vectors, exact=exact, threads=threads) for threads in (1, 2))
        one.save(tmp_path / "one")
        two.save(tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        many = np.repeat(queries, 3, axis=0)  # more than one block
        for a, b in zip(one.search(many, 10, threads=1), one.search(many, 10, threads=2), strict=True):
            assert (a == b).all()

    @pytest.mark.parametrize("memory_mapped", [True, False], ids=["mapped", "read"])
    @pytest.mark.parametrize("verify", [True, False], ids=["verified", "trusted"])
    def test_a_saved_index_gives_the_same_results(self, exact, memory_mapped, verify, vectors, queries, tmp_path):
        index = NeighbourIndex.build(vectors, exact=exact, search_effort=37)
        index.save(tmp_path / "index.safetensors")
        loaded = NeighbourIndex.load(tmp_path / "index.safetensors", memory_mapped=memory_mapped, verify=verify)
        assert (loaded.exact, loaded.search_effort, len(loaded)) == (exact, 37, len(vectors))
        for a, b in zip(loaded.search(queries, 10), index.search(queries, 10), strict=True):
            assert (a == b).all()
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "index.safetensors").read_bytes()

    def test_the_file_is_a_safetensors_file(self, exact, tmp_path):
        NeighbourIndex.build(np.eye(5), exact=exact).save(tmp_path / "index")
        arrays = load_file(tmp_path / "index")
        assert sorted(arrays) == (["vectors"] if exact else [f"graph-{part}" for part in range(4)])
        if exact:
            assert arrays["vectors"].tolist() == np.eye(5).tolist()

    def test_the_file_of_no_vectors(self, exact, tmp_path):
        NeighbourIndex.build(np.zeros((0, 4)), exact=exact).save(tmp_path / "index")
        assert NeighbourIndex.load(tmp_path / "index").search(np.ones((1, 4)), 1)[0].tolist() == [[-1]]

    def test_an_index_outlives_the_name_of_its_file(self, exact, vectors, queries, tmp_path):
        index = NeighbourIndex.build(vectors, exact=exact)
        index.save(tmp_path / "index")
        loaded = NeighbourIndex.load(tmp_path / "index")
        NeighbourIndex.build(vectors[:10]).save(tmp_path / "index")
        assert (loaded.search(queries, 5)[0] == index.search(queries, 5)[0]).all()

    @pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e300])
    def test_numbers_that_are_none_are_refused(self, exact, bad):
        vectors = np.ones((9000, 2))
        vectors[8999, 1] = bad
        with pytest.raises(DataError, match=r"vector 8999 .*infinite or not a number"):
            NeighbourIndex.build(vectors, exact=exact)
        with pytest.raises(DataError, match="infinite or not a number"):
            NeighbourIndex.build(np.eye(2), exact=exact).search(vectors, 1)

    def test_other_shapes_are_refused(self, exact):
        for vectors in (np.zeros(3), np.zeros((2, 0)), np.zeros((1, 2, 3))):
            with pytest.raises(DataError, match="rows of a matrix"):
                NeighbourIndex.build(vectors, exact=exact)
        index = NeighbourIndex.build(np.eye(3), exact=exact)
        with pytest.raises(DataError, match="queries have 4 dimensions, the index has 3"):
            index.search(np.zeros((2, 4)), 1)
        with pytest.raises(DataError, match="rows of a matrix"):
            index.search(np.zeros(3), 1)

    def test_options_without_sense_are_refused(self, exact):
        for options in ({"links": 1}, {"build_effort": 0}, {"search_effort": 0}, {"threads": 0}):
            if exact and "threads" in options:
                continue  # nothing to build
            with pytest.raises(OptionError, match="must be at least"):
                NeighbourIndex.build(np.eye(3), exact=exact, **options)
        for options in ({"k": 0}, {"k": 1, "threads": 0}):
            with pytest.raises(OptionError, match="must be at least"):
                NeighbourIndex.build(np.eye(3), exact=exact).search(np.eye(3), **options)


@BOTH
class TestDamagedFiles:
    @pytest.fixture
    def content(self, exact, tmp_path):
        NeighbourIndex.build(clustered(200, 5), exact=exact).save(tmp_path / "index")
        return (tmp_path / "index").read_bytes()

    def refuse(self, path, content, match="index is damaged", **options):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=match):
            NeighbourIndex.load(path, **options)

    @pytest.mark.parametrize("verify", [True, False], ids=["verified", "trusted"])
    def test_cut_off_or_longer(self, content, verify, tmp_path):
        for length in [0, 1, 8, 100, 600, len(content) // 2, len(content) - 1]:
            self.refuse(tmp_path / "cut", content[:length], verify=verify)
        self.refuse(tmp_path / "longer", content + b"\0", verify=verify)

    def test_any_changed_byte(self, content, tmp_path):
        start = 8 + int.from_bytes(content[:8], "little")
        for at in np.random.default_rng(0).integers(start, len(content), 30).tolist():
            changed = bytearray(content)
            changed[at] ^= 0x41
            self.refuse(tmp_path / "changed", changed, match="checksum")

    def test_a_header_that_does_not_fit(self, content, exact, tmp_path):
        length = int.from_bytes(content[:8], "little")
        header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
        facts = json.loads(header["__metadata__"]["index"])

        def with_facts(**changes):
            return {**header, "__metadata__": {"index": json.dumps({**facts, **changes})}}

        def file_of(header):
            encoded = json.dumps(header).encode()
            return len(encoded).to_bytes(8, "little") + encoded + data

        self.refuse(tmp_path / "a", file_of({**header, "__metadata__": {}}))
        self.refuse(tmp_path / "b", file_of(with_facts(n_vectors=201)))
        self.refuse(tmp_path / "c", file_of(with_facts(dimensions=4)))
        self.refuse(tmp_path / "d", file_of(with_facts(search_effort=0)))
        self.refuse(tmp_path / "e", file_of(with_facts(unknown=0)))
        self.refuse(tmp_path / "f", file_of(with_facts(n_vectors="many")))
        self.refuse(tmp_path / "g", file_of(with_facts(format_version=2)), match="version 2, this release reads")
        if exact:
            renamed = {"__metadata__": header["__metadata__"], "graph-0": header["vectors"]}
            self.refuse(tmp_path / "h", file_of(renamed))

    def test_other_files(self, exact, tmp_path):
        self.refuse(tmp_path / "other", b"not an index at all, but long enough to look like one")
        with pytest.raises(ModelError, match="cannot be read"):
            NeighbourIndex.load(tmp_path / "nowhere")
        with pytest.raises(ModelError, match="cannot be read"):
            NeighbourIndex.load(tmp_path)


def test_a_damaged_graph_does_not_crash_even_where_the_checksum_is_not_compared(tmp_path, graphs):
    graphs.save(tmp_path / "index")
    program = f"""
import numpy as np
from shortlist.errors import ModelError
from shortlist.shortlisters.neighbours import NeighbourIndex
content = np.fromfile({str(tmp_path / "index")!r}, np.uint8)
start = 8 + int.from_bytes(content[:8].tobytes(), "little")
rng = np.random.default_rng(0)
for _ in range(60):
    changed = content.copy()
    at = rng.integers(start, len(content), 40) if rng.random() < 0.5 else start + rng.integers(0, 300, 1)
    changed[at] = rng.integers(0, 256, len(at))
    changed.tofile({str(tmp_path / "changed")!r})
    try:
        NeighbourIndex.load({str(tmp_path / "changed")!r}, verify=False).search(np.ones((9, 24)), 20)
    except ModelError:
        pass
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120).returncode == 0


@pytest.mark.slow
def test_faiss_is_not_loaded_before_it_is_needed():
    program = (
        "import sys; import numpy as np; from shortlist.shortlisters.neighbours import NeighbourIndex; "
        "NeighbourIndex.build(np.eye(3)).search(np.eye(3), 1); sys.exit('faiss' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("k", [1, 7, 60, 100])
def test_long_lists_are_chosen_as_short_ones_are_kept(monkeypatch, k):
    rng = np.random.default_rng(0)
    index = NeighbourIndex.build(np.repeat(rng.standard_normal((50, 9)), 2, axis=0), exact=True)
    queries = rng.standard_normal((30, 9))
    monkeypatch.setattr(neighbours, "FEW", 10**6)
    ids, similarities = index.search(queries, k)
    monkeypatch.setattr(neighbours, "FEW", 0)
    for cosines in (neighbours.MANY_COSINES, 700):  # all queries at once, and a few at a time
        monkeypatch.setattr(neighbours, "MANY_COSINES", cosines)
        found, of_found = index.search(queries, k)
        assert np.array_equal(found, ids)
        assert np.allclose(of_found, similarities, atol=1e-6)
