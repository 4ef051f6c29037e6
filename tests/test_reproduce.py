"""benchmarks/reproduce: which systems stand behind the papers' tables, and what its report says of their order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shortlist

PROGRAM = Path(__file__).parent.parent / "benchmarks" / "reproduce"


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(PROGRAM))
    import experiments
    import report

    yield experiments, report
    sys.path.remove(str(PROGRAM))


def test_every_row_can_be_planned(modules):
    from shortlist.cli.train import option_value
    from shortlist.compare.plan import plan

    experiments, _ = modules
    tables = experiments.tables(experiments.Plan(n_labels=35_000))
    recipes, peers = experiments.entries(tables)
    assert len(plan(",".join(recipes), ",".join(peers), option_value)) == len(recipes) + len(peers)
    assert {"astec@published*3", "inceptionxml@published", "inceptionxml"} <= set(recipes)
    fan_outs = [name for name in recipes if name.startswith("inceptionxml+@published:n_clusters")]
    assert len(fan_outs) == 4 * 3
    rows = {table.key: table.rows for table in tables}
    assert len(rows["dimensions"]) == 11
    # What the papers report is compared with a row of the same name.
    for table in tables:
        assert set(table.theirs) - {"LightXML", "BERT", "Parabel"} <= set(table.rows), table.key


def test_the_report_says_which_order_the_paper_has(modules):
    experiments, report = modules
    theirs = {"a": {"P@1": 3.0}, "b": {"P@1": 2.0}, "c": {"P@1": 1.0}}
    table = experiments.Table("t", "A paper", "Table 9", "Title", dict.fromkeys("abcd", ""), ("P@1",), theirs)
    section = report.table_section(table, {"a": {"P@1": 9.0}, "b": {"P@1": 5.0}, "c": {"P@1": 7.0}})
    assert "2 of 3 pairs of rows are in the paper's order; not b before c." in section.text
    assert section.rows[0] == ["a", "9.00 (3)"] and "Not measured: d." in section.text
    assert "| a | 9.00 (3) |" in section.to_markdown()


@pytest.mark.slow
def test_a_quick_run_writes_the_report_and_resumes(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 300), ("test", 60)):
        lines = [{"text": f"w{i} x{i} y{rng.integers(9)}", "labels": [f"l{i}"]} for i in rng.integers(12, size=n)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--out", str(tmp_path / "paper"), "--quick"]
    command += ["--only", "attention", "word-order", "data", "options", "--threads", "1"]
    for _ in range(2):
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stderr.count("already stored") == 2
    scores = json.loads(run.stdout.splitlines()[-1])["scores"]
    assert scores["inceptionxml@published:n_epochs=2"]["P@1"] >= 0
    page = (tmp_path / "paper" / "report.md").read_text()
    assert "Figure 4" in page and "words permuted" not in page  # InceptionXML+ was not trained
    assert "<table" in (tmp_path / "paper" / "report.html").read_text()
    assert (
        shortlist.load(next((tmp_path / "paper" / "systems" / "models").iterdir())).recipe == "inceptionxml@published"
    )
