"""Candidate stages: from features to the labels that are worth scoring.

To add one: write a `CandidateStage` in a file here, list it in `CANDIDATES`, and let a phase of training build it.
"""

from __future__ import annotations

from shortlist.stages.candidates.clusters import AttentionClusters, TopClusters, top_clusters
from shortlist.stages.candidates.nearest import NearestLabels
from shortlist.stages.candidates.stage import AllLabels, Candidates, CandidateStage

__all__ = [
    "CANDIDATES",
    "AllLabels",
    "AttentionClusters",
    "CandidateStage",
    "Candidates",
    "NearestLabels",
    "TopClusters",
    "top_clusters",
]

CANDIDATES: dict[str, type[CandidateStage]] = {
    stage.kind: stage for stage in (AllLabels, TopClusters, AttentionClusters, NearestLabels)
}
