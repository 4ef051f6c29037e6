"""The re-ranker: scores of words against dense products, the mixture, and re-rankers of saved models."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import logit

import shortlist
from model_files import change_config, put_arrays, put_file, replaced
from shortlist.arrays import Ragged
from shortlist.errors import ModelError, ShortlistError
from shortlist.odds import CLIP
from shortlist.stages.evidence import Evidence, index_names, remember_texts
from shortlist.stages.mixture import Mixture
from shortlist.stages.pages import PAGE, n_pages, paged_weights
from shortlist.stages.parts_of_names import rows_of_parts
from shortlist.stages.replacing import with_more_features, words_of
from shortlist.stages.reranker import N_MORE, Reranker
from shortlist.text import Tokenizer, Vocabulary
from shortlist.text.parts import N_PARTS
from test_training_word_weights import dense_rows, random_problem

CONFIG = {"n_candidates": 9, "mixture": vars(Mixture(first=0.5, words=2.0, bias=1.0))}


@cache
def vocabulary(n_words):
    return Vocabulary([f"w{i}" for i in range(n_words)], np.ones(n_words, np.int64))


def evidence_arrays(n_labels, n_features, names=None, taught=(), frequencies=None):
    """Names as a dense matrix of weights, and texts with their labels; none, if they are not given."""
    names = np.zeros((n_labels, n_features)) if names is None else names
    texts, labels = zip(*taught, strict=True) if taught else ((), ())
    frequencies = np.zeros(n_labels) if frequencies is None else frequencies
    return {
        **index_names(sparse.csr_array(np.asarray(names, np.float32))),
        **remember_texts(texts, Ragged.from_lists(labels), Tokenizer()),
        "frequencies": np.asarray(frequencies, np.float32),
    }


def reranker_of(weights, rng, columns=None, n_words=None, mixture=None, **evidence):
    """A re-ranker with a dense matrix of weights; its columns stand for words 0, 1, … or for those given."""
    rows = Ragged.from_csr(weights)
    columns = np.arange(weights.shape[1]) if columns is None else columns
    biases = rng.standard_normal(len(weights)).astype(np.float32)
    n_words = n_words or weights.shape[1]
    arrays = paged_weights(rows.indptr, columns[rows.values], rows.weights, biases, n_words)
    arrays |= {"idf": np.ones(n_words, np.float32), "subword_idf": np.zeros(0, np.float32)}
    arrays |= evidence_arrays(len(weights), n_words, **evidence)
    config = CONFIG if mixture is None else {**CONFIG, "mixture": vars(mixture)}
    return Reranker.from_arrays(arrays, config, vocabulary(n_words), vocabulary(0), len(weights))


def read(reranker, change):
    """The re-ranker from its arrays, some of them changed."""
    arrays = replaced(reranker.arrays(), change)
    return Reranker.from_arrays(
        arrays, reranker.config(), reranker.features.words, reranker.subwords, reranker.n_labels
    )


def slow_scores(features, weights, biases, candidates):
    products = features.toarray() @ weights.T + biases
    return np.where(candidates >= 0, np.take_along_axis(products, np.maximum(candidates, 0), axis=1), -np.inf)


def gather(reranker, texts, ids, **more):
    return reranker.gather(texts, reranker.features.words.encode(texts), np.asarray(ids, np.int32), **more)


class TestMixture:
    @pytest.mark.parametrize("words", [2.0, 0.0, -2.0])
    def test_log_odds(self, words):
        """`evidence_odds` has its slow twin in test_kernels_evidence.py."""
        probabilities, ids = np.asarray([[0.5, 0.0, 1.0, 0.2]]), np.asarray([[0, -1, 1, 2]], np.int32)
        evidence = Evidence(
            ids, Ragged.from_lists([[]]), np.zeros((1, 4), "f4"), np.zeros((1, 4), bool), np.zeros(1, bool)
        )
        mixture, scores = Mixture(first=0.5, words=words, bias=1.0), np.asarray([[1, -np.inf, 0, 3]], np.float32)
        odds = mixture.log_odds(evidence, probabilities, scores, np.ones(3, np.float32))
        assert odds[0, :2].tolist() == [words + 1, -np.inf]  # no candidate, no odds
        assert odds[0, 2] == pytest.approx(0.5 * logit(1 - CLIP) + 1, rel=0.01)  # even a certain classifier can lose
        assert odds[0, 3] == pytest.approx(0.5 * logit(0.2) + 3 * words + 1, rel=1e-5)

    def test_of_labels_with_equal_words_the_more_probable_comes_first(self):
        silent = reranker_of(np.zeros((20, 3), np.float32), np.random.default_rng(0))
        silent = read(silent, {"biases": lambda a: 0 * a})
        ids = np.asarray([[4, 17]], np.int32)
        for probabilities in ([[0.1, 0.2]], [[0.2, 0.1]]):
            best, _ = silent.best(gather(silent, ["w1"], ids), np.asarray(probabilities), 1)
            assert best.tolist() == [[ids[0, np.argmax(probabilities)]]]

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("words", [4.0, 0.0, -4.0])
    def test_missing_candidates_come_last(self, words):
        rng, mixture = np.random.default_rng(0), Mixture(first=0.4, words=words, bias=0.0)
        one = reranker_of(rng.standard_normal((5, 3)).astype(np.float32), rng, mixture=mixture)
        evidence = gather(one, ["w1 w2", ""], [[-1, 3, -1], [-1, -1, -1]])
        best, probabilities = one.best(evidence, np.zeros((2, 3)), 3)
        assert best.tolist() == [[3, -1, -1], [-1, -1, -1]]
        assert probabilities[0, 0] > 0
        assert not probabilities.ravel()[1:].any()


class TestEvidence:
    """Six labels over four words: label i is called w_i, if i < 4; and two texts are taught."""

    @pytest.fixture
    def reranker(self):
        names = np.eye(6, 4)
        taught = [("w0 w1", [5]), ("w2, w2?", [0, 4])]
        return reranker_of(
            np.zeros((6, 4), np.float32), np.random.default_rng(0), names=names, taught=taught, frequencies=range(6)
        )

    def test_labels_are_found_by_name_and_by_texts_with_the_same_words(self, reranker):
        evidence = gather(reranker, ["w0 w1", "w1", "W1; w0", "w2 w2", "new", ""], np.full((6, 1), 3))
        found = [[label for label in row if label >= 0] for row in evidence.ids.tolist()]
        assert found == [[3, 5, 0, 1], [3, 1], [3, 5, 0, 1], [3, 0, 4, 2], [3], [3]]
        assert evidence.ids.shape == evidence.names.shape == evidence.known.shape == (6, 1 + N_MORE)
        assert evidence.is_known.tolist() == [True, False, True, True, False, False]
        assert evidence.known[0, :4].tolist() == [False, True, False, False]
        assert evidence.names[1, :2].tolist() == pytest.approx([0, 0.61], abs=0.01)  # the words' part of the length

    def test_what_is_known_about_given_labels_is_the_same_without_further_ones(self, reranker):
        texts, rng = ["w0 w1", "w1 w3", "w2 w2", ""], np.random.default_rng(0)
        for k in (1, 3, 8):
            ids = rng.integers(-1, 6, (4, k))
            with_more, alone = gather(reranker, texts, ids), gather(reranker, texts, ids, n_more=0)
            assert np.array_equal(alone.ids, ids)
            probabilities = rng.random(with_more.ids.shape).astype(np.float32)
            expected = reranker.log_odds(with_more, probabilities)[:, :k]
            assert np.array_equal(reranker.log_odds(alone, probabilities[:, :k]), expected)

    def test_scores_are_those_of_the_ranking(self, reranker):
        evidence = gather(reranker, ["w0 w1", "w1 w3", "new"], np.tile(np.arange(6), (3, 1)))
        probabilities = np.random.default_rng(0).random(evidence.ids.shape).astype(np.float32)
        best, best_scores = reranker.best(evidence, probabilities, 6)
        scores = reranker.scores(evidence, probabilities)
        places = (evidence.ids[:, None] == best[:, :, None]).argmax(axis=2)
        assert np.array_equal(np.take_along_axis(scores, places, axis=1), best_scores)
        assert not scores[evidence.ids < 0].any()

    def test_a_label_of_a_text_with_the_same_words_comes_first(self, reranker):
        for label in range(5):
            evidence = gather(reranker, ["w1 w0"], [[label]])
            probabilities = np.where(evidence.ids == label, 0.9, 0.01)
            assert reranker.best(evidence, probabilities, 1)[0].tolist() == [[5]]

    def test_without_taught_texts_and_names_there_are_no_further_candidates(self, reranker):
        alone = reranker.without_taught()
        assert not gather(alone, ["w0 w1"], [[3]]).is_known.any()
        assert gather(alone, ["w0 w1"], [[3]]).ids[0, :3].tolist() == [3, 0, 1]
        nothing = reranker_of(np.zeros((6, 4), np.float32), np.random.default_rng(0))
        assert gather(nothing, ["w0 w1"], [[3]]).ids.tolist() == [[3]]

    def test_8_bits_do_not_touch_it(self, reranker):
        one, other = (gather(r, ["w0 w1", "w2"], [[3], [-1]]) for r in (reranker, read(reranker.quantized(), {})))
        for a, b in ((one.ids, other.ids), (one.names, other.names), (one.known, other.known)):
            assert np.array_equal(a, b)


class TestWordScores:
    @given(st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 12), st.integers(1, 6), st.integers(0, 7))
    def test_equal_a_dense_product(self, seed, n_texts, n_words, n_labels, k):
        rng = np.random.default_rng(seed)
        features, _, candidates = random_problem(seed, n_texts, n_words, n_labels, k)
        weights = rng.standard_normal((n_labels, n_words)) * (rng.random((n_labels, n_words)) < 0.4)
        reranker = reranker_of(weights.astype(np.float32), rng)
        scores = reranker.word_scores(Ragged.from_csr(features), candidates)
        assert scores.dtype == np.float32
        expected = slow_scores(features, weights, reranker.arrays()["biases"], candidates)
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)

    @given(st.integers(0, 10_000), st.sampled_from([1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7]), st.booleans())
    def test_words_on_any_page(self, seed, n_words, packed):
        """Words beyond 16 bits, those at both ends of a page, and labels without words on some pages."""
        rng = np.random.default_rng(seed)
        ends = np.array([0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 3 * PAGE, n_words - 1])
        columns = np.unique(np.append(ends[ends < n_words], rng.integers(n_words, size=20)))
        features, _, candidates = random_problem(seed, 6, len(columns), 5, 4)
        weights = rng.standard_normal((5, len(columns))) * (rng.random((5, len(columns))) < 0.5)
        weights[rng.integers(5)] = 0  # a label without a word
        weights = weights.astype(np.float32)
        reranker = reranker_of(weights, rng, columns, n_words)
        assert len(reranker.arrays()["starts"]) == 5 * n_pages(n_words) + 1 == 5 * -(-n_words // PAGE) + 1
        assert reranker.arrays()["words"].dtype == np.uint16
        atol = 1e-5
        if packed:
            reranker = read(reranker.quantized(), {})
            assert reranker.arrays()["weights"].dtype == np.int8
            # Half a step of the label for each word of the text.
            atol += np.abs(weights).max() / 254 * np.abs(features).sum(axis=1).max()
        of_texts = Ragged.from_csr(features)
        of_texts = Ragged(of_texts.indptr, columns[of_texts.values].astype(np.int32), of_texts.weights)
        expected = slow_scores(features, weights, reranker.arrays()["biases"], candidates)
        np.testing.assert_allclose(reranker.word_scores(of_texts, candidates), expected, atol=atol)

    def test_in_8_bits_each_label_has_a_scale_of_its_own(self):
        weights = np.asarray([[0, 0, 0], [1e-3, -2e-3, 0], [0, 0, 0], [50, 0, -100], [0, 0, 0]], np.float32)
        reranker = reranker_of(weights, np.random.default_rng(0)).quantized()
        arrays = reranker.arrays()
        assert arrays["weights"].tolist() == [64, -127, 64, -127]
        assert arrays["scales"] == pytest.approx([0, 2e-3 / 127, 0, 100 / 127, 0])
        error = np.abs(dense_rows(arrays, 3)[:, :-1] - weights).max(axis=1)
        assert (error <= arrays["scales"] / 2 * (1 + 1e-4)).all()
        assert reranker.quantized() is reranker

    def test_words_beyond_the_vocabulary_change_nothing(self):
        """A file may name places on a page beyond the last word; no text ever has them."""
        reranker = reranker_of(np.ones((2, 3), np.float32), np.random.default_rng(0))
        beyond = read(reranker, {"words": lambda a: a + np.asarray([0, 0, 60_000] * 2, np.uint16)})
        texts = Ragged(np.asarray([0, 2]), np.asarray([0, 1], np.int32), np.ones(2, np.float32))
        both = np.asarray([[0, 1]], np.int32)
        assert np.array_equal(beyond.word_scores(texts, both), reranker.word_scores(texts, both))


class TestArrays:
    @pytest.fixture
    def reranker(self):
        rng = np.random.default_rng(4)
        weights = rng.standard_normal((8, 20)) * (rng.random((8, 20)) < 0.4)
        parts = rows_of_parts(sparse.csr_array(np.eye(8, N_PARTS, dtype=np.float32)))
        taught = [("w0", [3]), ("w1", [7, 2])]
        with_names = reranker_of(weights.astype(np.float32), rng, names=np.eye(8, 20), taught=taught)
        return with_names.with_arrays({**parts, "parts.idf": np.ones(N_PARTS, np.float32)})

    def test_no_labels_and_no_words(self):
        nothing = paged_weights(np.zeros(1, np.int64), np.zeros(0, int), np.zeros(0, "f4"), np.zeros(0, "f4"), 0)
        nothing |= {"idf": np.zeros(0, np.float32), "subword_idf": np.zeros(0, np.float32), **evidence_arrays(0, 0)}
        assert Reranker.from_arrays(nothing, CONFIG, vocabulary(0), vocabulary(0), 0).n_labels == 0

    @pytest.mark.parametrize("name", sorted(Reranker.spec.keys() - {"subword_idf"}))
    def test_missing_arrays_and_other_types_and_shapes_are_refused(self, reranker, name):
        for wrong in (None, lambda a: a.astype(np.float64), lambda a: a[:, None], lambda a: a[0]):
            with pytest.raises(ModelError, match=f"array '{name}'"):
                read(reranker, {name: wrong})

    def test_more_words_than_a_page_need_more_starts(self, reranker):
        names = {"names.indptr": np.append(reranker.arrays()["names.indptr"], np.full(PAGE + 1 - 20, 8))}
        arrays = {**reranker.arrays(), **names, "idf": np.ones(PAGE + 1, np.float32)}
        with pytest.raises(ModelError, match="'starts' has 9 values; expected 17"):
            Reranker.from_arrays(arrays, CONFIG, vocabulary(PAGE + 1), vocabulary(0), 8)
        arrays |= {"idf": np.ones(PAGE, np.float32), "names.indptr": names["names.indptr"][:-1]}
        assert Reranker.from_arrays(arrays, CONFIG, vocabulary(PAGE), vocabulary(0), 8).n_labels == 8

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("starts", lambda a: a[:-1], "'starts' must start at 0|'starts' has 8 values; expected 9"),
            ("starts", lambda a: a[:0], "'starts' must start at 0"),
            ("biases", lambda a: a[:-1], "'biases' has shape"),
            ("biases", lambda a: np.append(a, a[:1]), "'biases' has shape"),
            ("biases", lambda a: a * np.nan, "'biases' contains NaN"),
            ("scales", lambda a: a[:-1], "'scales' has shape"),
            ("scales", lambda a: a * np.inf, "'scales' contains NaN or infinity"),
            ("weights", lambda a: a[:-1], "'weights' has shape"),
            ("words", lambda a: a[:-1], "'weights' has shape"),
            ("starts", lambda a: a + 1, "'starts' must start at 0"),
            ("starts", lambda a: a - 1, "'starts' must start at 0"),
            ("starts", lambda a: np.append(a[:-1], a[-1] + 1), "'starts' must start at 0"),
            ("starts", lambda a: np.append(a[:-1], a[-1] - 1), "'starts' must start at 0"),
            ("starts", lambda a: a[[0, 2, 1, *range(3, 9)]], "'starts' must start at 0"),
            ("starts", lambda a: np.where(np.arange(9) == 4, -5, a), "'starts' must start at 0"),
            ("idf", lambda a: a[:-1], "'idf' has shape"),
            ("idf", lambda a: a * np.nan, "'idf' contains NaN"),
            ("subword_idf", lambda a: np.ones(1, np.float32), "'subword_idf' has shape"),
            ("frequencies", lambda a: a[:-1], "'frequencies' has shape"),
            ("frequencies", lambda a: a * np.nan, "'frequencies' contains NaN"),
            ("names.indptr", lambda a: a[:-1], "'names.indptr' has shape"),
            ("names.indptr", lambda a: a + 1, "'names.indptr' must start at 0"),
            ("names.indptr", lambda a: a[::-1], "'names.indptr' must start at 0"),
            ("names.labels", lambda a: a + 1, "'names.labels' has a value of 8"),
            ("names.labels", lambda a: a - 1, "'names.labels' has a value of -1"),
            ("names.labels", lambda a: a[:-1], "'names.weights' has shape"),
            ("names.weights", lambda a: a[:-1], "'names.weights' has shape"),
            ("taught.hashes", lambda a: a[:-1], "'taught.indptr' has shape"),
            ("taught.hashes", lambda a: a[::-1], "'taught.hashes' must increase"),
            ("taught.hashes", lambda a: a[[0, 0]], "'taught.hashes' must increase"),
            ("taught.indptr", lambda a: a[:-1], "'taught.indptr' has shape"),
            ("taught.indptr", lambda a: a + 1, "'taught.indptr' must start at 0"),
            ("taught.indptr", lambda a: a[[0, 2, 1]], "'taught.indptr' must start at 0"),
            ("taught.labels", lambda a: a + 1, "'taught.labels' has a value of 8"),
            ("taught.labels", lambda a: a - 9, "'taught.labels' has a value of -"),
            ("taught.labels", lambda a: a[:-1], "'taught.indptr' must start at 0"),
        ],
    )
    def test_damage_is_refused_before_a_kernel_follows_it(self, reranker, name, change, message):
        with pytest.raises(ModelError, match=message):
            read(reranker, {name: change})

    @pytest.mark.parametrize("value", [None, "much", True, [1], 1e300, float("nan")])
    @pytest.mark.parametrize("name", [*vars(Mixture()), "n_candidates"])
    def test_a_damaged_config_is_refused(self, reranker, name, value):
        config = {**CONFIG, name: value}
        if name != "n_candidates":
            config = {**CONFIG, "mixture": {**CONFIG["mixture"], name: value}}
        with pytest.raises(ModelError, match=name):
            Reranker.from_arrays(reranker.arrays(), config, vocabulary(20), vocabulary(0), 8)


def colours(n_texts, seed=0):
    rng = np.random.default_rng(seed)
    names = ["red", "green", "blue", "yellow", "black", "white"]
    drawn = [names[i] for i in rng.integers(6, size=n_texts)]
    return shortlist.read([(f"{name} thing{rng.integers(9)}", [f"code {name}"]) for name in drawn])


# So little training that the network knows next to nothing.
WEAK = {
    "n_epochs": 1,
    "learning_rate": 1e-4,
    "embedding_dim": 64,
    "batch_size": 32,
    "threads": 1,
    "validation_fraction": 0.2,
    "seed": 1,
}
ARRAYS, SUBWORDS = "reranker.safetensors", "reranker.txt"


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("torch")
    return shortlist.train(colours(200), recipe="inceptionxml", **WEAK)


@pytest.mark.slow
class TestWithinAModel:
    @pytest.fixture
    def folder(self, model, tmp_path):
        model.save(tmp_path / "model", bits=32)
        return tmp_path / "model"

    def test_it_corrects_what_the_network_does_not_know(self, model):
        test = colours(60, seed=1)
        without = shortlist.train(colours(200), recipe="inceptionxml", **WEAK, reranker=False)
        assert without.pipelines[0].reranker is None
        before, after = (
            shortlist.evaluate(m.predict_dataset(test, k=1), test, k=(1,))["P@1"] for m in (without, model)
        )
        assert before < 60
        assert after >= 95

    def test_more_labels_are_asked_for_than_are_re_ranked(self):
        model = shortlist.train(colours(100), recipe="inceptionxml", **WEAK, n_reranked=2)
        for k, expected in ((1, 1), (2, 2), (5, 5), (100, 6)):
            labels = [prediction.label for prediction in model.predict("red thing1", k=k)]
            assert len(labels) == len(set(labels)) == expected

    def test_a_model_without_re_ranker_has_no_files_of_it(self, folder, tmp_path):
        assert {ARRAYS, SUBWORDS} < {path.name for path in folder.iterdir()}
        shortlist.train(colours(40), recipe="inceptionxml", **WEAK, reranker=False).save(tmp_path / "without")
        assert not {ARRAYS, SUBWORDS} & {path.name for path in (tmp_path / "without").iterdir()}
        assert shortlist.load(tmp_path / "without").pipelines[0].reranker is None

    def test_save_and_load_change_nothing(self, model, folder):
        again = shortlist.load(folder)
        texts = list(colours(30, seed=2).texts)
        assert again.predict(texts) == model.predict(texts)
        assert again.pipelines[0].reranker.mixture == model.pipelines[0].reranker.mixture

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("starts", lambda a: a[:-1]),
            ("scales", lambda a: a.astype(np.float64)),
            ("words", lambda a: a.astype(np.int64)),
            ("weights", lambda a: a[:-1]),
            ("idf", lambda a: a[:-1]),
            ("subword_idf", lambda a: np.append(a, a)),
            ("frequencies", lambda a: a[:-1]),
            ("names.indptr", lambda a: a[:-1]),
            ("names.weights", None),
            ("taught.hashes", lambda a: a[::-1]),
            ("taught.labels", lambda a: a - 99),
        ],
    )
    def test_damaged_arrays_are_refused(self, folder, name, change):
        put_arrays(folder, ARRAYS, {name: change})
        with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        "change",
        [
            {"mixture": {"first": "much"}},
            {"mixture": {"first": None}},
            {"mixture": {"frist": 1.0}},
            {"mixture": 3},
            {"mixture": None},
            {"n_candidates": "many"},
            {"n_candidates": None},
            {"subwords": {}},
            {"subwords": {"tokenizer": {"beginnings": [0]}}},
            {"subwords": {"tokenizer": {"beginnings": 4}}},
            {"subwords": {"tokenizer": {"beginnings": ["a"]}}},
        ],
        ids=str,
    )
    def test_a_damaged_config_is_refused(self, folder, change):
        def damage(config):
            (stage,) = (stage for stage in config["members"][0] if stage["stage"] == "reranker")
            stage["config"] |= change

        change_config(folder, damage)
        with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
            shortlist.load(folder)

    @pytest.mark.parametrize("content", [b"no tab\n", b"\xff\t1\n", b"", b"gree\t1\ngree\t1\n"])
    def test_damaged_subwords_are_refused(self, folder, content):
        put_file(folder, SUBWORDS, content)
        with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
            shortlist.load(folder)

    @pytest.mark.parametrize("name", [ARRAYS, SUBWORDS])
    def test_a_missing_or_changed_file_is_noticed(self, folder, name):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ModelError, match=f"{name} is not the file that was saved"):
            shortlist.load(folder)
        (folder / name).unlink()
        with pytest.raises(ModelError, match=f"{name} is missing"):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_reranked": 0}, "n_reranked is 0; it must be at least 1"),
            ({"C": -1.0}, "C is -1.0; it must be at least 0"),
        ],
    )
    def test_options_out_of_range_are_refused(self, options, message):
        with pytest.raises(ShortlistError, match=message):
            shortlist.train(colours(20), recipe="inceptionxml", **WEAK, **options)


@pytest.mark.parametrize("n_words", [30, PAGE - 3])
def test_more_features_change_no_score(n_words):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((5, 30)) < 0.5, rng.standard_normal((5, 30)), 0).astype(np.float32)
    columns = np.sort(rng.choice(n_words, 30, replace=False))
    plain = reranker_of(dense, rng, columns, n_words)
    before = Vocabulary(["w1 w2", "w2 w3"], np.ones(2))
    arrays = {"subword_idf": np.ones(2, np.float32), "names.indptr": np.append(plain.arrays()["names.indptr"], [0, 0])}
    small = Reranker({**plain.arrays(), **arrays}, plain.config(), plain.features.words, before)
    larger = with_more_features(
        small,
        plain.features.words.with_words(["new", "words"], np.ones(2)),
        np.full(2, 2.0),
        before.with_words(["new w1"], np.ones(1)),
        np.full(1, 3.0),
    )
    assert larger.features.n_features == small.features.n_features + 3
    assert larger.arrays()["idf"][-2:].tolist() == [2, 2] and larger.arrays()["subword_idf"].tolist() == [1, 1, 3]
    features = sparse.random_array((9, n_words), density=0.2, rng=rng, dtype=np.float32, format="csr")
    ids = np.tile(np.arange(5, dtype=np.int32), (9, 1))
    rows = Ragged.from_csr(features)
    assert np.array_equal(small.word_scores(rows, ids), larger.word_scores(rows, ids))
    everything = words_of(larger, np.arange(5)).toarray()
    assert np.array_equal(everything[:, :n_words], words_of(small, np.arange(5)).toarray()[:, :n_words])
    assert not everything[:, n_words:].any()
    read(larger, {})  # the arrays are those of a valid re-ranker
