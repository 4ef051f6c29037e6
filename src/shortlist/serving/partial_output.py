"""An output file that is made over hours and survives a kill at any moment.

Beside OUT lies a folder OUT.partial until all is done. `rows` holds JSON lines, appended in chunks; after each,
once it is on the disk, `journal.json` is replaced and says how many rows and bytes count. Whatever lies behind
them was being written when the job died, and is cut off when it goes on. At the end `rows` becomes OUT; as
Parquet, it is converted, for a Parquet file cannot be cut and continued.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from shortlist import __version__
from shortlist.data.arrow import import_pyarrow
from shortlist.data.read import format_of
from shortlist.errors import DataError, OptionError
from shortlist.files import compressor_for, sync_folder, write_atomically
from shortlist.model.folder import CONFIG
from shortlist.serving.bulk import Done, JsonLines, Predicted, Source, count
from shortlist.serving.parquet_output import kind_of_id, parquet_from_lines

ROWS, PARQUET, JOURNAL = "rows", "rows.parquet", "journal.json"


class Journal(msgspec.Struct):
    """What is safe in `rows`, and of which job it is. `id_kinds` are the types of ids, for Parquet's column."""

    identity: dict[str, Any]
    rows: int = 0
    bad: int = 0
    bytes: int = 0
    id_kinds: list[str] = []
    finished: bool = False


class PartialOutput:
    """The output file of a job that can go on after a kill; or, without `keep`, of one that leaves nothing behind.

    >>> with PartialOutput("out.jsonl", JsonLines("line", True, False), identity) as output:  # doctest: +SKIP
    ...     predict_rows(model, source, output, options)
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
        self.path, self.folder = _target(path), partial_folder(path)
        self._encode, self._keep = encode, keep
        self._parquet = format_of(self.path) == "parquet"
        self._pack = compressor_for(ROWS if self._parquet else self.path)
        self._rows, self._aside = self.folder / ROWS, self.folder.with_name(f".{self.folder.name}.done")
        shutil.rmtree(self._aside, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=resume)
        self._lock = _locked(self.folder)
        try:
            self.journal = self._read_journal(identity)
            self.done = Done(self.journal.rows, self.journal.bad)
            if not self.finished:
                self._cut_off()
                self._write_journal()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def finished(self) -> bool:
        """Whether every row was done before; then only `finish` is left."""
        return self.journal.finished

    def write(self, predicted: list[Predicted]) -> None:
        """Append rows; when this returns, no kill can take them away."""
        packed = self._pack(self._encode(predicted))
        try:
            with self._rows.open("ab") as file:
                file.write(packed)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"{self._rows}: cannot be written: {error.strerror}. {self.done.rows:,} rows are safe; make room, and "
                "go on with --resume."
            ) from None
        count(self.done, predicted)
        self.journal.bytes += len(packed)
        self.journal.id_kinds = sorted({*self.journal.id_kinds, *(kind_of_id(one.row.id) for one in predicted)})
        self._write_journal()

    def finish(self) -> None:
        """Put the output in its place."""
        self.journal.finished = True
        self._write_journal()
        made = self._rows
        if self._parquet:
            made = self.folder / PARQUET
            parquet_from_lines(self._rows, made, self._encode.columns, self.journal.id_kinds)
        if made.exists():  # else it was moved there right before a kill
            made.replace(self.path)
            sync_folder(self.path.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the folder: in one move first, for what a kill leaves of it must not look like a job."""
        self.folder.rename(self._aside)
        shutil.rmtree(self._aside, ignore_errors=True)

    def __enter__(self) -> PartialOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not (self._keep and self.done.rows):
            self.discard()
        os.close(self._lock)

    def _read_journal(self, identity: dict[str, Any]) -> Journal:
        path = self.folder / JOURNAL
        if not path.exists():  # a new job, or one that was killed before its first row
            return Journal(identity)
        journal = _journal_in(path)
        for name, now in identity.items():
            before = journal.identity.get(name)
            if before != now:
                raise DataError(
                    f"{self.folder}: the unfinished job there had another {name} ({before} then, {now} now). "
                    f"Go on with the same input, model and options, or start over: {_removal(self.folder)}"
                )
        return journal

    def _cut_off(self) -> None:
        """Remove what was being written when the job died."""
        with self._rows.open("ab") as file:
            if file.tell() < self.journal.bytes:
                raise DataError(
                    f"{self._rows}: is shorter than its journal says; it is damaged. Start over: "
                    f"{_removal(self.folder)}"
                )
            file.truncate(self.journal.bytes)

    def _write_journal(self) -> None:
        self.journal.rows, self.journal.bad = self.done.rows, self.done.bad
        with write_atomically(self.folder / JOURNAL) as file:
            file.write(msgspec.json.encode(self.journal))


def partial_folder(path: str | Path) -> Path:
    """Where an unfinished output is kept."""
    target = _target(path)
    return target.with_name(f"{target.name}.partial")


def check_output(path: str | Path, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse what cannot be written, before the work."""
    path, folder = Path(path), partial_folder(path)
    if format_of(path) not in ("jsonl", "parquet"):
        raise OptionError(f"{path}: predictions are written as .jsonl (also .jsonl.gz, .jsonl.zst) or .parquet.")
    if format_of(path) == "parquet":
        import_pyarrow("writing Parquet")
    compressor_for(path)  # says what is missing
    if path.is_dir():
        raise DataError(f"{path}: is a folder; a file was to be written there.")
    if folder.exists():
        if not _is_job(folder):
            raise DataError(f"{folder} is in the way, and is no unfinished job. Move it, or choose another output.")
        journal = _journal_in(folder / JOURNAL) if (folder / JOURNAL).exists() else Journal({})
        if not resume:
            raise OptionError(
                f"{folder} holds an unfinished job ({journal.rows:,} rows done). Go on with it: the same command with "
                f"--resume. Or start over: {_removal(folder)}"
            )
        if journal.finished:
            return
    if path.exists() and not overwrite:
        raise OptionError(f"{path} exists; choose another name, or say --overwrite.")


def identity_of(source: Source, model: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a job to go on: the input, the model, and every option that shows in the output."""
    identity = {
        "input": source.fingerprint,
        "model": hashlib.sha256((Path(model) / CONFIG).read_bytes()).hexdigest()[:16],
        "release": __version__,
        **options,
    }
    return msgspec.json.decode(msgspec.json.encode(identity))


def _target(path: str | Path) -> Path:
    """A link stays one: what it leads to is written."""
    path = Path(path)
    return path.resolve() if path.is_symlink() else path


def _locked(folder: Path) -> int:
    """A lock on the folder, which ends with the process, however that ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise DataError(f"{folder}: another process is writing there. Wait for it, or stop it.") from None
    return handle


def _is_job(folder: Path) -> bool:
    """Whether the folder holds nothing but what a job puts there."""
    return folder.is_dir() and all(
        path.name in (ROWS, PARQUET, JOURNAL) or path.name.startswith((f".{JOURNAL}.", f".{PARQUET}."))
        for path in folder.iterdir()
    )


def _journal_in(path: Path) -> Journal:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Start over: {_removal(path.parent)}") from None


def _removal(folder: Path) -> str:
    return f"rm -r {shlex.quote(str(folder))}"
