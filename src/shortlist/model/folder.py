"""A model is a folder of plain files: what is in it, checked when read, written all or nothing.

`config.json` names the recipe and lists every other file with its size and checksum. Arrays are safetensors, which are
mapped into memory, not read: processes with the same model share it. Words and labels are text. Nothing in a model
folder is ever executed.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import ModelError
from shortlist.files import write_folder_atomically
from shortlist.rows import in_8_bits

FORMAT = "shortlist-model"
FORMAT_VERSION = 2
CONFIG, CARD, LABELS, DISPLAY_NAMES = "config.json", "card.json", "labels.txt", "display_names.txt"
DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U16": "<u2", "U8": "u1", "I8": "i1"}


class FileFacts(msgspec.Struct):
    """What a file was when it was saved."""

    bytes: int
    xxh3: str  # 128 bits; reads as fast as memory does, so that it can be compared each time


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

    def __init__(self, folder: Path, bits: int, prefix: str = "") -> None:
        """`bits`: 8 or 32, of the numbers in rows of labels and words."""
        self.folder, self.bits, self.prefix = folder, bits, prefix

    def part(self, prefix: str) -> ModelWriter:
        """A writer into the same folder, for a model that is part of this one."""
        return ModelWriter(self.folder, self.bits, self.prefix + prefix)

    def arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        from safetensors.numpy import save_file

        if self.bits == 8:
            arrays = in_8_bits(arrays)
        save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, self.path(name))

    def lines(self, name: str, records: list[dict[str, Any]]) -> None:
        """Records as JSON, one a line."""
        self.path(name).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

    def strings(self, name: str, strings: Sequence[str]) -> None:
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
        arrays = mapped_arrays(self.path(name))
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

    def strings(self, name: str) -> Strings:
        content = self.path(name).read_bytes()
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{self.prefix}{name} is not UTF-8 at byte {error.start}") from None
        return Strings(content)

    def facts(self) -> dict[str, Any]:
        """What the files themselves say: how large they are, and when they were written."""
        size = sum(facts.bytes for facts in self.config.files.values())
        written = datetime.fromtimestamp((self.folder / CONFIG).stat().st_mtime, UTC)
        return {"size_bytes": size, "created": written.isoformat(timespec="seconds")}

    def json(self, name: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.path(name).read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.damaged(f"{self.prefix}{name} is not JSON: {error}") from None

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
    bits: int,
    fill: Callable[[ModelWriter], dict[str, Any]],
    card_of: Callable[[ModelReader], dict[str, Any]],
) -> None:
    """Write a model folder.

    `fill(writer)` puts the files in and says what else the config is to hold; `card_of(reader)`, with what was written
    open for reading, what the card is to say. An older model there is replaced in one move; anything else there is
    left alone, and nothing written.
    """
    from shortlist import __version__

    folder = Path(folder)
    check_replaceable(folder)
    with write_folder_atomically(folder) as beside:
        extra = fill(ModelWriter(beside, bits))
        files = {path.name: FileFacts(path.stat().st_size, _checksum(path)) for path in sorted(beside.iterdir())}
        config = ModelConfig(FORMAT, FORMAT_VERSION, __version__, recipe, options, n_labels, extra, files)
        _write_json(beside / CARD, card_of(ModelReader(beside, config)))
        files[CARD] = FileFacts((beside / CARD).stat().st_size, _checksum(beside / CARD))
        _write_json(beside / CONFIG, config)


def _write_json(path: Path, content: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


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
        if path.stat().st_size != facts.bytes or _checksum(path) != facts.xxh3:
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


def _checksum(path: Path) -> str:
    import xxhash

    with path.open("rb") as file:
        if not path.stat().st_size:
            return xxhash.xxh3_128().hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return xxhash.xxh3_128(content).hexdigest()


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, which stay in the file: pages are read when needed."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):  # compares lengths and places of the arrays with the file's
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = msgspec.json.decode(file.read(length))
            header.pop("__metadata__", None)
            content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[8 + length :]
        return {name: _array(content, facts) for name, facts in header.items()}
    except (SafetensorError, msgspec.DecodeError, KeyError, TypeError, ValueError, OSError) as error:
        raise ModelError(f"{path}: not a readable safetensors file ({error}).") from None


def _array(content: np.ndarray, facts: dict[str, Any]) -> np.ndarray:
    begin, end = facts["data_offsets"]
    return content[begin:end].view(DTYPES[facts["dtype"]]).reshape(facts["shape"])


class Strings(Sequence[str]):
    """The lines of a file of strings, each made when asked for: a model with a million labels opens at once."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        begin = int(self._ends[index - 1]) + 1 if index else 0
        return _unescaped(self._content[begin : self._ends[index]].decode())

    def __iter__(self) -> Iterator[str]:
        return map(_unescaped, self._content.decode().split("\n")[: len(self)])


def _escaped(string: str) -> str:
    return string.replace("\\", "\\\\").replace("\n", "\\n") if "\\" in string or "\n" in string else string


def _unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
