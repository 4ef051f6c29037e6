"""What the server counts, in Prometheus' format."""

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
TEXTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """One server's counters."""

    def __init__(self) -> None:
        disable_created_metrics()  # they double the lines, and nobody asks when a counter began
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter("shortlist_requests", "Requests answered.", ["path", "status"], registry=self.registry)
        self._request: dict[tuple[str, int], Counter] = {}
        self.seconds = Histogram(
            "shortlist_predict_seconds",
            "Time from a request for predictions to its answer.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.texts = Counter("shortlist_texts", "Texts predicted.", registry=self.registry)
        self.batch_texts = Histogram(
            "shortlist_batch_texts", "Texts that were predicted together.", buckets=TEXTS, registry=self.registry
        )
        self.reloads = Counter(
            "shortlist_model_reloads", "Attempts to load a model.", ["outcome"], registry=self.registry
        )
        for outcome in ("success", "failure"):
            self.reloads.labels(outcome)
        self.model = Gauge("shortlist_model_info", "The model in use.", ["recipe", "version"], registry=self.registry)
        self.labels = Gauge("shortlist_model_labels", "Labels that the model knows.", registry=self.registry)
        self.loaded = Gauge(
            "shortlist_model_loaded_timestamp_seconds", "When the model was loaded.", registry=self.registry
        )

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """A number that is looked up when somebody asks for it."""
        Gauge(name, what, registry=self.registry).set_function(value)

    def count_request(self, path: str, status: int) -> None:
        counter = self._request.get((path, status))
        if counter is None:
            counter = self._request[path, status] = self._requests.labels(path, status)
        counter.inc()

    def model_loaded(self, recipe: str, labels: int, at: float) -> None:
        self.model.clear()
        self.model.labels(recipe, __version__).set(1)
        self.labels.set(labels)
        self.loaded.set(at)

    def text(self) -> bytes:
        return generate_latest(self.registry)
