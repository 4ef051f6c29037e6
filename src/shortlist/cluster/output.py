"""Where a batch prediction on a cluster writes: a folder that all machines see, or a URL.

A folder is called OUT.partial until it is complete. In an object store nothing can be renamed: parts are written to OUT
at once, and OUT is complete when it has a file `_SUCCESS`, as Spark's and Hadoop's outputs are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from shortlist.batch.output import check_identity, remove_command
from shortlist.data import storage
from shortlist.errors import DataError, OptionError
from shortlist.files import lock_folder, partial_folder, remove_folder, sync_folder, write_atomically

JOB = "_job.json"  # whoever reads a folder of Parquet files skips names with an underscore
SUCCESS = "_SUCCESS"


class Output:
    """A folder on a file system of the machines.

    name    as the user has given it
    folder  where parts are written
    """

    def __init__(self, out: str) -> None:
        self.name, self._out = out, Path(out).absolute()
        self._partial = partial_folder(self._out)
        self.folder = str(self._partial)

    @staticmethod
    def at(out: str) -> Output:
        return StoredOutput(out) if storage.is_url(out) else Output(out)

    def finished(self) -> dict[str, Any] | None:
        """The record of the job, if it is complete."""
        done = not self._partial.exists() and (self._out / JOB).exists()
        return self._read(str(self._out)) if done else None

    def require_free(self, resume: bool, overwrite: bool) -> None:
        """Refuse an output that cannot be written, before any work is done."""
        partial, out = self._partial, self._out
        if partial.exists() and not (partial / JOB).exists() and any(partial.iterdir()):
            raise DataError(f"{partial} is not an unfinished job. Move it away, or choose another output.")
        if (partial / JOB).exists() and not resume:
            self._refuse_unfinished(remove_command(partial))
        if out.exists() and not (overwrite and (out / JOB).exists()):
            self._refuse_existing(overwrite or not (out / JOB).exists())

    @contextmanager
    def started(self, record: dict[str, Any]) -> Iterator[None]:
        """Start the job, or continue the one that is there, if it is the same. Another process cannot, meanwhile."""
        self._partial.mkdir(parents=True, exist_ok=True)
        with lock_folder(self._partial):
            if (self._partial / JOB).exists():
                check_identity(self.folder, self._read(self.folder)["identity"], record["identity"])
            self._write(record)
            yield

    def names(self) -> list[str]:
        """The files that are there."""
        return [path.name for path in self._partial.iterdir()]

    def finish(self, record: dict[str, Any]) -> None:
        """All parts are there: the output is complete."""
        self._write(record)
        for leftover in self._partial.glob(".part-*.partial"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        remove_folder(self._out)
        self._partial.rename(self._out)
        sync_folder(self._out.parent)

    def _write(self, record: dict[str, Any]) -> None:
        with write_atomically(self._partial / JOB) as file:
            file.write(encoded(record))

    def _read(self, folder: str) -> dict[str, Any]:
        path = storage.join(folder, JOB)
        try:
            content = storage.read_bytes(path) if storage.is_url(path) else Path(path).read_bytes()
            return msgspec.json.decode(content, type=dict[str, Any])
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"{path}: cannot be read ({error}). Remove the folder to start over.") from None

    def _refuse_unfinished(self, remove: str) -> None:
        raise OptionError(
            f"{self.folder} holds an unfinished job. Rerun the same command with --resume, or start over: {remove}"
        )

    def _refuse_existing(self, is_final: bool) -> None:
        advice = "Choose another name" + ("." if is_final else ", or add --overwrite.")
        raise OptionError(f"{self.name} already exists. {advice}")


class StoredOutput(Output):
    """A folder at a URL. Nobody is kept from starting the same job twice; both would write the same."""

    def __init__(self, out: str) -> None:
        self.name = self.folder = out.rstrip("/")

    def finished(self) -> dict[str, Any] | None:
        done = {JOB, SUCCESS} <= set(self.names())
        return self._read(self.folder) if done else None

    def require_free(self, resume: bool, overwrite: bool) -> None:
        names = set(self.names())
        if JOB in names and SUCCESS not in names:
            if not resume:
                self._refuse_unfinished(remove_command(self.folder))
        elif names:
            if not (overwrite and JOB in names):
                self._refuse_existing(overwrite or JOB not in names)
            storage.remove(self.folder, first=SUCCESS)

    @contextmanager
    def started(self, record: dict[str, Any]) -> Iterator[None]:
        if JOB in self.names():
            check_identity(self.folder, self._read(self.folder)["identity"], record["identity"])
        self._write(record)
        yield

    def names(self) -> list[str]:
        return [stored.url.removeprefix(f"{self.folder}/") for stored in storage.files_below(self.folder)]

    def finish(self, record: dict[str, Any]) -> None:
        self._write(record)
        storage.write_bytes(b"", storage.join(self.folder, SUCCESS))

    def _write(self, record: dict[str, Any]) -> None:
        storage.write_bytes(encoded(record), storage.join(self.folder, JOB))


def encoded(record: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"
