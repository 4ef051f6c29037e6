"""What was measured of one system: an entry of a comparison, or the one model of a model report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Entry(msgspec.Struct, kw_only=True):
    """An entry as in `summary.json`. Scores are percentages."""

    name: str
    title: str = ""
    kind: str = "recipe"
    status: str = "done"
    note: str = ""
    options: dict[str, Any] | None = None
    measured_with: dict[str, Any] = {}
    scores: dict[str, float] = {}
    intervals: dict[str, Any] = {}
    difference_to_best: dict[str, dict[str, float]] = {}
    by_quantile: list[dict[str, float]] = []
    train_seconds: float | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None
    bulk_texts_per_second: float | None = None
    model_bytes: float | None = None
    peak_memory_bytes: float | None = None
    multiply_adds: float | None = None
    curves: list[dict[str, Any]] = []
    calibration: dict[str, Any] = {}
    robustness: dict[str, Any] = {}

    @property
    def is_peer(self) -> bool:
        return self.kind == "peer"

    def interval(self, metric: str) -> tuple[float, float] | None:
        low, high = self.intervals.get(metric, (None, None))
        return None if low is None or high is None else (low, high)


def read_entries(given: Iterable[Mapping[str, Any]] | None) -> list[Entry]:
    return [msgspec.convert(without_missing(one), Entry) for one in given or ()]


def without_missing(value: Any) -> Any:
    """Drop None, NaN and infinity from dictionaries, so that only a missing key means a missing value."""
    if isinstance(value, Mapping):
        cleaned = {key: without_missing(one) for key, one in value.items()}
        return {key: one for key, one in cleaned.items() if one is not None}
    if isinstance(value, list | tuple):
        return [without_missing(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
