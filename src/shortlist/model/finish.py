"""The last steps of a training, on held-out texts: how far to search, what scores mean, what the card says."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import is_relevant, reliability
from shortlist.model.base import Model
from shortlist.model.calibration import Calibration
from shortlist.model.prepared import Prepared
from shortlist.model.text_model import TextModel

log = logging.getLogger("shortlist")

# Searching less is allowed to cost so much of P@1, in points; more by the measure that fears the worst (see
# `_precision`), of which a tenth comes true on test texts.
SEARCH_LOSS, FEARED_LOSS = 0.1, 0.2
SEARCH_STEP = 0.7
EXAMPLES = 8  # texts
PLACES = 5  # of which scores are calibrated


def finish(model: TextModel, prepared: Prepared) -> None:
    """Set what validation decides, and put down what it showed."""
    labels, dataset = prepared.validation_labels, prepared.dataset
    model.facts = {
        "data": {
            "texts": len(dataset),
            "labels": dataset.n_labels,
            "pairs": len(dataset.labels.values),
            "held_out_texts": len(prepared.validation),
        }
    }
    if not len(prepared.validation):
        return
    model.held_out = prepared.validation_inputs if dataset.features is not None else prepared.validation_texts, labels
    model.facts["search_effort"] = _choose_search(model, prepared)
    before = _held_out_best(model)
    if before is not None:
        ids, scores = before
    else:
        ids, scores = model._rank(model.held_out[0], PLACES, prepared.options.threads, 1.0)
    model.facts["scores"] = {name: round(value, 2) for name, value in prepared.measure(ids).items()}
    calibrate(model, ids, scores, labels)
    if prepared.options.examples and dataset.features is None:
        some = np.linspace(0, len(prepared.validation_texts) - 1, EXAMPLES).astype(int)
        model.facts["examples"] = [prepared.validation_texts[int(i)] for i in dict.fromkeys(some.tolist())]


def calibrate(model: Model, ids: np.ndarray, scores: np.ndarray, labels: Ragged) -> None:
    """Learn what scores mean from labels predicted for held-out texts, and put it down."""
    there = ids >= 0
    scores, right = scores[there], is_relevant(ids, labels, model.n_labels)[there]
    model.calibration, errors, calibrated = Calibration.fit(scores, right)
    model.facts["calibration"] = {
        "method": "none" if model.calibration is None else model.calibration.method,
        "errors": {method: round(error, 4) for method, error in errors.items()},
        "table": reliability(calibrated, right),
    }


def _choose_search(model: TextModel, prepared: Prepared) -> dict[str, Any]:
    """Search less and less as long as that costs next to nothing; the curve of it."""
    allowed = SEARCH_LOSS if _held_out_best(model) is None else FEARED_LOSS
    model.searched = searched = model.most_searched
    best = _precision(model, prepared, searched)
    curve = [{"searched": searched, "P@1": round(best, 2)}]
    while searched > 1:
        searched = int(SEARCH_STEP * searched)
        reached = _precision(model, prepared, searched)
        curve.append({"searched": searched, "P@1": round(reached, 2)})
        if reached < best - allowed:
            break
        model.searched = searched
    if len(curve) > 1:
        log.info("searching %d of %d clusters is enough", model.searched, model.most_searched)
    return {"searched": model.searched, "of": model.most_searched, "allowed_loss": allowed, "curve": curve}


def _held_out_best(model: TextModel) -> tuple[np.ndarray, np.ndarray] | None:
    """The best labels of held-out texts and their probabilities, if a re-ranker has learnt from these texts since."""
    return None if model.reranker is None else model.reranker.held_out_best


def _precision(model: TextModel, prepared: Prepared, searched: int) -> float:
    """P@1 on held-out texts when so much is searched."""
    assert model.held_out is not None
    threads, labels = prepared.options.threads, prepared.validation_labels
    before = _held_out_best(model)
    if before is None or model.reranker is None:
        ids, _ = model._rank(model.held_out[0], 1, threads, searched / model.searched)
        return 100 * float(is_relevant(ids, labels, model.n_labels).mean())
    # What was ranked first before these texts were learnt from counts, as long as it is found; where it is not, what
    # comes first instead counts as wrong.
    best = before[0][:, :1]
    found, _ = model._first_rank(prepared.validation_ids, model.reranker.n_candidates, searched, threads)
    still_there = (found == best).any(axis=1, keepdims=True)
    return 100 * float((is_relevant(best, labels, model.n_labels) & still_there).mean())
