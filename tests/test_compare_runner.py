"""A process within limits: whatever it does, it and all that it started are gone afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comparing import is_alive
from shortlist.compare import runner
from shortlist.compare.runner import run, session_members

pytestmark = pytest.mark.slow  # each starts processes

FOREVER = "import time; time.sleep(600)"
# Leaves the process group, as a member of an ensemble does.
WITH_CHILD = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os; os.setpgid(0, 0); " + {FOREVER!r}])
print(child.pid, flush=True)
"""


def python(code, log, **limits):
    limits = {"seconds": 60, "memory": 4e9} | limits
    return run([sys.executable, "-c", code], log, {}, **limits)


def test_what_ends_by_itself(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    outcome = python("import sys; print('said'); sys.exit(7)", log)
    assert (outcome.end, outcome.code) == ("by itself", 7)
    assert log.read_text() == "before\nsaid\n"


def test_a_crash_is_told_by_its_signal(tmp_path):
    assert python("import os; os.abort()", tmp_path / "log").code == -6


def test_the_time_limit_ends_children_too(tmp_path):
    outcome = python(WITH_CHILD + FOREVER, tmp_path / "log", seconds=0.5)
    assert outcome.end == "time"
    assert not is_alive(int((tmp_path / "log").read_text()))


def test_what_a_process_leaves_behind_is_ended(tmp_path):
    outcome = python(WITH_CHILD, tmp_path / "log")
    assert (outcome.end, outcome.code) == ("by itself", 0)
    assert not is_alive(int((tmp_path / "log").read_text()))


def test_the_memory_limit_counts_children_too(tmp_path):
    eat = "eaten = bytearray(80_000_000); "
    code = f"import subprocess, sys; {eat} subprocess.run([sys.executable, '-c', {eat + FOREVER!r}])"
    outcome = python(code, tmp_path / "log", memory=130e6)
    assert outcome.end == "memory"
    assert outcome.peak_bytes > 130e6


def test_ctrl_c_lets_a_process_put_its_work_away(tmp_path, monkeypatch):
    code = f"""
try:
    print("ready", flush=True)
    {FOREVER}
except KeyboardInterrupt:
    print("put away", flush=True)
"""
    log = tmp_path / "log"

    def interrupt(leader):
        if "ready" in log.read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(runner, "resident_memory", interrupt)
    with pytest.raises(KeyboardInterrupt):
        python(code, log, can_stop=True)
    assert log.read_text() == "ready\nput away\n"
    log.unlink()
    with pytest.raises(KeyboardInterrupt):
        python(code, log)
    assert log.read_text() == "ready\n"


def test_members_of_a_session_are_found_whatever_they_are_called(tmp_path):
    program = tmp_path / "a) name (with) 4 5"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"], start_new_session=True)
    try:
        members = {}
        while not members:  # it is a copy of us for a moment
            members = session_members(process.pid)
        assert list(members) == [process.pid]
        assert process.pid not in session_members(1)
    finally:
        process.kill()
        process.wait()
