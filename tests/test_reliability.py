"""The campaigns of benchmarks/reliability in short: faults, kills, hostile inputs, load, and many at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent.parent / "benchmarks" / "reliability"
SECONDS = 600  # time limit; no test passes by being fast


def run(program, *options):
    """The last line of a program, which fails if it finds anything."""
    command = [sys.executable, str(PROGRAMS / program), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_crashes():
    assert run("crash.py", "--points", 60) | {"seconds": 0} == {
        "benchmark": "reliability/crash", "points": 60, "losses": 0, "seconds": 0
    }  # fmt: skip


def test_kills():
    found = run("kill.py", "--kills", 4, "--jobs", "predict,update,slice")
    assert found["kills"] >= 4 and found["different"] == 0


def test_hostile_inputs(tmp_path):
    found = run("fuzz.py", "--inputs", 20_000, "--save", tmp_path)
    assert found["inputs"] >= 20_000 and found["failures"] == 0


def test_concurrency():
    found = run("concurrency.py", "--seconds", 0.5)
    assert found["done"] > 9 and found["wrong"] == 0


def test_load():
    found = run("load.py", "--minutes", 0.05, "--connections", 2)
    assert len(found["results"]) == 3 and found["lost"] == 0
