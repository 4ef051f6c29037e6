"""The software bill of materials and the requirements with hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.slow
def test_bill_of_materials():
    bill = json.loads(subprocess.check_output([sys.executable, ROOT / "release" / "supply.py", "sbom"]))
    assert bill["bomFormat"] == "CycloneDX"
    found = {normal(component["name"]): component for component in bill["components"]}
    assert found["numpy"]["purl"] == f"pkg:pypi/numpy@{found['numpy']['version']}"
    assert "shortlist" not in found
    assert len({component["bom-ref"] for component in bill["components"]}) == len(bill["components"])


def test_requirements_with_hashes_are_those_of_the_server():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    exact = dict(line.partition(";")[0].split("==") for line in lines if "==" in line)
    exact = {normal(name): version for name, version in exact.items()}
    hashed = {}
    for line in (ROOT / "constraints-hashed.txt").read_text().splitlines()[1:]:
        name, version = re.fullmatch(r"([\w-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()
        hashed[normal(name)] = version
    assert hashed.items() <= exact.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert {normal(re.match(r"[\w-]+", one)[0]) for one in wanted} <= hashed.keys()


def test_findings_have_tests():
    """The page on reliability names a test for each finding; one without a file is in that of the one before it."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) >= 23
    for row in rows:
        file, names = "", re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", row)
        assert names, row
        for other, name in names:
            file = other or file
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


def test_the_types_are_checked_for_the_oldest_python():
    """So mypy refuses what newer versions of the standard library added."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={project['tool']['mypy']['python_version']}"
