"""Reading compressed files: detection by content, damage. Writing files: completely or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pickle
import random
import resource
import shutil
import sys
import threading
import tracemalloc
import types

import numpy as np
import pytest
import zstandard
from safetensors.numpy import load_file

from shortlist import files
from shortlist.background import in_background
from shortlist.data.records import BadRow
from shortlist.errors import DataError, MissingExtraError
from shortlist.files import write_atomically, write_folder_atomically, write_safetensors
from shortlist.streams import BLOCK, DamagedFileError, file_size, read_blocks, read_whole

NOISE = random.Random(0).randbytes(300_000)  # incompressible, so that truncation and damage hit the intended place
CONTENT = b"".join(b"line %d %s\n" % (i, NOISE[3 * i : 3 * i + 40].hex().encode()) for i in range(50_000))


def content_of(path):
    return b"".join(read_blocks(path))


def readable_part(path):
    """The content before the error, and the error."""
    parts = []
    with pytest.raises(DamagedFileError) as caught:
        for block in read_blocks(path):
            parts.append(block)  # noqa: PERF402 - the error comes in the middle
    return b"".join(parts), str(caught.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("content", [b"", b"x", CONTENT], ids=["empty", "one byte", "large"])
def test_compression_is_detected_by_content(put, pack, content):
    assert content_of(put("no-suffix", pack(content))) == content


def test_blocks_stay_small_at_any_compression_ratio(put):
    zeros = bytes(40 * BLOCK)
    for pack in (gzip.compress, zstandard.compress):
        sizes = [len(block) for block in read_blocks(put("zeros", pack(zeros)))]
        assert sum(sizes) == len(zeros)
        assert max(sizes) < 2 * BLOCK


def test_several_members_and_frames(put):
    assert (
        content_of(put("a.gz", gzip.compress(b"one\n") + gzip.compress(b"") + gzip.compress(b"two\n"))) == b"one\ntwo\n"
    )
    assert content_of(put("a.zst", zstandard.compress(b"one\n") + zstandard.compress(b"two\n"))) == b"one\ntwo\n"


def test_zeros_after_gzip_are_padding(put):
    assert content_of(put("tape.gz", gzip.compress(b"one\n") + bytes(1000))) == b"one\n"
    assert (
        content_of(put("tape2.gz", gzip.compress(b"one\n") + bytes(70_000) + gzip.compress(b"two\n"))) == b"one\ntwo\n"
    )


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_garbage_after_compressed_data(put, pack):
    read, error = readable_part(put("a", pack(b"one\n") + b"this is not compressed at all"))
    assert read == b"one\n"
    assert "damaged" in error


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_content_before_a_truncation_is_read(put, pack, share):
    packed = pack(CONTENT)
    path = put("cut", packed[: int(share * len(packed))])
    read, error = readable_part(path)
    assert CONTENT.startswith(read)
    # zstd decompresses whole blocks of 128 KiB
    assert len(read) > share * len(CONTENT) - 300_000
    assert str(path) in error
    assert "truncated" in error


def test_gzip_truncated_anywhere_gives_its_beginning_and_an_error(put):
    content = bytes(3000) + b"abc" * 500
    packed = gzip.compress(content)
    longest = 0
    for size in range(2, len(packed)):
        read, _ = readable_part(put("cut.gz", packed[:size]))
        assert content.startswith(read)
        assert len(read) >= longest
        longest = len(read)
    assert longest == len(content)


def test_content_before_damage_is_read(put):
    packed = bytearray(gzip.compress(CONTENT))
    middle = len(packed) // 2
    packed[middle : middle + 100] = bytes(100)
    read, error = readable_part(put("damaged.gz", bytes(packed)))
    # Content after the damage may be wrong until zlib notices; content before it is right.
    assert read[: len(CONTENT) // 3] == CONTENT[: len(CONTENT) // 3]
    assert "damaged" in error


def test_wrong_checksum_is_reported(put):
    packed = bytearray(gzip.compress(b"one\ntwo\n"))
    packed[-6] ^= 255
    assert "damaged" in readable_part(put("sum.gz", bytes(packed)))[1]


def test_progress_counts_bytes_on_disk(put):
    packed = gzip.compress(CONTENT)
    path = put("a.gz", packed)
    counted = []
    list(read_blocks(path, counted.append))
    assert sum(counted) == len(packed) == file_size(path)


def test_files_that_cannot_be_opened(put, tmp_path):
    for path, what in (
        (tmp_path / "missing.jsonl", "no such file"),
        (tmp_path, "folder"),
        ("a\0b", "cannot be opened"),
        (put("file", b"") / "below", "cannot be opened"),
        (tmp_path / ("x" * 5000), "cannot be opened"),
    ):
        with pytest.raises(DataError, match=what) as caught:
            list(read_blocks(path))
        assert str(path) in str(caught.value)
    assert file_size(tmp_path / "missing.jsonl") is None
    assert file_size("-") is None


def test_standard_input_may_be_compressed(monkeypatch):
    for content in (CONTENT, gzip.compress(CONTENT), zstandard.compress(CONTENT)):
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
        assert content_of("-") == CONTENT


def test_zstd_without_zstandard(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "shortlist\[zstd\]"'):
        content_of(put("a.zst", zstandard.compress(b"x")))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst", "new/folder/a.txt"])
def test_write_atomically(tmp_path, name):
    path = tmp_path / name
    with write_atomically(path) as file:
        file.write(b"first\n")
    stored = path.read_bytes()
    with write_atomically(path) as file:
        file.write(b"first\n")
    assert path.read_bytes() == stored  # the same data, the same bytes
    assert content_of(path) == b"first\n"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_a_failed_write_keeps_the_old_file(tmp_path, name):
    path = tmp_path / name
    with write_atomically(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError), write_atomically(path) as file:
        file.write(b"half of the new")
        raise RuntimeError("in the middle")
    assert content_of(path) == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_paths_that_cannot_be_written(put, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    for path in (tmp_path / "folder.jsonl", put("file", b"") / "below.txt"):
        with pytest.raises(DataError, match=r"folder|cannot be written"), write_atomically(path):
            pass


def test_write_folder_atomically(tmp_path, monkeypatch):
    target = tmp_path / "model"
    with write_folder_atomically(target) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("1")
    with pytest.raises(RuntimeError), write_folder_atomically(target) as folder:
        (folder / "b").write_text("2")
        raise RuntimeError("in the middle")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert (target / "sub" / "a").read_text() == "1"
    with write_folder_atomically(target) as folder:
        (folder / "b").write_text("2")
    assert [entry.name for entry in target.iterdir()] == ["b"]
    monkeypatch.chdir(target)
    with write_folder_atomically(".") as folder:
        (folder / "c").write_text("3")
    assert [entry.name for entry in target.iterdir()] == ["c"]


def test_background_keeps_order_and_raises_errors():
    assert list(in_background(iter(range(100)))) == list(range(100))

    def failing():
        yield 1
        raise DataError("broken")

    items = in_background(failing())
    assert next(items) == 1
    with pytest.raises(DataError, match="broken"):
        next(items)


def test_background_stops_with_its_consumer():
    made = []

    def endless():
        while True:
            made.append(1)
            yield 1

    items = in_background(endless(), ahead=2)
    next(items)
    items.close()
    count = len(made)
    assert count < 10
    assert len(made) == count


def test_background_does_not_wait_for_its_thread():
    """The garbage collector may end it while the thread cannot end."""
    go_on = threading.Event()

    def waiting():
        yield 1
        go_on.wait()

    items = in_background(waiting(), ahead=2)
    next(items)
    closing = threading.Thread(target=items.close)
    closing.start()
    closing.join(10)
    is_closed = not closing.is_alive()
    go_on.set()
    assert is_closed


def test_pipes_and_devices_are_written_directly(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        with write_atomically(path) as file:
            file.write(b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "pipe"]


def test_disk_errors(tmp_path, monkeypatch):
    def fail(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with (
        pytest.raises(DataError, match=r"a\.txt: cannot be written: No space left"),
        write_atomically(tmp_path / "a.txt"),
    ):
        pass
    with (
        pytest.raises(DataError, match="cannot be written: No space left"),
        write_folder_atomically(tmp_path / "b") as new,
    ):
        (new / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=Broken()))
    with pytest.raises(DataError, match="standard input: cannot be read: Input/output error"):
        content_of("-")


def test_symbolic_links_stay_links(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with write_atomically(tmp_path / "link.txt") as file:
        file.write(b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_new_files_and_folders_have_normal_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        with write_folder_atomically(tmp_path / "model") as folder:
            write_safetensors(folder / "arrays.safetensors", {"a": np.zeros((2, 3), np.float32)})
            with write_atomically(folder / "config.json") as file:
                file.write(b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~umask
    for path in (tmp_path / "model").iterdir():
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask, path


def test_write_safetensors_replaces_a_file(tmp_path):
    path = tmp_path / "arrays.safetensors"
    for array in (np.ones(5, np.int8), np.arange(12, dtype=np.float32).reshape(3, 4).T):
        write_safetensors(path, {"a": array})
        np.testing.assert_array_equal(load_file(path)["a"], array)


def fill_folder(target, content):
    with write_folder_atomically(target) as folder:
        (folder / "content").write_text(content)


def test_a_folder_is_exchanged_at_once(tmp_path, monkeypatch):
    """With renames only, there would be a moment without a folder."""
    if not _exchange_works(tmp_path):
        pytest.skip("this system cannot exchange folders")
    fill_folder(tmp_path / "model", "old")
    monkeypatch.setattr(type(tmp_path), "rename", no_rename_of_the_old(tmp_path / "model"))
    fill_folder(tmp_path / "model", "new")
    assert (tmp_path / "model" / "content").read_text() == "new"


def _exchange_works(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    worked = files._exchange(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        (tmp_path / name).rmdir()
    return worked


def no_rename_of_the_old(folder):
    rename = type(folder).rename

    def checked(self, target):
        assert self != folder
        return rename(self, target)

    return checked


@pytest.mark.parametrize("n_renames", [0, 1, 2, 3])
def test_without_exchange_a_killed_writer_loses_nothing(tmp_path, monkeypatch, n_renames):
    """The process ends before one of its renames; the next reader finds the old folder or the new one."""
    target = tmp_path / "model [1]"
    fill_folder(target, "old")
    rename, left = type(target).rename, list(range(n_renames))

    def until_killed(self, to):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return rename(self, to)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(files, "_exchange", lambda first, second: False)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process does not tidy up
        patched.setattr(type(target), "rename", until_killed)
        fill_folder(target, "new")
    assert files.recover_folder(target) == target
    assert (target / "content").read_text() == ("new" if n_renames == 3 else "old")
    fill_folder(target, "newest")
    assert (target / "content").read_text() == "newest"


def test_a_reader_that_recovers_does_not_stop_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    target = tmp_path / "model"
    fill_folder(target, "old")
    rename = type(target).rename

    def with_reader(self, to):
        result = rename(self, to)
        if to.suffix == ".old" and not read:
            read.append(files.recover_folder(target))
        return result

    read = []
    monkeypatch.setattr(type(target), "rename", with_reader)
    fill_folder(target, "new")
    assert read == [target]
    assert (target / "content").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_leftovers_of_killed_writers_are_removed_and_those_in_use_stay(tmp_path):
    dead, in_use, new = (tmp_path / f".model.{name}.partial" for name in ("dead", "in_use", "new"))
    for folder in (dead, in_use, new):
        folder.mkdir()
    for folder in (dead, in_use):
        os.utime(folder, (0, 0))
    with files.lock_folder(in_use):
        fill_folder(tmp_path / "model", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.in_use.partial", ".model.new.partial", "model"]


def test_one_process_at_a_time_holds_a_lock(tmp_path):
    with files.lock_folder(tmp_path), pytest.raises(DataError, match="another process is writing there"):
        files.lock_folder(tmp_path).__enter__()
    with files.lock_folder(tmp_path):
        pass


def test_temporary_files_do_not_follow_links(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(files.os, "urandom", bytes)  # zeros: guessed
    for name in ("out.txt", "folder"):
        (tmp_path / f".{name}.00000000.partial").symlink_to(victim)
    with pytest.raises(DataError, match="cannot be written: File exists"), write_atomically(tmp_path / "out.txt"):
        pass
    with pytest.raises(DataError, match="cannot be written: File exists"):
        fill_folder(tmp_path / "folder", "x")
    assert victim.read_text() == "precious"


def test_a_full_disk_while_arrays_are_written(tmp_path):
    arrays = {"a": np.zeros(100_000, np.float32)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with (
            pytest.raises(DataError, match=r"model: cannot be written: .*too large"),
            write_folder_atomically(tmp_path / "model") as folder,
        ):
            write_safetensors(folder / "a.safetensors", arrays)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_names_with_nul(tmp_path):
    with pytest.raises(DataError, match="NUL"), write_atomically("a\0b"):
        pass
    with pytest.raises(DataError, match="NUL"), write_folder_atomically("a\0b"):
        pass


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_bomb_is_not_held_in_memory(put, pack):
    path = put("bomb.gz", pack(bytes(200 << 20)))
    tracemalloc.start()
    n_bytes = sum(len(block) for block in read_blocks(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_bytes == 200 << 20
    assert peak < 50 << 20


def test_what_must_be_read_whole_has_a_limit(put):
    path = put("names.json.gz", gzip.compress(b"x" * 3000))
    assert read_whole(path, 3000) == b"x" * 3000
    with pytest.raises(DataError, match="more than"):
        read_whole(path, 2999)


def test_errors_can_be_sent_to_other_processes():
    for error in (MissingExtraError("reading", "zstd"), DamagedFileError("a.gz", "it is cut"), BadRow("x", "y")):
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(copied) is type(error) and str(copied) == str(error)


def test_closed_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        content_of("-")
