"""Running a process within limits: afterwards, it and everything that it started must be gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comparing import is_alive
from shortlist.compare import runner
from shortlist.compare.runner import run, session_members

pytestmark = pytest.mark.slow  # starts processes

FOREVER = "import time; time.sleep(600)"
# The child leaves the process group, as the processes of an ensemble do.
WITH_CHILD = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os; os.setpgid(0, 0); " + {FOREVER!r}])
print(child.pid, flush=True)
"""


def python(code, log, **limits):
    limits = {"seconds": 60, "memory": 4e9} | limits
    return run([sys.executable, "-c", code], log, {}, **limits)


def test_exit_code_and_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    outcome = python("import sys; print('said'); sys.exit(7)", log)
    assert (outcome.end, outcome.code) == ("exit", 7)
    assert log.read_text() == "before\nsaid\n"


def test_a_crash_has_the_code_of_its_signal(tmp_path):
    assert python("import os; os.abort()", tmp_path / "log").code == -6


def test_the_time_limit_ends_children(tmp_path):
    outcome = python(WITH_CHILD + FOREVER, tmp_path / "log", seconds=0.5)
    assert outcome.end == "time"
    assert not is_alive(int((tmp_path / "log").read_text()))


def test_orphans_are_ended(tmp_path):
    outcome = python(WITH_CHILD, tmp_path / "log")
    assert (outcome.end, outcome.code) == ("exit", 0)
    assert not is_alive(int((tmp_path / "log").read_text()))


def test_the_memory_limit_includes_children(tmp_path):
    eat = "eaten = bytearray(80_000_000); "
    code = f"import subprocess, sys; {eat} subprocess.run([sys.executable, '-c', {eat + FOREVER!r}])"
    outcome = python(code, tmp_path / "log", memory=130e6)
    assert outcome.end == "memory"
    assert outcome.peak_bytes > 130e6


def test_ctrl_c_lets_a_process_save_its_work(tmp_path, monkeypatch):
    # The test itself may run in the background, where SIGINT is ignored.
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    {FOREVER}
except KeyboardInterrupt:
    print("saved", flush=True)
"""
    log = tmp_path / "log"

    def interrupt(leader):
        if "ready" in log.read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(runner, "resident_memory", interrupt)
    with pytest.raises(KeyboardInterrupt):
        python(code, log, can_stop=True)
    assert log.read_text() == "ready\nsaved\n"
    log.unlink()
    with pytest.raises(KeyboardInterrupt):
        python(code, log)
    assert log.read_text() == "ready\n"


def test_members_of_a_session_are_found_by_any_name(tmp_path):
    program = tmp_path / "a) name (with) 4 5"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"], start_new_session=True)
    try:
        members = {}
        while not members:  # until it leads its own session
            members = session_members(process.pid)
        assert list(members) == [process.pid]
        assert process.pid not in session_members(1)
    finally:
        process.kill()
        process.wait()
