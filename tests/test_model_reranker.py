"""The second look: what it learns from a first stage's mistakes, how it is mixed with it, how it is kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from tests.test_models import change_arrays, put_file

import shortlist
from shortlist.arrays import Ragged
from shortlist.data import Texts
from shortlist.errors import ModelError, ShortlistError
from shortlist.evaluation.calibration import is_relevant
from shortlist.model import reranker as reranker_module
from shortlist.model.folder import open_model, save_model
from shortlist.model.prepared import ranked
from shortlist.model.reranker import PIECES, ROWS, Mixture, Reranker
from shortlist.text import Vocabulary

N_GROUPS, PER_GROUP = 10, 3
N_LABELS = N_GROUPS * PER_GROUP


def learn(stage, vocabulary, train, held_out, n_labels, k):
    """A re-ranker of what this first stage ranks best."""
    k = min(k, n_labels)
    ranks = [ranked(stage, vocabulary.encode(texts), k) for texts, _ in (train, held_out)]
    return Reranker.learn(vocabulary, train, ranks[0][0], held_out, ranks[1], n_labels)


def drawn(n_pairs, mixture, seed=0):
    """Pairs that are right as often as the mixture says."""
    rng = np.random.default_rng(seed)
    probabilities, scores = rng.beta(0.3, 2, n_pairs), rng.normal(size=n_pairs).astype(np.float32)
    odds = mixture.first * logit(np.clip(probabilities, 1e-6, 1 - 1e-6)) + mixture.words * scores + mixture.bias
    return probabilities, scores, rng.random(n_pairs) < expit(odds)


class TestMixture:
    @pytest.mark.parametrize(
        "planted",
        [Mixture(0.4, 4.5, 1.5), Mixture(1.0, 0.0, 0.0), Mixture(0.2, 8.0, -3.0), Mixture(0.0, 20.0, 10.0)],
        ids=lambda planted: f"{planted.first} {planted.words} {planted.bias}",
    )
    def test_planted_factors_are_found(self, planted):
        found = Mixture.fit(*drawn(20_000, planted))
        assert found.first == pytest.approx(planted.first, abs=0.05)
        assert found.words == pytest.approx(planted.words, rel=0.12, abs=0.05)
        assert found.bias == pytest.approx(planted.bias, rel=0.12, abs=0.1)

    def test_it_is_where_the_likelihood_is_greatest(self):
        probabilities, scores, right = drawn(5000, Mixture(0.3, 3.0, -1.0), seed=1)
        found = Mixture.fit(probabilities, scores, right)

        def likelihood(mixture):
            odds = mixture.odds(probabilities, scores)
            return -np.logaddexp(0, np.where(right, -odds, odds)).sum()

        for name in ("first", "words", "bias"):
            for step in (-0.1, 0.1):
                moved = Mixture(**{**vars(found), name: vars(found)[name] + step})
                assert likelihood(moved) < likelihood(found)

    def test_nothing_to_learn_from(self):
        none = np.zeros((0, 4), np.float32)
        assert Mixture.fit(none, none, none.astype(bool)) == Mixture()
        absent = np.full((2, 3), -np.inf, np.float32)
        assert Mixture.fit(np.zeros((2, 3)), absent, np.zeros((2, 3), bool)) == Mixture()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("n_pairs", [1, 2, 10, 1000])
    @pytest.mark.parametrize(
        "change",
        [
            lambda p, s, right: (p, s, np.ones(len(p), bool)),
            lambda p, s, right: (p, s, np.zeros(len(p), bool)),
            lambda p, s, right: (p, s, s > 0),
            lambda p, s, right: (p, s, s < 0),
            lambda p, s, right: (p, s, p > 0.1),
            lambda p, s, right: (np.full(len(p), 0.3), np.full(len(p), 0.2, np.float32), right),
            lambda p, s, right: (np.zeros(len(p)), np.zeros(len(p), np.float32), right),
            lambda p, s, right: ((p > 0.1).astype(float), s, right),
            lambda p, s, right: (p, np.where(np.arange(len(p)) % 2, s, -np.inf), right),
            lambda p, s, right: (p, 1e4 * s, right),
        ],
        ids=[
            "all right",
            "all wrong",
            "words know it",
            "words know better",
            "first knows it",
            "constant",
            "zeros",
            "certain",
            "half absent",
            "huge scores",
        ],
    )
    def test_whatever_it_is_fitted_to_it_is_finite(self, n_pairs, change):
        probabilities, scores, right = change(*drawn(n_pairs, Mixture()))
        mixture = Mixture.fit(probabilities, scores, right)
        assert np.isfinite(list(vars(mixture).values())).all()
        odds = mixture.odds(probabilities, scores)
        assert np.array_equal(np.isfinite(odds), np.isfinite(scores))
        assert not np.isnan(odds).any()

    @pytest.mark.parametrize("words", [2.0, 0.0, -2.0])
    def test_where_there_is_no_candidate_the_odds_are_nothing(self, words):
        odds = Mixture(0.5, words, 1.0).odds(np.asarray([[0.5, 0.0, 1.0]]), np.asarray([[1, -np.inf, 0]], np.float32))
        assert odds[0, :2].tolist() == [words + 1, -np.inf]
        assert 7 < odds[0, 2] < 9  # a first stage that is certain has a say, not the say


@given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 5), st.integers(0, 6))
def test_right_pairs(seed, n_texts, n_labels, k):
    rng = np.random.default_rng(seed)
    labels = Ragged.from_lists([rng.integers(n_labels, size=rng.integers(0, 4)) for _ in range(n_texts)])
    ids = rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)
    expected = [[label in labels.row(text).tolist() for label in line] for text, line in enumerate(ids.tolist())]
    found = is_relevant(ids, labels, n_labels)
    assert found.dtype == bool
    assert found.tolist() == expected


def grouped(n_texts, seed, within=range(N_LABELS)):
    """A text names its group, which three labels share, and in another word the one of them that is right."""
    rng = np.random.default_rng(seed)
    of_text = rng.choice(np.asarray(within), n_texts)
    noise = rng.integers(40, size=(n_texts, 2))
    texts = [
        f"group{t // PER_GROUP} {'xyz'[t % PER_GROUP]}own n{a} n{b}" for t, (a, b) in zip(of_text, noise, strict=True)
    ]
    return Texts.from_strings(texts), Ragged.from_lists([[t] for t in of_text])


class GroupStage:
    """A first stage that knows the group and no more: its labels first, in any order, then others."""

    def __init__(self, vocabulary):
        words = np.asarray(vocabulary.words)
        self.group_of_word = np.full(len(words), -1)
        for group in range(N_GROUPS):
            self.group_of_word[words == f"group{group}"] = group

    def __call__(self, word_ids, k):
        rng = np.random.default_rng(len(word_ids))
        scores = rng.random((len(word_ids), N_LABELS)) / 10
        for text in range(len(word_ids)):
            group = self.group_of_word[word_ids.row(text)].max(initial=-1)
            if group >= 0:
                scores[text, group * PER_GROUP : (group + 1) * PER_GROUP] += 0.3
        ids = np.argsort(-scores, axis=1)[:, :k].astype(np.int32)
        return ids, np.take_along_axis(scores, ids, axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.build([text for part in (grouped(1000, 1), grouped(60, 2)) for text in part[0]])


@pytest.fixture(scope="module")
def reranker(vocabulary):
    return learn(GroupStage(vocabulary), vocabulary, grouped(1000, 1), grouped(60, 2), N_LABELS, 6)


def first_and_second(reranker, vocabulary, texts, k=3):
    """What both stages make of texts."""
    word_ids = vocabulary.encode(texts)
    ids, probabilities = GroupStage(vocabulary)(word_ids, max(k, reranker.n_candidates))
    return ids[:, :k], reranker.rerank(texts, word_ids, ids, probabilities, k)


def precision(ids, labels):
    return float((ids[:, 0] == labels.values).mean())


class TestReranker:
    def test_mends_a_weak_first_stage(self, reranker, vocabulary):
        texts, labels = grouped(300, 3)
        first, (ids, probabilities) = first_and_second(reranker, vocabulary, texts)
        assert precision(first, labels) < 0.45
        assert precision(ids, labels) >= 0.98
        assert ids.shape == probabilities.shape == (300, 3)
        assert probabilities.dtype == np.float32
        assert np.all(np.diff(probabilities, axis=1) <= 0)
        # Odds that hold on texts never seen: probabilities add up to about the number of labels.
        assert probabilities.sum() == pytest.approx(300, rel=0.15)

    def test_the_first_stage_has_its_say(self, reranker):
        """Of two labels of which the words say the same, the likelier comes first."""
        assert reranker.mixture.first > 0
        assert reranker.mixture.words > 0
        ids = np.asarray([[4, 17]], np.int32)
        for probabilities in ([[0.1, 0.2]], [[0.2, 0.1]]):
            silent = Reranker(reranker.features, silenced(reranker.rows), reranker.mixture, 2)
            best, _ = silent.rerank(["n1"], Ragged.from_lists([[]]), ids, np.asarray(probabilities), 1)
            assert best.tolist() == [[ids[0, np.argmax(probabilities)]]]

    def test_what_was_held_out_is_learnt_from_afterwards(self, vocabulary, monkeypatch):
        """A label whose texts are all held out is only known where these are worth learning from."""
        train, held_out = grouped(400, 1, within=range(1, N_LABELS)), grouped(200, 2, within=[0, *range(9)])
        learnt = {}
        for worth in (0.01, 0.5, 0.51):
            monkeypatch.setattr(reranker_module, "WORTH_LEARNING", worth)
            learnt[worth] = learn(GroupStage(vocabulary), vocabulary, train, held_out, N_LABELS, 6)
        test = grouped(50, 3, within=[0])
        found = {
            worth: precision(first_and_second(one, vocabulary, test[0])[1][0], test[1]) for worth, one in learnt.items()
        }
        assert found[0.01] == found[0.5] >= 0.98
        assert found[0.51] < 0.5
        assert learnt[0.01].mixture == learnt[0.51].mixture  # set before, by texts that were not learnt from

    def test_without_anything_held_out_and_with_next_to_nothing(self, vocabulary):
        """One text or two say little about how to mix, and must not be taken at their word."""
        texts, labels = grouped(300, 3)
        for n_held_out, seed in [(0, 0), *((n, seed) for n in (1, 2, 5) for seed in range(2, 7))]:
            held_out = grouped(n_held_out, seed)
            one = learn(GroupStage(vocabulary), vocabulary, grouped(400, 1), held_out, N_LABELS, 6)
            assert precision(first_and_second(one, vocabulary, texts)[1][0], labels) >= 0.94
            assert one.mixture.first > 0
            assert one.mixture.words > 0
            assert (one.mixture == Mixture()) == (n_held_out == 0)

    def test_the_size_of_blocks_changes_nothing(self, reranker, vocabulary, monkeypatch):
        """Of a first stage that does not depend on them."""
        stage = GroupStage(vocabulary)

        def steady(word_ids, k):
            parts = [stage(word_ids.take([text]), k) for text in range(len(word_ids))]
            return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

        learnt = []
        for size in (4096, 7):
            monkeypatch.setattr("shortlist.model.prepared.TEXTS_PER_BLOCK", size)
            learnt.append(learn(steady, vocabulary, grouped(60, 1), grouped(20, 2), N_LABELS, 6))
        assert learnt[0].mixture == learnt[1].mixture
        for name, array in learnt[0].rows.to_arrays().items():
            assert np.array_equal(array, learnt[1].rows.to_arrays()[name])

    def test_more_labels_than_candidates_are_asked_for(self, reranker, vocabulary):
        texts, labels = grouped(20, 3)
        for k in (6, 20, N_LABELS):
            _, (ids, _) = first_and_second(reranker, vocabulary, texts, k)
            assert ids.shape == (20, k)
            assert all(len(set(line)) == k for line in ids.tolist())
            assert precision(ids, labels) >= 0.95
        _, (ids, _) = first_and_second(reranker, vocabulary, texts, 1)
        assert ids.shape == (20, 1)

    def test_no_more_candidates_than_labels(self, vocabulary):
        one = learn(GroupStage(vocabulary), vocabulary, grouped(60, 1), grouped(20, 2), N_LABELS, 10_000)
        assert one.n_candidates == N_LABELS

    @pytest.mark.filterwarnings("error")
    def test_absent_candidates_come_last(self, reranker, vocabulary):
        ids = np.asarray([[-1, 3, -1], [-1, -1, -1]], np.int32)
        for words in (4.0, 0.0, -4.0):
            one = Reranker(reranker.features, reranker.rows, Mixture(0.4, words, 0.0), 3)
            texts = ["group1 yown", ""]
            best, probabilities = one.rerank(texts, vocabulary.encode(texts), ids, np.zeros((2, 3)), 3)
            assert best.tolist() == [[3, -1, -1], [-1, -1, -1]]
            assert probabilities[0, 0] > 0
            assert not probabilities.ravel()[1:].any()

    def test_no_texts_and_texts_without_words(self, reranker, vocabulary):
        _, (ids, _) = first_and_second(reranker, vocabulary, [])
        assert ids.shape == (0, 3)
        _, (ids, probabilities) = first_and_second(reranker, vocabulary, ["", "unheard of"])
        assert np.isfinite(probabilities).all()
        assert (ids >= 0).all()

    def test_save_and_load_change_nothing(self, reranker, vocabulary, tmp_path):
        save_model(tmp_path / "m", "any", {}, N_LABELS, 32, reranker.write, lambda reader: {})
        reader = open_model(tmp_path / "m")
        again = Reranker.read(reader, reader.config.extra, vocabulary, N_LABELS)
        texts, _ = grouped(100, 3)
        found, expected = (first_and_second(one, vocabulary, texts)[1] for one in (again, reranker))
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])
        assert (again.mixture, again.n_candidates) == (reranker.mixture, reranker.n_candidates)

    def test_in_8_bits_next_to_nothing_changes(self, reranker, vocabulary, tmp_path):
        save_model(tmp_path / "m", "any", {}, N_LABELS, 8, reranker.write, lambda reader: {})
        reader = open_model(tmp_path / "m")
        again = Reranker.read(reader, reader.config.extra, vocabulary, N_LABELS)
        assert again.rows.weights.dtype == np.int8
        texts, labels = grouped(100, 3)
        found, expected = (first_and_second(one, vocabulary, texts)[1] for one in (again, reranker))
        assert precision(found[0], labels) >= precision(expected[0], labels) - 0.01
        np.testing.assert_allclose(found[1][:, 0], expected[1][:, 0], atol=0.05)

    def test_held_out_texts_are_kept_as_they_were_ranked_before_they_were_learnt_from(self, reranker, vocabulary):
        """What calibration may learn from; and scores of given labels are those of their ranking."""
        ids, probabilities = reranker.held_out_best
        assert ids.shape == probabilities.shape == (60, 5)
        texts, labels = grouped(60, 2)
        word_ids = vocabulary.encode(texts)
        candidates, first = GroupStage(vocabulary)(word_ids, 6)
        after, scores = reranker.rerank(texts, word_ids, candidates, first, 6)
        given = reranker.scores(texts, word_ids, after, np.take_along_axis(first, places(candidates, after), axis=1))
        np.testing.assert_allclose(given, scores, rtol=1e-6)
        # Once these texts are learnt from, their own labels are surer.
        assert scores[:, 0].mean() > probabilities[:, 0].mean()
        assert precision(after, labels) >= precision(ids, labels)

    def test_few_held_out_texts_are_not_learnt_from(self, vocabulary):
        learnt = learn(GroupStage(vocabulary), vocabulary, grouped(400, 1), grouped(3, 2), N_LABELS, 6)
        assert learnt.held_out_best is None


def places(candidates, ids):
    """Where each of the ids stands among the candidates of its row."""
    return (candidates[:, None] == ids[:, :, None]).argmax(axis=2)


def silenced(rows):
    """Word rows that know nothing."""
    nothing = np.zeros_like(rows.biases)
    return type(rows)(np.zeros_like(rows.starts), rows.words[:0], rows.weights[:0], rows.scales, nothing)


def colours(n_texts, seed=0):
    rng = np.random.default_rng(seed)
    names = ["red", "green", "blue", "yellow", "black", "white"]
    drawn = [names[i] for i in rng.integers(6, size=n_texts)]
    return shortlist.read([(f"{name} thing{rng.integers(9)}", [f"code {name}"]) for name in drawn])


# So little training that the network knows next to nothing.
WEAK = {"epochs": 1, "rate": 1e-4, "dimensions": 64, "batch_size": 32, "threads": 1, "validation": 0.2, "seed": 1}


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

    def test_it_mends_what_the_network_does_not_know(self, model):
        test = colours(60, seed=1)
        without = shortlist.train(colours(200), recipe="inceptionxml", **WEAK, reranker=False)
        assert without.reranker is None
        bare, mended = (shortlist.evaluate(m.predict_dataset(test, k=1), test, k=(1,))["P@1"] for m in (without, model))
        assert bare < 60
        assert mended >= 95

    def test_more_labels_than_candidates_are_asked_for(self):
        model = shortlist.train(colours(100), recipe="inceptionxml", **WEAK, candidates=2)
        for k, expected in ((1, 1), (2, 2), (5, 5), (100, 6)):
            labels = [prediction.label for prediction in model.predict("red thing1", k=k)]
            assert len(labels) == len(set(labels)) == expected

    def test_a_model_without_one_has_no_files_of_it(self, folder, tmp_path):
        assert {ROWS, PIECES} < {path.name for path in folder.iterdir()}
        shortlist.train(colours(40), recipe="inceptionxml", **WEAK, reranker=False).save(tmp_path / "without")
        assert not {ROWS, PIECES} & {path.name for path in (tmp_path / "without").iterdir()}
        assert shortlist.load(tmp_path / "without").reranker is None

    def test_save_and_load_change_nothing(self, model, folder):
        again = shortlist.load(folder)
        texts = list(colours(30, seed=2).texts)
        assert again.predict(texts) == model.predict(texts)
        assert again.reranker.mixture == model.reranker.mixture

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("starts", lambda a: a[:-1]),
            ("starts", lambda a: a[::-1].copy()),
            ("scales", lambda a: a[:-1]),
            ("scales", lambda a: a.astype(np.float64)),
            ("words", lambda a: a.astype(np.int64)),
            ("weights", lambda a: a[:-1]),
            ("biases", lambda a: a[:-1]),
            ("idf", lambda a: a[:-1]),
            ("idf", lambda a: a.astype(np.float64)),
            ("pieces_idf", lambda a: np.append(a, a)),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, folder, name, change):
        array = open_model(folder).arrays(ROWS)[name]
        change_arrays(folder, {name: change(array)}, ROWS)
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
            {"candidates": "many"},
            {"candidates": None},
            {"pieces": {}},
            {"pieces": {"tokenizer": {"prefix_lengths": [0]}}},
            {"pieces": {"tokenizer": {"prefix_lengths": 4}}},
            {"pieces": {"tokenizer": {"prefix_lengths": ["a"]}}},
        ],
        ids=str,
    )
    def test_a_strange_config_is_refused(self, folder, change):
        config = json.loads((folder / "config.json").read_text())
        config["extra"]["reranker"] |= change
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
            shortlist.load(folder)

    @pytest.mark.parametrize("content", [b"no tab\n", b"\xff\t1\n", b"", b"gree\t1\ngree\t1\n"])
    def test_pieces_that_cannot_be_read_are_refused(self, folder, content):
        put_file(folder, PIECES, content)
        with pytest.raises(ModelError, match="is damaged; train or fetch it again"):
            shortlist.load(folder)

    @pytest.mark.parametrize("name", [ROWS, PIECES])
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
            ({"candidates": 0}, "candidates is 0; it must be at least 1"),
            ({"cost": 0.0}, "cost is 0.0"),
            ({"cost": -1.0}, "cost is -1.0"),
        ],
    )
    def test_senseless_options(self, options, message):
        with pytest.raises(ShortlistError, match=message):
            shortlist.train(colours(20), recipe="inceptionxml", **WEAK, **options)
