"""`shortlist predict`: for texts on the command line, for lines of a pipe, for files of any size."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import row_options
from shortlist.errors import OptionError, Stopped

if TYPE_CHECKING:
    from shortlist.model.base import Model
    from shortlist.serving.bulk import Done, JsonLines, Predicted, PredictOptions, Source

STANDARD = "-"


@click.command()
@click.argument("model", type=click.Path())
@click.argument("texts", nargs=-1)
@click.option("--in", "in_file", type=click.Path(), help="File to predict for, whatever its name; - is standard input.")
@click.option("--out", type=click.Path(), help="File for the predictions: .jsonl, .jsonl.gz, .jsonl.zst or .parquet.")
@click.option("-k", default=5, show_default=True, type=click.IntRange(1), help="How many labels.")
@click.option("--min-score", default=0.0, show_default=True, help="Leave out labels with a smaller score.")
@click.option(
    "--search-effort", default=1.0, show_default=True, help="How much to search: 2 for twice as much, 0.5 for half."
)
@click.option("--threads", type=int, help="How many cores to use; all by default.")
@click.option("--id", "id_field", help="Field or column to keep beside the predictions, as it is.")
@click.option(
    "--with-text/--without-text", default=None, help="Whether to write the texts.  [default: without, if --id]"
)
@click.option(
    "--from",
    "format",
    type=click.Choice(["jsonl", "csv", "tsv", "parquet", "lines"]),
    help="Format of the input, if its name does not say; standard input is lines, each a text, by default.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines also for texts and lines of standard input.")
@click.option("--resume", is_flag=True, help="Go on with a job that was stopped or killed.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@row_options
def predict(
    model: str,
    texts: tuple[str, ...],
    in_file: str | None,
    out: str | None,
    format: str | None,
    id_field: str | None,
    with_text: bool | None,
    as_json: bool,
    resume: bool,
    overwrite: bool,
    reading: dict[str, Any],
    **options: Any,
) -> None:
    """Predict the best labels for TEXTS, for each line of standard input, or for each row of a file.

    A single argument that ends as data files do (.jsonl, .csv, .tsv, .parquet; also .gz, .zst) is a file and must
    exist; a file of any other name is given with --in. A text that is spelt like a file goes through standard input.

    Rows of files, and all that goes to --out, become JSON lines (or Parquet): {"id": …, "text": …, "labels": […],
    "scores": […]}, in order, one for each row. A bad row is reported, has no labels but an "error", and does not
    stop the job; exit code 1 says that all rows were bad. Until it is done, the output is in OUT.partial; a job that
    was stopped or killed goes on with --resume and ends in the same output.

    \b
    shortlist predict model/ "red shoes" "blue hat" -k 3
    shortlist predict model/ in.jsonl --out out.jsonl -k 5 --id sku
    shortlist predict model/ in.csv --text title --out out.parquet
    cut -f1 queries.tsv | shortlist predict model/ --json > predictions.jsonl
    zcat in.jsonl.gz | shortlist predict model/ --from jsonl | jq .labels
    """
    from shortlist.serving.bulk import JsonLines, PredictOptions

    source = _source(texts, in_file, format, id_field, reading)
    with_text = id_field is None if with_text is None else with_text
    encode = JsonLines(source.unit, id_field is not None, with_text)
    wanted = PredictOptions(**options)
    if out is None or out == STANDARD or _is_pipe(out):
        if resume:
            raise OptionError("--resume goes on with an output file: say which with --out.")
        for_people = out is None and format is None and source.format in ("texts", "lines") and not as_json
        done = _to_stream(model, source, out or STANDARD, wanted, None if for_people else encode)
    else:
        in_output = {name: value for name, value in options.items() if name != "threads"}
        in_output |= {"id": id_field, "with_text": with_text, "format": format, **reading}
        done = _to_file(model, source, out, wanted, encode, in_output, resume, overwrite)
    if done.rows and done.bad == done.rows:
        sys.exit(1)


def _source(
    texts: tuple[str, ...], in_file: str | None, format: str | None, id_field: str | None, reading: dict[str, Any]
) -> Source:
    from shortlist.data.rows import RowOptions, RowSource
    from shortlist.serving.bulk import GivenTexts

    if in_file is not None and texts:
        raise OptionError(f"there are texts, and --in {in_file} as well: give one of them.")
    path = in_file or _file_among(texts)
    if texts and path is None:
        if format is not None or id_field is not None:
            raise OptionError("--from and --id are for files and standard input; texts have neither format nor id.")
        return GivenTexts(texts)
    source = RowSource(path or STANDARD, format, RowOptions(**reading, id=id_field))
    if source.format == "lines" and id_field is not None:
        raise OptionError(f"--id {id_field}: lines have no fields. Is the input of another format (--from)?")
    return source


def _file_among(texts: tuple[str, ...]) -> str | None:
    """The file that a single argument names, if it does. What may be meant as a file is never taken for a text."""
    from shortlist.data.read import format_of

    instead = "a text that is spelt so goes through standard input (echo … | shortlist predict …)"
    for text in texts:
        if "\0" not in text and len(text) < 4096 and format_of(Path(text)):
            if len(texts) == 1:
                return text
            raise OptionError(f"{text!r} is the name of a file, and only one is taken; {instead}.")
        if _is_file(text):
            raise OptionError(f"there is a file {text!r}: to predict for what is in it say --in {text}; {instead}.")
    return None


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # longer than any name, or with a NUL in it
        return False


def _is_pipe(path: str) -> bool:
    return _is_file(path) and not Path(path).is_file()


def _to_stream(
    model: str,
    source: Source,
    out: str,
    options: PredictOptions,
    encode: Callable[[list[Predicted]], bytes] | None,
) -> Done:
    """Into a pipe or onto a terminal; in the form for people if no other is given."""
    from shortlist.model import load
    from shortlist.serving.bulk import StreamOutput, predict_rows

    loaded, start = load(model), time.perf_counter()
    with click.open_file(out, "wb") as file:
        output = StreamOutput(file, encode or _for_people(loaded, options.min_score))
        predict_rows(loaded, source, output, options)
    if encode is not None or output.done.bad:
        _summarise(source.name, output.done, 0, start)
    return output.done


def _to_file(
    model: str,
    source: Source,
    out: str,
    options: PredictOptions,
    encode: JsonLines,
    in_output: dict[str, Any],
    resume: bool,
    overwrite: bool,
) -> Done:
    """Into a file; a job that is stopped on the way can go on, if its input can be read again."""
    from shortlist.model import load
    from shortlist.serving.bulk import predict_rows
    from shortlist.serving.partial_output import PartialOutput, check_output, identity_of

    if resume and not source.is_file:
        raise OptionError(f"--resume reads the input from its beginning again, and {source.name} cannot be.")
    check_output(out, resume, overwrite)
    loaded, start = load(model), time.perf_counter()
    identity = identity_of(source, model, in_output)
    with PartialOutput(out, encode, identity, resume, overwrite, keep=source.is_file) as output:
        before = output.done.rows
        try:
            if not output.finished:
                predict_rows(loaded, source, output, options)
        except KeyboardInterrupt:
            if not source.is_file or not output.done.rows:
                raise
            raise Stopped(
                f"stopped; {output.done.rows:,} rows are done and kept in {output.folder}. Go on with\n  {_again()}"
            ) from None
        output.finish()
    _summarise(out, output.done, before, start)
    return output.done


def _again() -> str:
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    return shlex.join(["shortlist", *arguments])


def _for_people(model: Model, min_score: float) -> Callable[[list[Predicted]], bytes]:
    def encode(predicted: list[Predicted]) -> bytes:
        lines = []
        for row, labels, scores in predicted:
            lines.append(row.text if row.problem is None else f"({row.problem})")
            if not labels and row.problem is None:
                lines.append(f"  (no label has a score of {min_score})" if min_score else "  (no word of it is known)")
            for label, score in zip(labels, scores, strict=True):
                name = model.display_names.get(label, label)
                lines.append(f"  {score:6.3f}  {label}" + (f"  {name}" if name != label else ""))
        return "".join(f"{line}\n" for line in lines).encode()

    return encode


def _summarise(where: str, done: Done, before: int, start: float) -> None:
    """The last line: what was done, how quickly, and what was wrong with it."""
    seconds = time.perf_counter() - start
    bad = f", {done.bad:,} of them bad" if done.bad else ""
    gone_on = f" ({before:,} of them before)" if before else ""
    rate = (done.rows - before) / max(seconds, 1e-9)
    click.echo(f"{where}: {done.rows:,} rows{gone_on}{bad} in {seconds:.1f} s, {rate:,.0f} a second", err=True)
