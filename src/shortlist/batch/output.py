"""An output file that takes hours to write and survives a kill at any moment.

While the job runs, a folder OUT.partial lies beside OUT. Its file `rows` holds JSON lines and grows chunk by chunk.
After each chunk, once it is on disk, `journal.json` is replaced and says how many rows and bytes are complete. Bytes
beyond that are a chunk that a kill interrupted; resuming cuts them off. At the end `rows` becomes OUT. For Parquet
output it is converted then, because a Parquet file cannot be truncated and continued.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shortlist import __version__
from shortlist.batch.parquet import convert_to_parquet, id_type
from shortlist.batch.predict import JsonLines, PredictedRow, RowCounts
from shortlist.data.arrow import import_pyarrow
from shortlist.data.read import format_of
from shortlist.data.storage import is_url
from shortlist.errors import DataError, OptionError
from shortlist.files import (
    compressor_for,
    explain_os_errors,
    link_target,
    lock_folder,
    partial_folder,
    remove_folder,
    sync_folder,
    write_atomically,
)
from shortlist.model.format import CONFIG

Record = TypeVar("Record")

ROWS, PARQUET, JOURNAL = "rows", "rows.parquet", "journal.json"


class Journal(msgspec.Struct):
    """What `rows` holds for certain, and the job it belongs to. `id_types` choose the type of Parquet's id column."""

    identity: dict[str, Any]
    rows: int = 0
    bad: int = 0
    bytes: int = 0
    id_types: list[str] = []
    finished: bool = False


class ResumableOutput:
    """The output file of a job that can be resumed after a kill. With `keep=False`, a failed job leaves nothing behind.

    >>> with ResumableOutput("out.jsonl", JsonLines("line", True, False), identity) as output:  # doctest: +SKIP
    ...     predict_rows(model, source, output, k=5)
    ...     output.finish()
    """

    def __init__(
        self,
        path: str | Path,
        encode: JsonLines,
        identity: dict[str, Any],
        resume: bool = False,
        overwrite: bool = False,
        keep: bool = True,
    ) -> None:
        check_output(path, resume, overwrite)
        self.path, self.folder = link_target(path), partial_folder(path)
        self._encode, self._keep = encode, keep
        self._is_parquet = format_of(self.path) == "parquet"
        self._compress = compressor_for(ROWS if self._is_parquet else self.path)
        self._rows = self.folder / ROWS
        with explain_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=resume)
        self._lock = ExitStack()
        self._lock.enter_context(lock_folder(self.folder))
        try:
            self.journal = self._read_journal(identity)
            self.written = RowCounts(self.journal.rows, self.journal.bad)
            if not self.finished:
                self._cut_off_incomplete_chunk()
                self._write_journal()
        except BaseException:
            if not resume:
                with suppress(OSError):
                    remove_folder(self.folder)
            self._lock.close()
            raise

    @property
    def finished(self) -> bool:
        """Whether all rows were written before; then only `finish` is left to do."""
        return self.journal.finished

    def write(self, predicted: list[PredictedRow]) -> None:
        """Append rows. When this returns, they are safe on disk."""
        header = b"" if self.journal.bytes else self._encode.header
        data = self._compress(header + self._encode(predicted))
        try:
            with self._rows.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"{self._rows}: cannot be written: {error.strerror}. {self.written.rows:,} rows are safe. Free some "
                "disk space, then rerun with --resume."
            ) from None
        self.written.add(predicted)
        self.journal.bytes += len(data)
        self.journal.id_types = sorted({*self.journal.id_types, *(id_type(one.row.id) for one in predicted)})
        self._write_journal()

    def finish(self) -> None:
        """Move the output to its place."""
        self.journal.finished = True
        self._write_journal()
        complete = self._rows
        if self._is_parquet:
            complete = self.folder / PARQUET
            with self._rows.open("rb") as lines:
                convert_to_parquet(lines, complete, self._encode.columns, self.journal.id_types)
        with explain_os_errors(self.path):
            if complete.exists() or not self.path.exists():  # else a kill came right after the move
                complete.replace(self.path)
                sync_folder(self.path.parent)
            remove_folder(self.folder)

    def __enter__(self) -> ResumableOutput:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not (self._keep and self.written.rows):
            with suppress(OSError):
                remove_folder(self.folder)
        self._lock.close()

    def _read_journal(self, identity: dict[str, Any]) -> Journal:
        path = self.folder / JOURNAL
        if not path.exists():  # a new job, or one that was killed before its first row
            return Journal(identity)
        journal = read_record(path, Journal)
        check_identity(self.folder, journal.identity, identity)
        return journal

    def _cut_off_incomplete_chunk(self) -> None:
        with explain_os_errors(self._rows), self._rows.open("ab") as file:
            if file.tell() < self.journal.bytes:
                raise DataError(
                    f"{self._rows}: is damaged (shorter than its journal says). Start over: "
                    f"{remove_command(self.folder)}"
                )
            file.truncate(self.journal.bytes)

    def _write_journal(self) -> None:
        self.journal.rows, self.journal.bad = self.written.rows, self.written.bad
        with write_atomically(self.folder / JOURNAL) as file:
            file.write(msgspec.json.encode(self.journal))


def check_output(path: str | Path, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse an output that cannot be written, before any work is done."""
    path, folder = Path(path), partial_folder(path)
    if format_of(path) not in ("jsonl", "csv", "parquet"):
        raise OptionError(f"{path}: predictions are written as .jsonl or .csv (also with .gz or .zst), or .parquet.")
    if format_of(path) == "parquet":
        import_pyarrow("writing Parquet")
    compressor_for(path)  # raises if the extra for .zst is missing
    if path.is_dir():
        raise DataError(f"{path}: is a folder. Give the name of a file.")
    if folder.exists():
        if not _is_unfinished_job(folder):
            raise DataError(f"{folder} is not an unfinished job. Move it away, or choose another output.")
        journal = read_record(folder / JOURNAL, Journal) if (folder / JOURNAL).exists() else Journal({})
        if not resume:
            raise OptionError(
                f"{folder} holds an unfinished job ({journal.rows:,} rows done). Rerun the same command with --resume, "
                f"or start over: {remove_command(folder)}"
            )
        if journal.finished:
            return
    if path.exists() and not overwrite:
        older = ", and is older than the input or the model" if resume else ""
        raise OptionError(f"{path} already exists{older}. Choose another name, or add --overwrite.")


def job_identity(fingerprint: str, model: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """What must not change between a job and its resumption: input, model, and all options that affect the output."""
    identity = {
        "input": fingerprint,
        "model": hashlib.sha256((Path(model) / CONFIG).read_bytes()).hexdigest()[:16],
        "release": __version__,
        **options,
    }
    return msgspec.json.decode(msgspec.json.encode(identity))


def check_identity(folder: Path | str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume another job than the one that a folder holds."""
    for name, value in now.items():
        if before.get(name) != value:
            raise DataError(
                f"{folder}: the job there has a different {name} ({before.get(name)} then, {value} now). "
                f"Resume with the same input, model and options, or start over: {remove_command(folder)}"
            )


def _is_unfinished_job(folder: Path) -> bool:
    """Whether the folder contains only files that a job writes."""
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:  # another process has just finished it
        return True
    except NotADirectoryError:
        return False
    return all(name in (ROWS, PARQUET, JOURNAL) or name.startswith((f".{JOURNAL}.", f".{PARQUET}.")) for name in names)


def read_record(path: Path, kind: type[Record]) -> Record:
    """What a job has written about itself."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Start over: {remove_command(path.parent)}") from None


def remove_command(folder: Path | str) -> str:
    """The command that removes a folder, for messages."""
    return f"remove {folder}" if is_url(folder) else f"rm -r {shlex.quote(str(folder))}"
