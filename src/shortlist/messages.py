"""Messages to people: shown by default, also in scripts and notebooks, and silenced with one call."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, get_args

from shortlist.errors import OptionError
from shortlist.progress import Progress, in_notebook

log = logging.getLogger("shortlist")

Verbosity = Literal["info", "warning", "silent"]
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "silent": logging.CRITICAL + 1}


def set_verbosity(verbosity: Verbosity) -> None:
    """Choose what is printed: "info" (messages and progress, the default), "warning" (warnings only), or "silent".

    The messages are those of the logger "shortlist". If your program has set up `logging`, they go where it sends them.

    >>> set_verbosity("info")
    >>> set_verbosity("loud")
    Traceback (most recent call last):
    ...
    shortlist.errors.OptionError: verbosity is 'loud'; it can be info, warning, silent
    """
    if verbosity not in LEVELS:
        raise OptionError(f"verbosity is {verbosity!r}; it can be {', '.join(get_args(Verbosity))}")
    Progress.bars = verbosity == "info"
    log.setLevel(LEVELS[verbosity])
    if not log.hasHandlers():
        log.addHandler(_Messages())
        log.propagate = False  # a root handler that is set up later would print everything twice


def show_messages() -> None:
    """Show messages from now on, unless the user or the program has decided that already."""
    if log.level == logging.NOTSET and not log.hasHandlers():
        set_verbosity("info")


class _Messages(logging.StreamHandler):
    """Writes to what is standard error now, which tests replace; in a notebook to the output, where errors are red."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stdout if in_notebook() else sys.stderr
