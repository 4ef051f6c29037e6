"""Progress: a bar on a terminal, log lines elsewhere, nothing if switched off."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from shortlist import progress
from shortlist.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_with_rate_and_time_left(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "SECONDS_BEFORE_A_BAR_SHOWS", 0)
    with Progress("reading pairs", total=100, unit="rows") as bar:
        for _ in range(10):
            bar.advance(10)
            bar._bar.refresh()
    shown = terminal.getvalue()
    assert "reading pairs" in shown
    assert "100%" in shown
    assert "rows/s" in shown


@pytest.mark.parametrize("total", [100, None])
def test_log_lines_elsewhere(monkeypatch, caplog, total):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LOG_LINES", -1.0)
    with caplog.at_level(logging.INFO, "shortlist"), Progress("reading pairs", total, "rows") as lines:
        lines.note("loss 0.5")
        lines.advance(25)
    assert "reading pairs: 25 rows in 0 s" in caplog.text
    assert "; loss 0.5" in caplog.text
    assert ("25 %" in caplog.text) == (total is not None)


def test_nothing_if_switched_off(monkeypatch, caplog):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LOG_LINES", -1.0)
    with caplog.at_level(logging.INFO, "shortlist"), Progress("reading", 10, show=False) as silent:
        silent.advance(10)
    assert caplog.text == ""
    assert silent.done == 10
