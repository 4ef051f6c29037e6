"""What the processor can do, where torch takes a virtual machine's word for it."""

from __future__ import annotations

import platform
import sys
from functools import cache

import numpy as np

from shortlist.kernels.native import native

TILE_LEAF = 0x1D  # CPUID's leaf with the number of AMX tile palettes


@cache
def has_fast_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 matrices faster than float32 matrices, as AMX does."""
    import torch

    # Not public in every release of torch; without it the products are float32, only slower.
    announced = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return announced is not None and announced() and has_amx_tiles()


def bfloat16_product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """a · b, computed in bfloat16, which keeps two to three digits."""
    import torch

    product = (torch.from_numpy(a).bfloat16() @ torch.from_numpy(b).bfloat16()).float().numpy()
    if out is None:
        return product
    out[...] = product
    return out


def has_amx_tiles() -> bool:
    """Whether there is a palette of AMX tiles.

    Some virtual machines announce AMX without one. torch 2.13 believes them, and its first product in bfloat16 ends the
    process with an illegal instruction (oneDNN#5689).
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return True  # not tried there: as torch says
    return bool(native.cpuid(TILE_LEAF))
