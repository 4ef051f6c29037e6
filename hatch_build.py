"""Compiles the kernels in C when a wheel is built. Without a C compiler, the wheel has the kernels in numba only."""

from __future__ import annotations

import runpy
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class NativeKernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        error = runpy.run_path(f"{self.root}/src/shortlist/kernels/native/build.py")["build"]()
        if error:
            self.app.display_warning(f"The kernels in C were not compiled; numba takes their place. {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"
