"""Whether products in bfloat16 are fast, and safe."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from shortlist.training import processor
from shortlist.training.processor import has_amx_tiles, has_fast_bfloat16

LINUX_X86 = pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="reads CPUID")


@LINUX_X86
def test_tiles_are_those_the_processor_reports(monkeypatch):
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert "amx_tile" in flags or not has_amx_tiles()
    monkeypatch.setattr(processor, "TILE_LEAF", 1)  # a leaf that every processor has, and that is not 0
    assert has_amx_tiles()
    monkeypatch.setattr(processor, "TILE_LEAF", 0x0FFF_FFFF)  # a leaf that none has
    assert not has_amx_tiles()


def test_announced_amx_without_tiles_is_not_used(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    for tiles in (False, True):
        monkeypatch.setattr(processor, "has_amx_tiles", lambda tiles=tiles: tiles)
        assert has_fast_bfloat16.__wrapped__() is tiles
