"""The file format of model folders: the config, checksums, and arrays and strings that stay where they are."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from shortlist.arrays import Arrays
from shortlist.errors import ModelError
from shortlist.files import array_in, safetensors_header
from shortlist.text.fields import TextFields
from shortlist.text.texts import Texts

FORMAT = "shortlist-model"
FORMAT_VERSION = 6
CONFIG, CARD, CURVES, README = "config.json", "card.json", "metrics.jsonl", "README.md"
KEPT_TEXTS = "texts.jsonl"
LABELS, DISPLAY_NAMES, LISTS, HIERARCHY = "labels.txt", "display_names.txt", "lists.json", "hierarchy.json"
# What a file of a model can be called: nothing that could lead elsewhere on any system.
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
MAX_CONFIG_BYTES = 1 << 26


class FileFacts(msgspec.Struct):
    """A file as it was saved."""

    bytes: int
    xxh3: str  # 128 bits; as fast as memory, so that it is compared at every load


class StageConfig(msgspec.Struct):
    """A stage: its place in the pipeline, its kind, and the numbers that are not arrays."""

    stage: str
    kind: str
    config: dict[str, Any]


class ModelConfig(msgspec.Struct):
    """The content of `config.json`. An ensemble has several members, each a list of stages."""

    format: str
    format_version: int
    shortlist_version: str
    recipe: str
    options: dict[str, Any]
    n_labels: int
    members: list[list[StageConfig]]
    calibration: StageConfig | None
    thresholds: StageConfig | None
    tail: StageConfig | None
    files: dict[str, FileFacts]
    xxh3: str = ""  # of everything else
    text_fields: TextFields | UnsetType | None = UNSET  # if there are several; not written otherwise


class StoredHierarchy(msgspec.Struct):
    """The content of `hierarchy.json`: see `Hierarchy`."""

    pairs: list[tuple[str, str]]
    names: dict[str, str]
    inclusive: bool


def identity(folder: Path) -> tuple[int, int] | None:
    try:
        facts = folder.stat()
    except (OSError, ValueError):
        return None
    return facts.st_dev, facts.st_ino


def read_contents(folder: Path, config: ModelConfig) -> dict[str, Any]:
    """The content of each file. Files are opened once: what is compared with the checksum is what will be used."""
    contents: dict[str, Any] = {}
    for name, facts in config.files.items():
        if not FILE_NAME.fullmatch(name):
            raise ModelError(f"{folder}: {CONFIG} names a file outside the folder ({name!r:.60}).")
        with _opened(folder, name) as file:
            same_size = os.fstat(file.fileno()).st_size == facts.bytes
            if same_size:  # otherwise it may be of any size
                contents[name] = mapped(file) if name.endswith(".safetensors") else file.read()
            if not same_size or checksum(contents[name]) != facts.xxh3:
                raise ModelError(
                    f"{folder}: {name} is not the file that was saved (size or checksum differ). Fetch it again."
                )
    return contents


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A file of a model, if it is a regular file: reading a pipe or a device might never end."""

    def open_at_once(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        with open(folder / name, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ModelError(f"{folder}: {name} is not a file but something else. Fetch the whole folder again.")
            yield file
    except FileNotFoundError:
        raise ModelError(f"{folder}: {name} is missing. Fetch the whole folder again.") from None
    except OSError as error:
        raise ModelError(f"{folder}: {name} cannot be read: {error.strerror or error}.") from None


def mapped(file: BinaryIO) -> Any:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


def _config_content(folder: Path) -> tuple[bytes, float]:
    """The bytes of the config, and when it was written."""
    with _opened(folder, CONFIG) as file:
        facts = os.fstat(file.fileno())
        if facts.st_size > MAX_CONFIG_BYTES:
            raise ModelError(f"{folder}: {CONFIG} is damaged (it has {facts.st_size:,} bytes). Fetch the model again.")
        return file.read(), facts.st_mtime


def read_config(folder: Path) -> tuple[ModelConfig, float]:
    raw, written = _config_content(folder)
    try:
        content = msgspec.json.decode(raw)
        # Format and version first: another version may hold anything else.
        if isinstance(content, dict):
            kind, version = content.get("format", FORMAT), content.get("format_version", FORMAT_VERSION)
            if kind != FORMAT:
                raise ModelError(f"{folder}: {CONFIG} belongs to another kind of model ({kind!r:.60}).")
            if version != FORMAT_VERSION:
                raise ModelError(
                    f"{folder}: the model has format {version!r:.60}, this release reads format {FORMAT_VERSION}. "
                    "Use the release that wrote it, or train the model again."
                )
        return msgspec.convert(content, ModelConfig), written
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{folder}: {CONFIG} is damaged ({error}). Train or fetch the model again.") from None


def is_model(folder: Path) -> bool:
    """Whether this looks like a model folder."""
    try:
        return msgspec.json.decode(_config_content(folder)[0])["format"] == FORMAT
    except (ModelError, ValueError, KeyError, TypeError, RecursionError):
        return False


def require_own_files(folder: Path | str, names: set[str], config: ModelConfig) -> None:
    """Raise an error if a folder with these files, or one at a URL, holds more than the model with this config."""
    others = sorted(names - {CONFIG, README, *config.files})
    if others:
        raise ModelError(
            f"{folder} holds {others[0]!r}, which is not part of the model there: nothing was written. "
            "Move it away, or choose another folder."
        )


def checksum(content: Any) -> str:
    import xxhash

    return xxhash.xxh3_128(content).hexdigest()


def config_checksum(config: ModelConfig) -> str:
    """The checksum of what a config says, however it is formatted."""
    return checksum(msgspec.json.encode(msgspec.structs.replace(config, xxh3=""), order="sorted"))


def arrays_of(content: Any, path: Path) -> Arrays:
    """The arrays of a safetensors file, without copying them."""
    try:
        arrays, _, start = safetensors_header(content)
        data = np.frombuffer(content, np.uint8)[start:]
        found = {name: array_in(data, info) for name, info in arrays.items()}
        if not all(array.flags.aligned for array in found.values()):  # C relies on it
            raise ValueError("an array is not aligned")
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: not a readable safetensors file ({error}). Train or fetch the model again."
        ) from None


def shard_name(file: str, shard: int, n_shards: int) -> str:
    """The name of one of several files that hold the arrays of `file` together.

    >>> shard_name("classifier.safetensors", 2, 8)
    'classifier.00002-of-00008.safetensors'
    """
    return f"{Path(file).stem}.{shard:05}-of-{n_shards:05}{Path(file).suffix}"


def shards_of(file: str, names: Iterable[str]) -> list[str]:
    """The files among `names` that hold the arrays of `file` together, in order."""
    path = Path(file)
    pattern = re.compile(rf"{re.escape(path.stem)}\.\d{{5}}-of-(\d{{5}}){re.escape(path.suffix)}")
    found = sorted(name for name in names if pattern.fullmatch(name))
    if found and found != [shard_name(file, shard, len(found)) for shard in range(len(found))]:
        raise ModelError(f"the shards of {file} are incomplete")
    return found


def split_rows(arrays: Arrays, n_shards: int) -> list[Arrays]:
    """The longest arrays cut into even shares of their rows; the others are in the first share."""
    longest = max((len(array) for array in arrays.values() if array.ndim), default=0)
    shards: list[Arrays] = [dict(arrays), *({} for _ in range(n_shards - 1))]
    for name, array in arrays.items():
        if array.ndim and 2 * len(array) > longest:
            cuts = [len(array) * i // n_shards for i in range(n_shards + 1)]
            for shard, begin, end in zip(shards, cuts, cuts[1:], strict=False):
                shard[name] = array[begin:end]
    return shards


def join_shards(shards: Sequence[Arrays]) -> Arrays:
    """The arrays of all shards. One that is in several shards was cut along its first axis, and is copied."""
    joined: Arrays = {}
    for name in dict.fromkeys(name for arrays in shards for name in arrays):
        parts = [arrays[name] for arrays in shards if name in arrays]
        joined[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return joined


def lines_of(content: bytes) -> Texts:
    """The lines of a file, decoded when asked for: a model with a million labels opens at once."""
    if b"\\" in content:
        return Texts.from_strings([unescaped(line) for line in content.decode().split("\n")[:-1]])
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    offsets = np.append(0, ends - np.arange(len(ends)))  # without the line breaks
    return Texts(np.frombuffer(content.replace(b"\n", b""), np.uint8), offsets)


def escaped(string: str) -> str:
    return string.replace("\\", "\\\\").replace("\n", "\\n") if "\\" in string or "\n" in string else string


def unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
