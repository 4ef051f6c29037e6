"""One tree of errors: everything a user can get wrong is a `ShortlistError`.

Each message says what was wrong, where, and what to do next. The command line prints it and exits
with 2; anything that is not a `ShortlistError` is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import importlib
from typing import Any


class ShortlistError(Exception):
    """The root: catch this to catch every error the library raises on purpose."""


class DataError(ShortlistError):
    """The data cannot be read or used as asked: a malformed line, a missing file, a wrong format."""


class OptionError(ShortlistError, ValueError):
    """An argument or option has a value that makes no sense."""


class ModelError(ShortlistError):
    """A model folder is missing, damaged, or of a version this release cannot read."""


class MissingExtraError(ShortlistError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional part: pip install "shortlist[{extra}]"')


def import_extra(module: str, what: str, extra: str) -> Any:
    """An optional dependency, or an error that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(what, extra) from None


class Stopped(KeyboardInterrupt):
    """Ctrl-C came, and work was put away in an orderly way; the message says what is kept and how to go on."""
