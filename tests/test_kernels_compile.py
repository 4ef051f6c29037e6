"""Compiled kernels and their cache on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import shortlist
from shortlist.kernels.compile import private_cache

STEPS = """
import hashlib
import numpy as np
from shortlist.arrays import Ragged
from shortlist.kernels.threads import use_threads
from shortlist.training import label_rows

rng = np.random.default_rng(0)
rows = label_rows.LabelRows.start(40, 543, prior=0.1)
features = rng.standard_normal((9, 543), dtype=np.float32)
positives = Ragged.from_lists([[i] for i in range(9)])
clusters, starts = np.tile(np.arange(8, dtype=np.int32), (9, 1)), np.arange(0, 41, 5)
digest = hashlib.sha256()
for _ in range(3):
    for candidates in (None, label_rows.Clusters(clusters, starts)):
        with use_threads(1):
            loss, gradient = rows.step(features, candidates, positives, 0.01)
        digest.update(np.float64(loss).tobytes() + gradient.tobytes())
    digest.update(rows.weights.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_kernels_from_the_cache_compute_the_same_bits(tmp_path):
    pytest.importorskip("torch")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", STEPS]
    compiled, cached = (subprocess.check_output(command, env=environment, text=True) for _ in range(2))
    assert compiled == cached


ADD = """
import sys
sys.path.insert(0, sys.argv[1])
from adding import add
print("ready", flush=True)
add(1, 2) if sys.argv[2] == "int" else add(1.0, 2.0)
print(sum(add.compiled.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_processes_take_turns_at_the_cache_of_a_kernel(tmp_path, put):
    fcntl = pytest.importorskip("fcntl")
    put("adding.py", "from shortlist.kernels.compile import kernel\n\n\n@kernel\ndef add(a, b):\n    return a + b\n")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def start(kind):
        command = [sys.executable, "-c", ADD, str(tmp_path), kind]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with start("int") as one:
        assert one.stdout.read() == "ready\n0\n"
    (lock,) = (tmp_path / "cache").rglob("*.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with start("int") as one, start("float") as other:
            assert one.stdout.readline() == other.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(1)
            assert one.poll() is None
            fcntl.flock(held, fcntl.LOCK_UN)
            assert one.stdout.read() == "1\n"  # from the cache
            assert other.stdout.read() == "0\n"
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 2


MIXED = "10451216379200822465"
KERNEL = """
import numba, numpy as np
from shortlist.kernels import random
from shortlist.kernels.compile import private_cache
random.mix(np.uint64(1))
assert private_cache.cache_info().currsize == 1  # numba found no place of its own
assert numba.config.CACHE_DIR == ""
print(random.mix(np.uint64(1)), random.mix.compiled.stats.cache_hits[random.mix.compiled.signatures[0]])
"""


@pytest.fixture
def run_without_numba_cache(tmp_path):
    """Runs KERNEL from an installation and with a home that cannot be written to, whoever runs the tests.

    Permissions do not stop root. A file in place of `__pycache__` does, and so does /proc in place of the home.
    """
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc")
    package, temporary = tmp_path / "installation" / "shortlist", tmp_path / "tmp"
    kernels = Path(shortlist.__file__).parent / "kernels"
    for folder in (package, temporary):
        folder.mkdir(parents=True)
    shutil.copytree(kernels, package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "__pycache__").touch()
    for path in kernels.parent.glob("*.py"):
        shutil.copy(path, package)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"PYTHONPATH": str(package.parent), "HOME": "/proc/none", "TMPDIR": str(temporary)}

    def run(before=""):
        return subprocess.check_output([sys.executable, "-c", before + KERNEL], env=environment, text=True).split()

    return run


@pytest.mark.slow
def test_where_numba_finds_no_place_the_cache_is_a_private_directory(run_without_numba_cache, tmp_path):
    first, second = run_without_numba_cache(), run_without_numba_cache()
    assert first == [MIXED, "0"]
    assert second == [first[0], "1"]  # read from the cache
    (directory,) = (tmp_path / "tmp").iterdir()
    assert list(directory.rglob("random.mix*.nbi"))


@pytest.fixture
def find_private_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return private_cache.__wrapped__


def test_the_private_directory_is_made_and_found_again(find_private_cache, tmp_path):
    directory = find_private_cache()
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert find_private_cache() == directory


@pytest.mark.parametrize("what", ["open to others", "a link", "a file"])
def test_what_others_could_have_made_is_not_used(find_private_cache, tmp_path, what):
    directory = tmp_path / f"shortlist-kernels-{os.getuid()}"
    if what == "open to others":
        directory.mkdir()
        directory.chmod(0o777)
    elif what == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.touch()
    assert find_private_cache() is None


@pytest.mark.slow
def test_without_a_temporary_directory_every_process_compiles(run_without_numba_cache):
    for _ in range(2):
        assert run_without_numba_cache("import tempfile; tempfile.tempdir = '/proc/none'") == [MIXED, "0"]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_truncated_cache_is_compiled_again(tmp_path, put, suffix):
    put("adding.py", "from shortlist.kernels.compile import kernel\n\n@kernel\ndef add(a, b):\n    return a + b\n")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", ADD, str(tmp_path), "int"]

    def hits() -> str:
        return subprocess.check_output(command, env=environment, text=True).split()[-1]

    hits()
    for path in (tmp_path / "cache").rglob(f"*{suffix}"):
        path.write_bytes(path.read_bytes()[:20])
    assert [hits(), hits()] == ["0", "1"]
