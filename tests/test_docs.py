"""The documentation: code blocks of the teaching pages run, and the site builds without a warning."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shortlist.cli import shortlist as command

ROOT = Path(__file__).parents[1]
PAGES = ["index", "install", "tutorial", "example-shop", "example-library", "example-medical", "faq", "glossary"]
BLOCK = re.compile(r"^```(python|bash)(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
NOT_RUN = "Not run by the tests: "  # the title of a block that cannot run, followed by the reason


def blocks_of(page: str) -> list[tuple[str, str, int]]:
    """Language, code and line number of each block to run."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    found = []
    for match in BLOCK.finditer(text):
        language, title, code = match.groups()
        if NOT_RUN not in title:
            found.append((language, code, text.count("\n", 0, match.start()) + 2))
    return found


def run_bash(code: str, where: str) -> None:
    """Run `shortlist` commands in this process, which saves their start."""
    for line in code.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "shortlist", f"{where}: only shortlist commands can run; give the block a title with a reason"
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, f"{where}: {line}\n{result.output}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = blocks_of(page)
    assert blocks
    for language, code, line in blocks:
        where = f"docs/{page}.md"
        if language == "bash":
            run_bash(code, f"{where}, line {line}")
        else:
            exec(compile("\n" * (line - 1) + code, where, "exec"), names)


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks_of("tutorial")[0][1], {})  # writes pairs.jsonl
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["again"].predict("red boots new", min_score=0)[0].label in ("red", "shoes")


def test_links_of_the_readme_lead_somewhere():
    for link in re.findall(r"\]\(([^)#:]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / link).exists(), link


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] for cell in cells)  # outputs of somebody's machine are not committed
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {number}", "exec"), names)


def test_a_wrong_block_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="nowhere"):
        run_bash("shortlist data describe nowhere.jsonl\n", "here")
    with pytest.raises(AssertionError, match="reason"):
        run_bash("make demo\n", "here")


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs")
    arguments = ["build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api.html").read_text()
    assert "choose_threshold" in reference
    assert "<strong><code>label_separator</code></strong>" in reference  # arguments are a list
    assert '<span class="gp">&gt;&gt;&gt; </span>' in reference and "<blockquote>" not in reference  # examples are code
