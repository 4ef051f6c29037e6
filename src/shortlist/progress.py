"""Progress of long work: a bar with rate and time left on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import ClassVar

log = logging.getLogger("shortlist")

LOG_INTERVAL_SECONDS = 30.0
BAR_DELAY_SECONDS = 0.5


class Progress:
    """Counts work towards a total.

    >>> with Progress("reading", total=10, unit="rows") as progress:
    ...     progress.advance(10)

    Set `Progress.bars = False` if several processes share a terminal: their bars would overwrite each other.
    """

    bars: ClassVar[bool] = True

    def __init__(self, what: str, total: int | None = None, unit: str = "it", show: bool = True) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self._started = self._last_log = time.monotonic()
        self._show = show
        self._note = ""
        self._bar = None
        if show and self.bars and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=what, total=total, unit=unit, unit_scale=True, leave=False, delay=BAR_DELAY_SECONDS)

    def advance(self, amount: int = 1) -> None:
        self.done += amount
        if self._bar is not None:
            self._bar.update(amount)
        elif self._show and time.monotonic() - self._last_log > LOG_INTERVAL_SECONDS:
            self._last_log = time.monotonic()
            log.info(self._log_line())

    def note(self, text: str) -> None:
        """Show a note beside the progress from now on."""
        self._note = text
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def say(self, line: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            sys.stderr.write(f"{line}\n")

    def _log_line(self) -> str:
        seconds = time.monotonic() - self._started
        rate = self.done / max(seconds, 1e-9)
        line = f"{self.what}: {self.done:,} {self.unit} in {seconds:.0f} s, {rate:,.0f} {self.unit}/s"
        if self.total:
            left = max(self.total - self.done, 0) / max(rate, 1e-9)
            line += f", {100 * self.done / self.total:.0f} %, {left:.0f} s left"
        return f"{line}; {self._note}" if self._note else line

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
