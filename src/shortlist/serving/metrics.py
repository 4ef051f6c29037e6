"""The server's metrics, in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from shortlist import __version__

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # they double the output
        self._registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self._requests = Counter("shortlist_requests", "Requests answered.", ["path", "status"], registry=r)
        self._request_counters: dict[tuple[str, int], Counter] = {}
        self.seconds = Histogram("shortlist_predict_seconds", "Predict request times.", buckets=SECONDS, registry=r)
        self.texts = Counter("shortlist_texts", "Texts predicted.", registry=r)
        self.batch_texts = Histogram("shortlist_batch_texts", "Texts per batch.", buckets=BATCH_SIZES, registry=r)
        self.reloads = Counter("shortlist_model_reloads", "Attempts to load a model.", ["outcome"], registry=r)
        for outcome in ("success", "failure"):
            self.reloads.labels(outcome)
        self._model = Gauge("shortlist_model_info", "The model in use.", ["recipe", "version"], registry=r)
        self._n_labels = Gauge("shortlist_model_labels", "Labels of the model.", registry=r)
        self._loaded = Gauge("shortlist_model_loaded_timestamp_seconds", "When the model was loaded.", registry=r)

    def gauge(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when it is read."""
        Gauge(name, meaning, registry=self._registry).set_function(value)

    def count_request(self, path: str, status: int) -> None:
        counter = self._request_counters.get((path, status))
        if counter is None:  # `labels` is slow
            counter = self._request_counters[path, status] = self._requests.labels(path, status)
        counter.inc()

    def model_loaded(self, recipe: str, n_labels: int, timestamp: float) -> None:
        self._model.clear()
        self._model.labels(recipe, __version__).set(1)
        self._n_labels.set(n_labels)
        self._loaded.set(timestamp)

    def text(self) -> bytes:
        return generate_latest(self._registry)
