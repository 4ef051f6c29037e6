"""Strings to numbers and back: a table that gives every distinct string the next free id.

The strings live end to end in one byte array, found by open addressing, so that a million words or labels
cost their own bytes and little more, and the compiled loops can look them up without touching Python.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EMPTY = -1


@njit(cache=True, nogil=True, inline="always")
def hash_bytes(data, start, end):
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    # The low bits choose the slot: fold the well-mixed high bits into them.
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True)
def find_slot(slots, hashes, arena, offsets, data, start, end, hashed):
    """The slot that holds this string, or the empty one where it belongs."""
    mask = len(slots) - 1
    slot = np.int64(hashed & np.uint64(mask))
    length = end - start
    while slots[slot] != EMPTY:
        known = slots[slot]
        if hashes[known] == hashed and offsets[known + 1] - offsets[known] == length:
            begin = offsets[known]
            same = True
            for i in range(length):
                if arena[begin + i] != data[start + i]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def add_string(slots, hashes, arena, offsets, count, data, start, end):
    """The string's id and the new number of strings; there must be room for it."""
    hashed = hash_bytes(data, start, end)
    slot = find_slot(slots, hashes, arena, offsets, data, start, end, hashed)
    if slots[slot] != EMPTY:
        return slots[slot], count
    slots[slot] = count
    hashes[count] = hashed
    begin = offsets[count]
    for i in range(end - start):
        arena[begin + i] = data[start + i]
    offsets[count + 1] = begin + end - start
    return np.int32(count), count + 1


@njit(cache=True, nogil=True)
def _add_many(slots, hashes, arena, offsets, count, data, bounds, ids):
    for i in range(len(bounds) - 1):
        ids[i], count = add_string(slots, hashes, arena, offsets, count, data, bounds[i], bounds[i + 1])
    return count


@njit(cache=True, nogil=True)
def _find_many(slots, hashes, arena, offsets, data, bounds, ids):
    for i in range(len(bounds) - 1):
        hashed = hash_bytes(data, bounds[i], bounds[i + 1])
        slot = find_slot(slots, hashes, arena, offsets, data, bounds[i], bounds[i + 1], hashed)
        ids[i] = slots[slot]


@njit(cache=True, nogil=True)
def _place_all(slots, hashes, count):
    mask = len(slots) - 1
    for known in range(count):
        slot = np.int64(hashes[known] & np.uint64(mask))
        while slots[slot] != EMPTY:
            slot = (slot + 1) & mask
        slots[slot] = known


class StringTable:
    """Distinct strings, numbered in the order in which they came.

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

    def make_room(self, strings: int, size: int) -> None:
        """Grow so that this many more strings with this many bytes in all can be added."""
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
        """Ids of the strings `data[bounds[i]:bounds[i + 1]]`; new ones are added."""
        ids = np.empty(len(bounds) - 1, np.int32)
        # In small steps, so that room is made for the distinct strings and not for every occurrence.
        step = max(4096, self.count // 2)
        for first in range(0, len(ids), step):
            part = bounds[first : first + step + 1]
            self.make_room(len(part) - 1, int(part[-1] - part[0]))
            self.count = _add_many(
                self.slots, self.hashes, self.arena, self.offsets, self.count, data, part, ids[first : first + step]
            )
        return ids

    def find(self, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Ids of the strings; -1 for those that are not in the table."""
        ids = np.empty(len(bounds) - 1, np.int32)
        _find_many(self.slots, self.hashes, self.arena, self.offsets, data, bounds, ids)
        return ids

    def add_strings(self, strings: list[str]) -> np.ndarray:
        return self.add(*pack(strings))

    def find_strings(self, strings: list[str]) -> np.ndarray:
        return self.find(*pack(strings))

    def strings(self) -> list[str]:
        return unpack(self.arena, self.offsets[: self.count + 1])


def pack(strings: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """All strings in one UTF-8 byte array, and the bounds of each."""
    encoded = [string.encode() for string in strings]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(item) for item in encoded], out=bounds[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


def unpack(data: np.ndarray, bounds: np.ndarray) -> list[str]:
    """The strings again."""
    whole = data[bounds[0] : bounds[-1]].tobytes()
    edges = (bounds - bounds[0]).tolist()
    return [whole[start:end].decode() for start, end in zip(edges, edges[1:], strict=False)]


def _grown(array: np.ndarray, wanted: int) -> np.ndarray:
    larger = np.zeros(max(wanted, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
