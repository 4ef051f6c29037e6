"""Progress: a bar on a terminal and in a notebook, log lines elsewhere, nothing with `show=False`."""

from __future__ import annotations

import io
import logging
import sys
import time
from types import SimpleNamespace

import pytest

from shortlist import messages, progress
from shortlist.progress import Progress


@pytest.fixture(autouse=True)
def bars(monkeypatch):
    """Whatever verbosity other tests in this process have set."""
    monkeypatch.setattr(Progress, "bars", True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_with_rate_and_time_left_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0)
    with Progress("reading pairs", total=100, unit="rows") as bar:
        for _ in range(10):
            bar.advance(10)
            bar._bar.refresh()
    shown = terminal.getvalue()
    assert "reading pairs" in shown
    assert "100%" in shown
    assert "rows/s" in shown


def test_a_bar_in_a_notebook(monkeypatch):
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)  # no widgets: a bar of characters
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0)
    with Progress("reading pairs", total=100, unit="rows") as bar:
        bar.advance(100)
    assert "reading pairs" in sys.stderr.getvalue()
    assert messages._Messages().stream is sys.stdout  # standard error is red there
    shell.config = {}  # IPython in a terminal
    assert messages._Messages().stream is sys.stderr
    with Progress("reading pairs", total=100, unit="rows") as bar:
        assert bar._bar is None


@pytest.mark.parametrize("total", [100, None])
def test_log_lines_without_a_terminal(monkeypatch, caplog, total):
    monkeypatch.setattr(progress, "LOG_INTERVAL_SECONDS", -1.0)
    with caplog.at_level(logging.INFO, "shortlist"), Progress("reading pairs", total, "rows") as lines:
        lines.advance(25)
    assert "reading pairs: 25 rows in 0 s" in caplog.text
    assert ("25 %" in caplog.text) == (total is not None)


def test_no_output_with_show_false(monkeypatch, caplog):
    monkeypatch.setattr(progress, "LOG_INTERVAL_SECONDS", -1.0)
    with caplog.at_level(logging.INFO, "shortlist"), Progress("reading", 10, show=False) as quiet:
        quiet.advance(10)
    assert caplog.text == ""
    assert quiet.done == 10


def test_log_lines_have_an_interval_and_the_time_left(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "shortlist"), Progress("reading", total=100, unit="rows") as lines:
        lines.advance(10)
        now[0] += 40
        lines.advance(15)
        lines.advance(15)
    assert [record.message for record in caplog.records] == ["reading: 25 rows in 40 s, 1 rows/s, 25 %, 120 s left"]
    assert lines.done == 40
