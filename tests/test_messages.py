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


@pytest.mark.slow
def test_the_first_compilation_says_what_it_does(tmp_path):
    script = f"""
import sys, numpy as np
sys.path.insert(0, {str(tmp_path)!r})
from twice import twice, thrice
assert (twice(np.ones(2)), thrice(np.ones(2))) == (4, 6)
"""
    kernels = "from shortlist.kernels.compile import kernel\n"
    for name, factor in (("twice", 2), ("thrice", 3)):
        kernels += f"@kernel\ndef {name}(x):\n    return {factor} * x.sum()\n"
    (tmp_path / "twice.py").write_text(kernels)
    assert stderr_of(script).count("compiling the inner loops") == 1
    assert stderr_of(script) == ""  # from the cache
