"""Options that several commands share, and helpers to read their data and to write models."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shortlist.errors import DataError, OptionError
from shortlist.printable import printable

if TYPE_CHECKING:
    from shortlist.data import Dataset
    from shortlist.model import Model

# Not from the library: importing it would make `--help` load numpy.
FILE_FORMATS = ["jsonl", "csv", "tsv", "parquet", "fasttext", "annif"]

_OPTIONS = {
    "text": click.option(
        "--text",
        multiple=True,
        callback=lambda ctx, parameter, names: list(names) if len(names) > 1 else (*names, "text")[0],
        help="Field or column of the text. Repeat for several, which are joined.  [default: text]",
    ),
    "field_weight": click.option(
        "--field-weight",
        type=(str, int),
        multiple=True,
        metavar="FIELD N",
        help="With several text fields, how many times this one counts. Repeat for further fields.",
    ),
    "field_words": click.option(
        "--field-words",
        type=click.Choice(["shared", "own"]),
        default="shared",
        show_default=True,
        help="Whether several text fields share their words, or all but the first have their own.",
    ),
    "labels": click.option("--labels", default="labels", show_default=True, help="Field or column of the labels."),
    "weights": click.option("--weights", help="Field or column of the label weights."),
    "label_separator": click.option(
        "--label-separator",
        help='Separator if all labels are in one string; none: the string is one label.  [default: ";" in CSV and TSV]',
    ),
    "separator": click.option("--separator", help="Separator of CSV columns."),
    "header": click.option(
        "--header/--no-header", default=True, help="Whether the first line of a CSV file has the column names."
    ),
    "quotes": click.option("--quotes/--no-quotes", default=True, help="Whether to remove quotes around CSV fields."),
    "encoding": click.option("--encoding", default="utf-8", show_default=True, help="Encoding of text files."),
    "on_error": click.option(
        "--on-error",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="Stop at the first bad line, or skip bad lines and list them.",
    ),
    "label_names": click.option("--label-names", type=click.Path(), help="File of display names for labels."),
    "format": click.option(
        "--from", "format", type=click.Choice(FILE_FORMATS), help="Format of the source, if its name does not show it."
    ),
}


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `shortlist.read`; the command gets them as one dictionary `reading`."""
    return _add_options(command, list(_OPTIONS))


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for rows without labels; the command gets them as one dictionary `reading`."""
    return _add_options(command, ["text", "field_weight", "field_words", "separator", "header", "quotes", "encoding"])


def _add_options(command: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    @wraps(command)
    def with_reading(**arguments: Any) -> Any:
        reading = {name: arguments.pop(name) for name in names}
        reading["text"] = _weighted(reading["text"], reading.pop("field_weight"))
        return command(reading=reading, **arguments)

    for name in reversed(names):
        with_reading = _OPTIONS[name](with_reading)
    return with_reading


def _weighted(text: str | list[str], pairs: tuple[tuple[str, int], ...]) -> str | list[str] | dict[str, int]:
    """The text fields with their weights, if there are any."""
    names, weights = [text] if isinstance(text, str) else text, dict(pairs)
    if len(weights) < len(pairs):
        raise click.BadParameter("a text field has two weights", param_hint="--field-weight")
    for name in weights:
        if name not in names:
            raise click.BadParameter(
                f"{name!r} is no text field; name it with --text, too. Text fields: {', '.join(names)}",
                param_hint="--field-weight",
            )
    return {name: weights.get(name, 1) for name in names} if weights else text


def with_fields_of(model: str | Path, reading: dict[str, Any]) -> dict[str, Any]:
    """The options of reading, with the text fields of the model where it has several and none are named."""
    from shortlist.data.storage import is_url, local_copy
    from shortlist.model.checks import check_same_fields
    from shortlist.model.format import CONFIG, is_model, read_config
    from shortlist.text.fields import TextFields

    if is_url(model):
        with local_copy(str(model), CONFIG) as folder:
            return with_fields_of(folder, reading)
    if not is_model(Path(model)):
        return reading
    fields, given = read_config(Path(model))[0].text_fields or None, reading["text"]
    if fields is not None and given in ("text", list(fields.names)):
        return {**reading, **fields.reading}
    check_same_fields(None if isinstance(given, str) else TextFields.of(given, reading["field_words"]), fields)
    return reading


def new_model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --out and --overwrite, for a command that writes a model made from MODEL."""
    replaced = "Replace another model in OUT. MODEL itself is replaced if OUT names it."
    command = click.option("--overwrite", is_flag=True, help=replaced)(command)
    out = "Folder of the new model; MODEL itself is replaced in one move."
    return click.option("--out", required=True, type=click.Path(), help=out)(command)


def check_out_model(model: str, out: str, overwrite: bool) -> None:
    """Before the work: refuse to replace a model that nobody asked to change."""
    from shortlist.model.folder import check_replaceable

    check_replaceable(Path(out), overwrite or Path(out).resolve() == Path(model).resolve())


def change_model(model: str, out: str, overwrite: bool, change: Callable[[Model], Model]) -> tuple[int, Model]:
    """Write a changed MODEL to OUT; returns the number of labels before, and the new model."""
    from shortlist.model import load

    check_out_model(model, out, overwrite)
    loaded = load(model)
    before = loaded.n_labels
    changed = change(loaded)
    changed.save(out, bits=32)  # as it is stored: what is in 8 bits stays so
    return before, changed


def read_and_warn(source: str, part: str | None, reading: dict[str, Any]) -> Dataset:
    """Read a data set, and print what was skipped or looks odd to standard error."""
    from shortlist.data import read

    dataset = read(source, part, **reading)
    for line in dataset.report.lines():
        click.echo(printable(line), err=True)
    if len(dataset) == 0:
        raise DataError(f"{source}: contains no texts.")
    return dataset


def parts_in(source: str) -> list[str]:
    """The parts of a folder, in order; none for a file or shards."""
    from shortlist.data.read import parts_of

    return parts_of(Path(source)) if Path(source).is_dir() else []


def part_to_read(source: str, part: str) -> str | None:
    """The part itself if the source is a folder with parts; None for a file or a folder of shards."""
    parts = parts_in(source)
    if parts and part not in parts:
        raise DataError(f"{source} has no {part} part, only {' and '.join(parts)}.")
    return part if parts else None


def read_test_and_train(test: str, train: str | None, reading: dict[str, Any]) -> tuple[Dataset, Dataset | None]:
    """Read the data to measure on, and the training data: a source of its own, or the train part of the same folder."""
    from shortlist.model.format import is_model

    if is_model(Path(test)):
        raise OptionError(f"{test} is a model. Give the model first and the test data second.")
    if train is None and "train" in parts_in(test):
        train = test
    test_data = read_and_warn(test, part_to_read(test, "test"), reading)
    return test_data, None if train is None else read_and_warn(train, part_to_read(train, "train"), reading)


def propensity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -a and -b."""
    for name, default in (("b", 1.5), ("a", 0.55)):
        what = f"Parameter {name.upper()} of the propensity model."
        command = click.option(f"-{name}", default=default, show_default=True, help=what)(command)
    return command


drop_leaks_option = click.option(
    "--drop-leaks", is_flag=True, help="Leave out test texts that also occur in the training data."
)
unseen_option = click.option(
    "--unseen",
    type=click.Choice(["count", "ignore"]),
    default="count",
    show_default=True,
    help="Whether to count labels that do not occur in training.",
)


class FloatRange(click.FloatRange):
    """A range of numbers. Click's own also takes NaN."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if math.isnan(number):
            self.fail("nan is not a number.", parameter, context)
        return number


POSITIVE = FloatRange(0, min_open=True)


class _Tail(click.ParamType):
    name = "number|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if value == "auto" else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number from 0 to 1 nor auto.", param, ctx)


tail_option = click.option(
    "--tail",
    type=_Tail(),
    default=0.0,
    show_default=True,
    help="Rank rare labels higher: 0 not at all, 1 most; auto: as training chose.",
)


levels_option = click.option(
    "--levels",
    type=click.Choice(["leaves", "roll-up", "back-off"]),
    help="With a hierarchy: only leaves; parents, too, with rolled-up scores; or the most specific label that reaches "
    "the threshold.",
)


def allow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --allow and --deny; the command gets None, or a list of entries."""
    what = 'a label, a name, a prefix such as "J45*", or "@NAME" for a list stored with the model. Repeat for several.'

    def entries(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
        return list(value) or None

    for name, help in (("--deny", f"Never predict these labels: {what}"), ("--allow", f"Predict only these: {what}")):
        command = click.option(name, multiple=True, metavar="LABEL", callback=entries, help=help)(command)
    return command
