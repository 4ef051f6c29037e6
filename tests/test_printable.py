"""Labels and texts of others cannot give commands to a terminal, nor reverse the text beside them."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from click.testing import CliRunner

import shortlist
from shortlist import cli, tables
from shortlist.printable import PrintableFormatter, printable, printable_line
from shortlist.progress import Progress
from shortlist.report import model_report
from shortlist.serving.logs import Log

EVIL = "red\x1b[2J\x9b1m\u202eder\u2066\r"
DANGEROUS = "\x1b\x9b\u202e\u2066\r"


@pytest.fixture(scope="module")
def data():
    return shortlist.read([(f"a {EVIL} thing {i}", [EVIL.strip(), "blue"][i % 2 :][:1]) for i in range(20)])


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    shortlist.train(data, recipe="centroid").save(folder)
    return folder


def is_safe(text):
    return not set(text) & set(DANGEROUS)


def test_escapes_are_those_of_json():
    assert is_safe(printable(EVIL))
    assert json.loads(f'"{printable(EVIL)}"') == EVIL
    assert printable("füße\t漢字\n👟") == "füße\t漢字\n👟"
    assert printable_line("a\tb\n") == "a\\u0009b\\u000a"


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "MODEL", EVIL],
        ["labels", "list", "MODEL"],
        ["labels", "list", "MODEL", "--json"],
        ["labels", "remove", "MODEL", EVIL, "--out", "x"],
        ["predict", f"no model {EVIL}", "text"],
        ["predict", "MODEL", "text", "--allow", EVIL],
    ],
    ids=lambda arguments: " ".join(map(repr, arguments[:2])),
)
def test_the_command_line(arguments, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.shortlist, [str(model) if word == "MODEL" else word for word in arguments])
    assert "red" in result.output
    assert is_safe(result.output)


def test_reports(data, model, tmp_path):
    model_report(shortlist.load(model), data).write(tmp_path / "report.html", tmp_path / "report.md")
    written = (tmp_path / "report.md").read_text()
    assert "red" in written and is_safe(written)
    assert is_safe((model / "README.md").read_text())


def test_tables():
    for table in (tables.plain, tables.markdown):
        assert is_safe(table(["label"], [[EVIL + "\n"]]))
        assert len(table(["label"], [[EVIL + "\n"]]).splitlines()) <= 3


def test_log_lines_and_progress(capsys):
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s", (EVIL,), None)
    assert is_safe(PrintableFormatter().format(record))
    Progress("x", show=False).say(EVIL)
    assert is_safe(capsys.readouterr().err)
    lines: list[bytes] = []
    log = Log(lines.append)
    log.event("request", path=EVIL)
    log.close()
    written = b"".join(lines).decode()
    assert is_safe(written) and json.loads(written)["path"] == EVIL


def test_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("reading") as progress:
        progress.say("nobody reads this")
