"""The rules of the house: imports point one way, and quick things stay quick."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shortlist

PACKAGE = Path(__file__).parent.parent / "src" / "shortlist"

# From the bottom up: a room may import from rooms on the lines above its own, and from no others.
LEVELS = [
    ["errors", "lazy", "odds", "printable"],
    ["arrays"],
    ["streams"],
    ["files", "progress", "background", "tables"],
    ["messages"],
    ["kernels"],
    ["text"],
    ["data", "labels"],
    ["evaluation"],
    ["stages"],
    ["recipes"],
    ["model"],
    ["training"],
    ["batch", "serving", "compare", "sklearn"],
    ["cluster"],
    ["report"],
    ["cli"],
    ["__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def imports_of(path: Path) -> set[str]:
    """The rooms a file imports from, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        found |= {module.split(".")[1] for module in modules if module.startswith("shortlist.")}
    return found & set(LEVEL)


def test_imports_point_one_way():
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in LEVEL, f"{room} has no place in the order of rooms yet"
        for other in imports_of(path) - {room}:
            assert LEVEL[other] < LEVEL[room], f"{path} imports from {other}, which is not below {room}"


@pytest.mark.parametrize("command", [["-c", "import shortlist"], ["-m", "shortlist", "--help"]])
def test_start_loads_nothing_heavy(command):
    run = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    heavy = {"torch", "scipy", "numpy", "pyarrow", "sklearn", "starlette", "matplotlib", "ray"}
    assert not loaded & heavy


def test_every_public_name_can_be_imported():
    import shortlist

    for name in shortlist.__all__:
        assert getattr(shortlist, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = shortlist.nothing_here


def test_nothing_is_pickled():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text and "allow_pickle=True" not in text, path


WATCHED = """
import os, sys
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
written = []

def watch(event, arguments):
    if event == "open" and arguments[2] & writing and not str(arguments[0]).startswith("/dev/"):
        written.append(arguments[0])
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate"):
        written.append((event, *arguments))

sys.addaudithook(watch)
from shortlist.cli import shortlist
shortlist(["predict", sys.argv[1], "a red shoe", "--explain"], standalone_mode=False)
assert not written, written
"""


def test_predictions_write_no_file(tmp_path):
    """They need no writable folder: no cache, no temporary files, no home (which is not there for many services)."""
    shortlist.train([("red shoe", ["shoe"]), ("red hat", ["hat"])], recipe="centroid").save(tmp_path / "model")
    environment = os.environ | {"HOME": "/nonexistent", "TMPDIR": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", WATCHED, str(tmp_path / "model")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "shoe" in done.stdout, done.stderr
