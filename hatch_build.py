"""Compiles the kernels when a wheel or an editable installation is built."""

from __future__ import annotations

import runpy
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class NativeKernels(BuildHookInterface):
    def dependencies(self) -> list[str]:
        native = self._build_script()
        return [native["ZIG"]] if native["needs_zig"]() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if sys.version_info < (3, 10):  # noqa: UP036 - an older pip asks for metadata first
            return  # pip then says which Python is needed, instead of what the compiler says
        libraries = self._build_script()["build"]()
        build_data["artifacts"] += [f"src/shortlist/kernels/{library}" for library in libraries]
        build_data["pure_python"] = False
        versions = "cp311-abi3" if sys.version_info >= (3, 11) else "cp310-cp310"
        build_data["tag"] = f"{versions}-{next(sys_tags()).platform}"

    def _build_script(self) -> dict[str, Any]:
        return runpy.run_path(f"{self.root}/src/shortlist/kernels/c/build.py")
