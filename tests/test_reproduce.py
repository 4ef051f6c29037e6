"""benchmarks/reproduce: which systems stand behind the papers' tables, and what its report says of their order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import shortlist

PROGRAM = Path(__file__).parent.parent / "benchmarks" / "reproduce"


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(PROGRAM))
    import experiments
    import progress
    import report
    import sections

    yield SimpleNamespace(experiments=experiments, progress=progress, report=report, sections=sections)
    sys.path.remove(str(PROGRAM))


def test_every_row_can_be_planned(modules):
    from shortlist.cli.train import option_value
    from shortlist.compare.plan import plan

    experiments = modules.experiments
    tables = experiments.tables(experiments.Plan(n_labels=35_000))
    recipes, peers = experiments.entries(tables)
    assert len(plan(",".join(recipes), ",".join(peers), option_value)) == len(recipes) + len(peers)
    assert {"astec@published*3", "inceptionxml@published", "inceptionxml"} <= set(recipes)
    fan_outs = [name for name in recipes if name.startswith("inceptionxml+@published:n_clusters")]
    assert len(fan_outs) == 4 * 3
    rows = {table.key: table.rows for table in tables}
    assert len(rows["dimensions"]) == 11
    assert len(rows["parts"]) == 8 and "astec@published:reranker=none:block=linear" in rows["parts"].values()
    # What the papers report is compared with a row of the same name.
    for table in tables:
        assert set(table.theirs) - {"LightXML", "BERT"} - ({"Parabel"} if table.key == "modules-c" else set()) <= set(
            table.rows
        ), table.key


def test_the_page_names_every_table(modules):
    from test_published_places import rows_of

    keys = {table.key for table in modules.experiments.tables(modules.experiments.Plan(700))}
    keys |= {"data", "options", "word-order", "quantiles", "shortlists", "features"}  # MEASURED, in the program itself
    named = {name for _, cells in rows_of("experiment") for name in re.findall(r"`([a-z-]+)`", cells[2])}
    assert named == keys - {"modules-b", "modules-c"}  # "`modules-a` to `modules-d`"


def test_the_report_says_which_order_the_paper_has(modules):
    experiments, report = modules.experiments, modules.report
    theirs = {"a": {"P@1": 3.0}, "b": {"P@1": 2.0}, "c": {"P@1": 1.0}}
    table = experiments.Table("t", "A paper", "Table 9", "Title", dict.fromkeys("abcd", ""), ("P@1",), theirs)
    section = report.table_section(table, {"a": {"P@1": 9.0}, "b": {"P@1": 5.0}, "c": {"P@1": 7.0}})
    assert "2 of 3 pairs of rows are in the paper's order; not b before c." in section.finding
    assert section.rows[0] == ["a", "9.00 (3)"] and "Not measured: d." in section.text
    # A row that is not trained by `compare`, such as Parabel over learnt features.
    more = report.table_section(table, {"a": {"P@1": 9.0}, "Parabel": {"P@1": 4.0}})
    assert ["Parabel", "4.00"] in more.rows
    assert "| a | 9.00 (3) |" in section.to_markdown() and "**Here:** By P@1" in section.to_markdown()


def test_a_shorter_run_has_every_row(modules):
    experiments, progress = modules.experiments, modules.progress
    whole = experiments.Plan(700, 10_000)
    short = experiments.Plan(700, 2000, n_epochs=4, n_orders=3, n_repetitions=2)
    for full, cut in zip(experiments.tables(whole), experiments.tables(short), strict=True):
        if full.key != "dimensions":
            assert list(full.rows) == list(cut.rows)
    rows = next(table.rows for table in experiments.tables(short) if table.key == "systems")
    assert rows["MACH"] == "mach@published:n_repetitions=2:n_epochs=4"
    # Astec's learning rate is halved after half of the surrogate epochs, as with all of them.
    assert "n_surrogate_epochs=4:surrogate_decay_epoch=2:" in rows["Astec"]
    assert rows["Slice"] == "slice@published"  # it has no epochs
    seconds = [
        sum(progress.guess_seconds(name, plan.n_texts, plan.n_labels) for kind in found for name in kind)
        for plan in (whole, short)
        for found in [experiments.entries(experiments.tables(plan))]
    ]
    assert seconds[0] > 5 * seconds[1]


def test_long_texts_stand_beside_the_full_text_table(modules):
    experiments = modules.experiments
    systems = [experiments.tables(experiments.Plan(700, words_per_text=n))[0] for n in (9.0, 180.0)]
    assert [table.place for table in systems] == ["Table 1; DeepXML, Tables 1 and 11", "Table 10 (full texts)"]
    assert [table.theirs["Astec"]["P@1"] for table in systems] == [39.97, 46.37]


def test_tables_say_what_came_out(modules):
    findings = modules.sections.FINDINGS
    row = {"P@1": 40.0, "P@5": 30.0, "PSP@1": 20.0, "training s": 10.0, "ms": 2.0, "GFLOPs": 0.3}
    better = {**row, "P@1": 41.0, "training s": 5.0, "GFLOPs": 0.05}
    assert "InceptionXML+ needs 0.50" in findings["cost"]({"InceptionXML": row, "InceptionXML+": better})
    sizes = {f"{n} labels per cluster, {f}": row for n in (82, 41, 20, 10) for f in ("not detached", "LightXML")}
    sizes |= {f"{n} labels per cluster, InceptionXML+": better if n < 40 else row for n in (82, 41, 20, 10)}
    assert "detaching helps at 2 of 4 sizes" in findings["fan-out"](sizes)
    assert "P@1 by -1.00" in findings["attention"]({"InceptionXML": row, "without attention": better})
    assert "1 other orders" in findings["dimensions"]({"as given": row, "order 1": better})
    assert "XML-CNN gains +1.00 points, trains 2.0 times" in findings["recast"](
        {"XML-CNN": row, "DeepXML + XML-CNN": better}
    )
    assert "all labels: 41.00" in findings["negatives"]({"20 uniform negatives": row, "all labels": better})
    assert "R not bounded +1.00" in findings["parts"]({"Astec": row, "R not bounded": better})
    assert {table.key for table in modules.experiments.tables(modules.experiments.Plan(700))} >= findings.keys()
    for find in findings.values():
        assert find({}) == ""


@pytest.mark.slow
def test_a_quick_run_writes_the_report_and_resumes(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 300), ("test", 60)):
        lines = [{"text": f"w{i} x{i} y{rng.integers(9)}", "labels": [f"l{i}"]} for i in rng.integers(12, size=n)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--out", str(tmp_path / "paper"), "--quick"]
    command += ["--only", "attention", "word-order", "data", "options", "features", "--threads", "1"]
    for _ in range(2):
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stderr.count("already stored") == 2
    assert "2 systems; about" in run.stdout
    scores = json.loads(run.stdout.splitlines()[-1])["scores"]
    assert scores["inceptionxml@published:n_epochs=2"]["P@1"] >= 0
    page = (tmp_path / "paper" / "report.md").read_text()
    assert "## What came out" in page and "Figure 4" in page and "the paper: AmazonTitles-3M" in page
    assert "words permuted" not in page  # InceptionXML+ was not trained
    assert "An encoder trained on given dense features" in page and "| Slice | " in page
    kept = json.loads((tmp_path / "paper" / "other-rows.json").read_text())
    assert len(kept) == 3
    html = (tmp_path / "paper" / "report.html").read_text()
    assert "<table" in html and "<svg" in html
    model = shortlist.load(next((tmp_path / "paper" / "systems" / "models").iterdir()))
    assert model.recipe == "inceptionxml@published"


def test_features_leave_out_what_reads_words(modules):
    experiments = modules.experiments
    rows = {t.key: t.rows for t in experiments.tables(experiments.Plan(700, input_kind="sparse"))}
    assert {"Astec", "MACH", "Slice", "DiSMEC", "our Astec"} <= rows["systems"].keys()
    assert not {"InceptionXML", "XML-CNN", "AttentionXML"} & rows["systems"].keys()
    assert not rows["attention"] and len(rows["parts"]) == 8
    assert list(rows["modules-a"]) == ["Astec", "MLP"]
    (dense,) = (t for t in experiments.tables(experiments.Plan(700, input_kind="dense")) if t.key == "systems")
    assert "Astec" not in dense.rows and "Slice" in dense.rows


@pytest.mark.slow
def test_bags_of_words_of_the_repository_are_reproduced(tmp_path):
    """AmazonTitles-670K and others are distributed as such rows: without texts."""
    rng = np.random.default_rng(0)
    for part, n in (("trn", 300), ("tst", 60)):
        labels = rng.integers(12, size=n)
        (tmp_path / f"{part}_X_Y.txt").write_text(f"{n} 12\n" + "".join(f"{i}:1\n" for i in labels))
        rows = (f"{i}:0.5 {i + 12}:0.7 {24 + rng.integers(9)}:0.2\n" for i in labels)
        (tmp_path / f"{part}_X_Xf.txt").write_text(f"{n} 33\n" + "".join(rows))
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--out", str(tmp_path / "paper"), "--quick"]
    command += [
        "--texts",
        "200",
        "--only",
        "attention",
        "shortlists",
        "modules-c",
        "data",
        "features",
        "--threads",
        "1",
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "left out: attention: none of their systems learns from sparse features" in run.stdout
    assert (tmp_path / "paper" / "cut-200" / "train.txt").exists()
    page = (tmp_path / "paper" / "report.md").read_text()
    assert "| here | 33 | 12 | 200 |" in page and "| Slice | " in page


@pytest.mark.slow
def test_theorem_1_holds_for_astec_as_published(modules):
    """Bound (a) needs a residual block without a bias."""
    pytest.importorskip("faiss")
    import measures

    from test_recipes_deepxml import topics

    train = topics(300, 1)
    given = {"embedding_dim": 32, "n_surrogate_epochs": 3, "n_epochs": 5, "n_candidates": 10, "threads": 1}
    model = shortlist.train(train, recipe="astec@published", reranker="none", **given)
    found = measures.theorem_1(model, train)
    assert (found["(a) %"], found["(b) %"]) == (100, 100)
    assert found["lambda"] == pytest.approx(1, abs=0.02)
    assert measures.shortlist_overlap(model, train, topics(100, 2)) > 50
