"""A hash table that maps strings to ids and back.

The strings are stored end to end in one byte array and found by open addressing. A million words or labels therefore
need little more memory than their bytes, and kernels can look them up without Python objects.
"""

from __future__ import annotations

import itertools

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.kernels.compile import kernel

EMPTY = -1
BATCH = 64


@kernel
def hash_bytes(data, start, end):
    """FNV-1a, and a last step that spreads it over the low bits, which choose the slot."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value ^ (value >> np.uint64(32))


@kernel
def _is_string(table, known, data, start, end):
    """Whether the string with this id is `data[start:end]`."""
    _, arena, offsets = table
    begin = offsets[known]
    if offsets[known + 1] - begin != end - start:
        return False
    for i in range(end - start):
        if arena[begin + i] != data[start + i]:
            return False
    return True


@kernel
def find_slot(table, data, start, end):
    """The slot that holds this string, or the empty slot where it belongs."""
    slots = table[0]
    mask = len(slots) - 1
    slot = np.int64(hash_bytes(data, start, end) & np.uint64(mask))
    while slots[slot] != EMPTY and not _is_string(table, slots[slot], data, start, end):
        slot = (slot + 1) & mask
    return slot


@kernel
def _guess_many(table, data, bounds, ids):
    """Ids of the strings that are found in their first slot; -1 for all others.

    A look-up in a large table mostly waits for memory. Each step is done for a whole batch of strings before the next
    step, so that the processor waits for many of them at once.
    """
    slots = table[0]
    mask = np.uint64(len(slots) - 1)
    for first in range(0, len(ids), BATCH):
        batch = range(first, min(first + BATCH, len(ids)))
        for i in batch:
            ids[i] = slots[np.int64(hash_bytes(data, bounds[i], bounds[i + 1]) & mask)]
        for i in batch:
            if ids[i] != EMPTY and not _is_string(table, ids[i], data, bounds[i], bounds[i + 1]):
                ids[i] = EMPTY


@kernel
def _add_many(table, count, data, bounds, ids):
    """Ids of the strings; new ones are added. Returns the number of strings. There must be room for all."""
    slots, arena, offsets = table
    _guess_many(table, data, bounds, ids)
    for i in range(len(ids)):
        if ids[i] == EMPTY:
            start, end = bounds[i], bounds[i + 1]
            slot = find_slot(table, data, start, end)
            if slots[slot] == EMPTY:
                slots[slot] = count
                offsets[count + 1] = offsets[count] + end - start
                arena[offsets[count] : offsets[count + 1]] = data[start:end]
                count += 1
            ids[i] = slots[slot]
    return count


@kernel
def _find_many(table, data, bounds, ids):
    _guess_many(table, data, bounds, ids)
    for i in range(len(ids)):
        if ids[i] == EMPTY:
            ids[i] = table[0][find_slot(table, data, bounds[i], bounds[i + 1])]


@kernel
def _place_all(table, count):
    """Enter all strings into slots that are empty."""
    slots, arena, offsets = table
    for known in range(count):
        slots[find_slot(table, arena, offsets[known], offsets[known + 1])] = known


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
            self.slots = np.full(1 << (2 * wanted - 1).bit_length(), EMPTY, np.int32)
            _place_all(self.arrays, self.count)

    def add(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings `data[bounds[i]:bounds[i + 1]]`; adds the new ones."""
        ids = np.empty(len(bounds) - 1, np.int32)
        # In small steps, so that the table grows with distinct strings and not with every occurrence.
        step = max(4096, self.count // 2)
        for first in range(0, len(ids), step):
            part = bounds[first : first + step + 1]
            self._make_room(len(part) - 1, int(part[-1] - part[0]))
            self.count = _add_many(self.arrays, self.count, data, part, ids[first : first + step])
        return ids

    def find(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings; -1 for those that are not in the table."""
        ids = np.empty(len(bounds) - 1, np.int32)
        _find_many(self.arrays, data, bounds, ids)
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


def _grown(array: np.ndarray, wanted: int) -> np.ndarray:
    """The array itself if it is large enough, else a copy at least twice as large."""
    if wanted <= len(array):
        return array
    larger = np.zeros(max(wanted, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
