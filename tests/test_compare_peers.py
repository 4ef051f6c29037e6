"""The other tools themselves, if `make peers` has installed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparing import settings_of, write_data
from shortlist.compare import compare
from shortlist.compare.plan import PEERS, plan

PYTHON = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the other tools are not installed: make peers")
def test_every_peer_learns(tmp_path):
    entries = plan("none", "all", str)
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", entries, peers_python=str(PYTHON))
    found = compare(settings)["entries"]
    assert [entry["name"] for entry in found] == list(PEERS)
    for entry in found:
        assert entry["status"] == "done", entry
        assert entry["scores"]["P@1"] > 60, entry["name"]
        assert entry["ms_p50"] > 0 and entry["model_bytes"] > 100 and entry["bulk_texts_per_second"] > 0
