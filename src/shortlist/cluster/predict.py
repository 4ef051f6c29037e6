"""Batch prediction on a Ray cluster: files in, one folder of part files out.

Readers cut each input file into parts with the same number of rows. Predictors, processes that each map the model
folder into memory once, predict a part and commit it by renaming a file. The name of a part says which rows it has: a
part that is predicted again, after a lost node or a killed job, replaces itself, and no row is lost or repeated. While
the job runs, its parts are in OUT.partial, together with `_job.json`: the input files and all that decides the output.
At the end, this folder becomes OUT. All machines must see the input, the model and OUT under the same paths.
"""

from __future__ import annotations

import glob
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from shortlist.batch.output import check_identity, job_identity, read_record, remove_command
from shortlist.batch.parquet import convert_to_parquet
from shortlist.batch.predict import MAX_PROBLEMS_SHOWN, JsonLines, RowCounts, predict_chunk
from shortlist.cluster.connection import connected, reraise
from shortlist.data.arrow import import_pyarrow, open_parquet
from shortlist.data.read import find_shards
from shortlist.data.rows import Row, RowOptions, RowSource
from shortlist.errors import DataError, OptionError
from shortlist.files import lock_folder, partial_folder, remove_folder, sync_folder, write_atomically
from shortlist.model import load
from shortlist.progress import Progress

ROWS_PER_PART = 65_536
PYTHON_TYPES = {"bool": "bool", "float": "float", "double": "float"}  # of Arrow's types
PYTHON_TYPES |= dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"], "int")
JOB = "_job.json"  # whoever reads a folder of Parquet files skips names with an underscore


@dataclass(frozen=True)
class PredictJob:
    """What decides the output of a job.

    model          the model folder
    files          the input files, in order
    folder         the folder of the output
    output_format  "jsonl" or "parquet"
    reading        how to read rows, and which fields to keep
    rank_options   options of `Model.rank`
    """

    model: str
    files: list[str]
    folder: str
    output_format: str
    reading: RowOptions
    rank_options: dict[str, Any]
    input_format: str | None = None
    with_text: bool = True
    rows_per_part: int = ROWS_PER_PART

    def source(self, file: int) -> RowSource:
        return RowSource(self.files[file], self.input_format, self.reading)

    def part(self, file: int, part: int) -> Path:
        """Where the predictions of a part are written."""
        return Path(self.folder) / f"part-{file:05}-{part:05}.{self.output_format}"

    @property
    def threads(self) -> int:
        """The threads of one process."""
        return self.rank_options["threads"] or 1

    def identity(self, sources: Sequence[RowSource]) -> dict[str, Any]:
        """What must not change between a job and its resumption."""
        fingerprints = "\n".join(f"{source.name} {source.fingerprint}" for source in sources)
        digest = hashlib.sha256(fingerprints.encode()).hexdigest()[:16]
        options = {name: value for name, value in self.rank_options.items() if name != "threads"}
        options |= {"format": self.output_format, "rows_per_part": self.rows_per_part, "with_text": self.with_text}
        options |= {"from": self.input_format, "reading": repr(self.reading)}
        return job_identity(f"{len(sources):,} files, {digest}", self.model, options)


def input_files(patterns: Sequence[str], format: str | None = None) -> list[str]:
    """The files that names, patterns such as "in/*.parquet" and folders stand for, as absolute paths."""
    files: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        found = [path] if path.exists() else [Path(name) for name in sorted(glob.glob(pattern))]  # noqa: PTH207 - "/a/*"
        found = find_shards(path, format) if path.is_dir() else found
        if not found:
            raise DataError(f"{pattern}: no such file. Check the path.")
        files += found
    return list(dict.fromkeys(str(path.absolute()) for path in files))


def predict_files(
    job: PredictJob, cluster: str = "auto", workers: int | None = None, resume: bool = False, overwrite: bool = False
) -> RowCounts:
    """Run a job, or with `resume` what is left of it, and count its rows.

    cluster  the address of the Ray cluster, as in `connected`
    workers  number of processes at most; by default, as many as the cluster has cores for
    """
    out, partial = Path(job.folder).absolute(), partial_folder(Path(job.folder).absolute())
    sources = [job.source(file) for file in range(len(job.files))]
    _check_input(sources)
    identity = job.identity(sources)
    if resume and not partial.exists() and (out / JOB).exists():  # it was complete
        done = read_record(out / JOB, dict[str, Any])
        check_identity(out, done["identity"], identity)
        return RowCounts(done["rows"], done["bad"])
    _check_folders(out, partial, resume, overwrite)
    record: dict[str, Any] = {"identity": identity, "files": [_facts(source) for source in sources]}
    partial.mkdir(parents=True, exist_ok=True)
    with lock_folder(partial):
        if (partial / JOB).exists():
            check_identity(partial, read_record(partial / JOB, dict[str, Any])["identity"], identity)
        _write_record(partial / JOB, record)
        running = replace(job, folder=str(partial), model=str(Path(job.model).absolute()))
        with connected(cluster) as ray:
            counts = _run(ray, running, sources, workers)
        _write_record(partial / JOB, {**record, "rows": counts.rows, "bad": counts.bad})
        for leftover in partial.glob(".part-*.partial"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        remove_folder(out)
        partial.rename(out)
        sync_folder(out.parent)
    return counts


def _run(ray: Any, job: PredictJob, sources: Sequence[RowSource], workers: int | None) -> RowCounts:
    done = {path.name for path in Path(job.folder).glob(f"part-*.{job.output_format}")}
    items = [{"file": file, "done": [name for name in done if name.startswith(f"part-{file:05}-")]}
             for file in range(len(sources))]  # fmt: skip
    workers = workers or max(int(ray.cluster_resources().get("CPU", 1)) // job.threads, 1)
    files = ray.data.from_items(items, override_num_blocks=len(items))
    files.context.target_max_block_size = 1  # each part on its own: a block goes to one predictor
    files.context.enable_progress_bars = False
    one = {"batch_size": 1, "batch_format": "pyarrow"}
    parts = files.map_batches(read_parts, fn_args=(job,), num_cpus=0, **one)
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers)
    predicted = parts.map_batches(
        PartPredictor, fn_constructor_args=(job, _id_types(sources)), num_cpus=job.threads, compute=pool, **one
    )
    counts, total = RowCounts(), sum(_facts(source)["bytes"] for source in sources)
    with Progress(f"predicting {len(sources):,} files", total, "B") as progress, reraise(ray):
        for part in predicted.iter_rows():
            for problem in part["problems"][: max(MAX_PROBLEMS_SHOWN - counts.bad, 0)]:
                progress.say(problem)
            counts.rows, counts.bad = counts.rows + part["n_rows"], counts.bad + part["n_bad"]
            progress.advance(part["bytes"])
            progress.note(f"{counts.rows:,} rows, {counts.bad:,} bad")
    return counts


def read_parts(files: Any, job: PredictJob) -> Iterator[Any]:
    """Cut files into parts. Parts that are done are only counted."""
    pyarrow = import_pyarrow("prediction on a cluster")
    for item in files.to_pylist():
        file, done, source, position = item["file"], set(item["done"]), job.source(item["file"]), 0.0
        size, rows = _facts(source)["bytes"], source.rows()
        for part in itertools.count():
            chunk = list(itertools.islice(rows, job.rows_per_part))
            if not chunk:
                break
            before, position = position, size * source.position / max(source.total or 0, 1)
            bad = [f"{source.name}, {source.unit} {row.number:,}: {row.problem}" for row in chunk if row.problem]
            content = None if job.part(file, part).name in done else msgspec.json.encode(chunk)
            record = {"file": file, "part": part, "n_rows": len(chunk), "n_bad": len(bad), "rows": content}
            record |= {"bytes": int(position) - int(before), "problems": bad[:MAX_PROBLEMS_SHOWN]}
            types = {"rows": pyarrow.large_binary(), "problems": pyarrow.list_(pyarrow.string())}
            yield pyarrow.table({name: pyarrow.array([value], types.get(name)) for name, value in record.items()})


class PartPredictor:
    """A process with the model. Called with the rows of a part, it writes their predictions."""

    def __init__(self, job: PredictJob, id_types: list[str]) -> None:
        self.job, self.id_types, self.model = job, id_types, load(job.model)
        reading, unit = job.reading, job.source(0).unit
        self.encode = JsonLines(unit, reading.id is not None, job.with_text, reading.keep, self.model.display_names)

    def __call__(self, parts: Any) -> Any:
        for part in parts.to_pylist():
            if part["rows"] is not None:
                rows = [Row._make([*fields[:-1], tuple(fields[-1])]) for fields in msgspec.json.decode(part["rows"])]
                self._predict(rows, self.job.part(part["file"], part["part"]))
        return parts.drop_columns(["rows"])

    def _predict(self, rows: list[Row], path: Path) -> None:
        options = {**self.job.rank_options, "threads": self.job.threads}
        lines = self.encode(predict_chunk(self.model, rows, **options))
        if self.job.output_format == "parquet":
            convert_to_parquet(io.BytesIO(lines), path, self.encode.columns, self.id_types)
        else:
            with write_atomically(path) as file:
                file.write(lines)


def _check_input(sources: Sequence[RowSource]) -> None:
    for source in sources:
        if not source.is_file or source.has_features:
            what = "has features" if source.has_features else "is not a file"
            raise OptionError(f"{source.name} {what}: on a cluster, only files of texts are predicted.")
    if len({source.unit for source in sources}) > 1:
        raise OptionError("the input mixes Parquet and text files. Predict them one after the other.")


def _check_folders(out: Path, partial: Path, resume: bool, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before any work is done."""
    if partial.exists() and not (partial / JOB).exists() and any(partial.iterdir()):
        raise DataError(f"{partial} is not an unfinished job. Move it away, or choose another output.")
    if (partial / JOB).exists() and not resume:
        raise OptionError(
            f"{partial} holds an unfinished job. Rerun the same command with --resume, or start over: "
            f"{remove_command(partial)}"
        )
    if out.exists() and not (overwrite and (out / JOB).exists()):
        advice = "Choose another name" + ("." if overwrite or not (out / JOB).exists() else ", or add --overwrite.")
        raise OptionError(f"{out} already exists. {advice}")


def _facts(source: RowSource) -> dict[str, Any]:
    return {"file": str(source.path), "bytes": source.path.stat().st_size}


def _id_types(sources: Sequence[RowSource]) -> list[str]:
    """The type of ids in Parquet output: that of Parquet input; strings otherwise, as only the last row could tell."""
    names, field = set(), sources[0].options.id
    for source in sources if field else ():
        if source.format != "parquet":
            return ["str"]
        with open_parquet(source.path, source.options) as file:
            name = str(file.schema_arrow.field(field).type)
        names.add(PYTHON_TYPES.get(name, "str"))
    return sorted(names)


def _write_record(path: Path, record: dict[str, Any]) -> None:
    with write_atomically(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
