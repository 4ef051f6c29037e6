"""The string table against a dictionary."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.evidence import hash_bags
from shortlist.kernels.strings import EMPTY, StringTable, pack, unpack

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Few characters and all lengths around eight bytes: many strings that are nearly equal.
alike = st.text("ab\0", max_size=18)


def slow_hash(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value ^ value >> 32


class Oracle:
    def __init__(self):
        self.ids = {}

    def add(self, items):
        return [self.ids.setdefault(item, len(self.ids)) for item in items]

    def find(self, items):
        return [self.ids.get(item, -1) for item in items]


@given(st.lists(st.lists(strings | alike, max_size=40), max_size=5), st.lists(strings | alike, max_size=20))
def test_table_against_a_dictionary(batches, unknown):
    table, oracle = StringTable(), Oracle()
    for batch in batches:
        assert table.find_strings(batch).tolist() == oracle.find(batch)
        assert table.add_strings(batch).tolist() == oracle.add(batch)
    assert table.strings() == list(oracle.ids)
    assert len(table) == len(oracle.ids)
    assert table.find_strings(unknown).tolist() == oracle.find(unknown)
    assert table.find_strings(list(oracle.ids)).tolist() == list(range(len(table)))


@given(st.lists(strings | alike, max_size=40), st.lists(strings | alike, max_size=20))
def test_table_of_distinct_strings(items, more):
    table, oracle = StringTable.of_distinct(*pack(items)), Oracle()
    if len(set(items)) < len(items):
        assert table is None
        return
    oracle.add(items)
    assert table.find_strings(items + more).tolist() == oracle.find(items + more)
    assert table.add_strings(more).tolist() == oracle.add(more)
    assert table.strings() == list(oracle.ids)


@pytest.mark.slow
def test_growth_through_many_strings():
    rng = np.random.default_rng(0)
    table, oracle = StringTable(), Oracle()
    for size in (1, 100, 5000, 30_000, 100_000):
        batch = [f"{number:x}" * (1 + number % 3) for number in rng.integers(0, size, size).tolist()]
        assert table.add_strings(batch).tolist() == oracle.add(batch)
    assert table.strings() == list(oracle.ids)
    # The table grows with distinct strings, not with every occurrence.
    before = len(table.arena), len(table.slots)
    for _ in range(20):
        table.add_strings(batch)
    assert len(table.arena) <= 2 * before[0]
    assert len(table.slots) <= 2 * before[1]


def test_empty_and_very_long_strings():
    long = "ü" * 1_000_000
    table = StringTable()
    assert table.add_strings(["", long, long + "x", "", long]).tolist() == [0, 1, 2, 0, 1]
    assert table.strings() == ["", long, long + "x"]
    assert StringTable().strings() == []
    assert StringTable().find_strings(["a", ""]).tolist() == [-1, -1]
    assert StringTable().add_strings([]).tolist() == []


def test_strings_between_other_bytes():
    data, bounds = pack(["skip", "one", "two", "skip", "one"])
    table = StringTable()
    assert table.add(data, bounds[1:4]).tolist() == [0, 1]
    assert table.find(data, bounds[4:]).tolist() == [0]
    assert table.strings() == ["one", "two"]


@given(strings | alike)
def test_a_string_is_in_the_slot_of_its_hash(string):
    table = StringTable()
    table.add_strings([string])
    assert np.flatnonzero(table.slots != EMPTY).tolist() == [slow_hash(string.encode()) % len(table.slots)]


def test_strings_whose_slots_collide():
    table = StringTable()
    # All of these have the same slot in a new table, so that look-ups must go on to the next.
    names = (f"string {number}" for number in itertools.count())
    found = list(itertools.islice((name for name in names if slow_hash(name.encode()) % len(table.slots) == 7), 40))
    assert table.add_strings(found[:30]).tolist() == list(range(30))
    assert table.find_strings(found).tolist() == [*range(30), *[-1] * 10]
    assert table.add_strings([*found[:30][::-1], *found[30:]]).tolist() == [*range(30)[::-1], *range(30, 40)]


def test_hash_sees_every_byte():
    base = b"0123456789abcdef0123"
    words = [bytes(size) for size in range(1, len(base))]
    for at, bit in itertools.product(range(len(base)), range(8)):
        words.append(base[:at] + bytes([base[at] ^ 1 << bit]) + base[at + 1 :])
    hashes = np.zeros(len(words), np.uint64)
    ends = np.cumsum([len(word) for word in words])
    hash_bags(np.frombuffer(b"".join(words), np.uint8), ends, np.ones(len(words), np.int64), hashes)
    assert len(set(hashes.tolist())) == len(words)


@given(st.lists(strings, max_size=20))
def test_pack_and_unpack(items):
    data, bounds = pack(items)
    assert data.dtype == np.uint8
    assert unpack(data, bounds) == items
    assert unpack(data, bounds[1:]) == items[1:] if items else True
