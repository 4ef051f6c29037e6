"""Learning the re-ranker: the mixture with the classifier, and what held-out texts are used for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, logit

from shortlist.arrays import Ragged
from shortlist.data import Texts
from shortlist.stages.reranker import Mixture
from shortlist.text import Vocabulary
from shortlist.training import reranking
from shortlist.training.reranking import fit_mixture, learn_reranker
from test_training_word_weights import assert_equal


def drawn(n_pairs, mixture, seed=0):
    """Pairs that are hits as often as the mixture says."""
    rng = np.random.default_rng(seed)
    probabilities, scores = rng.beta(0.3, 2, n_pairs), rng.normal(size=n_pairs).astype(np.float32)
    odds = mixture.first * logit(np.clip(probabilities, 1e-6, 1 - 1e-6)) + mixture.words * scores + mixture.bias
    return probabilities, scores, rng.random(n_pairs) < expit(odds)


class TestFitMixture:
    @pytest.mark.parametrize(
        "planted",
        [Mixture(0.4, 4.5, 1.5), Mixture(1.0, 0.0, 0.0), Mixture(0.2, 8.0, -3.0), Mixture(0.0, 20.0, 10.0)],
        ids=lambda planted: f"{planted.first} {planted.words} {planted.bias}",
    )
    def test_planted_weights_are_found(self, planted):
        found = fit_mixture(*drawn(20_000, planted))
        assert found.first == pytest.approx(planted.first, abs=0.05)
        assert found.words == pytest.approx(planted.words, rel=0.12, abs=0.05)
        assert found.bias == pytest.approx(planted.bias, rel=0.12, abs=0.1)

    def test_it_maximises_the_likelihood(self):
        probabilities, scores, hits = drawn(5000, Mixture(0.3, 3.0, -1.0), seed=1)
        found = fit_mixture(probabilities, scores, hits)

        def likelihood(mixture):
            odds = mixture.log_odds(probabilities, scores)
            return -np.logaddexp(0, np.where(hits, -odds, odds)).sum()

        for name in ("first", "words", "bias"):
            for step in (-0.1, 0.1):
                moved = Mixture(**{**vars(found), name: vars(found)[name] + step})
                assert likelihood(moved) < likelihood(found)

    def test_nothing_to_learn_from(self):
        none = np.zeros((0, 4), np.float32)
        assert fit_mixture(none, none, none.astype(bool)) == Mixture()
        missing = np.full((2, 3), -np.inf, np.float32)
        assert fit_mixture(np.zeros((2, 3)), missing, np.zeros((2, 3), bool)) == Mixture()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("n_pairs", [1, 2, 10, 1000])
    @pytest.mark.parametrize(
        "change",
        [
            lambda p, s, hits: (p, s, np.ones(len(p), bool)),
            lambda p, s, hits: (p, s, np.zeros(len(p), bool)),
            lambda p, s, hits: (p, s, s > 0),
            lambda p, s, hits: (p, s, s < 0),
            lambda p, s, hits: (p, s, p > 0.1),
            lambda p, s, hits: (np.full(len(p), 0.3), np.full(len(p), 0.2, np.float32), hits),
            lambda p, s, hits: (np.zeros(len(p)), np.zeros(len(p), np.float32), hits),
            lambda p, s, hits: ((p > 0.1).astype(float), s, hits),
            lambda p, s, hits: (p, np.where(np.arange(len(p)) % 2, s, -np.inf), hits),
            lambda p, s, hits: (p, 1e4 * s, hits),
        ],
        ids=[
            "only hits",
            "only misses",
            "words decide",
            "words decide, inverted",
            "the classifier decides",
            "constant",
            "zeros",
            "probabilities of 0 and 1",
            "half of them missing",
            "huge scores",
        ],
    )
    def test_it_is_finite_for_any_data(self, n_pairs, change):
        probabilities, scores, hits = change(*drawn(n_pairs, Mixture()))
        mixture = fit_mixture(probabilities, scores, hits)
        assert np.isfinite(list(vars(mixture).values())).all()
        odds = mixture.log_odds(probabilities, scores)
        assert np.array_equal(np.isfinite(odds), np.isfinite(scores))
        assert not np.isnan(odds).any()


N_GROUPS, PER_GROUP = 10, 3
N_LABELS = N_GROUPS * PER_GROUP


def grouped(n_texts, seed, within=range(N_LABELS)):
    """A text names its group, which three labels share; another word says which of them is right."""
    rng = np.random.default_rng(seed)
    of_text = rng.choice(np.asarray(within), n_texts)
    noise = rng.integers(40, size=(n_texts, 2))
    texts = [
        f"group{t // PER_GROUP} {'xyz'[t % PER_GROUP]}own n{a} n{b}" for t, (a, b) in zip(of_text, noise, strict=True)
    ]
    return Texts.from_strings(texts), Ragged.from_lists([[t] for t in of_text])


class GroupPipeline:
    """A pipeline that knows the group and no more: its labels first, in any order, then others."""

    candidates = SimpleNamespace(max_searched=1)

    def __init__(self, vocabulary):
        words = np.asarray(vocabulary.words)
        self.group_of_word = np.full(len(words), -1)
        for group in range(N_GROUPS):
            self.group_of_word[words == f"group{group}"] = group

    def first_rank(self, word_ids, k, n_searched=1):
        assert n_searched == 1
        rng = np.random.default_rng(len(word_ids))
        scores = rng.random((len(word_ids), N_LABELS)) / 10
        for text in range(len(word_ids)):
            group = self.group_of_word[word_ids.row(text)].max(initial=-1)
            if group >= 0:
                scores[text, group * PER_GROUP : (group + 1) * PER_GROUP] += 0.3
        ids = np.argsort(-scores, axis=1)[:, :k].astype(np.int32)
        return ids, np.take_along_axis(scores, ids, axis=1).astype(np.float32)


def learn(vocabulary, train, held_out, n_reranked=6, hard_negatives=None):
    """The re-ranker, and the state of the build."""
    data = SimpleNamespace(
        vocabulary=vocabulary,
        n_labels=N_LABELS,
        texts=train[0],
        inputs=vocabulary.encode(train[0]),
        word_ids=vocabulary.encode(train[0]),
        labels=train[1],
        held_out=np.arange(len(held_out[0])),
        held_out_texts=held_out[0],
        held_out_inputs=vocabulary.encode(held_out[0]),
        held_out_ids=vocabulary.encode(held_out[0]),
        held_out_labels=held_out[1],
    )
    options = SimpleNamespace(n_reranked=n_reranked, C=0.5)
    build = SimpleNamespace(data=data, options=options, hard_negatives=hard_negatives, held_out_ranked=None)
    return learn_reranker(GroupPipeline(vocabulary), build), build


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.build([text for part in (grouped(1000, 1), grouped(60, 2)) for text in part[0]])


@pytest.fixture(scope="module")
def learnt(vocabulary):
    return learn(vocabulary, grouped(1000, 1), grouped(60, 2))


@pytest.fixture(scope="module")
def reranker(learnt):
    return learnt[0]


def before_and_after(reranker, vocabulary, texts, k=3):
    """The ids before re-ranking; and the ids and probabilities after it."""
    word_ids = vocabulary.encode(texts)
    ids, probabilities = GroupPipeline(vocabulary).first_rank(word_ids, max(k, reranker.n_candidates))
    return ids[:, :k], reranker.rerank(texts, word_ids, ids, probabilities, k)


def precision(ids, labels):
    return float((ids[:, 0] == labels.values).mean())


class TestLearnReranker:
    def test_it_corrects_a_weak_classifier(self, reranker, vocabulary):
        texts, labels = grouped(300, 3)
        first, (ids, probabilities) = before_and_after(reranker, vocabulary, texts)
        assert precision(first, labels) < 0.45
        assert precision(ids, labels) >= 0.98
        assert ids.shape == probabilities.shape == (300, 3)
        assert probabilities.dtype == np.float32
        assert np.all(np.diff(probabilities, axis=1) <= 0)
        # The probabilities hold on new texts: they add up to about the number of labels.
        assert probabilities.sum() == pytest.approx(300, rel=0.15)

    def test_held_out_texts_are_learnt_from_once_they_have_set_the_mixture(self, vocabulary, monkeypatch):
        """A label whose texts are all held out is known only if these are a large enough share of all texts."""
        train, held_out = grouped(400, 1, within=range(1, N_LABELS)), grouped(200, 2, within=[0, *range(9)])
        learnt = {}
        for share in (0.01, 0.5, 0.51):
            monkeypatch.setattr(reranking, "MIN_HELD_OUT_SHARE", share)
            learnt[share], _ = learn(vocabulary, train, held_out)
        test = grouped(50, 3, within=[0])
        found = {
            share: precision(before_and_after(one, vocabulary, test[0])[1][0], test[1]) for share, one in learnt.items()
        }
        assert found[0.01] == found[0.5] >= 0.98
        assert found[0.51] < 0.5
        assert learnt[0.01].mixture == learnt[0.51].mixture

    def test_few_held_out_texts_or_none(self, vocabulary):
        """One or two texts say little about the mixture, and must not decide it alone."""
        texts, labels = grouped(300, 3)
        for n_held_out, seed in [(0, 0), *((n, seed) for n in (1, 2, 5) for seed in range(2, 7))]:
            one, build = learn(vocabulary, grouped(400, 1), grouped(n_held_out, seed))
            assert precision(before_and_after(one, vocabulary, texts)[1][0], labels) >= 0.94
            assert one.mixture.first > 0
            assert one.mixture.words > 0
            assert (one.mixture == Mixture()) == (n_held_out == 0)
            assert (build.held_out_ranked is None) == (n_held_out < 4)  # 1 % of the texts

    def test_the_ranking_of_held_out_texts_is_that_before_they_were_learnt_from(self, learnt, vocabulary):
        """Calibration may then use it. Scores of given labels are those of their ranking."""
        reranker, build = learnt
        ids, probabilities = build.held_out_ranked
        assert ids.shape == probabilities.shape == (60, 6)
        texts, labels = grouped(60, 2)
        word_ids = vocabulary.encode(texts)
        candidates, first = GroupPipeline(vocabulary).first_rank(word_ids, 6)
        after, scores = reranker.rerank(texts, word_ids, candidates, first, 6)
        places = (candidates[:, None] == after[:, :, None]).argmax(axis=2)
        given = reranker.scores(texts, word_ids, after, np.take_along_axis(first, places, axis=1))
        np.testing.assert_allclose(given, scores, rtol=1e-6)
        # Once these texts are learnt from, their own labels are more probable.
        assert scores[:, 0].mean() > probabilities[:, 0].mean()
        assert precision(after, labels) >= precision(ids, labels)

    def test_hard_negatives_of_the_classifier_are_used_where_there_are_some(self, vocabulary):
        train, texts = grouped(400, 1), grouped(300, 3)
        own = GroupPipeline(vocabulary).first_rank(vocabulary.encode(train[0]), 6)[0]
        same, _ = learn(vocabulary, train, grouped(20, 2), hard_negatives=own)
        expected, _ = learn(vocabulary, train, grouped(20, 2))
        assert_equal(same.arrays(), expected.arrays())
        useless, _ = learn(vocabulary, train, grouped(20, 2), hard_negatives=np.zeros((400, 1), np.int32))
        assert useless.n_candidates == 1
        found = [precision(before_and_after(one, vocabulary, texts[0])[1][0], texts[1]) for one in (same, useless)]
        assert found[0] > 0.9 > found[1]

    def test_no_more_candidates_than_labels(self, vocabulary):
        one, _ = learn(vocabulary, grouped(60, 1), grouped(20, 2), n_reranked=10_000)
        assert one.n_candidates == N_LABELS

    def test_more_labels_are_asked_for_than_are_re_ranked(self, reranker, vocabulary):
        texts, labels = grouped(20, 3)
        for k in (1, 6, 20, N_LABELS):
            _, (ids, _) = before_and_after(reranker, vocabulary, texts, k)
            assert ids.shape == (20, k)
            assert all(len(set(line)) == k for line in ids.tolist())
            assert precision(ids, labels) >= 0.95

    def test_no_texts_and_texts_without_words(self, reranker, vocabulary):
        _, (ids, _) = before_and_after(reranker, vocabulary, [])
        assert ids.shape == (0, 3)
        _, (ids, probabilities) = before_and_after(reranker, vocabulary, ["", "unheard of"])
        assert np.isfinite(probabilities).all()
        assert (ids >= 0).all()

    def test_8_bits_change_next_to_nothing(self, reranker, vocabulary):
        packed = reranker.quantized()
        assert packed.arrays()["weights"].dtype == np.int8
        texts, labels = grouped(100, 3)
        found, expected = (before_and_after(one, vocabulary, texts)[1] for one in (packed, reranker))
        assert precision(found[0], labels) >= precision(expected[0], labels) - 0.01
        np.testing.assert_allclose(found[1][:, 0], expected[1][:, 0], atol=0.05)
