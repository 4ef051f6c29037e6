"""How much a prediction searches, takes as candidates and re-ranks: as little as held-out texts allow."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from shortlist.stages.pipeline import Pipeline
from shortlist.training.data import TrainingData

log = logging.getLogger("shortlist")

# What each of the three reductions may cost, in points: the mean of P@k and N@5, and that of PSP@k. One metric alone
# moves as much by chance.
MAX_LOSS = 0.05
STEP = 0.7
N_RANKED = 5  # labels per text that are measured
# Few texts may miss what fewer candidates cost, and small data is fast in any case.
MIN_TEXTS, MIN_RERANKED = 500, 20


class Work(NamedTuple):
    """How much a prediction does.

    searched    clusters or cells
    candidates  relative to how many there were in training
    reranked    labels
    """

    searched: int
    candidates: float
    reranked: int

    def less(self, name: str) -> Work:
        lowered = STEP * getattr(self, name)
        return self._replace(**{name: lowered if name == "candidates" else int(lowered)})


def choose_search(pipeline: Pipeline, data: TrainingData) -> dict[str, Any]:
    """Search less, then take fewer candidates, then re-rank fewer, as long as each costs next to nothing.

    Returns what was chosen.

    pipeline  it has not learnt from the held-out texts. Its stages change
    """
    as_learnt, reranker = pipeline.candidates, pipeline.reranker
    stage = as_learnt.quantized()  # as predictions search, and in a third of the time
    work = Work(as_learnt.max_searched, 1.0, 0 if reranker is None else reranker.n_candidates)

    def measure(work: Work) -> dict[str, float]:
        pipeline.candidates = stage.scaled(work.candidates)
        pipeline.candidates.n_searched = work.searched
        if reranker is not None:
            reranker.n_candidates = work.reranked
        return data.measure(pipeline.rank(data.held_out_raw, N_RANKED)[0])

    def n_candidates(work: Work) -> float:
        return stage.scaled(work.candidates).n_candidates(work.searched, data.n_labels)

    def is_possible(work: Work, name: str) -> bool:
        if name == "candidates":
            return stage.scaled(STEP) is not stage and n_candidates(work) >= work.reranked
        return getattr(work, name) >= (MIN_RERANKED if name == "reranked" else 1)

    reached = measure(work)
    curve = [{"searched": work.searched, "P@1": round(reached["P@1"], 2)}]
    # What takes most of the time comes first.
    for name in Work._fields if reranker is not None and len(data.held_out) >= MIN_TEXTS else ("searched",):
        before = _means(reached)
        while is_possible(less := work.less(name), name):
            of_less = measure(less)
            if name == "searched":
                curve.append({"searched": less.searched, "P@1": round(of_less["P@1"], 2)})
            if any(value < most - MAX_LOSS for value, most in zip(_means(of_less), before, strict=True)):
                break
            work, reached = less, of_less
    pipeline.candidates = as_learnt.scaled(work.candidates)
    pipeline.candidates.n_searched, found = work.searched, round(n_candidates(work))
    chosen = {"searched": work.searched, "of": as_learnt.max_searched, "allowed_loss": MAX_LOSS, "candidates": found}
    if reranker is not None:
        reranker.n_candidates = chosen["reranked"] = work.reranked
    ranked = "" if reranker is None else f", of which {work.reranked:,} are re-ranked"
    log.info(
        "prediction searches %d of %d cells for %d candidates%s", work.searched, as_learnt.max_searched, found, ranked
    )
    return {**chosen, "curve": curve}


def _means(metrics: dict[str, float]) -> list[float]:
    """The mean of what counts all labels the same, and of what counts rare ones more."""
    groups: tuple[list[float], list[float]] = ([], [])
    for name, value in metrics.items():
        groups[name.startswith("PSP")].append(value)
    return [float(np.mean(group)) for group in groups if group]
