"""Changes to the files of a saved model, with checksums that match: what a careful attacker, or a bug, would write."""

from __future__ import annotations

import contextlib
import json

import msgspec
import numpy as np
import xxhash
from safetensors.numpy import load_file, save

from shortlist.model.format import CONFIG, ModelConfig, config_checksum


def replaced(arrays, change):
    """The arrays with some of them replaced; None removes an array, a function changes it."""
    new = {name: value(arrays[name]) if callable(value) else value for name, value in change.items()}
    return {name: array for name, array in {**arrays, **new}.items() if array is not None}


def change_config(folder, change):
    """Apply `change` to the decoded config, and write it with the right checksum if it still has all its fields."""
    content = json.loads((folder / CONFIG).read_text())
    change(content)
    with contextlib.suppress(msgspec.ValidationError):
        content["xxh3"] = config_checksum(msgspec.convert(content, ModelConfig))
    (folder / CONFIG).write_text(json.dumps(content))


def put_file(folder, name, content):
    """Write a file of the model, and enter its size and checksum into the config."""
    (folder / name).write_bytes(content)
    facts = {"bytes": len(content), "xxh3": xxhash.xxh3_128(content).hexdigest()}
    change_config(folder, lambda config: config["files"].update({name: facts}))


def put_arrays(folder, name, change):
    """Replace arrays in a file of a model folder, as `replaced` does."""
    arrays = replaced(load_file(folder / name), change)
    put_file(folder, name, save({key: np.ascontiguousarray(array) for key, array in arrays.items()}))


def change_arrays(folder, stage, **changed):
    """Replace arrays of a stage ("encoder", "1.classifier"); None removes one."""
    put_arrays(folder, f"{stage}.safetensors", changed)
