"""A model is a folder of plain files: what is in it, checked when read, written all or nothing.

`config.json` names the recipe and lists every other file with its size and SHA-256. Arrays are safetensors,
words and labels are text. Nothing in a model folder is ever executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import ModelError
from shortlist.files import write_folder_atomically

FORMAT = "shortlist-model"
FORMAT_VERSION = 1
CONFIG, LABELS, DISPLAY_NAMES = "config.json", "labels.txt", "display_names.txt"


class FileFacts(msgspec.Struct):
    """What a file was when it was saved."""

    bytes: int
    sha256: str


class ModelConfig(msgspec.Struct):
    """All that `config.json` holds; `extra` belongs to the recipe."""

    format: str
    format_version: int
    shortlist_version: str
    recipe: str
    options: dict[str, Any]
    n_labels: int
    extra: dict[str, Any]
    files: dict[str, FileFacts]


class ModelWriter:
    """Collects the files of a model in a folder that is not yet in place, each with the prefix in its name."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self.folder, self.prefix = folder, prefix

    def part(self, prefix: str) -> ModelWriter:
        """A writer into the same folder, for a model that is part of this one."""
        return ModelWriter(self.folder, self.prefix + prefix)

    def arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        from safetensors.numpy import save_file

        save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, self.path(name))

    def lines(self, name: str, records: list[dict[str, Any]]) -> None:
        """Records as JSON, one a line."""
        self.path(name).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

    def strings(self, name: str, strings: list[str]) -> None:
        self.path(name).write_bytes("".join(f"{_escaped(string)}\n" for string in strings).encode())

    def path(self, name: str) -> Path:
        return self.folder / f"{self.prefix}{name}"


class ModelReader:
    """Gives out the files of a model, after their checksums were compared."""

    def __init__(self, folder: Path, config: ModelConfig, prefix: str = "") -> None:
        self.folder, self.config, self.prefix = folder, config, prefix

    def part(self, prefix: str, options: dict[str, Any], extra: dict[str, Any]) -> ModelReader:
        """A reader of what `ModelWriter.part` wrote, with that model's own options and extra."""
        config = msgspec.structs.replace(self.config, options=options, extra=extra)
        return ModelReader(self.folder, config, self.prefix + prefix)

    def arrays(self, name: str, *needed: str) -> dict[str, np.ndarray]:
        """The arrays in a file, those that are needed for certain among them."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            arrays = load_file(self.path(name))
        except SafetensorError as error:
            raise ModelError(f"{self.path(name)}: not a readable safetensors file ({error}).") from None
        for key in needed:
            if key not in arrays:
                raise self.damaged(f"{self.prefix}{name} lacks the array {key!r} of recipe {self.config.recipe!r}")
        return arrays

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The records of a file of JSON lines."""
        try:
            return msgspec.json.Decoder(dict[str, Any]).decode_lines(self.path(name).read_bytes())
        except msgspec.DecodeError as error:
            raise self.damaged(f"{self.prefix}{name} is not JSON lines: {error}") from None

    def strings(self, name: str) -> list[str]:
        try:
            content = self.path(name).read_bytes().decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{self.prefix}{name} is not UTF-8 at byte {error.start}") from None
        return [_unescaped(line) for line in content.split("\n")[:-1]]

    def path(self, name: str) -> Path:
        name = f"{self.prefix}{name}"
        if name not in self.config.files:
            raise ModelError(f"{self.folder}: the model has no file {name}; it is not whole. Train or fetch it again.")
        return self.folder / name

    def has(self, name: str) -> bool:
        return f"{self.prefix}{name}" in self.config.files

    def damaged(self, what: str) -> ModelError:
        """The error to raise where the content of a file makes no sense."""
        return ModelError(f"{self.folder}: the model is damaged; train or fetch it again ({what}).")


def save_model(
    folder: str | Path,
    recipe: str,
    options: dict[str, Any],
    n_labels: int,
    fill: Callable[[ModelWriter], dict[str, Any]],
) -> None:
    """Write a model folder; `fill(writer)` puts the files in and says what else the config is to hold.

    An older model there is replaced in one move; anything else there is left alone, and nothing written.
    """
    from shortlist import __version__

    folder = Path(folder)
    check_replaceable(folder)
    with write_folder_atomically(folder) as beside:
        extra = fill(ModelWriter(beside))
        files = {path.name: FileFacts(path.stat().st_size, _sha256(path)) for path in sorted(beside.iterdir())}
        config = ModelConfig(FORMAT, FORMAT_VERSION, __version__, recipe, options, n_labels, extra, files)
        (beside / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")


def check_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that holds anything but a model: it may be someone's only copy."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_model(folder):
        raise ModelError(f"{folder} exists and is not a model: nothing was written. Choose another folder.")
    try:
        config = _read_config(folder)
    except ModelError as error:
        raise ModelError(f"{error} Nothing was written; choose another folder.") from None
    strange = sorted({path.name for path in folder.iterdir()} - {CONFIG, *config.files})
    if strange:
        raise ModelError(
            f"{folder} holds {strange[0]!r}, which is no part of the model there: nothing was written. "
            "Move it away, or choose another folder."
        )


def open_model(folder: str | Path) -> ModelReader:
    """Check a model folder and open it for reading."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder. Check the path, or train one first.")
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder}: not a model folder: there is no {CONFIG} in it.")
    config = _read_config(folder)
    for name, facts in config.files.items():
        path = folder / name
        if Path(name).name != name:
            raise ModelError(f"{folder}: {CONFIG} names a file outside the folder ({name!r}).")
        if not path.is_file():
            raise ModelError(f"{folder}: {name} is missing. Fetch the whole folder again.")
        if path.stat().st_size != facts.bytes or _sha256(path) != facts.sha256:
            raise ModelError(
                f"{folder}: {name} is not the file that was saved (size or checksum differ). Fetch it again."
            )
    return ModelReader(folder, config)


def _read_config(folder: Path) -> ModelConfig:
    try:
        content = msgspec.json.decode((folder / CONFIG).read_bytes())
        # Kind and version first: what another kind or version holds beside them is not for us to judge.
        if isinstance(content, dict):
            kind, version = content.get("format", FORMAT), content.get("format_version", FORMAT_VERSION)
            if kind != FORMAT:
                raise ModelError(f"{folder}: {CONFIG} is of another kind of model ({kind!r}).")
            if version != FORMAT_VERSION:
                raise ModelError(
                    f"{folder}: the model has format {version}, this release reads format {FORMAT_VERSION}. "
                    "Use the release that wrote it, or train the model again."
                )
        return msgspec.convert(content, ModelConfig)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise ModelError(f"{folder}: {CONFIG} is damaged ({error}). Train or fetch the model again.") from None


def is_model(folder: Path) -> bool:
    """Whether this looks like a model folder."""
    try:
        return msgspec.json.decode((folder / CONFIG).read_bytes())["format"] == FORMAT
    except (OSError, msgspec.DecodeError, KeyError, TypeError, RecursionError):
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
