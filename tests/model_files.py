"""Changes to the arrays and files of a model, as damage or an attacker would make them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from safetensors.numpy import load_file, save


def replaced(arrays: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The arrays with some of them replaced; None removes an array, a function changes it."""
    new = {name: value(arrays[name]) if callable(value) else value for name, value in change.items()}
    return {name: array for name, array in {**arrays, **new}.items() if array is not None}


def put_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a model folder; its checksum fits the new content."""
    (folder / name).write_bytes(content)
    facts = {"bytes": len(content), "xxh3": xxhash.xxh3_128(content).hexdigest()}
    change_config(folder, lambda config: config["files"].update({name: facts}))


def put_arrays(folder: Path, name: str, change: dict[str, Any]) -> None:
    """Replace arrays in a file of a model folder; its checksum fits the new content."""
    arrays = replaced(load_file(folder / name), change)
    put_file(folder, name, save({key: np.ascontiguousarray(array) for key, array in arrays.items()}))


def change_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the config of a model in place. Without a checksum of its own, it is not compared with any."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("xxh3", None)
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
