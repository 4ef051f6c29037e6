"""Labels as users write them: labels, display names, prefixes such as "J45*", and lists stored with a model."""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from shortlist.errors import OptionError
from shortlist.stages.allowed import AllowedLabels

LabelChoice = str | Iterable[str] | None

LIST_SIGN, ANY_END = "@", "*"
MAX_CACHED = 16
# An unknown label is compared with so many that begin with the same characters, for "did you mean".
MAX_COMPARED, MAX_SAME = 1000, 4


class Sorted:
    """Strings in order, each with the id of a label.

    >>> table = Sorted([("b", 0), ("ab", 1), ("aa", 2), ("b", 3)])
    >>> [table.ids[i] for i in table.starting_with("a")], [table.ids[i] for i in table.equal_to("b")]
    ([2, 1], [0, 3])
    """

    def __init__(self, pairs: Iterable[tuple[str, int]]) -> None:
        ordered = sorted(pairs)
        self.strings, self.ids = [string for string, _ in ordered], [i for _, i in ordered]

    def equal_to(self, string: str) -> range:
        return range(bisect_left(self.strings, string), bisect_right(self.strings, string))

    def starting_with(self, prefix: str) -> range:
        end = bisect_right(self.strings, prefix, key=lambda string: string[: len(prefix)])
        return range(bisect_left(self.strings, prefix), end)


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
    def _by_label(self) -> Sorted:
        return Sorted(self.ids.items())

    @cached_property
    def _by_name(self) -> Sorted:
        names = self._display_names.items()  # a file of names may have more labels than the data
        return Sorted((name.casefold(), self.ids[label]) for label, name in names if label in self.ids)

    @cached_property
    def _by_any(self) -> tuple[list[str], Sorted]:
        """All labels and names, and where they begin alike, but for upper case."""
        names = list(dict.fromkeys((*self.ids, *self._display_names.values())))
        return names, Sorted((name[:MAX_SAME].casefold(), i) for i, name in enumerate(names))

    def allowed(self, allow: LabelChoice, deny: LabelChoice) -> AllowedLabels | None:
        """The labels that may answer; None: all of them."""
        key = (entries_of(allow, "allow"), entries_of(deny, "deny"))
        if allow is not None and not key[0]:
            raise OptionError("allow is empty: no label may answer. Leave it out to allow all labels.")
        if key in self._allowed:
            with suppress(KeyError):  # another thread made room
                return self._allowed[key]
        found = self._resolve(*key)
        for oldest in list(self._allowed)[: 1 - MAX_CACHED]:
            self._allowed.pop(oldest, None)
        self._allowed[key] = found
        return found

    def _resolve(self, allow: tuple[str, ...], deny: tuple[str, ...]) -> AllowedLabels | None:
        flags = np.full(len(self._labels), not allow)
        flags[self.find(allow, "allow")] = True
        flags[self.find(deny, "deny")] = False
        if not flags.any():
            raise OptionError("allow and deny leave no label that may answer")
        return None if flags.all() else AllowedLabels(flags)

    def find(self, entries: Iterable[str], what: str) -> list[int]:
        """The ids of all labels that these entries stand for; an OptionError for one that stands for none.

        Clients of a server send entries, so nothing here looks at all labels for each of them.
        """
        found, ranges = set(), set()
        for entry in dict.fromkeys(entries):
            if entry in self.ids:
                found.add(self.ids[entry])
            elif entry.startswith(LIST_SIGN) and entry[1:] in self._lists:
                found.update(self.ids[label] for label in self._lists[entry[1:]])
            else:
                ranges.add(self._range(entry, what))
        return sorted(found.union(*(table.ids[places.start : places.stop] for table, places in ranges)))

    def _range(self, entry: str, what: str) -> tuple[Sorted, range]:
        """Where the labels of a name are, or of a prefix: those that start with it, or else those whose names do."""
        if not entry.endswith(ANY_END):
            table, places = self._by_name, self._by_name.equal_to(entry.casefold())
        else:
            table, places = self._by_label, self._by_label.starting_with(entry[:-1])
            if not places:
                table, places = self._by_name, self._by_name.starting_with(entry[:-1].casefold())
        if not places:
            raise self._unknown(entry, what)
        return table, places

    def _unknown(self, entry: str, what: str) -> OptionError:
        if entry.startswith(LIST_SIGN):
            lists = ", ".join(LIST_SIGN + name for name in self._lists) or "none"
            return OptionError(f"{what}: this model has no label or list {entry!r:.80}. Its lists: {lists}.")
        kind = "label that starts with" if entry.endswith(ANY_END) else "label or name"
        close = self._similar(entry.removesuffix(ANY_END))
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else "`shortlist labels list` shows them all."
        return OptionError(f"{what}: this model has no {kind} {entry!r:.80}. {hint}")

    def _similar(self, entry: str) -> list[str]:
        """A few labels or names like this one: of many, only those that begin like it are compared."""
        names, table = self._by_any
        start = entry[:MAX_SAME].casefold()
        places = next(
            (few for n in range(MAX_SAME) if len(few := table.starting_with(start[:n])) <= MAX_COMPARED),
            table.starting_with(start)[:MAX_COMPARED],
        )
        some = [names[i] for i in table.ids[places.start : places.stop]]
        return difflib.get_close_matches(entry[:MAX_COMPARED], some, 3, 0.6)


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
