"""`shortlist predict`: texts on the command line, lines of a pipe, or files of any size."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import FILE_FORMATS, allow_options, levels_option, row_options, tail_option, with_fields_of
from shortlist.errors import OptionError, Stopped
from shortlist.printable import printable_line

if TYPE_CHECKING:
    from shortlist.batch.predict import JsonLines, PredictedRow, RowCounts, Source
    from shortlist.model import Model

STDIO = "-"
Columns = tuple[str, bool, bool, tuple[str, ...]]  # arguments of `JsonLines`: unit, with_id, with_text, keep


@click.command()
@click.argument("model", type=click.Path())
@click.argument("texts", nargs=-1)
@click.option("--in", "in_file", type=click.Path(), help="Input file, whatever its name; - for standard input.")
@click.option("--out", type=click.Path(), help="Output file: .jsonl or .csv (also with .gz or .zst), or .parquet.")
@click.option("-k", default=5, show_default=True, type=click.IntRange(1), help="Number of labels per text.")
@click.option("--min-score", type=float,
              help="Omit labels with a lower score.  [default: the model's threshold, if it has one]")  # fmt: skip
@click.option("--search-effort", default=1.0, show_default=True,
              help="How much of the candidate index to search: 2 searches twice as much, 0.5 half.")  # fmt: skip
@tail_option
@allow_options
@levels_option
@click.option("--explain", is_flag=True, help="For texts as arguments: also show the effect of each word, in log-odds.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@click.option("--id", "id_field", help="Field or column to copy to the output, unchanged.")
@click.option("--keep", multiple=True, metavar="FIELD",
              help="Further field or column to copy to the output. Repeatable.")  # fmt: skip
@click.option("--with-text/--without-text", default=None,
              help="Whether to write the texts.  [default: yes, unless there are none, or --id is given]")  # fmt: skip
@click.option("--from", "format", type=click.Choice([*FILE_FORMATS, "lines", "sparse"]),
              help="Input format, if the file does not show it; sparse: features in the Repository's format.  "
              "[default for standard input: lines, one text each]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines for texts and standard input, too.")
@click.option("--out-label-separator", default=";", show_default=True,
              help="Separator of labels in CSV output.")  # fmt: skip
@click.option("--cluster", metavar="ADDRESS",
              help="Predict files on a Ray cluster; OUT is a folder. "
              "auto: the running cluster, or else this machine.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Processes on the cluster.  [default: as many as have cores]")
@click.option("--to", "output_format", type=click.Choice(["jsonl", "parquet"]),
              help="Format of the files in OUT, with --cluster.  "
              "[default: parquet if the input is, else jsonl]")  # fmt: skip
@click.option("--rows-per-part", type=click.IntRange(1), help="Rows per file in OUT, with --cluster.  [default: 65536]")
@click.option("--resume", is_flag=True, help="Continue a job that was interrupted. If it is complete, do nothing.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@row_options
def predict(
    model: str,
    texts: tuple[str, ...],
    in_file: str | None,
    out: str | None,
    explain: bool,
    format: str | None,
    id_field: str | None,
    keep: tuple[str, ...],
    out_label_separator: str,
    with_text: bool | None,
    as_json: bool,
    cluster: str | None,
    workers: int | None,
    output_format: str | None,
    rows_per_part: int | None,
    resume: bool,
    overwrite: bool,
    reading: dict[str, Any],
    **options: Any,
) -> None:
    """Predict the best labels of texts.

    TEXTS are arguments, or the lines of standard input, or the rows of a file. A single argument with the extension of
    a data file (.jsonl, .csv, .tsv, .parquet; also .gz, .zst) is read as a file. For files with other names use --in.
    To predict a text that looks like a file name, pipe it in.

    A model that was trained on features takes files of the Extreme Classification Repository (recognised by their first
    line), .npy and .npz.

    Files, and everything written to --out, give JSON lines (or CSV or Parquet), one per row and in order: {"id": …,
    "text": …, "labels": […], "names": […], "scores": […]}. There are names only if the labels have display names.
    A text for which no label reaches the threshold gets an empty list of labels: not sure. A bad row is
    reported and gets an "error" and no labels; the job continues. Exit code 1 means that all rows were bad.
    While the job runs, its output is in OUT.partial. If interrupted, rerun with --resume; the result is the same.

    \b
    shortlist predict model/ "red shoes" "blue hat" -k 3
    shortlist predict model/ "red shoes" --explain
    shortlist predict model/ in.jsonl --out out.jsonl -k 5 --id sku
    shortlist predict model/ in.csv --text title --keep brand --out out.csv
    shortlist predict model/ tst_X_Xf.txt --out out.jsonl
    shortlist predict model/ "asthma with cough" --allow "J45*" --deny J45.0
    shortlist predict model/ "asthma with cough" --levels back-off --min-score 0.5
    shortlist predict model/ "in/*.parquet" --out out/ --cluster auto --id sku
    cut -f1 queries.tsv | shortlist predict model/ --json > predictions.jsonl
    zcat in.jsonl.gz | shortlist predict model/ --from jsonl | jq .labels
    """
    reading = {**with_fields_of(model, reading), "keep": keep}
    if cluster is not None:
        files = [*texts, *([in_file] if in_file else [])]
        job: dict[str, Any] = {
            "out": out,
            "output_format": output_format,
            "with_text": with_text,
            "rows_per_part": rows_per_part,
        }
        reading["id"] = id_field
        how = {"cluster": cluster, "workers": workers, "resume": resume, "overwrite": overwrite}
        _exit_if_all_bad(_predict_on_cluster(model, files, format, reading, options, how, **job))
        return
    if workers or output_format or rows_per_part:
        raise OptionError(
            "--workers, --to and --rows-per-part apply to --cluster. Leave them out, or add --cluster auto."
        )
    source = _open_source(texts, in_file, format, id_field, reading)
    if explain:
        if source.format != "texts" or out is not None:
            raise OptionError(
                "--explain is for texts as arguments. For files, use model.predict(…, explain=True) in Python."
            )
        _print_explained(model, texts, as_json, options)
        return
    if with_text and source.has_features:
        raise OptionError(f"--with-text: {source.name} has features and no texts. Leave it out.")
    with_text = id_field is None and not source.has_features if with_text is None else with_text
    columns = source.unit, id_field is not None, with_text, keep
    if out is None or out == STDIO or _is_special_file(out):
        if resume:
            raise OptionError("--resume needs an output file: add --out.")
        readable = out is None and format is None and source.format in ("texts", "lines") and not as_json
        written = _predict_to_stream(model, source, out or STDIO, options, None if readable else columns)
    else:
        output_options = {name: value for name, value in options.items() if name != "threads"}
        output_options |= {"id": id_field, "keep": keep, "with_text": with_text, "format": format, **reading}
        output_options |= {"out_label_separator": out_label_separator}
        written = _predict_to_file(model, source, out, options, columns, output_options, resume, overwrite)
    _exit_if_all_bad(written)


def _exit_if_all_bad(written: RowCounts) -> None:
    if written.rows and written.bad == written.rows:
        sys.exit(1)


def _print_explained(model_folder: str, texts: tuple[str, ...], as_json: bool, options: dict[str, Any]) -> None:
    """The labels of each text, and below each the words that moved its score, by how much."""
    from shortlist.model import load

    model = load(model_folder)
    for text, found in zip(texts, model.predict(texts, **options, explain=True), strict=True):
        explained = [(one, [(text[start:end], round(moved, 2)) for start, end, moved in one.words]) for one in found]
        if as_json:
            labels = [{"label": one.label, "name": one.name, "score": one.score, "words": e} for one, e in explained]
            click.echo(json.dumps({"text": text, "labels": labels}, ensure_ascii=False))
            continue
        click.echo(text if found else f"{text}\n  ({_no_labels(model, options['min_score'])})")
        for one, effects in explained:
            click.echo(f"  {one.score:6.3f}  {one.label}" + (f"  {one.name}" if one.name != one.label else ""))
            shown = [f"{word} {moved:+.2f}" for word, moved in effects if moved]
            click.echo(indent(fill(", ".join(shown) or "no word changes it", 86), " " * 10))


def _open_source(
    texts: tuple[str, ...], in_file: str | None, format: str | None, id_field: str | None, reading: dict[str, Any]
) -> Source:
    from shortlist.batch.predict import TextSource
    from shortlist.data.rows import RowOptions, RowSource

    if in_file is not None and texts:
        raise OptionError(f"give either texts or --in {in_file}, not both.")
    path = in_file or _file_argument(texts)
    if texts and path is None:
        if format is not None or id_field is not None or reading["keep"]:
            raise OptionError(
                "--from, --id and --keep apply to files and standard input, not to texts on the command line."
            )
        return TextSource(texts)
    source = RowSource(path or STDIO, format, RowOptions(**reading, id=id_field))
    keep = [*([id_field] if id_field else []), *reading["keep"]]
    if (source.format == "lines" or source.has_features) and keep:
        what = "features" if source.has_features else "plain lines"
        raise OptionError(
            f"{'--id' if id_field else '--keep'} {keep[0]}: {what} have no fields. If the input has another format, "
            "use --from."
        )
    return source


def _file_argument(texts: tuple[str, ...]) -> str | None:
    """The file that a single argument names, if any. An argument that could be a file is never taken as a text."""
    from shortlist.data.feature_rows import MATRICES, feature_format
    from shortlist.data.read import format_of

    as_text = "To predict it as a text, pipe it in: echo … | shortlist predict …"
    for text in texts:
        is_name = "\0" not in text and len(text) < 4096
        if is_name and (format_of(Path(text)) or Path(text).suffix in MATRICES):
            if len(texts) == 1:
                return text
            raise OptionError(f"{text!r} is a file name; give one file and no other arguments. {as_text}")
        if _is_file(text):
            if len(texts) == 1 and feature_format(Path(text)):
                return text
            raise OptionError(f"{text!r} is an existing file. To predict its rows, use --in {text}. {as_text}")
    return None


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # too long for a file name, or contains NUL
        return False


def _is_special_file(path: str) -> bool:
    """Whether it is a pipe or a device."""
    return _is_file(path) and not Path(path).is_file()


def _predict_to_stream(
    model_folder: str, source: Source, out: str, options: dict[str, Any], columns: Columns | None
) -> RowCounts:
    """Write to a pipe or terminal; without `columns`, in a form for people to read."""
    from shortlist.batch.predict import JsonLines, StreamOutput, predict_rows
    from shortlist.model import load

    model, start = load(model_folder), time.perf_counter()
    with click.open_file(out, "wb") as file:
        encode = JsonLines(*columns, model.all_names) if columns else _readable(model, options["min_score"])
        output = StreamOutput(file, encode)
        predict_rows(model, source, output, **options)
    if columns is not None or output.written.bad:
        _print_summary(source.name, output.written, 0, start)
    return output.written


def _predict_to_file(
    model_folder: str,
    source: Source,
    out: str,
    options: dict[str, Any],
    columns: Columns,
    output_options: dict[str, Any],
    resume: bool,
    overwrite: bool,
) -> RowCounts:
    """Write to a file. An interrupted job can be resumed if its input can be read again."""
    from shortlist.batch.output import ResumableOutput, check_output, job_identity
    from shortlist.batch.predict import RowCounts, predict_rows
    from shortlist.files import is_complete
    from shortlist.model import load
    from shortlist.model.format import CONFIG

    if resume and not source.is_file:
        raise OptionError(f"--resume must read the input again, which is impossible for {source.name}.")
    if resume and not overwrite and is_complete(out, [Path(source.name), Path(model_folder) / CONFIG]):
        click.echo(f"{out}: already complete.", err=True)
        return RowCounts()
    check_output(out, resume, overwrite)
    model, start = load(model_folder), time.perf_counter()
    identity = job_identity(source.fingerprint, model_folder, output_options)
    encode = _encoder(out, columns, model, output_options["out_label_separator"])
    with ResumableOutput(out, encode, identity, resume, overwrite, keep=source.is_file) as output:
        n_before = output.written.rows
        try:
            if not output.finished:
                predict_rows(model, source, output, **options)
        except KeyboardInterrupt:
            if not source.is_file or not output.written.rows:
                raise
            arguments = sys.argv[1:] if resume else [*sys.argv[1:], "--resume"]
            raise Stopped(
                f"stopped. {output.written.rows:,} rows are done and kept in {output.folder}. To continue:\n"
                f"  {shlex.join(['shortlist', *arguments])}"
            ) from None
        output.finish()
    _print_summary(out, output.written, n_before, start)
    return output.written


def _predict_on_cluster(
    model: str,
    files: list[str],
    format: str | None,
    reading: dict[str, Any],
    options: dict[str, Any],
    how: dict[str, Any],
    *,
    out: str | None,
    output_format: str | None,
    with_text: bool | None,
    rows_per_part: int | None,
) -> RowCounts:
    """Write a folder of files. `how` has the arguments of `predict_files`."""
    from shortlist.cluster.predict import ROWS_PER_PART, PredictJob, input_files, predict_files
    from shortlist.data.read import format_of
    from shortlist.data.rows import RowOptions

    if not files or out is None or out == STDIO:
        raise OptionError("--cluster needs input files and an output folder: add --out FOLDER.")
    start, paths = time.perf_counter(), input_files(files, format)
    is_parquet = (format or format_of(Path(paths[0]))) == "parquet"
    job = PredictJob(
        model,
        paths,
        out,
        output_format or ("parquet" if is_parquet else "jsonl"),
        RowOptions(**reading),
        options,
        format,
        with_text=reading["id"] is None if with_text is None else with_text,
        rows_per_part=rows_per_part or ROWS_PER_PART,
    )
    written = predict_files(job, **how)
    _print_summary(out, written, 0, start)
    return written


def _encoder(out: str, columns: Columns, model: Model, separator: str) -> JsonLines:
    from shortlist.batch.predict import CsvLines, JsonLines
    from shortlist.data.read import format_of

    if format_of(Path(out)) != "csv":
        return JsonLines(*columns, model.all_names)
    label = next((name for name in model.label_names if separator in name), None)
    if label is not None:
        raise OptionError(
            f"{out}: the label {label!r} contains the separator {separator!r}. Choose another with "
            "--out-label-separator, or write .jsonl."
        )
    return CsvLines(*columns, model.all_names, separator=separator)


def _readable(model: Model, min_score: float | None) -> Callable[[list[PredictedRow]], bytes]:
    no_labels = f"  ({_no_labels(model, min_score)})"

    def encode(predicted: list[PredictedRow]) -> bytes:
        lines = []
        for row, labels, scores in predicted:
            lines.append(row.text if row.problem is None else f"({row.problem})")
            if not labels and row.problem is None:
                lines.append(no_labels)
            for label, score in zip(labels, scores, strict=True):
                name = model.all_names.get(label, label)
                lines.append(f"  {score:6.3f}  {label}" + (f"  {name}" if name != label else ""))
        return "".join(f"{printable_line(line)}\n" for line in lines).encode()

    return encode


def _no_labels(model: Model, min_score: float | None) -> str:
    """Why a text has no labels."""
    if min_score is None and model.thresholds is not None:
        if model.thresholds.per_label:
            return "not sure: no label reaches its threshold"
        min_score = model.thresholds.min_score
    return f"not sure: no label scores {min_score:g} or more" if min_score else "no known words"


def _print_summary(name: str, written: RowCounts, n_before: int, start: float) -> None:
    seconds = time.perf_counter() - start
    bad = f", {written.bad:,} of them bad," if written.bad else ""
    resumed = f" ({n_before:,} of them before)" if n_before else ""
    rate = (written.rows - n_before) / max(seconds, 1e-9)
    click.echo(f"{name}: {written.rows:,} rows{resumed}{bad} in {seconds:.1f} s, {rate:,.0f} rows/s", err=True)
