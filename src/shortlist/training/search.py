"""How much a prediction searches, takes as candidates and re-ranks: as little as held-out texts allow."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.stages.pipeline import Pipeline
from shortlist.training.data import TrainingData

log = logging.getLogger("shortlist")

# What doing less may cost, in points: the mean of P@k and N@5, and that of PSP@k. One metric moves as much by chance.
MAX_LOSS = 0.15
STEP = 0.7
N_RANKED = 5  # labels per text that are measured
# Few texts may miss what fewer candidates cost, and small data is fast in any case.
MIN_TEXTS, MIN_RERANKED = 500, 20


def choose_search(pipeline: Pipeline, data: TrainingData) -> dict[str, Any]:
    """Take fewer candidates, re-rank fewer, and search less, as long as that costs next to nothing; what was chosen.

    pipeline  it has not learnt from the held-out texts. Its stages change
    """
    as_learnt, reranker = pipeline.candidates, pipeline.reranker
    stage = pipeline.candidates = as_learnt.quantized()  # what predictions search, and several times as fast
    stage.n_searched = stage.max_searched
    best = _means(_measure(pipeline, data))

    def is_enough(reached: dict[str, float]) -> bool:
        return all(value >= most - MAX_LOSS for value, most in zip(_means(reached), best, strict=True))

    if reranker is not None and len(data.held_out) >= MIN_TEXTS:
        while stage.n_candidates(stage.n_searched, data.n_labels) * STEP >= reranker.n_candidates:
            fewer = stage.scaled(STEP)
            if fewer is stage or not is_enough(_measure(replace(pipeline, candidates=fewer), data)):
                break
            pipeline.candidates, as_learnt, stage = fewer, as_learnt.scaled(STEP), fewer
        while reranker.n_candidates * STEP >= MIN_RERANKED:
            before, reranker.n_candidates = reranker.n_candidates, int(STEP * reranker.n_candidates)
            if not is_enough(_measure(pipeline, data)):
                reranker.n_candidates = before
                break
    n_searched, reached = stage.n_searched, _measure(pipeline, data)
    curve = [{"searched": n_searched, "P@1": round(reached["P@1"], 2)}]
    while n_searched > 1:
        n_searched = int(STEP * n_searched)
        reached = _measure(pipeline, data, n_searched / stage.n_searched)
        curve.append({"searched": n_searched, "P@1": round(reached["P@1"], 2)})
        if not is_enough(reached):
            break
        stage.n_searched = n_searched
    pipeline.candidates, as_learnt.n_searched = as_learnt, stage.n_searched
    found = round(stage.n_candidates(stage.n_searched, data.n_labels))
    chosen = {"searched": stage.n_searched, "of": stage.max_searched, "allowed_loss": MAX_LOSS, "candidates": found}
    if reranker is not None:
        chosen["reranked"] = reranker.n_candidates
    ranked = "" if reranker is None else f", of which {reranker.n_candidates:,} are re-ranked"
    log.info(
        "prediction searches %d of %d cells for %d candidates%s", stage.n_searched, stage.max_searched, found, ranked
    )
    return {**chosen, "curve": curve}


def _measure(pipeline: Pipeline, data: TrainingData, search_effort: float = 1.0) -> dict[str, float]:
    return data.measure(pipeline.rank(data.held_out_raw, N_RANKED, search_effort)[0])


def _means(metrics: dict[str, float]) -> list[float]:
    """The mean of what counts all labels the same, and of what counts rare ones more."""
    groups: tuple[list[float], list[float]] = ([], [])
    for name, value in metrics.items():
        groups[name.startswith("PSP")].append(value)
    return [float(np.mean(group)) for group in groups if group]
