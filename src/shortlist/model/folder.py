"""A model is a folder of plain files: what is in it, checked when read, written all or nothing.

`config.json` names the recipe and lists every other file with its size and checksum. Arrays are safetensors, which are
mapped into memory, not read: processes with the same model share it. Words and labels are text. Nothing in a model
folder is ever executed.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from shortlist.arrays import in_8_bits
from shortlist.errors import ModelError
from shortlist.files import ArrayInfo, safetensors_header, write_folder_atomically

FORMAT = "shortlist-model"
FORMAT_VERSION = 3
CONFIG, CARD, LABELS, DISPLAY_NAMES = "config.json", "card.json", "labels.txt", "display_names.txt"
DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U16": "<u2", "U8": "u1", "I8": "i1"}
# What a file of a model can be called: nothing that could lead elsewhere on any system.
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
LARGEST_CONFIG = 1 << 26
# Of opening a folder that is replaced each time.
MOST_ATTEMPTS = 3


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
    xxh3: str = ""  # of all the others; models from before there was one have none


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
    """Gives out the contents of a model's files, which were opened once, and their checksums compared."""

    def __init__(
        self, folder: Path, config: ModelConfig, contents: Mapping[str, Any], written: float = 0, prefix: str = ""
    ) -> None:
        """`contents`: bytes by the name of the file, or a mapping of it; `written`: when, in seconds since 1970."""
        self.folder, self.config, self.prefix = folder, config, prefix
        self._contents, self._written = contents, written

    def part(self, prefix: str, options: dict[str, Any], extra: dict[str, Any]) -> ModelReader:
        """A reader of what `ModelWriter.part` wrote, with that model's own options and extra."""
        config = msgspec.structs.replace(self.config, options=options, extra=extra)
        return ModelReader(self.folder, config, self._contents, self._written, self.prefix + prefix)

    def arrays(self, name: str, *needed: str) -> dict[str, np.ndarray]:
        """The arrays in a file, those that are needed for certain among them."""
        arrays = arrays_of(self.content(name), self.path(name))
        for key in needed:
            if key not in arrays:
                raise self.damaged(f"{self.prefix}{name} lacks the array {key!r} of recipe {self.config.recipe!r}")
        return arrays

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The records of a file of JSON lines."""
        try:
            return msgspec.json.Decoder(dict[str, Any]).decode_lines(self.content(name))
        except (ValueError, RecursionError) as error:  # as msgspec's own are, and Unicode's
            raise self.damaged(f"{self.prefix}{name} is not JSON lines: {error}") from None

    def strings(self, name: str) -> Strings:
        content = self.content(name)
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{self.prefix}{name} is not UTF-8 at byte {error.start}") from None
        return Strings(content)

    def facts(self) -> dict[str, Any]:
        """What the files themselves say: how large they are, and when they were written."""
        size = sum(facts.bytes for facts in self.config.files.values())
        written = datetime.fromtimestamp(self._written, UTC)
        return {"size_bytes": size, "created": written.isoformat(timespec="seconds")}

    def json(self, name: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.content(name), type=dict[str, Any])
        except (ValueError, RecursionError) as error:  # as msgspec's own are, and Unicode's
            raise self.damaged(f"{self.prefix}{name} is not JSON: {error}") from None

    def content(self, name: str) -> Any:
        """The bytes of a file; of a file of arrays a mapping."""
        if not self.has(name):
            raise ModelError(
                f"{self.folder}: the model has no file {self.prefix}{name}; it is not whole. Train or fetch it again."
            )
        return self._contents[f"{self.prefix}{name}"]

    def path(self, name: str) -> Path:
        """For messages: by now there may be another file."""
        return self.folder / f"{self.prefix}{name}"

    def has(self, name: str) -> bool:
        return f"{self.prefix}{name}" in self.config.files

    def check_config(self) -> None:
        """Refuse a config that is not the one that was saved; what else is wrong with it says more, and comes first."""
        if self.config.xxh3 and self.config.xxh3 != config_checksum(self.config):
            raise ModelError(
                f"{self.folder}: {CONFIG} is not the file that was saved (checksum differs). Fetch it again."
            )

    def damaged(self, what: str) -> ModelError:
        """The error to raise where the content of a file makes no sense."""
        return ModelError(f"{self.folder}: the model is damaged; train or fetch it again ({what:.300}).")


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
        files = {path.name: _file_facts(path) for path in sorted(beside.iterdir())}
        config = ModelConfig(FORMAT, FORMAT_VERSION, __version__, recipe, options, n_labels, extra, files)
        _write_json(beside / CARD, card_of(ModelReader(beside, config, _contents(beside, config))))
        files[CARD] = _file_facts(beside / CARD)
        _write_json(beside / CONFIG, msgspec.structs.replace(config, xxh3=config_checksum(config)))


def _file_facts(path: Path) -> FileFacts:
    with path.open("rb") as file:
        return FileFacts(path.stat().st_size, _checksum(_mapped(file)))


def _write_json(path: Path, content: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def check_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that holds anything but a model: it may be someone's only copy."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_model(folder):
        raise ModelError(f"{folder} exists and is not a model: nothing was written. Choose another folder.")
    try:
        config, _ = _read_config(folder)
    except ModelError as error:
        raise ModelError(f"{error} Nothing was written; choose another folder.") from None
    strange = sorted({path.name for path in folder.iterdir()} - {CONFIG, *config.files})
    if strange:
        raise ModelError(
            f"{folder} holds {strange[0]!r}, which is no part of the model there: nothing was written. "
            "Move it away, or choose another folder."
        )


def open_model(folder: str | Path) -> ModelReader:
    """Check a model folder and open it for reading.

    If it is replaced meanwhile, that is the old model or the new one, and never some files of each.
    """
    folder = Path(folder)
    for _ in range(MOST_ATTEMPTS - 1):
        before = _identity(folder)
        try:
            return _open(folder)
        except ModelError:
            if _identity(folder) == before:
                raise
    return _open(folder)


def _open(folder: Path) -> ModelReader:
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder. Check the path, or train one first.")
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder}: not a model folder: there is no {CONFIG} in it.")
    config, written = _read_config(folder)
    return ModelReader(folder, config, _contents(folder, config), written)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        facts = folder.stat()
    except (OSError, ValueError):
        return None
    return facts.st_dev, facts.st_ino


def _contents(folder: Path, config: ModelConfig) -> dict[str, Any]:
    """What is in each file of a model. Opened once: what is compared with the checksum is what will be used."""
    contents: dict[str, Any] = {}
    for name, facts in config.files.items():
        if not FILE_NAME.fullmatch(name):
            raise ModelError(f"{folder}: {CONFIG} names a file outside the folder ({name!r:.60}).")
        with _opened(folder, name) as file:
            same_size = os.fstat(file.fileno()).st_size == facts.bytes
            if same_size:  # if not, it may be of any size
                contents[name] = _mapped(file) if name.endswith(".safetensors") else file.read()
            if not same_size or _checksum(contents[name]) != facts.xxh3:
                raise ModelError(
                    f"{folder}: {name} is not the file that was saved (size or checksum differ). Fetch it again."
                )
    return contents


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A file of a model, if it is a plain one: a pipe could be waited for, and a device read, for ever."""

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


def _mapped(file: BinaryIO) -> Any:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


def _config_content(folder: Path) -> tuple[bytes, float]:
    """The bytes of the config, and when it was written."""
    with _opened(folder, CONFIG) as file:
        facts = os.fstat(file.fileno())
        if facts.st_size > LARGEST_CONFIG:
            raise ModelError(f"{folder}: {CONFIG} is damaged (it has {facts.st_size:,} bytes). Fetch the model again.")
        return file.read(), facts.st_mtime


def _read_config(folder: Path) -> tuple[ModelConfig, float]:
    raw, written = _config_content(folder)
    try:
        content = msgspec.json.decode(raw)
        # Kind and version first: what another kind or version holds beside them is not for us to judge.
        if isinstance(content, dict):
            kind, version = content.get("format", FORMAT), content.get("format_version", FORMAT_VERSION)
            if kind != FORMAT:
                raise ModelError(f"{folder}: {CONFIG} is of another kind of model ({kind!r:.60}).")
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


def _checksum(content: Any) -> str:
    import xxhash

    return xxhash.xxh3_128(content).hexdigest()


def config_checksum(config: ModelConfig) -> str:
    """Of what a config says, not of how it is written down."""
    return _checksum(msgspec.json.encode(msgspec.structs.replace(config, xxh3=""), order="sorted"))


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, which stay in the file: pages are read when needed."""
    with _opened(path.parent, path.name) as file:
        return arrays_of(_mapped(file), path)


def arrays_of(content: Any, path: Path) -> dict[str, np.ndarray]:
    """The arrays in the content of a safetensors file, where they lie."""
    try:
        arrays, _, start = safetensors_header(content)
        data = np.frombuffer(content, np.uint8)[start:]
        return {name: _array(data, facts) for name, facts in arrays.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: not a readable safetensors file ({error}). Train or fetch the model again."
        ) from None


def _array(data: np.ndarray, facts: ArrayInfo) -> np.ndarray:
    begin, end = facts.data_offsets
    array = data[begin:end].view(DTYPES[facts.dtype]).reshape(facts.shape)
    if not array.flags.aligned:  # for such, every compiled loop would be compiled anew
        raise ValueError("an array does not begin at a multiple of its numbers' size")
    return array


def whole_number(value: Any, what: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """A number from a config that something is to be counted by."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelError(f"{what} is {value!r:.60}; expected a whole number from {least} to {most:,}")
    return value


def finite_number(value: Any, what: str, least: float = -1e6, most: float = 1e6) -> float:
    """A number from a config to calculate with."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ModelError(f"{what} is {value!r:.60}; expected a number from {least:g} to {most:g}")
    return float(value)


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
        index = range(len(self))[index]  # from the end, or beyond it
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
