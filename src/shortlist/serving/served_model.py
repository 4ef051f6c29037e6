"""The model that is served, and how a newer one takes its place while requests go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import msgspec

from shortlist.errors import ShortlistError
from shortlist.model import load
from shortlist.model.base import Model, Prediction
from shortlist.model.folder import CONFIG
from shortlist.serving.limits import WEIGHT_OF_EXPLAINED

WARM_UP_TEXTS = 8
SECONDS_BETWEEN_LOOKS = 1.0


class Ask(msgspec.Struct, frozen=True):
    """A model and how it is asked. Equal ones can be asked together."""

    model: Model
    threads: int | None
    k: int
    min_score: float
    explain: bool
    search_effort: float

    @property
    def weight(self) -> int:
        return WEIGHT_OF_EXPLAINED if self.explain else 1

    def __call__(self, texts: list[str]) -> list[list[Prediction]]:
        return self.model.predict(
            texts,
            self.k,
            self.threads,
            min_score=self.min_score,
            explain=self.explain,
            search_effort=self.search_effort,
        )


class ServedModel:
    """The model of a folder: `current` is None until one is loaded and warm, then always one that works.

    `on_change` is told about every attempt to load: the error, or None.
    """

    def __init__(
        self,
        folder: str | Path,
        threads: int | None = None,
        search_effort: float = 1.0,
        on_change: Callable[[Exception | None], None] = lambda error: None,
    ) -> None:
        self.folder, self.threads, self.search_effort, self.on_change = Path(folder), threads, search_effort, on_change
        self.current: Model | None = None
        self.card = b"{}"
        self.loaded_at = 0.0
        self._wanted = asyncio.Event()
        self._stamp: Stamp = ()

    async def load(self) -> None:
        """Load what the folder holds, make it ready, and only then let it answer: one assignment, nothing stops."""
        stamp = folder_stamp(self.folder)
        try:
            model, card = await in_thread(self._loaded_and_warm)
        except Exception as error:
            self._stamp = stamp  # the same files would fail again
            self.on_change(error)
            raise
        self.current, self.card, self.loaded_at, self._stamp = model, card, time.time(), stamp
        self.on_change(None)

    def reload_soon(self) -> None:
        """Have `keep_up` load the folder again."""
        self._wanted.set()

    async def keep_up(self, watch: bool) -> None:
        """Load again whenever told to or, watching, whenever the files have changed and lie still again."""
        seen = self._stamp
        while True:
            try:
                async with asyncio.timeout(SECONDS_BETWEEN_LOOKS if watch else None):
                    await self._wanted.wait()
            except TimeoutError:
                before, seen = seen, await asyncio.to_thread(folder_stamp, self.folder)
                if not seen or seen == self._stamp or seen != before:
                    continue
            self._wanted.clear()
            try:
                await self.load()
            except Exception:  # noqa: BLE001 - reported by load; the old model stays
                continue

    def _loaded_and_warm(self) -> tuple[Model, bytes]:
        model = load(self.folder)
        card = model.card
        # Kernels load or compile on first use: texts with words that the model knows get to all of them.
        texts = (card.get("examples") or ["no examples"])[:WARM_UP_TEXTS]
        for explain in (False, True):
            Ask(model, self.threads, 5, 0.0, explain, self.search_effort)(texts)
        return model, msgspec.json.encode(card)


Stamp = tuple[tuple[str, int, int, int], ...]


def folder_stamp(folder: Path) -> Stamp:
    """What tells one state of a model's files from another; nothing where there is no model (or not yet)."""
    try:
        files = sorted((path.name, path.stat()) for path in folder.iterdir())
    except OSError:  # it is being replaced
        return ()
    stamp = tuple((name, facts.st_ino, facts.st_size, facts.st_mtime_ns) for name, facts in files)
    return stamp if any(name == CONFIG for name, *_ in stamp) else ()


Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """As `asyncio.to_thread`, but the process may end before the work does: a stop does not wait for a model."""
    outcome: Future[Result] = Future()

    def run() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return asyncio.wrap_future(outcome)


def said(error: Exception) -> str:
    """An error for a log line: our own say all there is to say, others say what they are, too."""
    return str(error) if isinstance(error, ShortlistError) else f"{type(error).__name__}: {error}"
