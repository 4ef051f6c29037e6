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


@kernel(inline="always")
def _eight_bytes(data, start):
    """Eight bytes as one number. The compiler makes this a single load, but only if the index has no sign."""
    at = np.uint64(start)
    number = np.uint64(0)
    for i in range(8):
        number |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return number


@kernel(inline="always")
def _last_bytes(data, start, end):
    """Fewer than eight bytes as one number; a single load too, unless the data ends here."""
    size = end - start
    if start + 8 <= len(data):
        return _eight_bytes(data, start) & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
    number = np.uint64(0)
    for i in range(size):
        number |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return number


@kernel
def hash_bytes(data, start, end):
    factor = np.uint64(0x9E3779B97F4A7C15)
    value = np.uint64(end - start) * factor
    at = start
    while at + 8 <= end:
        value = (value ^ _eight_bytes(data, at)) * factor
        value ^= value >> np.uint64(32)
        at += 8
    value = (value ^ _last_bytes(data, at, end)) * factor
    value = (value ^ (value >> np.uint64(32))) * factor
    return value ^ (value >> np.uint64(29))


@kernel
def _same_bytes(a, a_start, b, b_start, length):
    i = 0
    while i + 8 <= length:
        if _eight_bytes(a, a_start + i) != _eight_bytes(b, b_start + i):
            return False
        i += 8
    return _last_bytes(a, a_start + i, a_start + length) == _last_bytes(b, b_start + i, b_start + length)


@kernel
def find_slot(table, data, start, end, hashed):
    """The slot that holds this string, or the empty slot where it belongs."""
    slots, hashes, arena, offsets = table
    mask = len(slots) - 1
    slot = np.int64(hashed & np.uint64(mask))
    length = end - start
    while slots[slot] != EMPTY:
        known = slots[slot]
        if hashes[known] == hashed:
            begin = offsets[known]
            if offsets[known + 1] - begin == length and _same_bytes(arena, begin, data, start, length):
                return slot
        slot = (slot + 1) & mask
    return slot


@kernel
def add_string(table, count, data, start, end):
    """The string's id, added if it is new, and the number of strings. There must be room for it."""
    slots, hashes, arena, offsets = table
    hashed = hash_bytes(data, start, end)
    slot = find_slot(table, data, start, end, hashed)
    if slots[slot] != EMPTY:
        return slots[slot], count
    slots[slot] = count
    hashes[count] = hashed
    begin = offsets[count]
    for i in range(end - start):
        arena[begin + i] = data[start + i]
    offsets[count + 1] = begin + end - start
    return np.int32(count), count + 1


@kernel
def _guess_many(table, data, bounds, ids):
    """Ids of the strings that are found in their first slot; -1 for all others.

    A look-up in a large table mostly waits for memory. Each step is done for a whole batch of strings before the next
    step, so that the processor waits for many of them at once.
    """
    slots, hashes, arena, offsets = table
    mask = np.uint64(len(slots) - 1)
    hashed = np.empty(BATCH, np.uint64)
    for first in range(0, len(ids), BATCH):
        size = min(BATCH, len(ids) - first)
        for j in range(size):
            hashed[j] = hash_bytes(data, bounds[first + j], bounds[first + j + 1])
        for j in range(size):
            ids[first + j] = slots[np.int64(hashed[j] & mask)]
        for j in range(size):
            known = ids[first + j]
            if known != EMPTY and hashes[known] != hashed[j]:
                ids[first + j] = EMPTY
        for j in range(size):
            known = ids[first + j]
            if known != EMPTY:
                start, length = bounds[first + j], bounds[first + j + 1] - bounds[first + j]
                begin = offsets[known]
                if offsets[known + 1] - begin != length or not _same_bytes(arena, begin, data, start, length):
                    ids[first + j] = EMPTY


@kernel
def _add_many(table, count, data, bounds, ids):
    _guess_many(table, data, bounds, ids)
    for i in range(len(ids)):
        if ids[i] == EMPTY:
            ids[i], count = add_string(table, count, data, bounds[i], bounds[i + 1])
    return count


@kernel
def find_many(table, data, bounds, ids):
    """Ids of the strings; -1 for those that are not in the table."""
    _guess_many(table, data, bounds, ids)
    for i in range(len(ids)):
        if ids[i] == EMPTY:
            hashed = hash_bytes(data, bounds[i], bounds[i + 1])
            ids[i] = table[0][find_slot(table, data, bounds[i], bounds[i + 1], hashed)]


@kernel
def _place_all(slots, hashes, count):
    mask = len(slots) - 1
    for known in range(count):
        slot = np.int64(hashes[known] & np.uint64(mask))
        while slots[slot] != EMPTY:
            slot = (slot + 1) & mask
        slots[slot] = known


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
        self.hashes = np.zeros(512, np.uint64)
        self.offsets = np.zeros(513, np.int64)
        self.arena = np.zeros(8192, np.uint8)

    def __len__(self) -> int:
        return self.count

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The `table` argument of kernels; valid until the table grows."""
        return self.slots, self.hashes, self.arena, self.offsets

    def make_room(self, strings: int, size: int) -> None:
        """Make room for this many more strings with this many bytes in total."""
        wanted = self.count + strings
        if wanted > len(self.hashes):
            self.hashes = _grown(self.hashes, wanted)
            self.offsets = _grown(self.offsets, len(self.hashes) + 1)
        used = int(self.offsets[self.count])
        if used + size > len(self.arena):
            self.arena = _grown(self.arena, used + size)
        if 2 * wanted > len(self.slots):
            self.slots = np.full(1 << (2 * wanted - 1).bit_length(), EMPTY, np.int32)
            _place_all(self.slots, self.hashes, self.count)

    def add(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings `data[bounds[i]:bounds[i + 1]]`; adds the new ones."""
        ids = np.empty(len(bounds) - 1, np.int32)
        # In small steps, so that the table grows with distinct strings and not with every occurrence.
        step = max(4096, self.count // 2)
        for first in range(0, len(ids), step):
            part = bounds[first : first + step + 1]
            self.make_room(len(part) - 1, int(part[-1] - part[0]))
            self.count = _add_many(self.arrays, self.count, data, part, ids[first : first + step])
        return ids

    def find(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings; -1 for those that are not in the table."""
        ids = np.empty(len(bounds) - 1, np.int32)
        find_many(self.arrays, data, bounds, ids)
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
    larger = np.zeros(max(wanted, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
