"""The kernels in C: each gives what its version in numba gives, for everything that a prediction asks of it."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import shortlist
import shortlist.kernels
from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.kernels.candidates import labels_of_centres, search_cells
from shortlist.kernels.compile import Kernel, native
from shortlist.kernels.strings import StringTable
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.model.model import Model
from shortlist.stages.calibration import PLACES, Calibration
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.cells import CellIndex
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.encoders import BagEncoder
from shortlist.stages.evidence import index_names, remember_texts
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Mixture, Reranker, paged_weights
from shortlist.text import LexicalFeatures, Vocabulary
from shortlist.text.texts import Texts

pytestmark = pytest.mark.skipif(native is None, reason="the kernels in C are not built")

ONLY_IN_C = {"code_vectors", "search_codes"}
SYLLABLES = ["ba", "Ke", "lö", "mi", "nú", "po", "Ру", "si", "水", "tsche"]


def make_texts(rng, n):
    words = ["".join(rng.choice(SYLLABLES, size=rng.integers(1, 5))) for _ in range(300)]
    return [", ".join(rng.choice(words, size=rng.integers(1, 9))) for _ in range(n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model of random numbers with every stage that `astec` has. Some labels have two centres."""
    rng = np.random.default_rng(0)
    texts, n_labels, n_features = make_texts(rng, 200), 150, 21
    vocabulary = Vocabulary.build(texts, min_count=2, subword_lengths=(2, 4))
    lexical = LexicalFeatures.fit(texts, vocabulary)
    n_lexical, n_words = lexical.n_features, len(vocabulary)
    centres = rng.standard_normal((n_labels + 30, n_features))
    owner = np.concatenate([np.arange(n_labels), np.arange(30)]).astype(np.int32)
    rows = {"weights": rng.standard_normal((n_labels, n_features)), "biases": rng.standard_normal(n_labels)}
    words = np.sort([rng.choice(n_lexical, size=40, replace=False) for _ in range(n_labels)], axis=1).astype(np.int32)
    arrays = paged_weights(
        np.arange(0, words.size + 1, 40),
        words.ravel(),
        rng.standard_normal(words.size).astype(np.float32),
        rng.standard_normal(n_labels).astype(np.float32),
        n_lexical,
    )
    arrays |= {"idf": lexical.words_tfidf.idf, "subword_idf": lexical.ngrams_tfidf.idf}
    arrays |= {"frequencies": rng.random(n_labels).astype(np.float32)}
    names = sparse.random_array((n_labels, n_lexical), density=0.02, rng=rng, dtype=np.float32)
    own = Ragged.from_lists([[i % n_labels] for i in range(100)])
    arrays |= index_names(names) | remember_texts(texts[:100], own, vocabulary.tokenizer)
    vectors = rng.standard_normal((n_words, n_features)).astype(np.float32)
    pipeline = Pipeline(
        vocabulary,
        BagEncoder({"words": vectors, "idf": rng.random(n_words).astype(np.float32)}, {"max_words": 12}),
        NearestLabels.build(centres, owner, n_labels, n_candidates=60),
        RowClassifier({name: array.astype(np.float32) for name, array in rows.items()}, {"blend": {"votes": 0.5}}),
        Reranker(arrays, {"n_candidates": 30, "mixture": vars(Mixture(frequency=0.3))}, vocabulary, lexical.ngrams),
    )
    calibration = Calibration.of_curves("isotonic", [[0.9, -0.2, 0.3, 0.1]], [PLACES**1.2])
    folder = tmp_path_factory.mktemp("native") / "model"
    Model("astec", {}, [pipeline], [f"label {i}" for i in range(n_labels)], calibration=calibration).save(folder)
    return folder


def copied(argument):
    if isinstance(argument, tuple):
        return tuple(map(copied, argument))
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def flat(arguments):
    return [item for one in arguments for item in (flat(one) if isinstance(one, tuple) else [one])]


@pytest.fixture
def called(monkeypatch):
    """Runs every kernel twice, in C and by numba, and compares what they return and write. The names of the kernels."""
    names = set()

    def call_both(self, *arguments):
        if self.native is None:
            return self.compiled(*arguments)
        expected_arguments = copied(arguments)
        found = self.native(*arguments)
        assert found is not NotImplemented, f"{self.__name__} has no code in C for these arguments"
        names.add(self.__name__)
        assert found == self.compiled(*expected_arguments)
        for ours, theirs in zip(flat(arguments), flat(expected_arguments), strict=True):
            if isinstance(ours, np.ndarray):
                is_float = ours.dtype.kind == "f"
                np.testing.assert_allclose(
                    ours, theirs, rtol=1e-4 * is_float, atol=1e-5 * is_float, err_msg=self.__name__
                )
        return found

    monkeypatch.setattr(Kernel, "__call__", call_both)
    return names


def test_each_kernel_gives_what_numba_gives(folder, called):
    model = shortlist.load(folder)
    texts = make_texts(np.random.default_rng(1), 40)
    model.predict([*texts, "", "ÄÖ 水水 none"], k=20, threads=1, explain=True)
    layer = OutputLayer(model.pipelines[0].classifier.arrays())
    layer.logits(np.ones((2, 21), np.float32))
    Texts.from_strings(texts).take([3, 1])
    StringTable().add_strings([str(number) for number in range(600)])  # which grows
    assert called == {name for name in vars(native) if not name.startswith("__")} - ONLY_IN_C


def test_arrays_of_other_types_are_left_to_numba():
    ids, cosines = np.empty((1, 2), np.int32), np.empty((1, 2), np.float32)
    found, owner, several = np.array([[0, 1]], np.int32), np.arange(2, dtype=np.int32), np.zeros(2, bool)
    for wrong in (np.ones((1, 2)), np.ones((2, 1), np.float32).T[:, ::-1]):
        assert labels_of_centres.native(found, wrong, owner, several, ids, cosines) is NotImplemented
    ids.flags.writeable = False
    right = np.ones((1, 2), np.float32)
    assert labels_of_centres.native(found, right, owner, several, ids, cosines) is NotImplemented
    assert labels_of_centres.native(found, right) is NotImplemented
    assert search_cells.kernel.native is native.search_cells


@pytest.fixture(scope="module")
def coded():
    rng = np.random.default_rng(0)
    groups = rng.standard_normal((40, 50))
    vectors, queries = (groups[rng.integers(40, size=n)] + rng.standard_normal((n, 50)) for n in (4000, 300))
    index = CellIndex.build(vectors)
    index = CellIndex(index.cells.in_8_bits(), index.starts, index.order, index.vectors.in_8_bits())
    return index, queries.astype(np.float32)


def test_a_first_look_at_codes_finds_nearly_all(coded):
    index, queries = coded
    assert index._codes is not None
    every = len(index.cells)
    ids, cosines = index.search(queries, 100, every)
    exact = normalize_rows(queries) @ index.vectors[:].T
    best = index.order[np.argsort(-exact, axis=1)[:, :100]]
    recall = np.mean([len(np.intersect1d(one, other)) / 100 for one, other in zip(ids, best, strict=True)])
    assert recall > 0.97
    places = np.argsort(index.order)[ids]
    assert np.allclose(cosines, np.take_along_axis(exact, places, axis=1), atol=1e-5)
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_codes_find_fewer_than_wanted_in_one_cell(coded):
    index, queries = coded
    ids, cosines = index.search(queries[:5], 3000, 1)
    for row, found in zip(ids, cosines, strict=True):
        n = (row >= 0).sum()
        assert 0 < n < 3000 and len(set(row[:n])) == n and (row[n:] == -1).all() and np.isneginf(found[n:]).all()


def test_codes_give_the_same_for_one_query_and_for_many_threads(coded):
    index, queries = coded
    with use_threads(1):
        ids, cosines = index.search(queries, 20, 9)
    with use_threads(2):
        assert all(np.array_equal(a, b) for a, b in zip(index.search(queries, 20, 9), (ids, cosines), strict=True))
    one = index.search(queries[7:8], 20, 9)
    assert np.array_equal(one[0][0], ids[7]) and np.array_equal(one[1][0], cosines[7])


def test_vectors_that_are_all_the_same_have_codes():
    rows = QuantizedMatrix.of_floats(np.ones((1100, 3), np.float32)).in_8_bits()
    cell = QuantizedMatrix(rows.values[:1], rows.scales[:1])
    index = CellIndex(cell, np.array([0, 1100]), np.arange(1100, dtype=np.int32), rows)
    ids, cosines = index.search(np.ones((1, 3), np.float32), 7, 1)
    assert len(set(ids[0])) == 7 and np.allclose(cosines, np.sqrt(3), atol=1e-5)


def test_every_kernel_in_c_belongs_to_one_kernel_of_numba():
    """They are found by name, so no two may have the same."""
    names = []
    for module in pkgutil.iter_modules(shortlist.kernels.__path__, "shortlist.kernels."):
        for value in vars(importlib.import_module(module.name)).values():
            own = getattr(value, "kernel", value)
            if isinstance(own, Kernel) and own.native is not None and own.__module__ == module.name:
                names.append(own.__name__)
    assert sorted(names) == sorted({name for name in vars(native) if not name.startswith("__")} - ONLY_IN_C)
