"""A model is a folder of plain files: what is in it, checked when read, written all or nothing.

`config.json` names the recipe and lists every other file with its size and SHA-256. Arrays are safetensors,
words and labels are text. Nothing in a model folder is ever executed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import ModelError
from shortlist.files import write_folder_atomically

FORMAT = "shortlist-model"
FORMAT_VERSION = 1
CONFIG, LABELS, DISPLAY_NAMES = "config.json", "labels.txt", "display_names.txt"


class ModelWriter:
    """Collects the files of a model in a folder that is not yet in place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        from safetensors.numpy import save_file

        save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, self.folder / name)

    def strings(self, name: str, strings: list[str]) -> None:
        (self.folder / name).write_bytes("".join(f"{_escaped(string)}\n" for string in strings).encode())

    def path(self, name: str) -> Path:
        return self.folder / name


class ModelReader:
    """Gives out the files of a model, after their checksums were compared."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return load_file(self.path(name))
        except SafetensorError as error:
            raise ModelError(f"{self.path(name)}: not a readable safetensors file ({error}).") from None

    def strings(self, name: str) -> list[str]:
        content = self.path(name).read_bytes().decode()
        return [_unescaped(line) for line in content.split("\n")[:-1]]

    def path(self, name: str) -> Path:
        if name not in self.config["files"]:
            raise ModelError(f"{self.folder}: the model has no file {name}; it is not whole. Train or fetch it again.")
        return self.folder / name

    def has(self, name: str) -> bool:
        return name in self.config["files"]


def save_model(folder: str | Path, config: dict[str, Any], fill: Any) -> None:
    """Write a model folder; `fill(writer)` puts the files in. An older model there is replaced in one move."""
    from shortlist import __version__

    folder = Path(folder)
    if folder.exists() and not is_model(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists and is not a model: nothing was written. Choose another folder.")
    with write_folder_atomically(folder) as beside:
        fill(ModelWriter(beside))
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(beside.iterdir())
        }
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "shortlist_version": __version__}
        content = msgspec.json.format(msgspec.json.encode({**head, **config, "files": files}), indent=2)
        (beside / CONFIG).write_bytes(content + b"\n")


def open_model(folder: str | Path) -> ModelReader:
    """Check a model folder and open it for reading."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder. Check the path, or train one first.")
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder}: not a model folder: there is no {CONFIG} in it.")
    try:
        config = msgspec.json.decode((folder / CONFIG).read_bytes())
        if config["format"] != FORMAT:
            raise ModelError(f"{folder}: {CONFIG} is of another kind of model ({config['format']!r}).")
        version, files = config["format_version"], dict(config["files"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder}: {CONFIG} is damaged ({error}). Train or fetch the model again.") from None
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{folder}: the model has format {version}, this release reads format {FORMAT_VERSION}. "
            "Use the release that wrote it, or train the model again."
        )
    for name, facts in files.items():
        path = folder / name
        if Path(name).name != name:
            raise ModelError(f"{folder}: {CONFIG} names a file outside the folder ({name!r}).")
        if not path.is_file():
            raise ModelError(f"{folder}: {name} is missing. Fetch the whole folder again.")
        if path.stat().st_size != facts["bytes"] or _sha256(path) != facts["sha256"]:
            raise ModelError(
                f"{folder}: {name} is not the file that was saved (size or checksum differ). Fetch it again."
            )
    return ModelReader(folder, config)


def is_model(folder: Path) -> bool:
    """Whether this looks like a model folder."""
    try:
        return msgspec.json.decode((folder / CONFIG).read_bytes())["format"] == FORMAT
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _escaped(string: str) -> str:
    return string.replace("\\", "\\\\").replace("\n", "\\n") if "\\" in string or "\n" in string else string


def _unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
