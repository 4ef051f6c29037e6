"""The last steps of training, on held-out texts: search effort, calibration, tail, what 8 bits cost, the model card."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.evaluation.calibration import is_relevant, reliability
from shortlist.model.kept_texts import texts_to_keep
from shortlist.model.model import TAIL_CANDIDATES, Model
from shortlist.model.uninformed import RankOptions
from shortlist.stages.calibration import Calibration
from shortlist.stages.reranker import Reranker
from shortlist.stages.tail import TailRanking
from shortlist.training.build import Build
from shortlist.training.calibrate import ANY_SCORES, RERANKED, Prior, fit_calibration
from shortlist.training.search import choose_search

log = logging.getLogger("shortlist")

N_EXAMPLES = 8
RANKS = TAIL_CANDIDATES  # labels per held-out text that are ranked
CALIBRATED_RANKS = 5  # labels per text whose scores are calibrated
TAILS = [step / 10 for step in range(11)]
MAX_TAIL_LOSS = 0.5  # points of P@1, for recipes without the option
LOSS_DOUBT = 0.4  # standard error of an expected loss, as a share of it: calibration is not exact
MAX_8_BIT_LOSS = 0.2  # points of P@1 without a warning


def tune(model: Model, build: Build) -> None:
    """Set what held-out texts decide, and write down what they showed."""
    data, dataset = build.data, build.data.dataset
    model.facts["data"] = {
        "texts": len(dataset),
        "labels": dataset.n_labels,
        "pairs": len(dataset.labels.values),
        "texts_of_largest_label": int(dataset.label_frequencies.max(initial=0)),
        "held_out_texts": len(data.held_out),
    }
    model.tail_ranking = TailRanking.of_frequencies(dataset.label_frequencies, len(dataset))
    model.kept_texts = texts_to_keep(dataset, build.options.get("keep_texts", 0), build.options.get("seed", 0))
    if not len(data.held_out):
        return
    is_tuned, max_searched = build.search_effort is not None, model.pipelines[0].candidates.max_searched
    if not is_tuned and max_searched > 1 and build.options.get("tune_search", True):
        build.search_effort = choose_search(model.pipelines[0], data)
    if build.search_effort is not None and max_searched > 1:
        model.facts["search_effort"] = build.search_effort
    ids, scores = build.held_out_ranked or model.raw_rank(data.held_out_raw, RANKS)
    model.facts["scores"] = {name: round(value, 2) for name, value in data.measure(ids[:, :CALIBRATED_RANKS]).items()}
    known = data.held_out_known_share()
    prior = RERANKED if isinstance(model.pipelines[0].reranker, Reranker) else ANY_SCORES
    model.calibration, model.facts["calibration"] = calibrate(ids, scores, known, build, prior)
    probabilities = model.calibrated(data.held_out_raw, np.where(ids >= 0, scores, 0), how=RankOptions(RANKS))
    model.facts["tail_choice"] = choose_tail(ids, scores, probabilities, build)
    model.tail_ranking = model.tail_ranking.with_auto(model.facts["tail_choice"]["tail"])
    model.facts["storage"] = cost_of_8_bits(model, build)
    if build.options.get("store_examples", False) and dataset.features is None:
        rows = np.linspace(0, len(data.held_out_texts) - 1, N_EXAMPLES).astype(int)
        model.facts["examples"] = [data.held_out_texts[int(i)] for i in dict.fromkeys(rows.tolist())]


def calibrate(
    ids: np.ndarray, scores: np.ndarray, known: np.ndarray, build: Build, prior: Prior
) -> tuple[Calibration | None, dict[str, Any]]:
    """A calibration fitted on the labels predicted for held-out texts, and what to say of it in the card."""
    scores = np.where(ids >= 0, scores, 0)
    hits = is_relevant(ids, build.data.held_out_labels, build.data.n_labels)[:, :CALIBRATED_RANKS]
    calibration, errors, calibrated = fit_calibration(scores, hits, known, prior)
    there = ids[:, :CALIBRATED_RANKS] >= 0
    facts = {
        "method": "none" if calibration is None else calibration.method,
        "errors": {method: round(error, 4) for method, error in errors.items()},
        "table": reliability(calibrated[there], hits[there]),
    }
    return calibration, facts


def choose_tail(ids: np.ndarray, scores: np.ndarray, probabilities: np.ndarray, build: Build) -> dict[str, Any]:
    """The tail with the best PSP@1 on held-out texts that costs at most `max_tail_loss` points of P@1; the curve.

    On few texts, the hits alone say little about the loss. So what the probabilities of the labels that come first
    promise may not fall by more, either, not even by a standard error more; the card has that of the hits.
    """
    data, allowed = build.data, build.options.get("max_tail_loss", MAX_TAIL_LOSS)
    ranking = TailRanking.of_frequencies(data.label_frequencies, data.n_train)  # held-out texts do not count
    hits = is_relevant(ids, data.held_out_labels, data.n_labels).astype(float)
    curve = []
    for tail in TAILS:
        order = ranking.order(ids, scores, tail)[:, :CALIBRATED_RANKS]
        lost, expected = (
            100 * (before[:, 0] - np.take_along_axis(before, order, axis=1)[:, 0]) for before in (hits, probabilities)
        )
        loss = {
            "loss": float(lost.mean()),
            "standard_error": float(lost.std() / np.sqrt(len(lost))),
            "expected_loss": float(expected.mean()),
            "expected_at_most": float((1 + LOSS_DOUBT) * expected.mean() + expected.std() / np.sqrt(len(lost))),
        }
        curve.append({"tail": tail, **loss, **data.measure(np.take_along_axis(ids, order, axis=1))})
    affordable = [point for point in curve if max(point["loss"], point["expected_at_most"]) <= allowed]
    best = max(affordable, key=lambda point: point["PSP@1"])
    if best["tail"]:
        log.info("predictions with tail=auto use tail=%.1f to rank rare labels higher", best["tail"])
    names = ("tail", "P@1", "PSP@1", "P@5", "PSP@5", "loss", "standard_error", "expected_loss")
    shown = [{name: round(point[name], 2) for name in names} for point in curve]
    return {"tail": best["tail"], "allowed_loss": allowed, "curve": shown}


def cost_of_8_bits(model: Model, build: Build) -> dict[str, Any]:
    """P@1 on held-out texts of the model as it was learnt, and in 8 bits as `save` stores it.

    The re-ranker may know the labels of these texts by heart, and then bits would not matter: it must do without.
    """
    data, pipeline = build.data, model.pipelines[0]
    if isinstance(pipeline.reranker, Reranker):
        pipeline = replace(pipeline, reranker=pipeline.reranker.without_taught())
    learnt, stored = (
        100 * float(is_relevant(p.rank(data.held_out_raw, 1)[0], data.held_out_labels, data.n_labels).mean())
        for p in (pipeline, pipeline.quantized())
    )
    if learnt - stored > MAX_8_BIT_LOSS:
        log.warning("in 8 bits the model loses %.2f points of P@1; save with bits=32 to keep them", learnt - stored)
    return {"P@1_as_learnt": round(learnt, 2), "P@1_as_stored": round(stored, 2), "held_out_texts": len(data.held_out)}
