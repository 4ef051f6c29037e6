"""The model in use, and how a new one replaces it while requests continue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shortlist.data.feature_rows import FeatureRow, stack_rows
from shortlist.model import Model, Prediction, Tail, load
from shortlist.model.format import CONFIG
from shortlist.model.levels import Levels
from shortlist.serving.problems import busy

WATCH_SECONDS = 1.0

Stamp = tuple[tuple[str, int, int, int], ...]
Result = TypeVar("Result")


class PredictCall(msgspec.Struct, frozen=True):
    """A model and the options of a prediction. Texts of equal calls can share a batch."""

    model: Model
    threads: int | None
    k: int
    min_score: float | None
    explain: bool
    search_effort: float
    tail: Tail
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    levels: Levels | None = None

    def __call__(self, texts: list[Any]) -> list[list[Prediction]]:
        inputs = stack_rows(texts) if isinstance(texts[0], FeatureRow) else texts
        return self.model.predict(inputs, self.k, self.threads, min_score=self.min_score, explain=self.explain,
                                  search_effort=self.search_effort, tail=self.tail, allow=self.allow,
                                  deny=self.deny, levels=self.levels)  # fmt: skip


class ServedModel:
    """The model of a folder. `current` is None until a model is loaded and warm; from then on it is always usable.

    `on_load` is called after each attempt to load, with the error or None.
    """

    def __init__(
        self,
        folder: str | Path,
        threads: int | None,
        search_effort: float,
        on_load: Callable[[Exception | None], None],
        load_model: Callable[[Path], Model] | None = None,
    ) -> None:
        self.folder, self.threads, self.search_effort, self.on_load = Path(folder), threads, search_effort, on_load
        self.current: Model | None = None
        self._load_model = load_model or load
        self.loaded_at = 0.0
        self.loading = False
        self._reload = asyncio.Event()
        self._stamp: Stamp = ()

    @property
    def model(self) -> Model:
        """The current model; raises while there is none."""
        if self.current is None:
            raise busy("The model is still being loaded. Retry soon; /readyz says when it is ready.")
        return self.current

    async def load(self) -> None:
        """Load and warm up the model in the folder, then use it: one assignment, no request waits."""
        self._stamp = folder_stamp(self.folder)  # also of a damaged model: loading the same files would fail again
        self.loading = True
        try:
            model = await in_daemon_thread(self._load_and_warm_up)
        except Exception as error:
            self.on_load(error)
            raise
        finally:
            self.loading = False
        self.current, self.loaded_at = model, time.time()
        self.on_load(None)

    def request_reload(self) -> None:
        """Make `load_and_follow` load the folder again."""
        self._reload.set()

    async def load_and_follow(self, watch: bool) -> None:
        """Load; then reload on request and, with `watch`, when files have changed and stayed the same for a second."""
        await self.load()
        stamp = self._stamp
        while True:
            try:
                await asyncio.wait_for(self._reload.wait(), WATCH_SECONDS if watch else None)
            except asyncio.TimeoutError:
                before, stamp = stamp, await asyncio.to_thread(folder_stamp, self.folder)
                if not stamp or stamp == self._stamp or stamp != before:
                    continue
            self._reload.clear()
            try:
                await self.load()
            except Exception:  # noqa: BLE001 - `load` has reported it; the old model stays
                continue

    def _load_and_warm_up(self) -> Model:
        model = self._load_model(self.folder)
        model.warm_up()
        model.warm_up(self.threads, self.search_effort)
        return model


def folder_stamp(folder: Path) -> Stamp:
    """Changes whenever the files of a model change. Empty if there is no model."""
    try:
        files = sorted((path.name, path.stat()) for path in folder.iterdir())
    except OSError:  # the folder is being replaced
        return ()
    stamp = tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files)
    return stamp if any(name == CONFIG for name, *_ in stamp) else ()


def in_daemon_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Like `asyncio.to_thread`, but the process can exit before the work is done."""
    outcome: Future[Result] = Future()

    def run() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return asyncio.wrap_future(outcome)
