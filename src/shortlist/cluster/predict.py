"""Batch prediction on a Ray cluster: files in, one folder of part files out.

Readers cut each input file into parts with the same number of rows. Predictors, processes that each map the model
folder into memory once, predict a part and commit it: its file appears complete. The name of a part says which rows it
has: a part that is predicted again, after a lost node or a killed job, replaces itself, and no row is lost or repeated.
Beside the parts is `_job.json`: the input files and all that decides the output (cluster/output.py). All machines must
see the input, the model and OUT under the same paths or URLs.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shortlist.batch.output import check_identity, job_identity
from shortlist.batch.parquet import convert_to_parquet
from shortlist.batch.predict import MAX_PROBLEMS_SHOWN, JsonLines, RowCounts, predict_chunk
from shortlist.cluster.connection import connected, reraise
from shortlist.cluster.output import Output
from shortlist.data import storage
from shortlist.data.arrow import import_pyarrow, open_parquet
from shortlist.data.read import find_shards, format_of
from shortlist.data.rows import Row, RowOptions, RowSource
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically
from shortlist.model import load
from shortlist.model.format import CONFIG
from shortlist.progress import Progress

ROWS_PER_PART = 65_536
PYTHON_TYPES = {"bool": "bool", "float": "float", "double": "float"}  # of Arrow's types
PYTHON_TYPES |= dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"], "int")


@dataclass(frozen=True)
class PredictJob:
    """What decides the output of a job.

    model          the model folder, or its URL
    files          the input files, in order; paths or URLs
    folder         the folder of the output, or its URL
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

    def part(self, file: int, part: int) -> str:
        """The name of the file with the predictions of a part."""
        return f"part-{file:05}-{part:05}.{self.output_format}"

    @property
    def threads(self) -> int:
        """The threads of one process."""
        return self.rank_options["threads"] or 1

    def identity(self, sources: Sequence[InputFile]) -> dict[str, Any]:
        """What must not change between a job and its resumption."""
        fingerprints = "\n".join(f"{source.name} {source.version}" for source in sources)
        digest = hashlib.sha256(fingerprints.encode()).hexdigest()[:16]
        options = {name: value for name, value in self.rank_options.items() if name != "threads"}
        options |= {"format": self.output_format, "rows_per_part": self.rows_per_part, "with_text": self.with_text}
        options |= {"from": self.input_format, "reading": repr(self.reading)}
        with storage.local_copy(self.model, CONFIG) as model:
            return job_identity(f"{len(sources):,} files, {digest}", model, options)


class InputFile(NamedTuple):
    """An input file by its path or URL, and what the driver must know of it.

    unit     what a row is called
    version  changes with the file
    """

    name: str
    format: str
    unit: str
    n_bytes: int
    version: str

    @staticmethod
    def of(name: str, format: str | None, options: RowOptions) -> InputFile:
        if not storage.is_url(name):
            source = RowSource(name, format, options)
            if not source.is_file or source.has_features:
                what = "has features" if source.has_features else "is not a file"
                raise OptionError(f"{name} {what}: on a cluster, only files of texts are predicted.")
            return InputFile(name, source.format, source.unit, source.path.stat().st_size, source.fingerprint)
        known = format or format_of(Path(name))
        if known is None:
            raise OptionError(
                f"{name}: cannot tell the format from the name. Set --from to jsonl, csv, tsv or parquet."
            )
        (stored,) = [stored for stored in storage.files_below(name) if stored.url == name]
        return InputFile(name, known, "row" if known == "parquet" else "line", stored.size, stored.version)


def input_files(patterns: Sequence[str], format: str | None = None) -> list[str]:
    """The files that names, patterns such as "in/*.parquet" and folders stand for, as absolute paths or URLs."""
    files: list[Path | str] = []
    for pattern in patterns:
        if storage.is_url(pattern):
            files += stored_files(pattern, format)
            continue
        path = Path(pattern)
        found = [path] if path.exists() else [Path(name) for name in sorted(glob.glob(pattern))]  # noqa: PTH207 - "/a/*"
        found = find_shards(path, format) if path.is_dir() else found
        if not found:
            raise DataError(f"{pattern}: no such file. Check the path.")
        files += found
    return list(dict.fromkeys(path if isinstance(path, str) else str(path.absolute()) for path in files))


def stored_files(pattern: str, format: str | None) -> list[str]:
    """The same for a URL."""
    found = storage.find_files(pattern)
    if not found:
        raise DataError(f"{pattern}: no such file. Check the URL.")
    urls = [stored.url for stored in found]
    if urls == [pattern] or any(wildcard in pattern for wildcard in storage.WILDCARDS):
        return urls
    known = [url for url in urls if format_of(Path(url)) and not Path(url).name.startswith((".", "_"))]
    files = [url for url in known if format in (None, format_of(Path(url)))]
    if not files:
        what = "files with texts" if format is None else f"{format} files"
        raise DataError(f"{pattern}: has no {what}. Check the URL, or give a pattern such as {pattern.rstrip('/')}/*.")
    return files


def predict_files(
    job: PredictJob, cluster: str = "auto", workers: int | None = None, resume: bool = False, overwrite: bool = False
) -> RowCounts:
    """Run a job, or with `resume` what is left of it, and count its rows.

    cluster  the address of the Ray cluster, as in `connected`
    workers  number of processes at most; by default, as many as the cluster has cores for
    """
    output = Output.at(job.folder)
    sources = [InputFile.of(name, job.input_format, job.reading) for name in job.files]
    if len({source.unit for source in sources}) > 1:
        raise OptionError("the input mixes Parquet and text files. Predict them one after the other.")
    identity = job.identity(sources)
    if resume and (done := output.finished()) is not None:
        check_identity(output.name, done["identity"], identity)
        return RowCounts(done["rows"], done["bad"])
    output.require_free(resume, overwrite)
    files = [{"file": source.name, "bytes": source.n_bytes} for source in sources]
    record: dict[str, Any] = {"identity": identity, "files": files}
    model = job.model if storage.is_url(job.model) else str(Path(job.model).absolute())
    with output.started(record):
        running = replace(job, folder=output.folder, model=model)
        with connected(cluster) as ray:
            counts = _run(ray, running, sources, workers, set(output.names()))
        output.finish({**record, "rows": counts.rows, "bad": counts.bad})
    return counts


def _run(ray: Any, job: PredictJob, sources: Sequence[InputFile], workers: int | None, done: set[str]) -> RowCounts:
    items: list[dict[str, Any]] = []
    for file, source in enumerate(sources):
        parts = [name for name in done if name.startswith(f"part-{file:05}-")]
        items.append({"file": file, "bytes": source.n_bytes, "done": parts})
    workers = workers or max(int(ray.cluster_resources().get("CPU", 1)) // job.threads, 1)
    files = ray.data.from_items(items, override_num_blocks=len(items))
    files.context.target_max_block_size = 1  # each part on its own: a block goes to one predictor
    files.context.enable_progress_bars = False
    one = {"batch_size": 1, "batch_format": "pyarrow"}
    parts = files.map_batches(read_parts, fn_args=(job,), num_cpus=0, **one)
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers)
    predicted = parts.map_batches(
        PartPredictor,
        fn_constructor_args=(job, sources[0].unit, _id_types(sources, job.reading)),
        num_cpus=job.threads,
        compute=pool,
        **one,
    )
    counts, total = RowCounts(), sum(source.n_bytes for source in sources)
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
        yield from _read_file(item["file"], item["bytes"], set(item["done"]), job, pyarrow)


def _read_file(file: int, size: int, done: set[str], job: PredictJob, pyarrow: Any) -> Iterator[Any]:
    name, position = job.files[file], 0.0
    with storage.local_copy(name) as path:
        source = RowSource(path, job.input_format, job.reading)
        rows = source.rows()
        for part in itertools.count():
            chunk = list(itertools.islice(rows, job.rows_per_part))
            if not chunk:
                break
            before, position = position, size * source.position / max(source.total or 0, 1)
            bad = [f"{name}, {source.unit} {row.number:,}: {row.problem}" for row in chunk if row.problem]
            content = None if job.part(file, part) in done else msgspec.json.encode(chunk)
            record: dict[str, Any] = {
                "file": file,
                "part": part,
                "n_rows": len(chunk),
                "n_bad": len(bad),
                "rows": content,
            }
            record |= {"bytes": int(position) - int(before), "problems": bad[:MAX_PROBLEMS_SHOWN]}
            types = {"rows": pyarrow.large_binary(), "problems": pyarrow.list_(pyarrow.string())}
            yield pyarrow.table({name: pyarrow.array([value], types.get(name)) for name, value in record.items()})


class PartPredictor:
    """A process with the model. Called with the rows of a part, it writes their predictions."""

    def __init__(self, job: PredictJob, unit: str, id_types: list[str]) -> None:
        self.job, self.id_types = job, id_types
        self._copy = contextlib.ExitStack()  # of a model at a URL, as long as this process runs
        self.model = load(self._copy.enter_context(storage.local_copy(job.model)))
        reading = job.reading
        self.encode = JsonLines(unit, reading.id is not None, job.with_text, reading.keep, self.model.display_names)

    def __call__(self, parts: Any) -> Any:
        for part in parts.to_pylist():
            if part["rows"] is not None:
                rows = [Row._make([*fields[:-1], tuple(fields[-1])]) for fields in msgspec.json.decode(part["rows"])]
                name = self.job.part(part["file"], part["part"])
                with storage.writing(storage.join(self.job.folder, name)) as path:
                    self._predict(rows, path)
        return parts.drop_columns(["rows"])

    def _predict(self, rows: list[Row], path: Path) -> None:
        options = {**self.job.rank_options, "threads": self.job.threads}
        lines = self.encode(predict_chunk(self.model, rows, **options))
        if self.job.output_format == "parquet":
            convert_to_parquet(io.BytesIO(lines), path, self.encode.columns, self.id_types)
        else:
            with write_atomically(path) as file:
                file.write(lines)


def _id_types(sources: Sequence[InputFile], reading: RowOptions) -> list[str]:
    """The type of ids in Parquet output: that of Parquet input; strings otherwise, as only the last row could tell."""
    names = set()
    for source in sources if reading.id else ():
        if source.format != "parquet":
            return ["str"]
        opened = storage.open_file(source.name) if storage.is_url(source.name) else None
        with open_parquet(source.name, reading, opened) as file:  # of a URL, the end of the file alone is read
            name = str(file.schema_arrow.field(reading.id).type)
        names.add(PYTHON_TYPES.get(name, "str"))
    return sorted(names)
