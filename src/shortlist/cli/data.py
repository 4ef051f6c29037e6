"""`shortlist data …`: describe, convert and split data."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import parts_in, read_and_warn, reading_options
from shortlist.errors import DataError, OptionError
from shortlist.printable import printable, printable_line

if TYPE_CHECKING:
    from shortlist.data import Dataset

# Not from the library: importing it would make `--help` load numpy.
OUTPUT_FORMATS = ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "tsv", "tsv.gz", "parquet", "fasttext", "annif"]
FOLDER_FORMATS = ["repository-json", "repository-text", "repository-pair", "repository-single"]
KEEPING_FORMATS = OUTPUT_FORMATS[: OUTPUT_FORMATS.index("parquet") + 1]
MAX_REPAIRS_SHOWN = 50
MAX_FIELDS_SHOWN = 20

part_option = click.option(
    "--part", type=click.Choice(["train", "validation", "test"]), help="Only this part of a folder."
)
out_label_separator_option = click.option(
    "--out-label-separator", default=";", show_default=True, help="Separator of labels in CSV and TSV output."
)


@click.group()
def data() -> None:
    """Describe, convert and split data."""


@data.command()
@click.argument("source")
@part_option
@click.option("--test", "test_source", help="Test file; shows leakage between it and SOURCE.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reading_options
def describe(source: str, part: str | None, test_source: str | None, as_json: bool, reading: dict[str, Any]) -> None:
    """Describe a data set, and warn of likely problems.

    SOURCE is a file, a folder of shards, a benchmark folder, or - for standard input.

    \b
    shortlist data describe pairs.jsonl.gz
    shortlist data describe pairs.csv --labels tags --label-separator "|"
    shortlist data describe train.jsonl --test test.jsonl
    zcat pairs.jsonl.gz | shortlist data describe - --json
    """
    from shortlist.data.describe import describe as describe_data

    parts = [part] if part else parts_in(source)
    dataset = read_and_warn(source, parts[0] if parts else None, reading)
    others = {name: read_and_warn(source, name, reading) for name in parts[1:]}
    if test_source:
        others["test"] = read_and_warn(test_source, None, reading)
    description = describe_data(dataset, **others)
    shown = json.dumps(description.to_json(), ensure_ascii=False) if as_json else description.table()
    click.echo(printable(shown))


@data.command()
@click.argument("source")
@click.argument("out", type=click.Path())
@click.option(
    "--to",
    type=click.Choice(formats := [*OUTPUT_FORMATS, "annif-vocabulary", *FOLDER_FORMATS]),
    metavar="FORMAT",
    help=f"Format, if the name of OUT does not show it: {', '.join(formats)}.",
)
@part_option
@out_label_separator_option
@click.option("--time", help="Field of a time to keep.")
@click.option("--keep", multiple=True, metavar="FIELD", help="Further field to keep, such as an id. Repeatable.")
@click.option("--fix", is_flag=True, help="Repair common mistakes, and list what was done.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@reading_options
def convert(
    source: str,
    out: str,
    to: str | None,
    part: str | None,
    out_label_separator: str,
    time: str | None,
    keep: tuple[str, ...],
    fix: bool,
    overwrite: bool,
    reading: dict[str, Any],
) -> None:
    """Convert SOURCE to another format, or repair it.

    A folder with parts becomes a folder with parts. OUT contains texts, labels, weights, times (--time), and the fields
    named by --keep. Other fields are dropped. If OUT is -, JSON lines go to standard output. The formats of fastText
    and Annif have no weights and no times; annif-vocabulary has only the labels and their names.

    \b
    shortlist data convert pairs.csv pairs.jsonl.gz
    shortlist data convert messy.csv clean.csv --fix --keep sku
    shortlist data convert LF-AmazonTitles-131K/ amazon/ --to jsonl.gz
    shortlist data convert pairs.jsonl corpus.tsv --to annif
    shortlist data convert pairs.jsonl vocabulary.tsv --to annif-vocabulary
    shortlist data convert parts/ matrices/ --to repository-pair  (tf-idf)
    """
    parts = parts_in(source) if part is None else []
    to_folder = bool(parts) or to in FOLDER_FORMATS
    if to_folder and to is None:
        raise OptionError(
            f"{source} has parts ({', '.join(parts)}): choose one with --part, or the format of a new folder with --to."
        )
    if to_folder and to == "annif-vocabulary":
        raise OptionError(f"a vocabulary is one file, but {source} has parts: choose one with --part.")
    suffix = Path(to or "").suffix
    if not to_folder and suffix in (".gz", ".zst") and Path(out).suffix != suffix:
        raise OptionError(f"--to {to} is compressed: the name of OUT must end in {suffix}.")
    if Path(out).is_file() and not overwrite:
        raise OptionError(f"{out} exists; choose another name, or set --overwrite.")
    names: list[str | None] = [*parts] if parts else [part]
    if keep and to not in (None, *KEEPING_FORMATS):
        raise OptionError(f"--keep: {to} has no place for further fields; choose one of {', '.join(KEEPING_FORMATS)}.")
    reading |= {"time": time, "keep": keep}
    if source != "-" and to not in FOLDER_FORMATS:
        _say_what_is_dropped(source, names[0], reading)
    datasets = {name or "train": read_and_warn(source, name, reading) for name in names}
    if fix:
        datasets = {part: _fix(dataset, part if parts else source) for part, dataset in datasets.items()}
    if to_folder:
        if Path(out).is_dir() and any(Path(out).iterdir()):
            raise OptionError(f"{out} is not empty; choose a new folder.")
        _write_parts(datasets, Path(out), str(to), out_label_separator)
        return
    (dataset,) = datasets.values()
    if out == "-":
        from shortlist.data.write import write_jsonl

        write_jsonl(dataset, sys.stdout.buffer)
    else:
        dataset.write(out, format=to and to.split(".")[0], label_separator=out_label_separator)
        click.echo(f"{out}: {dataset}")


def _say_what_is_dropped(source: str, part: str | None, reading: dict[str, Any]) -> None:
    """Name the fields that will not be in the output, so that nobody loses ids without noticing."""
    from shortlist.data.options import ReadOptions
    from shortlist.data.read import unread_fields

    options = {name: value for name, value in reading.items() if name != "format"}
    if dropped := unread_fields(Path(source), part, reading["format"], ReadOptions(**options)):
        shown = ", ".join(dropped[:MAX_FIELDS_SHOWN]) + (", …" if len(dropped) > MAX_FIELDS_SHOWN else "")
        click.echo(printable_line(f"{source}: dropped fields: {shown}. To keep one: --keep {dropped[0]}"), err=True)


def _fix(dataset: Dataset, name: str) -> Dataset:
    """Repair a data set, and print what was done."""
    from shortlist.data.hygiene import fix

    fixed, done = fix(dataset)
    for line in done[:MAX_REPAIRS_SHOWN]:
        click.echo(printable_line(f"{name}: {line}"), err=True)
    if len(done) > MAX_REPAIRS_SHOWN:
        click.echo(f"{name}: … and {len(done) - MAX_REPAIRS_SHOWN:,} more repairs", err=True)
    if not done:
        click.echo(f"{name}: nothing to repair", err=True)
    return fixed


def _write_parts(datasets: dict[str, Dataset], out: Path, to: str, label_separator: str) -> None:
    import msgspec

    from shortlist.files import write_atomically, write_folder_atomically

    if to in FOLDER_FORMATS:  # label numbers must be the same in all parts
        names = list(dict.fromkeys(name for dataset in datasets.values() for name in dataset.label_names))
        datasets = {part: dataset.relabelled(names) for part, dataset in datasets.items()}
    features = _tf_idf(datasets) if to in ("repository-pair", "repository-single") else {}
    with write_folder_atomically(out) as folder:
        for part, dataset in datasets.items():
            if to in FOLDER_FORMATS:
                dataset.write(folder, format=to, part=part, features=features.get(part))
            else:
                name = f"{part}.tsv" if to == "annif" else f"{part}.{to}"  # what Annif expects
                dataset.write(folder / name, format=to.split(".")[0], label_separator=label_separator)
        display_names = next(iter(datasets.values())).display_names
        if display_names and to not in FOLDER_FORMATS:  # these have their own files for label names
            with write_atomically(folder / "label_names.json") as file:
                file.write(msgspec.json.encode(display_names))
    for part, dataset in datasets.items():
        click.echo(f"{out}: {part}: {dataset}")


def _tf_idf(datasets: dict[str, Dataset]) -> dict[str, Any]:
    """tf-idf features for data sets of texts, fitted on the first part."""
    from shortlist.text import TfIdf, Vocabulary

    first = next(iter(datasets.values()))
    if first.features is not None:
        return {}
    vocabulary, word_ids = Vocabulary.build_and_encode(first.texts)
    tf_idf = TfIdf.fit(word_ids, len(vocabulary))
    return {part: tf_idf.transform(vocabulary.encode(dataset.texts)) for part, dataset in datasets.items()}


@data.command()
@click.argument("source")
@click.argument("out", type=click.Path())
@click.option("--test", default=0.2, show_default=True, help="Fraction of texts in the test part.")
@click.option("--validation", default=0.0, show_default=True, help="Fraction of texts in the validation part.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@click.option("--time", help="Hold out the latest texts, by the time in this field.")
@click.option("--group", help="Keep texts with the same value of this field in one part.")
@click.option("--stratified", is_flag=True, help="Divide the texts of every label as evenly as possible.")
@click.option(
    "--keep-labels", is_flag=True, help="Move texts to train until it has every label. Scores are then too high."
)
@click.option(
    "--to", type=click.Choice(OUTPUT_FORMATS), default="jsonl.gz", show_default=True, help="Format of the parts."
)
@out_label_separator_option
@reading_options
def split(
    source: str,
    out: str,
    test: float,
    validation: float,
    time: str | None,
    group: str | None,
    to: str,
    out_label_separator: str,
    reading: dict[str, Any],
    **options: Any,
) -> None:
    """Split SOURCE into training, validation and test parts.

    OUT is the folder for them. The texts are split at random, or in one of three other ways: --time, --group or
    --stratified. Identical texts are merged first, and texts that differ only in case, punctuation or spacing stay in
    one part, except with --time.

    \b
    shortlist data split pairs.jsonl parts/ --test 0.1 --validation 0.1
    shortlist data split log.csv parts/ --time date
    shortlist data split papers.csv parts/ --group author
    """
    from shortlist.data.split import split as split_data

    if Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
        raise OptionError(f"{out} exists and is not an empty folder; choose a new one.")
    if parts_in(source):
        raise DataError(f"{source} already has parts: {', '.join(parts_in(source))}.")
    dataset = read_and_warn(source, None, {**reading, "time": time, "group": group})
    result = split_data(dataset, test=test, validation=validation, by_time=time is not None, group=group, **options)
    parts = {"train": result.train, "validation": result.validation, "test": result.test}
    parts = {name: part for name, part in parts.items() if len(part)}
    _write_parts({name: replace(part, times=None) for name, part in parts.items()}, Path(out), to, out_label_separator)
    if time:
        ranges = [f"{name}: {_time_range(part)}" for name, part in parts.items()]
        click.echo(f"times of {'; '.join(ranges)}")
    for name, fraction in (("validation", validation), ("test", test)):
        if fraction and name not in parts:
            why = "too few texts" + (", or their labels were needed in train" if result.moved_to_train else "")
            click.echo(f"there is no {name} part: {why}", err=True)
    click.echo(f"repeated texts merged: {result.merged_texts:,}")
    n_unseen, n_labels = result.held_out_labels_not_in_train, result.held_out_labels
    share = f" ({100 * n_unseen / n_labels:.1f} %)" if n_unseen else ""
    click.echo(f"held-out labels without a text in train: {n_unseen:,} of {n_labels:,}{share}")


def _time_range(part: Dataset) -> str:
    import numpy as np

    from shortlist.data.split import times_as_numbers

    assert part.times is not None
    order = np.argsort(times_as_numbers(part))
    return f"{part.times[order[0]]} to {part.times[order[-1]]}"
