"""The other tools themselves, if `make peers` has installed them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from comparing import settings_of, write_data
from shortlist.compare import compare
from shortlist.compare.plan import PEERS, plan

PYTHON = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"


@pytest.mark.slow
def test_xr_transformer_without_weights_says_so(tmp_path):
    """Its process ends with one clear line; `run_peer.py` reads no package of the peers before that."""
    data, entries = write_data(tmp_path / "data"), plan("none", f"xr-transformer:weights={tmp_path}", str)
    entries[0] = replace(entries[0], peer=replace(entries[0].peer, package="numpy"))
    found = compare(settings_of(data, tmp_path / "out", entries))["entries"][0]
    assert found["status"] == "skipped"
    assert found["note"] == f"{tmp_path} is no folder of Hugging Face weights: it has no config.json"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the other tools are not installed: make peers")
def test_every_peer_learns(tmp_path):
    entries = [entry for entry in plan("none", "all", str) if not entry.peer.needs]
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", entries, peers_python=str(PYTHON))
    found = compare(settings)["entries"]
    assert [entry["name"] for entry in found] == [name for name, peer in PEERS.items() if not peer.needs]
    for entry in found:
        assert entry["status"] == "done", entry
        assert entry["scores"]["P@1"] > 60, entry["name"]
        assert entry["ms_p50"] > 0 and entry["model_bytes"] > 100 and entry["bulk_texts_per_second"] > 0
