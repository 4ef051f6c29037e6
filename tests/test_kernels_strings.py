"""The string table against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.strings import StringTable, hash_bytes, pack, unpack

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Few characters and all lengths around eight bytes: many strings that are nearly equal.
alike = st.text("ab\0", max_size=18)


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


@pytest.mark.slow
def test_strings_whose_slots_collide():
    # All of these have the same slot in a new table, so that look-ups must go on to the next.
    wanted, found = None, []
    number = 0
    while len(found) < 40:
        name = f"string {number}"
        data, bounds = pack([name])
        slot = int(hash_bytes(data, bounds[0], bounds[1])) % 1024
        wanted = slot if wanted is None else wanted
        if slot == wanted:
            found.append(name)
        number += 1
    table = StringTable()
    assert table.add_strings(found[:30]).tolist() == list(range(30))
    assert table.find_strings(found).tolist() == [*range(30), *[-1] * 10]
    assert table.add_strings([*found[:30][::-1], *found[30:]]).tolist() == [*range(30)[::-1], *range(30, 40)]


def test_hash_sees_every_byte():
    base = bytearray(b"0123456789abcdef0123")
    seen = set()
    for at in range(len(base)):
        for bit in range(8):
            changed = bytearray(base)
            changed[at] ^= 1 << bit
            seen.add(int(hash_bytes(np.frombuffer(bytes(changed), np.uint8), 0, len(changed))))
    for size in range(len(base)):
        seen.add(int(hash_bytes(np.zeros(len(base), np.uint8), 0, size)))
    assert len(seen) == 8 * len(base) + len(base)


@given(st.lists(strings, max_size=20))
def test_pack_and_unpack(items):
    data, bounds = pack(items)
    assert data.dtype == np.uint8
    assert unpack(data, bounds) == items
    assert unpack(data, bounds[1:]) == items[1:] if items else True
