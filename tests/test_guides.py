"""The guides: their code runs, on files with the names that it uses."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import shortlist
from serving import InProcess
from shortlist.cli import shortlist as command
from test_docs import NOT_RUN, PAGES, ROOT, blocks_of

GUIDES = ["labels", "living-labels", "metrics", "predicting", "recipes", "reports", "serving", "word-vectors"]
NAMES = {
    "J45": "Asthma",
    "J45.0": "Allergic asthma",
    "J20": "Acute bronchitis",
    "J20.0": "Bronchitis",
    "R07.9": "Chest pain, unspecified",
    "I21": "Heart attack",
}
WORDS = {
    "J45": ["asthma", "wheezing"],
    "J45.0": ["asthma with cough", "hay fever asthma"],
    "J20": ["acute cough", "cough with fever"],
    "J20.0": ["bronchitis", "chesty cough"],
    "R07.9": ["chest pain", "tight chest"],
    "I21": ["heart attack", "infarction"],
}


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guides")
    draw = random.Random(1)
    rows = []
    for i in range(160):
        label = draw.choice(list(NAMES))
        text = f"{draw.choice(WORDS[label])} {draw.choice(['mild', 'severe', 'chronic', 'new'])} {i % 40}"
        rows.append({"text": text, "labels": [label]})
    write_lines(folder / "pairs.jsonl", rows)
    (folder / "label_names.json").write_text(json.dumps(NAMES))
    for name, part in {"new": rows[:9], "old": rows[9:30], "validation": rows[:60], "feedback": rows[:4]}.items():
        write_lines(folder / f"{name}.jsonl", part)
    parts = shortlist.split(shortlist.read(folder / "pairs.jsonl"), test=0.3)
    (folder / "parts").mkdir()
    for part in ("train", "test"):
        getattr(parts, part).write(folder / f"{part}.jsonl")
        getattr(parts, part).write(folder / "parts" / f"{part}.jsonl")
    products = [{"sku": f"A{i}", "text": row["text"], "title": row["text"]} for i, row in enumerate(rows[:20])]
    write_lines(folder / "in.jsonl", products)
    (folder / "in.jsonl.gz").write_bytes(gzip.compress((folder / "in.jsonl").read_bytes()))
    (folder / "in.csv").write_text("sku,title\n" + "".join(f"{row['sku']},{row['text']}\n" for row in products))
    (folder / "broader.tsv").write_text("child\tparent\nJ45.0\tJ45\nJ20.0\tJ20\n")
    (folder / "names.tsv").write_text("J45.9\tAsthma, unspecified\n")
    (folder / "vocabulary.ttl").write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n@prefix : <http://example.org/> .\n"
        ':J45.0 skos:broader :J45 ; skos:notation "J45.0" .\n:J45 skos:notation "J45" .\n'
    )
    model = shortlist.train(parts.train, recipe="astec", seed=0, threads=1)
    for name, entries in {"billable": ["J45*"], "retired": ["R07.9"], "chapters": ["J45", "J20"]}.items():
        model.store_list(name, entries)
    model.save(folder / "model")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_runs(page, files, tmp_path, monkeypatch):
    for language in ("bash", "python"):  # often two ways to do the same
        shutil.copytree(files, tmp_path / language)
    monkeypatch.chdir(tmp_path / "python")
    names = names_used()
    blocks = blocks_of(page)
    assert blocks
    for language, code, line in blocks:
        where = f"docs/{page}.md, line {line}"
        monkeypatch.chdir(tmp_path / language)
        if language == "bash":
            for shell_line in code.replace("\\\n", " ").splitlines():
                run_line(shell_line, where)
        else:
            exec(compile("\n" * (line - 1) + code, ROOT / "docs" / f"{page}.md", "exec"), names)


ELSEWHERE = {"own-encoder": "test_own_encoder.py"}


def test_blocks_that_do_not_run_say_why():
    for path in (ROOT / "docs").glob("*.md"):
        if path.stem not in (*PAGES, *GUIDES, *ELSEWHERE):
            assert blocks_of(path.stem) == [], f"add {path.stem} to GUIDES, or '{NOT_RUN}…' to its blocks"


def names_used() -> dict[str, object]:
    """What the Python code of the guides calls the data and the model."""
    import polars

    train, test = (shortlist.read("parts", part) for part in ("train", "test"))
    model = shortlist.load("model")
    return {
        "shortlist": shortlist, "model": model, "train": train, "test": test, "data": test, "dataset": train,
        "truth": test, "predictions": model.predict_dataset(test), "names": NAMES, "texts": list(train.texts),
        "labels": [label for _, (label, *_) in train], "label_lists": [labels for _, labels in train],
        "frame": polars.DataFrame({"title": list(test.texts)}),
    }  # fmt: skip


def run_line(line: str, where: str) -> None:
    """Run a `shortlist` command in this process, and a `curl` by the application of the model."""
    program, *arguments = shlex.split(line, comments=True) or [""]
    if program == "curl":
        url = next(argument for argument in arguments if "/v" in argument)
        body = arguments[arguments.index("-d") + 1]
        server = InProcess(Path("model")).ready()
        try:
            answer = server.request(
                "POST",
                "/v" + url.partition("/v")[2],
                content=body.encode(),
                headers={"content-type": "application/json"},
            )
        finally:
            server.close()
        assert answer.status_code == 200, f"{where}: {line}\n{answer.text}"
    elif program:
        assert program == "shortlist", f"{where}: only shortlist and curl can run; give the block a title with a reason"
        if arguments[0] == "train" and "--resume" not in arguments:
            shutil.rmtree("model")  # readers have none yet
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, f"{where}: {line}\n{result.output}"
