"""How much predictions search, take as candidates and re-rank, chosen on held-out texts."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import is_relevant
from shortlist.training import search
from shortlist.training.search import choose_search
from tiny_models import model_over_features


class Reordered:
    """A re-ranker that keeps the order of the classifier, or reverses it."""

    def __init__(self, n_candidates, order=1):
        self.n_candidates, self._order = n_candidates, order

    def gather(self, texts, words, ids):
        return SimpleNamespace(ids=ids)

    def best(self, evidence, probabilities, k):
        return evidence.ids[:, :: self._order][:, :k], probabilities[:, :: self._order][:, :k]


@pytest.fixture
def pipeline_and_queries(monkeypatch):
    """Searched exactly, not by codes: the tests count single texts."""
    model, queries = model_over_features()
    monkeypatch.setattr(type(model.pipelines[0].candidates), "quantized", lambda stage: copy(stage))
    return model.pipelines[0], queries


def held_out(queries, labels):
    """The part of the training data that is read: held-out rows of features, each with one label."""
    own = Ragged(np.arange(len(queries) + 1), np.asarray(labels, np.int32))

    def measure(ids):
        return {"P@1": 100 * float(is_relevant(ids[:, :1], own, 10**6).mean())}

    return SimpleNamespace(held_out=queries, held_out_raw=queries, n_labels=10**6, measure=measure)


def test_less_and_less_is_searched_until_p_at_1_falls(pipeline_and_queries):
    pipeline, queries = pipeline_and_queries
    stage = pipeline.candidates
    best = pipeline.rank(queries, 1, 1e6)[0].ravel()
    facts = choose_search(pipeline, held_out(queries, best))
    curve = {point["searched"]: point["P@1"] for point in facts["curve"]}
    assert facts["of"] == stage.max_searched == max(curve)
    assert facts["searched"] == stage.n_searched < facts["of"]
    for n_searched, precision in curve.items():
        found, _ = pipeline.first_rank(queries, 1, n_searched)
        assert precision == pytest.approx(100 * (found.ravel() == best).mean(), abs=0.01)
        assert (precision >= curve[facts["of"]] - facts["allowed_loss"]) == (n_searched >= stage.n_searched)


def test_what_is_searched_is_in_8_bits_as_in_predictions():
    """And the pipeline keeps its vectors as they were learnt."""
    model, queries = model_over_features()
    pipeline, kinds = model.pipelines[0], []

    def measure(ids):
        kinds.append(pipeline.candidates.arrays()["centres.vectors"].dtype)
        return {"P@1": 0.0}

    chosen = choose_search(
        pipeline, SimpleNamespace(**{**vars(held_out(queries, [0] * len(queries))), "measure": measure})
    )
    assert set(kinds) == {np.dtype(np.int8)}
    assert pipeline.candidates.arrays()["centres.vectors"].dtype == np.float32
    assert pipeline.candidates.n_searched == chosen["searched"] == 1


def test_what_costs_rare_labels_is_not_left_out(pipeline_and_queries):
    pipeline, queries = pipeline_and_queries
    most = pipeline.candidates.max_searched

    def measure(ids):
        lost = 1.0 * (len(measured) > 1)
        measured.append(lost)
        return {"P@1": 50.0 + lost, "P@3": 40.0, "PSP@1": 30.0 - lost, "PSP@3": 20.0}

    measured = []
    data = SimpleNamespace(**{**vars(held_out(queries, [0] * len(queries))), "measure": measure})
    assert choose_search(pipeline, data)["searched"] == int(search.STEP * most)


def test_one_cell_is_searched_where_more_do_not_help(pipeline_and_queries):
    pipeline, queries = pipeline_and_queries
    facts = choose_search(pipeline, held_out(queries, np.zeros(len(queries))))
    assert facts["searched"] == pipeline.candidates.n_searched == 1


@pytest.mark.parametrize(
    ("order", "min_texts", "candidates", "reranked"),
    [(1, 100, 35, 21), (-1, 100, 35, 30), (1, 101, 50, 30)],
    ids=["the first stay first", "the last come first", "too few texts"],
)
def test_fewer_candidates_are_taken_where_the_others_do_not_help(
    pipeline_and_queries, monkeypatch, order, min_texts, candidates, reranked
):
    pipeline, queries = pipeline_and_queries
    monkeypatch.setattr(search, "MIN_TEXTS", min_texts)
    pipeline.reranker = Reordered(30, order)
    best = pipeline.rank(queries, 1, 1e6)[0].ravel()
    facts = choose_search(pipeline, held_out(queries, best))
    assert (facts["candidates"], facts["reranked"]) == (candidates, reranked)
    assert pipeline.reranker.n_candidates == reranked
    assert pipeline.candidates.config()["n_candidates"] == pipeline.candidates.config()["n_nearest"] == candidates


def test_more_labels_than_are_re_ranked_have_more_candidates(pipeline_and_queries):
    pipeline, queries = pipeline_and_queries
    all_ids = pipeline.rank(queries, 50, 1e6)[0]
    pipeline.candidates, pipeline.reranker = pipeline.candidates.scaled(0.2), Reordered(5)
    assert (pipeline.rank(queries, 10, 1e6)[0] == all_ids[:, :10]).mean() > 0.99
    ids, _ = pipeline.rank(queries, 25, 1e6)
    assert (ids >= 0).all()
