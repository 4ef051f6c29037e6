"""Messages: shown by default in a script, silenced by one call, and left to programs that set up logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRAIN = "shortlist.train([('red shoes', ['shoes']), ('blue hat', ['hats'])] * 6)"


def stderr_of(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("", 1),
        ("shortlist.set_verbosity('warning')", 0),
        ("shortlist.set_verbosity('silent')", 0),
        ("import logging; logging.basicConfig(level='INFO')", 1),
        ("import logging; logging.basicConfig()", 0),
        ("shortlist.set_verbosity('info'); import logging; logging.basicConfig()", 1),
    ],
)
def test_a_script(before, lines):
    shown = stderr_of(f"import shortlist\n{before}\n{TRAIN}")
    assert shown.count("training centroid: 12 texts, 2 labels") == lines, shown
