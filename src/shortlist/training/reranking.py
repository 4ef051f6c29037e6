"""Learning the re-ranker: word weights of labels, and how much these and all other evidence count."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.evaluation.calibration import is_relevant
from shortlist.labels.centroids import label_centroids
from shortlist.lazy import sparse
from shortlist.odds import fit_logistic, fit_ranking, log_odds
from shortlist.stages.classifier import best_of
from shortlist.stages.evidence import Evidence, index_names, largest_of_names, nothing_taught, remember_texts
from shortlist.stages.mixture import ByName, Mixture
from shortlist.stages.parts_of_names import rows_of_parts
from shortlist.stages.pipeline import Pipeline, Ranking
from shortlist.stages.reranker import Reranker
from shortlist.text import LexicalFeatures, Vocabulary
from shortlist.text.parts import N_PARTS, WordParts
from shortlist.text.texts import Texts
from shortlist.training.build import Build
from shortlist.training.by_name import fit_by_name
from shortlist.training.data import TrainingData, rows_of
from shortlist.training.regularization import DEFAULT_C, choose_C, choose_labels
from shortlist.training.remembered import remembering
from shortlist.training.search import choose_search
from shortlist.training.tune import RANKS
from shortlist.training.word_weights import learn_weights_together, no_words, with_new

log = logging.getLogger("shortlist")

# Once they have set the mixture, held-out texts are learnt from, too: the labels that they are this share of the texts
# of are learnt again. Others would hardly change, and they are the most work.
MIN_HELD_OUT_SHARE = 0.1
# Parts of words cost time and memory: they must improve nDCG@5 on held-out texts by more than this.
MIN_GAIN_OF_PARTS = 0.1
# How strongly weights that rank are held at the most probable ones: a thousand texts say little about ten weights.
RANKING_PENALTY = 30.0
# Of the odds of a mixture: whatever held-out texts say of how probable labels are, their order stays.
MIN_SCALE = 0.05


def learn_reranker(pipeline: Pipeline, build: Build) -> Reranker:
    """Learn from the mistakes of the pipeline so far. Held-out texts set how much each kind of evidence counts."""
    data, options, task = build.data, build.options, RerankerTask(build)
    k, n_searched = min(options.n_reranked, data.n_labels), pipeline.candidates.max_searched
    candidates, quick = build.hard_negatives, pipeline.with_quick_search()
    if candidates is None:
        candidates = _padded(quick.first_rank(data.inputs, k, n_searched)[0], k, -1)
    task.config["n_candidates"] = candidates.shape[1]
    rows, about = task.features.transform(data.texts, data.word_ids), task.about_labels(data.labels)
    confused = task.with_more(rows, about, candidates)
    if not len(data.held_out):
        weights = task.learn(rows, data.labels, confused)
        return task.reranker(weights, about, taught_texts(data)).without_parts()
    ids, first = quick.first_rank(data.held_out_inputs, candidates.shape[1], n_searched)
    if not options.C:
        task.choose_C(rows, about, confused, ids, first)
    weights = task.learn(rows, data.labels, confused)
    reranker = task.reranker(weights, about, taught_texts(data))
    trial = Trial(pipeline, data, ids, first)
    if reranker.parts is not None:
        task.config["by_name"] = vars(trial.fit_by_name(reranker))
    reranker, evidence, odds = trial.choose_parts(reranker)
    # What it will be like on new texts.
    build.held_out_ranked = best_of(evidence.ids, odds, RANKS)
    log.debug("re-ranker: %s", ", ".join(f"{name} {value:.2f}" for name, value in vars(reranker.mixture).items()))
    if options.tune_search:  # now, because this re-ranker has not learnt from held-out texts
        tuned = replace(pipeline, reranker=reranker)
        with remembering(tuned):
            build.search_effort = choose_search(tuned, data)
        pipeline.candidates, task.config["n_candidates"] = tuned.candidates, reranker.n_candidates
    task.config["mixture"] = vars(reranker.mixture)
    if reranker.parts is None:
        task.parts = None
    labels = Ragged.concatenate([data.labels, data.held_out_labels])
    held_out_rows = task.features.transform(data.held_out_raw, data.held_out_ids)
    # Where names count against labels, so would the texts of labels that have no names.
    late = texts_of_late_labels(data, held_out_rows) if reranker.mixture.names > 0 else None
    about = task.about_labels(labels, late)
    new = np.bincount(data.held_out_labels.values, minlength=data.n_labels)
    is_wanted = (new > 0) & (new >= MIN_HELD_OUT_SHARE * np.bincount(labels.values, minlength=data.n_labels))
    if is_wanted.any():
        rows = sparse.vstack([rows, held_out_rows], format="csr")
        width = max(candidates.shape[1], ids.shape[1])
        every = np.concatenate([_padded(some, width, -1) for some in (candidates, ids)])
        weights = with_new(weights, task.learn(rows, labels, task.with_more(rows, about, every), is_wanted), is_wanted)
    return task.reranker(weights, about, taught_texts(data, held_out=True))


class RerankerTask:
    """What stays the same while a re-ranker is learnt, first from the training texts, then from the held-out ones, too.

    features  what reads the words of texts
    parts     what reads parts of words; None: they do not count
    """

    def __init__(self, build: Build) -> None:
        self._data, self._options, self._shard = build.data, build.options, build.shard
        self.features, self.parts = lexical_features(build.data), word_parts(build.data)
        self.config: dict[str, Any] = {"mixture": vars(Mixture()), "C": build.options.C or DEFAULT_C}

    def about_labels(self, labels: Ragged, late: sparse.csr_array | None = None) -> Arrays:
        """The frequencies and names of labels; `late` are texts of labels without names, which count as names."""
        data, counts = self._data, np.bincount(labels.values, minlength=self._data.n_labels)
        frequencies = (np.log1p(counts) / np.log1p(max(counts.max(), 1))).astype(np.float32)
        names, of_parts = names_of(data, self.features, counts > 0), {}
        if self.parts is not None:
            of_parts = index_parts(self.parts, *names_among(data, counts > 0), data.n_labels)
        if late is not None:
            names = sparse.csr_array(names + late)
        return {**index_names(names), **of_parts, "frequencies": frequencies}

    def reranker(self, weights: Arrays, about: Arrays, taught: Arrays) -> Reranker:
        features = self.features
        idf = {"idf": features.words_tfidf.idf, "subword_idf": features.ngrams_tfidf.idf}
        return Reranker({**weights, **idf, **about, **taught}, self.config, self._data.vocabulary, features.ngrams)

    def choose_C(
        self, rows: sparse.csr_array, about: Arrays, candidates: np.ndarray, ids: np.ndarray, first: np.ndarray
    ) -> None:
        """Let held-out texts, whose candidates have these ids and probabilities so far, decide on C."""
        data = self._data
        evidence = self._blank(about).without_parts().gather(data.held_out_raw, data.held_out_known_ids, ids, n_more=0)
        hits = is_relevant(evidence.ids, data.held_out_labels, data.n_labels)
        is_candidate = np.zeros(data.n_labels, np.bool_)
        is_candidate[ids[ids >= 0]] = True
        is_tried = choose_labels(data.labels, candidates, is_candidate, self._options.seed)

        def learn(C: float) -> Reranker:
            self.config["C"] = C
            weights = self.learn(rows, data.labels, candidates, is_tried)
            return self.reranker(weights, about, nothing_taught())

        self.config["C"] = choose_C(learn, evidence, first, hits, about["frequencies"], is_tried)

    def _blank(self, about: Arrays) -> Reranker:
        """A re-ranker that knows no words yet."""
        return self.reranker(no_words(self._data.n_labels, self.features.n_features), about, nothing_taught())

    def with_more(self, rows: sparse.csr_array, about: Arrays, candidates: np.ndarray) -> np.ndarray:
        """The candidates of texts, and labels that names suggest, or that are not candidates yet: these must be told
        apart, too."""
        none_taught = Ragged.empty(len(candidates))
        candidates = self._blank(about).gather_rows(Ragged.from_csr(rows), none_taught, candidates).ids
        unseen = np.flatnonzero(np.bincount(self._data.labels.values, minlength=self._data.n_labels) == 0)
        if not len(unseen):
            return candidates
        drawn = np.random.default_rng(self._options.seed).choice(unseen, (len(candidates), 1))
        return np.hstack([candidates, drawn.astype(np.int32)])

    def learn(
        self, rows: sparse.csr_array, labels: Ragged, candidates: np.ndarray, is_wanted: np.ndarray | None = None
    ) -> Arrays:
        """The words of the labels of each text, to tell them from its other candidates; of some labels only."""
        if is_wanted is not None:
            candidates = np.where((candidates >= 0) & is_wanted[candidates], candidates, -1)
            labels = labels.keep(is_wanted[labels.values])
        return learn_weights_together(rows, labels, self._data.n_labels, candidates, self.config["C"], self._shard)


@dataclass(frozen=True, eq=False)
class Trial:
    """Tries re-rankers on the held-out texts, whose candidates have these ids and probabilities so far."""

    pipeline: Pipeline
    data: TrainingData
    ids: np.ndarray
    first: np.ndarray

    def run(self, reranker: Reranker) -> tuple[Evidence, np.ndarray]:
        """Fit the mixture. The evidence for held-out texts, and odds: of each half, with the mixture of the other."""
        data = self.data
        evidence = reranker.gather(data.held_out_raw, data.held_out_known_ids, self.ids)

        def with_more(texts: np.ndarray) -> Ranking:
            encoded = self.pipeline.encoder.encode(rows_of(data.held_out_inputs, texts))
            return evidence.ids[texts], self.pipeline.with_more(encoded, self.first[texts], evidence.ids[texts])

        _, probabilities = self.pipeline.in_blocks(with_more, np.arange(len(self.ids)))
        odds = np.empty(evidence.ids.shape, np.float32)
        half = np.arange(len(self.ids)) % 2 == 0
        for fitted, left in ((half, ~half), (~half, half)):
            reranker.mixture = fit_mixture(reranker, evidence, probabilities, data.held_out_labels, fitted)
            odds[left] = reranker.log_odds(evidence, probabilities)[left]
        reranker.mixture = fit_mixture(reranker, evidence, probabilities, data.held_out_labels)
        return evidence, odds

    def fit_by_name(self, reranker: Reranker) -> ByName:
        """How much names count where a label is known by name only."""
        assert reranker.parts is not None
        own = reranker.parts  # labels that stand for new ones are to be found as new ones are
        reranker.parts = own.searching(np.ones(self.data.n_labels, np.bool_))
        by_name, reranker.parts = fit_by_name(*self.run(reranker), self.data), own
        return by_name

    def choose_parts(self, reranker: Reranker) -> tuple[Reranker, Evidence, np.ndarray]:
        """The re-ranker, or the one without parts of words if they do not pay; its evidence and odds."""
        evidence, odds = self.run(reranker)
        if reranker.parts is None:
            return reranker, evidence, odds
        plain = reranker.without_parts()
        plain_evidence, plain_odds = self.run(plain)
        gains = [
            self.data.measure_scores(some.ids, some_odds)["N@5"]
            for some, some_odds in ((plain_evidence, plain_odds), (evidence, odds))
        ]
        log.info("re-ranking by names of labels: nDCG@5 %.2f on held-out texts; with parts of words, too: %.2f", *gains)
        if gains[1] > gains[0] + MIN_GAIN_OF_PARTS:
            return reranker, evidence, odds
        return plain, plain_evidence, plain_odds


def lexical_features(data: TrainingData) -> LexicalFeatures:
    """The features of training texts and of names; each name twice, because n-grams must occur twice to count."""
    texts, word_ids = data.texts, data.word_ids
    if len(data.names):
        texts = Texts.concatenate([texts, data.names, data.names])
        word_ids = Ragged.concatenate([word_ids, data.name_ids, data.name_ids])
    return LexicalFeatures.fit(texts, data.vocabulary, word_ids)


def names_of(data: TrainingData, features: LexicalFeatures, is_learnt: np.ndarray) -> sparse.csr_array:
    """The lexical features of the names of labels that are learnt, one row per label: the largest of its names.

    The others occur in held-out texts only. A label that is known by name and never seen would give itself away there.
    """
    named = np.flatnonzero(is_learnt[data.named])
    if not len(named):
        return sparse.csr_array((data.n_labels, features.n_features), dtype=np.float32)
    rows = features.rows(data.names.take(named), data.name_ids.take(named))
    return largest_of_names(rows, data.named[named], data.n_labels, features.n_features)


def names_among(data: TrainingData, is_wanted: np.ndarray) -> tuple[Texts, np.ndarray]:
    """The names of these labels, and the label of each."""
    named = np.flatnonzero(is_wanted[data.named])
    return data.names.take(named), data.named[named]


def word_parts(data: TrainingData) -> WordParts | None:
    """What reads parts of words; None where there are no words, or no names."""
    if not len(data.names) or not isinstance(data.vocabulary, Vocabulary):
        return None
    return WordParts.of(data.vocabulary)


def index_parts(parts: WordParts, names: Texts, labels: np.ndarray, n_labels: int) -> Arrays:
    """The names of labels in parts of words."""
    rows = largest_of_names(parts.rows(names), labels, n_labels, N_PARTS)
    return {"parts.idf": parts.idf, **rows_of_parts(rows)}


def texts_of_late_labels(data: TrainingData, held_out_rows: sparse.csr_array) -> sparse.csr_array:
    """The centroids of labels without a name that occur in held-out texts only; the rows of all others are empty.

    The classifier has no row for such a label, and the candidates no centre. Its texts make it a candidate, as names do
    for other labels. (Beside a name they do harm: docs/lab-book.md.)
    """
    labels, is_late = data.held_out_labels, data.label_frequencies == 0
    is_late[data.named] = False
    late = labels.keep(is_late[labels.values])
    return label_centroids(held_out_rows, late, data.n_labels)


def taught_texts(data: TrainingData, held_out: bool = False) -> Arrays:
    """The labels of the training texts by their words, and of held-out texts; names that answer are further texts."""
    if not isinstance(data.vocabulary, Vocabulary):
        return nothing_taught()  # features are no texts
    is_learnt = data.label_frequencies[data.named] > 0  # as in `names_of`
    names = np.flatnonzero(is_learnt | held_out)
    parts = [(data.texts[: data.n_train], data.labels[: data.n_train])]  # copies of names follow
    if data.names_answer:
        parts.append((data.names.take(names), Ragged(np.arange(len(names) + 1), data.named[names])))
    if held_out:
        parts.append((data.held_out_texts, data.held_out_labels))
    texts, labels = zip(*parts, strict=True)
    return remember_texts(Texts.concatenate(texts), Ragged.concatenate(labels), data.vocabulary.tokenizer)


def fit_mixture(
    reranker: Reranker,
    evidence: Evidence,
    probabilities: np.ndarray,
    labels: Ragged,
    texts: np.ndarray | slice = slice(None),
) -> Mixture:
    """The weights of evidence, from the candidates of held-out texts, or of some of them.

    Logistic regression finds how probable each candidate is. It also explains why some texts have more labels than
    others, mostly by the frequencies of labels, which ranks badly where texts are of different kinds. So its weights
    are then moved to where they rank better within texts. Labels of a text with the same words always come first,
    whatever the weights say: what was taught is known.
    """
    ids, names = evidence.ids[texts], evidence.names[texts]
    there = ids >= 0
    hits = is_relevant(evidence.ids, labels, reranker.n_labels)[texts] & there
    word_scores = np.where(there, reranker.word_scores(evidence.rows, evidence.ids)[texts], 0)
    first, frequency = log_odds(probabilities[texts]), reranker.arrays()["frequencies"][ids]
    known = evidence.known[texts]
    other = evidence.is_known[texts][:, None] & ~known
    kinds = [first, word_scores, names, names**4, frequency, first * frequency, word_scores * frequency, known, other]
    if evidence.parts is not None:
        kinds += [evidence.parts[texts], evidence.parts[texts] ** 4]
    columns, before = np.stack(kinds, axis=2), {**vars(Mixture())}
    bias = before.pop("bias")
    fitted = list(before)[: len(kinds)]
    *start, bias = fit_logistic(columns[there], hits[there], np.array([*map(before.get, fitted), bias]))
    weights = fit_ranking(columns, hits, there & ~hits, np.array(start), RANKING_PENALTY)
    scale, bias = fit_logistic((columns[there] @ weights)[:, None], hits[there], np.array([1.0, bias]))
    values = (max(scale, MIN_SCALE) * weights).tolist()
    return Mixture(**dict(zip(fitted, values, strict=True)), bias=bias)


def _padded(values: np.ndarray, width: int, fill: float) -> np.ndarray:
    """The columns of `values`, padded with `fill`."""
    if values.shape[1] == width:
        return values
    padded = np.full((len(values), width), fill, values.dtype)
    padded[:, : values.shape[1]] = values
    return padded
