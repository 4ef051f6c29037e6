"""Changes to the files of a saved model, with checksums that match: what a careful attacker, or a bug, would write."""

from __future__ import annotations

import contextlib
import json

import msgspec
import xxhash
from safetensors.numpy import load_file, save

from shortlist.model.format import CONFIG, ModelConfig, config_checksum


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


def change_arrays(folder, stage, **changed):
    """Replace arrays of a stage ("encoder", "1.classifier"); None removes one."""
    name = f"{stage}.safetensors"
    arrays = {**load_file(folder / name), **changed}
    put_file(folder, name, save({key: array for key, array in arrays.items() if array is not None}))
