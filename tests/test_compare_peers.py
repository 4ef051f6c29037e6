"""The other tools themselves, where `make peers` has set them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparing import settings_of, write_data
from shortlist.compare import compare
from shortlist.compare.plan import peers, plan

PYTHON = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="there are no peers: make peers")
def test_every_peer_learns(tmp_path):
    rows = plan("none", "all", str)
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", rows, peers_python=str(PYTHON))
    found = compare(settings)["rows"]
    assert [row["name"] for row in found] == list(peers())
    for row in found:
        assert row["status"] == "done", row
        assert row["scores"]["P@1"] > 60, row["name"]
        assert row["ms_p50"] > 0 and row["model_bytes"] > 100 and row["bulk_texts_per_second"] > 0
