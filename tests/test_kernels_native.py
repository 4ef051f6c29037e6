"""The library of kernels: its two versions, arguments, building it; and the search by codes."""

from __future__ import annotations

import importlib
import pkgutil
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import shortlist
import shortlist.kernels
from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.kernels.native import _load, native
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.model.model import Model
from shortlist.stages.calibration import PLACES, Calibration
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.encoders import BagEncoder
from shortlist.stages.evidence import index_names, remember_texts
from shortlist.stages.pages import paged_weights
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Mixture, Reranker
from shortlist.text import LexicalFeatures, Vocabulary

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


@pytest.mark.parametrize("library", ["_native_avx2", "_native"])
def test_both_libraries_give_the_same_predictions(folder, library, monkeypatch):
    texts = [*make_texts(np.random.default_rng(1), 40), "", "ÄÖ 水水 none"]
    expected = shortlist.load(folder).rank(texts, 20)
    try:
        other = importlib.import_module(f"shortlist.kernels.{library}")
    except ImportError as error:
        pytest.skip(str(error))
    for module in pkgutil.iter_modules(shortlist.kernels.__path__, "shortlist.kernels."):
        module = importlib.import_module(module.name)
        if hasattr(module, "native"):
            monkeypatch.setattr(module, "native", other)
    ids, scores = shortlist.load(folder).rank(texts, 20)
    assert (ids == expected[0]).mean() > 0.99  # sums are added up in another order
    assert np.allclose(np.sort(scores), np.sort(expected[1]), atol=1e-4)


class TestArguments:
    def setup_method(self):
        self.ids = np.array([[3, 4, 5]], np.int32)
        self.odds = np.array([[0.1, 0.9, 0.5]], np.float32)
        self.best, self.best_odds = np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32)

    def run(self, odds):
        native.best_of_candidates(self.ids, odds, self.best, self.best_odds)
        return self.best.tolist()

    def test_arrays_that_are_not_contiguous_are_copied(self):
        assert self.run(np.repeat(self.odds, 2, axis=1)[:, ::2]) == self.run(self.odds) == [[4, 5]]

    @pytest.mark.parametrize("wrong", [np.ones((1, 3)), np.ones((1, 3), np.int32), None, "text"])
    def test_another_type_is_an_error_that_names_the_argument(self, wrong):
        with pytest.raises(TypeError, match=r"best_of_candidates: argument 2 "):
            self.run(wrong)

    def test_so_is_a_wrong_number_of_arguments(self):
        for arguments in ((self.ids,), (self.ids, self.odds, self.best, self.best_odds, 1)):
            with pytest.raises(TypeError, match="best_of_candidates"):
                native.best_of_candidates(*arguments)

    def test_and_a_result_that_cannot_be_written(self):
        self.best.flags.writeable = False
        with pytest.raises(TypeError, match="argument 3"):
            self.run(self.odds)


def test_without_a_library_the_error_says_what_to_do(monkeypatch):
    for name in ("_native_avx2", "_native"):
        monkeypatch.setitem(sys.modules, f"shortlist.kernels.{name}", None)
    with pytest.raises(ImportError, match="install it again"):
        _load()


@pytest.mark.parametrize(
    "found, expected", [(["cc"], ["cc"]), (["clang"], ["clang"]), ([], [sys.executable, "-m", "ziglang", "cc"])]
)
def test_the_build_takes_the_compiler_of_the_machine_or_zig(found, expected, monkeypatch):
    build = runpy.run_path(str(Path(shortlist.kernels.__path__[0]) / "c" / "build.py"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: name if name in found else None)
    assert build["compiler"]() == expected
    assert build["needs_zig"]() == (not found)
    monkeypatch.setenv("CC", "my-cc -m64")
    assert build["compiler"]() == ["my-cc", "-m64"] and not build["needs_zig"]()


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
