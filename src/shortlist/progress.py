"""Progress of long work: a bar with rate and time left on a terminal and in a notebook, log lines elsewhere."""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from types import TracebackType
from typing import Any, ClassVar

from shortlist.printable import printable_line

log = logging.getLogger("shortlist")

LOG_INTERVAL_SECONDS = 30.0
BAR_DELAY_SECONDS = 0.5


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _bar_class() -> Any:
    """tqdm's bar for a notebook, where its widgets are installed, or for a terminal, which works there, too."""
    from tqdm import tqdm

    if not in_notebook() or importlib.util.find_spec("ipywidgets") is None:
        return tqdm
    from tqdm.notebook import tqdm as notebook_bar

    return notebook_bar


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
        self._bar: Any = None
        if show and self.bars and (in_notebook() or _is_terminal()):
            bar, options = _bar_class(), {"unit_scale": True, "leave": False, "delay": BAR_DELAY_SECONDS}
            self._bar = bar(desc=printable_line(what), total=total, unit=unit, **options)

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
        line = printable_line(line)
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        elif sys.stderr is not None:
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
