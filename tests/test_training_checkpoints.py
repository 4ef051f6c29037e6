"""Checkpoints that survive kills and damage, and memory that is planned before the work."""

from __future__ import annotations

import os

import numpy as np
import pytest

import shortlist
from shortlist.errors import DataError, OptionError
from shortlist.training import memory
from shortlist.training.checkpoints import Checkpoints, lock_checkpoints
from tiny_models import colours

ARRAYS = {"a.b": np.arange(6, dtype=np.float32).reshape(2, 3), "scalar": np.asarray(3, np.int64), "empty": np.zeros(0)}


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class TestCheckpoints:
    def test_arrays_and_facts_come_back(self, tmp_path):
        saved = Checkpoints(tmp_path / "c", {"learning_rate": 0.1, "seed": 1})
        assert saved.load() is None
        saved.save(ARRAYS, {"epoch": 3, "sums": {"losses": 0.1 + 0.2}})
        saved.save_best(ARRAYS)
        saved.write_metrics([{"epoch": 1}, {"epoch": 2}])
        again = Checkpoints(tmp_path / "c", {"learning_rate": 0.1, "seed": 1})
        arrays, facts = again.load()
        assert (facts["epoch"], facts["sums"]["losses"]) == (3, 0.1 + 0.2)
        for name, array in ARRAYS.items():
            for found in (arrays[name], again.load_best()[name]):
                assert found.dtype == array.dtype
                assert np.array_equal(found, array)
        assert (tmp_path / "c" / "metrics.jsonl").read_text() == '{"epoch":1}\n{"epoch":2}\n'

    def test_the_latest_replaces_the_previous(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save({"old": np.ones(1)}, {"epoch": 1})
        checkpoints.save({"new": np.ones(1)}, {"epoch": 2})
        arrays, facts = checkpoints.load()
        assert (list(arrays), facts["epoch"]) == (["new"], 2)
        assert [path.name for path in tmp_path.iterdir()] == ["state"]

    def test_a_checkpoint_of_another_training_is_refused_with_the_difference(self, tmp_path):
        Checkpoints(tmp_path, {"learning_rate": 0.1, "seed": 1}).save({}, {})
        with pytest.raises(DataError, match=r"had learning_rate = 0.1, this one has 0.2"):
            Checkpoints(tmp_path, {"learning_rate": 0.2, "seed": 1}).load()
        with pytest.raises(DataError, match=r"had bag = None, this one has True"):
            Checkpoints(tmp_path, {"learning_rate": 0.1, "seed": 1, "bag": True}).load()

    def test_an_interrupted_training_is_not_overwritten(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.refuse_to_overwrite()
        checkpoints.save({}, {})
        with pytest.raises(DataError, match="--resume"):
            checkpoints.refuse_to_overwrite()

    def test_a_half_written_checkpoint_is_ignored_and_removed(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save({}, {"epoch": 1})
        for number in range(3):
            half = tmp_path / f".state.{number}.partial"
            half.mkdir()
            (half / "facts.json").write_text('{"epoch": 2, "arrays": ["missing"], "identity": {}}')
        (tmp_path / ".metrics.jsonl.7.partial").write_text('{"epoch"')
        (tmp_path / ".state.9.old").mkdir()
        assert checkpoints.load()[1]["epoch"] == 1
        assert [path.name for path in tmp_path.iterdir()] == ["state"]

    @pytest.mark.parametrize("resume", [True, False])
    def test_a_kill_between_the_two_renames_loses_nothing(self, tmp_path, resume):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save(ARRAYS, {"epoch": 1})
        checkpoints.save_best(ARRAYS)
        (tmp_path / "state").rename(tmp_path / ".state.7.old")
        (tmp_path / "best").rename(tmp_path / ".best.7.old")
        (tmp_path / ".state.7.partial").mkdir()
        if resume:
            assert checkpoints.load()[1]["epoch"] == 1
        else:
            with pytest.raises(DataError, match="--resume"):
                checkpoints.refuse_to_overwrite()
        assert list(checkpoints.load_best()) == sorted(ARRAYS)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "state"]

    HUGE = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 10**40

    @pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"{}", HUGE.ljust(128)])
    @pytest.mark.parametrize("name", ["facts.json", "a.b.npy"])
    def test_damage_is_reported(self, tmp_path, name, damage):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save(ARRAYS, {})
        (tmp_path / "state" / name).write_bytes(damage)
        with pytest.raises(DataError, match="cannot be read"):
            checkpoints.load()

    @pytest.mark.slow
    def test_a_single_changed_bit_is_noticed(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {"seed": 1})
        checkpoints.save(ARRAYS, {"epoch": 3})
        for name in ("facts.json", "a.b.npy", "scalar.npy"):
            path = tmp_path / "state" / name
            content = path.read_bytes()
            for place in range(0, len(content), 5):
                path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
                try:
                    arrays, facts = checkpoints.load()
                except DataError as error:
                    assert "cannot be read" in str(error)
                else:  # in the padding of the header
                    assert facts["epoch"] == 3
                    assert all(np.array_equal(arrays[key], array) for key, array in ARRAYS.items())
            path.write_bytes(content)

    def test_due_after_the_given_time(self, tmp_path):
        assert not Checkpoints(tmp_path, {}, seconds_between=3600).due()
        assert Checkpoints(tmp_path, {}, seconds_between=0).due()


class TestLock:
    @pytest.mark.slow
    def test_two_trainings_cannot_use_one_folder(self, tmp_path):
        with lock_checkpoints(str(tmp_path / "c")), pytest.raises(DataError, match="another process is writing there"):
            shortlist.train(colours(40), "astec", checkpoint_dir=str(tmp_path / "c"))

    def test_an_empty_folder_is_not_left_behind(self, tmp_path):
        with lock_checkpoints(str(tmp_path / "c")):
            assert (tmp_path / "c").is_dir()
        assert list(tmp_path.iterdir()) == []
        with lock_checkpoints(""):
            pass

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").touch()
        for folder in (str(tmp_path / "file"), "a\0b"):
            with pytest.raises(DataError, match="cannot be created"), lock_checkpoints(folder):
                pass


class TestMemory:
    def test_too_little_is_refused_with_numbers(self, monkeypatch):
        monkeypatch.setattr(memory, "free_memory", lambda: 2_500_000_000)
        memory.require_memory({"label rows": 2_000_000_000, "a batch": 400_000_000}, "")
        with pytest.raises(OptionError) as caught:
            memory.require_memory({"label rows": 2_000_000_000, "a batch": 1_000_000_000, "crumbs": 1}, "Use fewer.")
        assert str(caught.value) == (
            "training needs about 3.00 GB (label rows 2.00, a batch 1.00), and 2.5 GB are free. Use fewer."
        )

    def test_trainings_at_the_same_time_share_it(self, monkeypatch):
        monkeypatch.setattr(memory, "free_memory", lambda: 2_500_000_000)
        monkeypatch.setattr(memory, "n_parallel", 2)
        with pytest.raises(OptionError, match=r"2 times at once \(parallel\), and 2\.5 GB are free"):
            memory.require_memory({"label rows": 2_000_000_000}, "")

    def test_free_memory_is_plausible(self):
        assert 1e6 < memory.free_memory() < 1e15
