"""One tree of errors: everything a user can get wrong is a `ShortlistError`.

Each message says what was wrong, where, and what to do next. The command line prints it and exits
with 2; anything that is not a `ShortlistError` is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import importlib
from typing import Any


class ShortlistError(Exception):
    """The root: catch this to catch every error the library raises on purpose.

    >>> import shortlist
    >>> try:
    ...     shortlist.read("no such file.jsonl")
    ... except ShortlistError as error:
    ...     print(error)
    no such file.jsonl: no such file. Check the path.
    """


class DataError(ShortlistError):
    """The data cannot be read or used as asked: a malformed line, a missing file, a wrong format.

    >>> import shortlist
    >>> shortlist.Dataset.from_lists(["red shoes"], [["shoes"], ["hats"]])
    Traceback (most recent call last):
    ...
    shortlist.errors.DataError: there are 1 texts but 2 lists of labels
    """


class OptionError(ShortlistError, ValueError):
    """An argument or option has a value that makes no sense.

    >>> import shortlist
    >>> shortlist.get_recipe("astek")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    shortlist.errors.OptionError: there is no recipe 'astek'; did you mean 'astec'? All recipes are ...
    """


class ModelError(ShortlistError):
    """A model folder is missing, damaged, or of a version this release cannot read.

    >>> import shortlist
    >>> shortlist.load("no such folder")
    Traceback (most recent call last):
    ...
    shortlist.errors.ModelError: no such folder: there is no such model folder. Check the path, or train one first.
    """


class MissingExtraError(ShortlistError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)  # its arguments, so that it can be pickled and sent to another process
        self.what, self.extra = what, extra

    def __str__(self) -> str:
        install = f'pip install "shortlist[{self.extra}]"'
        if self.extra == "train":  # from PyPI, torch brings CUDA unless a CPU build is there before
            return (
                f"{self.what} needs torch: uv pip install --torch-backend=cpu torch (a CPU build, 1 GB), or {install} "
                "(with CUDA, several GB). The recipes auto and astec do not need it."
            )
        return f"{self.what} needs an optional part: {install}"


def import_extra(module: str, what: str, extra: str) -> Any:
    """An optional dependency, or an error that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(what, extra) from None


class Stopped(KeyboardInterrupt):
    """Ctrl-C came, and work was put away in an orderly way; the message says what is kept and how to go on."""
