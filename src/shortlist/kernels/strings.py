"""A hash table that maps strings to ids and back.

The strings are stored end to end in one byte array and found by open addressing. A million words or labels therefore
need little more memory than their bytes, and kernels can look them up without Python objects.
"""

from __future__ import annotations

import itertools

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.kernels.native import native

EMPTY = -1


class StringTable:
    """Distinct strings, numbered in the order in which they were added.

    >>> table = StringTable()
    >>> table.add_strings(["b", "a", "b"]).tolist()
    [0, 1, 0]
    >>> table.strings()
    ['b', 'a']
    """

    def __init__(self) -> None:
        self.count = 0
        self.slots = np.full(1024, EMPTY, np.int32)
        self.arena = np.zeros(8192, np.uint8)
        self.offsets = np.zeros(513, np.int64)

    @staticmethod
    def of_distinct(arena: np.ndarray, offsets: np.ndarray) -> StringTable | None:
        """The table of the strings `arena[offsets[i]:offsets[i + 1]]`, all at once; None if one occurs twice."""
        table = StringTable()
        table.count, table.offsets = len(offsets) - 1, offsets
        table.arena = np.require(arena[: offsets[-1]], requirements="W")  # further strings may be added
        table.slots = _slots_for(table.count)
        native.place_strings(table.arrays, table.count)
        return table if np.count_nonzero(table.slots != EMPTY) == table.count else None

    def __len__(self) -> int:
        return self.count

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The `table` argument of kernels; valid until the table grows."""
        return self.slots, self.arena, self.offsets

    def _make_room(self, strings: int, size: int) -> None:
        """Make room for this many more strings with this many bytes in total."""
        wanted = self.count + strings
        self.offsets = _grown(self.offsets, wanted + 1)
        self.arena = _grown(self.arena, int(self.offsets[self.count]) + size)
        if 2 * wanted > len(self.slots):
            self.slots = _slots_for(wanted)
            native.place_strings(self.arrays, self.count)

    def add(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings `data[bounds[i]:bounds[i + 1]]`; adds the new ones."""
        ids = np.empty(len(bounds) - 1, np.int32)
        # In small steps, so that the table grows with distinct strings and not with every occurrence.
        step = max(4096, self.count // 2)
        for first in range(0, len(ids), step):
            part = bounds[first : first + step + 1]
            self._make_room(len(part) - 1, int(part[-1] - part[0]))
            self.count = native.add_strings(self.arrays, self.count, data, part, ids[first : first + step])
        return ids

    def find(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings; -1 for those that are not in the table."""
        ids = np.empty(len(bounds) - 1, np.int32)
        native.find_strings(self.arrays, data, bounds, ids)
        return ids

    def add_strings(self, strings: list[str]) -> np.ndarray:
        return self.add(*pack(strings))

    def find_strings(self, strings: list[str]) -> np.ndarray:
        return self.find(*pack(strings))

    def strings(self) -> list[str]:
        return unpack(self.arena, self.offsets[: self.count + 1])


def pack(strings: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """All strings in one UTF-8 byte array, and their bounds."""
    encoded = [string.encode() for string in strings]
    return np.frombuffer(b"".join(encoded), np.uint8), counts_to_indptr([len(item) for item in encoded])


def unpack(data: np.ndarray, bounds: np.ndarray) -> list[str]:
    """The inverse of `pack`."""
    whole = data[bounds[0] : bounds[-1]].tobytes()
    edges = (bounds - bounds[0]).tolist()
    return [whole[start:end].decode() for start, end in itertools.pairwise(edges)]


def _slots_for(count: int) -> np.ndarray:
    """Empty slots, at least two for each string."""
    return np.full(1 << max(2 * count - 1, 1).bit_length(), EMPTY, np.int32)


def _grown(array: np.ndarray, wanted: int) -> np.ndarray:
    """The array itself if it is large enough, else a copy at least twice as large."""
    if wanted <= len(array):
        return array
    larger = np.zeros(max(wanted, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
