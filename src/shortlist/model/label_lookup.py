"""Labels as users write them: labels, display names, prefixes such as "J45*", and lists stored with a model."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from shortlist.errors import OptionError
from shortlist.stages.allowed import AllowedLabels

LabelChoice = str | Iterable[str] | None

LIST_SIGN, ANY_END = "@", "*"
MAX_CACHED = 16
MAX_COMPARED = 5000  # labels that are compared with an unknown one, for "did you mean"


class LabelLookup:
    """The labels of a model by what users may call them."""

    def __init__(
        self, labels: Sequence[str], display_names: Mapping[str, str], lists: Mapping[str, Sequence[str]]
    ) -> None:
        self._labels, self._display_names, self._lists = labels, display_names, lists
        self._allowed: dict[tuple[tuple[str, ...], tuple[str, ...]], AllowedLabels | None] = {}

    @cached_property
    def ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self._labels)}

    @cached_property
    def _ids_by_name(self) -> Mapping[str, list[int]]:
        by_name: dict[str, list[int]] = {}
        for label, name in self._display_names.items():
            if label not in self.ids:  # a file of names may have more than the data
                continue
            by_name.setdefault(name.casefold(), []).append(self.ids[label])
        return by_name

    def allowed(self, allow: LabelChoice, deny: LabelChoice) -> AllowedLabels | None:
        """The labels that may answer; None: all of them."""
        key = (entries_of(allow, "allow"), entries_of(deny, "deny"))
        if allow is not None and not key[0]:
            raise OptionError("allow is empty: no label may answer. Leave it out to allow all labels.")
        if key not in self._allowed:
            while len(self._allowed) >= MAX_CACHED:  # the oldest
                self._allowed.pop(next(iter(self._allowed)), None)
            self._allowed[key] = self._resolve(*key)
        return self._allowed[key]

    def _resolve(self, allow: tuple[str, ...], deny: tuple[str, ...]) -> AllowedLabels | None:
        flags = np.full(len(self._labels), not allow)
        flags[self.find(allow, "allow")] = True
        flags[self.find(deny, "deny")] = False
        if not flags.any():
            raise OptionError("allow and deny leave no label that may answer")
        return None if flags.all() else AllowedLabels(flags)

    def find(self, entries: Iterable[str], what: str) -> list[int]:
        """The ids of all labels that these entries stand for; an OptionError for one that stands for none."""
        return [label for entry in entries for label in self._find(entry, what)]

    def _find(self, entry: str, what: str) -> list[int]:
        if entry in self.ids:
            return [self.ids[entry]]
        if entry.startswith(LIST_SIGN) and entry[1:] in self._lists:
            return [self.ids[label] for label in self._lists[entry[1:]]]
        if entry.endswith(ANY_END):
            return self._with_prefix(entry[:-1]) or self._unknown(entry, what)
        return self._ids_by_name.get(entry.casefold()) or self._unknown(entry, what)

    def _with_prefix(self, prefix: str) -> list[int]:
        """Labels that start with it; if there are none, those whose names do."""
        found = [i for label, i in self.ids.items() if label.startswith(prefix)]
        folded = prefix.casefold()
        return found or [i for name, ids in self._ids_by_name.items() if name.startswith(folded) for i in ids]

    def _unknown(self, entry: str, what: str) -> list[int]:
        if entry.startswith(LIST_SIGN):
            lists = ", ".join(LIST_SIGN + name for name in self._lists) or "none"
            raise OptionError(f"{what}: this model has no label or list {entry!r:.80}. Its lists: {lists}.")
        kind = "label that starts with" if entry.endswith(ANY_END) else "label or name"
        close = self._similar(entry.removesuffix(ANY_END))
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else "`shortlist labels list` shows them all."
        raise OptionError(f"{what}: this model has no {kind} {entry!r:.80}. {hint}")

    def _similar(self, entry: str) -> list[str]:
        """A few labels or names like this one: of many, only those that begin like it are compared."""
        names = [*self.ids, *self._display_names.values()]
        for n_same in (0, 1, 2, 3, 4):
            start = entry[:n_same].casefold()
            some = [name for name in names if name[:n_same].casefold() == start]
            if len(some) <= MAX_COMPARED:
                return difflib.get_close_matches(entry, some, 3, 0.6)
        return difflib.get_close_matches(entry, some[:MAX_COMPARED], 3, 0.6)


def entries_of(choice: LabelChoice, what: str) -> tuple[str, ...]:
    """The entries of `allow` or `deny`, which may be a single one."""
    if choice is None:
        return ()
    entries = (choice,) if isinstance(choice, str) else tuple(choice)
    for entry in entries:
        if not isinstance(entry, str):
            raise OptionError(f"{what} has {entry!r:.60}; expected labels, names, prefixes or lists, as strings")
    return entries


def checked_list_name(name: str) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip() or len(name) > 100:
        raise OptionError(f"the name of a list is {name!r:.120}; expected up to 100 characters")
    return name
