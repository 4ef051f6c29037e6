"""Learning the re-ranker: the mixture with the classifier, and what held-out texts are used for."""

from __future__ import annotations

from dataclasses import replace
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

from shortlist.arrays import Ragged
from shortlist.data import Texts
from shortlist.evaluation.calibration import is_relevant
from shortlist.stages.evidence import Evidence
from shortlist.stages.mixture import Mixture
from shortlist.stages.pipeline import in_blocks
from shortlist.stages.reranker import N_MORE
from shortlist.text import Vocabulary
from shortlist.training import reranking
from shortlist.training.data import TrainingData
from shortlist.training.reranking import fit_mixture, learn_reranker
from test_training_word_weights import assert_equal

PLANTED = Mixture(0.4, 3.0, 2.0, 1.0, -0.3, 0.1, 0.5, 2.0, -7.0, -1.0)


def drawn(n_texts, mixture, seed=0, k=4):
    """Candidates that are hits as often as the mixture says: a re-ranker, evidence, probabilities, and labels."""
    rng = np.random.default_rng(seed)
    ids = (
        np.stack([rng.permutation(50)[:k] for _ in range(n_texts)]).astype(np.int32)
        if n_texts
        else np.zeros((0, k), "i4")
    )
    probabilities, scores = rng.beta(0.3, 2, ids.shape), rng.normal(size=ids.shape).astype(np.float32)
    names = (rng.random(ids.shape) * (rng.random(ids.shape) < 0.5)).astype(np.float32)
    known = rng.random(ids.shape) < 0.1
    evidence = Evidence(ids, Ragged.from_lists([[]] * n_texts), names, known, known.any(axis=1))
    frequencies = np.log1p(rng.integers(0, 30, 50)).astype(np.float32)
    odds = mixture.log_odds(evidence._replace(is_known=np.zeros(n_texts, bool)), probabilities, scores, frequencies)
    odds += evidence.is_known[:, None] * np.where(known, mixture.known, mixture.other)
    hits = rng.random(ids.shape) < expit(odds)
    return reranker_with(scores, frequencies), evidence, probabilities, labels_of(ids, hits)


def reranker_with(scores, frequencies):
    """What `fit_mixture` reads of a re-ranker."""
    return SimpleNamespace(
        n_labels=50, word_scores=lambda rows, ids: scores, arrays=lambda: {"frequencies": frequencies}
    )


def labels_of(ids, hits):
    return Ragged.from_lists([np.unique(row[hit & (row >= 0)]) for row, hit in zip(ids, hits, strict=True)])


def well_ranked(reranker, evidence, probabilities, labels, mixture):
    """The share of (label of a text, other candidate) pairs that are in the right order."""
    hits = is_relevant(evidence.ids, labels, 50)
    odds = mixture.log_odds(evidence, probabilities, reranker.word_scores(None, None), reranker.arrays()["frequencies"])
    pairs = hits[:, :, None] & ~hits[:, None, :]
    return (odds[:, :, None] > odds[:, None, :])[pairs].mean()


class TestFitMixture:
    @pytest.mark.parametrize(
        "planted",
        [
            PLANTED,
            Mixture(1.0, 0, 0, 0, 0, 0, 0, 0, -8, 0),  # only the classifier counts
            Mixture(0.2, 6.0, 0, 0, 0, 0, 0, 1, -9, -3.0),  # words, above all
            Mixture(0.3, 1.0, 0, 0, 0, 0, 0, 0, -8, -1.0),  # names do not matter
            Mixture(0.3, 1.0, -2, -1, 0, 0, 0, 0, -8, -1.0),  # names mislead
        ],
        ids=lambda planted: " ".join(map(str, vars(planted).values())),
    )
    def test_it_ranks_as_the_planted_weights_do(self, planted):
        arguments = drawn(12_000, planted)
        assert well_ranked(*arguments, fit_mixture(*arguments)) > well_ranked(*arguments, planted) - 0.002
        assert well_ranked(*arguments, planted) > well_ranked(*arguments, Mixture()) + (0.002 if planted.names else 0)

    def test_no_other_scale_or_shift_of_the_odds_is_more_likely(self):
        reranker, evidence, probabilities, labels = drawn(5000, PLANTED, seed=1)
        evidence = evidence._replace(known=evidence.known & False, is_known=evidence.is_known & False)
        found = fit_mixture(reranker, evidence, probabilities, labels)
        hits = is_relevant(evidence.ids, labels, 50)
        odds = found.log_odds(
            evidence, probabilities, reranker.word_scores(None, None), reranker.arrays()["frequencies"]
        )

        def likelihood(odds):
            return -np.logaddexp(0, np.where(hits, -odds, odds)).sum(dtype=np.float64)

        for other in (1.03 * odds, 0.97 * odds, odds + 0.03, odds - 0.03):
            assert likelihood(other) < likelihood(odds)

    def test_frequencies_that_say_how_many_labels_a_text_has_hardly_rank(self, monkeypatch):
        """Half of the texts have five labels, and frequent candidates; the others one label, and rare candidates."""
        rng, is_many = np.random.default_rng(0), np.arange(1000) % 2 == 0
        ids = np.stack([rng.permutation(25)[:10] + 25 * many for many in is_many]).astype(np.int32)
        scores = rng.normal(size=ids.shape).astype(np.float32)
        frequencies = (rng.random(50) + (np.arange(50) >= 25)).astype(np.float32)
        places = np.argsort(np.argsort(-scores - rng.logistic(size=ids.shape), axis=1), axis=1)
        hits = places < np.where(is_many, 5, 1)[:, None]
        nothing = np.zeros(ids.shape, np.float32)
        evidence = Evidence(ids, Ragged.from_lists([[]] * 1000), nothing, nothing > 0, np.zeros(1000, bool))
        arguments = reranker_with(scores, frequencies), evidence, nothing + 0.5, labels_of(ids, hits)
        found = fit_mixture(*arguments)
        monkeypatch.setattr("shortlist.training.reranking.RANKING_PENALTY", 1e9)
        probable = fit_mixture(*arguments)
        lost, lost_before = (
            well_ranked(*arguments, replace(mixture, frequency=0)) - well_ranked(*arguments, mixture)
            for mixture in (found, probable)
        )
        assert lost < lost_before / 3

    def test_labels_of_a_text_with_the_same_words_always_come_first(self):
        """Even where held-out texts contradict: what was taught is known."""
        planted = replace(PLANTED, known=-3.0, other=3.0)
        reranker, evidence, probabilities, labels = drawn(3000, planted)
        found = fit_mixture(reranker, evidence, probabilities, labels)
        assert found.known < 0 < found.other
        scores, frequencies = reranker.word_scores(evidence.rows, evidence.ids), reranker.arrays()["frequencies"]
        odds = found.log_odds(evidence, probabilities, scores, frequencies)
        there, is_known = evidence.ids >= 0, evidence.is_known[:, None]
        assert odds[there & evidence.known].min() > odds[there & is_known & ~evidence.known].max()

    def test_nothing_to_learn_from(self):
        assert fit_mixture(*drawn(0, PLANTED)) == Mixture()
        reranker, evidence, probabilities, labels = drawn(2, PLANTED)
        missing = evidence._replace(ids=np.full_like(evidence.ids, -1))
        assert fit_mixture(reranker, missing, probabilities, labels) == Mixture()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("n_texts", [1, 2, 10, 1000])
    @pytest.mark.parametrize(
        "change",
        [
            lambda e, p, s, hits: (e, p, s, hits | True),
            lambda e, p, s, hits: (e, p, s, hits & False),
            lambda e, p, s, hits: (e, p, s, s > 0),
            lambda e, p, s, hits: (e, p, s, s < 0),
            lambda e, p, s, hits: (e, p, s, p > 0.1),
            lambda e, p, s, hits: (e, p, s, e.known),
            lambda e, p, s, hits: (e, 0 * p + 0.3, 0 * s + 0.2, hits),
            lambda e, p, s, hits: (e._replace(names=0 * e.names, known=e.known & False), 0 * p, 0 * s, hits),
            lambda e, p, s, hits: (e, (p > 0.1).astype(float), s, hits),
            lambda e, p, s, hits: (e._replace(ids=np.where(s > 0, e.ids, -1)), p, np.where(s > 0, s, -np.inf), hits),
            lambda e, p, s, hits: (e, p, 1e4 * s, hits),
        ],
        ids=[
            "only hits",
            "only misses",
            "words decide",
            "words decide, inverted",
            "the classifier decides",
            "taught texts decide",
            "constant",
            "zeros",
            "probabilities of 0 and 1",
            "half of them missing",
            "huge scores",
        ],
    )
    def test_it_is_finite_for_any_data(self, n_texts, change):
        reranker, evidence, probabilities, labels = drawn(n_texts, Mixture())
        hits, frequencies = is_relevant(evidence.ids, labels, 50), reranker.arrays()["frequencies"]
        changed = change(evidence, probabilities, reranker.word_scores(None, None), hits)
        evidence, probabilities, scores, hits = changed
        scores = scores.astype(np.float32)
        mixture = fit_mixture(
            reranker_with(scores, frequencies), evidence, probabilities, labels_of(evidence.ids, hits)
        )
        assert np.isfinite(list(vars(mixture).values())).all()
        odds = mixture.log_odds(evidence, probabilities, scores, frequencies)
        assert np.array_equal(np.isfinite(odds), evidence.ids >= 0)
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
    encoder = SimpleNamespace(encode=lambda word_ids: word_ids)
    in_blocks = staticmethod(in_blocks)

    def __init__(self, vocabulary):
        words = np.asarray(vocabulary.words)
        self.group_of_word = np.full(len(words), -1)
        for group in range(N_GROUPS):
            self.group_of_word[words == f"group{group}"] = group

    def with_quick_search(self):
        return self

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

    def with_more(self, word_ids, probabilities, ids):
        """Labels that are found by name get a probability of 0.05."""
        return np.pad(probabilities, ((0, 0), (0, ids.shape[1] - probabilities.shape[1])), constant_values=0.05)


def learn(vocabulary, train, held_out, n_reranked=6, hard_negatives=None, names=(), C=0.5):
    """The re-ranker, and the state of the build. `names` are those of the first labels."""
    data = SimpleNamespace(
        vocabulary=vocabulary,
        n_labels=N_LABELS,
        n_train=len(train[0]),
        names=Texts.from_strings(list(names)),
        named=np.arange(len(names), dtype=np.int32),
        name_ids=vocabulary.encode(list(names)),
        names_answer=True,
        texts=train[0],
        inputs=vocabulary.encode(train[0]),
        word_ids=vocabulary.encode(train[0]),
        labels=train[1],
        label_frequencies=np.bincount(train[1].values, minlength=N_LABELS),
        held_out=np.arange(len(held_out[0])),
        held_out_texts=held_out[0],
        held_out_raw=held_out[0],
        held_out_inputs=vocabulary.encode(held_out[0]),
        held_out_ids=vocabulary.encode(held_out[0]),
        held_out_known_ids=vocabulary.encode(held_out[0]),
        held_out_labels=held_out[1],
    )
    for name in ("measure", "measure_scores"):
        setattr(data, name, MethodType(getattr(TrainingData, name), data))
    options = SimpleNamespace(n_reranked=n_reranked, C=C, seed=0, tune_search=False)
    build = SimpleNamespace(data=data, options=options, hard_negatives=hard_negatives, held_out_ranked=None, shard=None)
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
    word_ids, pipeline = vocabulary.encode(texts), GroupPipeline(vocabulary)
    ids, probabilities = pipeline.first_rank(word_ids, max(k, reranker.n_candidates))
    evidence = reranker.gather(texts, word_ids, ids)
    return ids[:, :k], reranker.best(evidence, pipeline.with_more(word_ids, probabilities, evidence.ids), k)


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

    def test_the_regularisation_is_that_of_the_options_or_chosen(self, vocabulary, reranker, monkeypatch):
        assert reranker.C == 0.5
        tried = []

        def choose(learn, evidence, *rest):
            tried.append(learn(7.0).word_scores(evidence.rows, evidence.ids))
            tried.append(learn(0.01).word_scores(evidence.rows, evidence.ids))
            return 7.0

        monkeypatch.setattr(reranking, "choose_C", choose)
        chosen, _ = learn(vocabulary, grouped(1000, 1), grouped(60, 2), C=0.0)
        given, _ = learn(vocabulary, grouped(1000, 1), grouped(60, 2), C=7.0)
        assert len(tried) == 2  # not where it is given
        assert np.abs(tried[0]).mean() > 2 * np.abs(tried[1]).mean()
        assert chosen.C == given.C == 7.0
        assert_equal(chosen.arrays(), given.arrays())

    def test_held_out_texts_are_learnt_from_once_they_have_set_the_mixture(self, vocabulary, monkeypatch):
        """A label is learnt again only if enough of its texts are held out; of label 0, they all are."""
        train, held_out = grouped(400, 1, within=range(1, N_LABELS)), grouped(200, 2, within=[0, *range(9)])
        learnt = {}
        for share in (0.01, 1.0, 1.1):
            monkeypatch.setattr(reranking, "MIN_HELD_OUT_SHARE", share)
            learnt[share], _ = learn(vocabulary, train, held_out)
        test = grouped(50, 3, within=[0])
        found = {
            share: precision(before_and_after(one, vocabulary, test[0])[1][0], test[1]) for share, one in learnt.items()
        }
        assert min(found[0.01], found[1.0]) >= 0.98
        assert found[1.1] < 0.5
        assert learnt[0.01].mixture == learnt[1.1].mixture
        weights = {share: one.arrays()["biases"] for share, one in learnt.items()}
        assert np.array_equal(weights[1.0][1:], weights[1.1][1:])
        assert not np.array_equal(weights[0.01][1:], weights[1.1][1:])

    def test_few_held_out_texts_or_none(self, vocabulary):
        """One or two texts say little about the mixture, and must not decide it alone."""
        texts, labels = grouped(300, 3)
        for n_held_out, seed in [(0, 0), *((n, seed) for n in (1, 2, 5) for seed in range(2, 7))]:
            one, build = learn(vocabulary, grouped(400, 1), grouped(n_held_out, seed))
            assert precision(before_and_after(one, vocabulary, texts)[1][0], labels) >= 0.9
            assert one.mixture.first > 0
            assert one.mixture.words > 0
            assert (one.mixture == Mixture()) == (n_held_out == 0)
            assert (build.held_out_ranked is None) == (n_held_out == 0)

    def test_the_ranking_of_held_out_texts_is_that_before_they_were_learnt_from(self, learnt, vocabulary):
        """Calibration may then use it."""
        reranker, build = learnt
        ids, probabilities = build.held_out_ranked
        assert ids.shape == probabilities.shape == (60, 6 + N_MORE)
        texts, labels = grouped(60, 2)
        _, (after, scores) = before_and_after(reranker, vocabulary, texts, 6)
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

    def test_names_count_where_they_help_and_only_there(self, vocabulary):
        """Each label is called what its texts say, or what those of the next label say."""
        names = [f"group{label // PER_GROUP} {'xyz'[label % PER_GROUP]}own" for label in range(N_LABELS)]
        right, _ = learn(vocabulary, grouped(100, 1), grouped(100, 2), names=names)
        wrong, _ = learn(vocabulary, grouped(100, 1), grouped(100, 2), names=names[1:] + names[:1])
        assert right.mixture.names > 1
        assert wrong.mixture.names + wrong.mixture.same_name < 0
        texts, labels = grouped(300, 3)
        without, _ = learn(vocabulary, grouped(100, 1), grouped(100, 2))
        found = {
            name: precision(before_and_after(one, vocabulary, texts)[1][0], labels)
            for name, one in (("right", right), ("wrong", wrong), ("without", without))
        }
        assert found["right"] > found["without"] > 0.98
        assert found["wrong"] > 0.95

    def test_labels_of_held_out_texts_only_are_candidates_for_similar_texts(self, vocabulary):
        """The classifier knows nothing of them."""
        train, held_out = grouped(400, 1), grouped(60, 2)
        late = int(held_out[1].values[0])
        kept = np.flatnonzero(train[1].values != late)
        train = train[0].take(kept), train[1].take(kept)
        one, _ = learn(vocabulary, train, held_out)
        text = f"{held_out[0][0]} {train[0][0].split()[-1]}"  # not the same words
        evidence = one.gather([text], vocabulary.encode([text]), np.zeros((1, 0), np.int32))
        assert late in evidence.ids[0] and not evidence.known.any()
        assert evidence.names[0][evidence.ids[0] == late] > 0.3
        others = set(train[1].values.tolist())
        assert not others & set(evidence.ids[0].tolist())

    def test_a_name_is_a_text_that_is_known(self, vocabulary):
        """Once, as any text: it does not outvote a training text with the same words and another label."""
        train = grouped(100, 1)
        one, _ = learn(vocabulary, train, grouped(20, 2), names=[train[0][0], "group9 n1 n2"])
        evidence = one.gather(["N2, group9 n1", train[0][0]], vocabulary.encode(["", ""]), np.zeros((2, 0), np.int32))
        known = [set(row[known].tolist()) for row, known in zip(evidence.ids, evidence.known, strict=True)]
        assert known == [{1}, {0, int(train[1].values[0])}]

    def test_frequencies_are_those_of_all_texts(self, learnt):
        counts = np.bincount(np.concatenate([grouped(1000, 1)[1].values, grouped(60, 2)[1].values]))
        expected = np.log1p(counts) / np.log1p(counts.max())
        assert np.array_equal(learnt[0].arrays()["frequencies"], expected.astype(np.float32))

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
