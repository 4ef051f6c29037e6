"""`shortlist data …`: look at data, convert it, split it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import parts_in, read_and_tell, reading_options
from shortlist.errors import DataError, OptionError

if TYPE_CHECKING:
    from shortlist.data import Dataset

OUTPUT_FORMATS = ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"]
FOLDER_FORMATS = ["repository-json", "repository-text", "repository-pair", "repository-single"]


@click.group()
def data() -> None:
    """Look at data, convert it, cut it into parts."""


@data.command()
@click.argument("source")
@click.option("--part", type=click.Choice(["train", "validation", "test"]), help="Describe this part of a folder only.")
@click.option("--test", "test_source", help="A test file, to look for leakage between it and SOURCE.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@reading_options
def describe(source: str, part: str | None, test_source: str | None, as_json: bool, reading: dict[str, Any]) -> None:
    """Say what is in SOURCE: a file, a folder of shards, a benchmark folder, or - for standard input.

    \b
    shortlist data describe pairs.jsonl.gz
    shortlist data describe pairs.csv --text title --labels tags --label-separator "|"
    shortlist data describe train.jsonl --test test.jsonl
    zcat pairs.jsonl.gz | shortlist data describe - --json
    """
    from shortlist.data.describe import describe as describe_data

    parts = parts_in(source) if part is None else []
    first = part or (parts[0] if parts else None)
    dataset = read_and_tell(source, first, reading)
    others: dict[str, Dataset] = {name: read_and_tell(source, name, reading) for name in parts[1:]}
    if test_source:
        others["test"] = read_and_tell(test_source, None, reading)
    description = describe_data(dataset, **others)
    click.echo(json.dumps(description.to_json(), ensure_ascii=False) if as_json else description.table())


@data.command()
@click.argument("source")
@click.argument("out", type=click.Path())
@click.option("--to", type=click.Choice(OUTPUT_FORMATS + FOLDER_FORMATS), help="Format, if OUT's name does not say.")
@click.option("--part", type=click.Choice(["train", "validation", "test"]), help="Convert this part of a folder only.")
@click.option("--out-label-separator", default=";", show_default=True, help="Between labels in CSV and TSV.")
@click.option("--time", help="Field that holds a time, to be kept.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@reading_options
def convert(
    source: str,
    out: str,
    to: str | None,
    part: str | None,
    out_label_separator: str,
    time: str | None,
    overwrite: bool,
    reading: dict[str, Any],
) -> None:
    """Read SOURCE and write it to OUT in another format. A folder with parts becomes a folder with parts.

    Texts, labels, weights and the time, if one is named, are written; other fields are not. OUT can be - for
    JSON lines on standard output.

    \b
    shortlist data convert pairs.csv pairs.jsonl.gz
    shortlist data convert LF-AmazonTitles-131K/ amazon/ --to jsonl.gz
    shortlist data convert parts/ matrices/ --to repository-pair     (tf-idf features, learnt on train)
    """
    parts = parts_in(source) if part is None else []
    whole_folder = bool(parts) or to in FOLDER_FORMATS
    if whole_folder and to is None:
        raise OptionError(
            f"{source} has parts ({', '.join(parts)}): say which one with --part, or the format of a new folder "
            "with --to."
        )
    packed = Path(to or "").suffix
    if not whole_folder and packed in (".gz", ".zst") and Path(out).suffix != packed:
        raise OptionError(f"--to {to} asks for compression: let the name of OUT end in {packed}.")
    if Path(out).is_file() and not overwrite:
        raise OptionError(f"{out} exists; choose another name, or say --overwrite.")
    if time:
        reading = {**reading, "time": time}
    names: list[str | None] = [*parts] if parts else [part]
    datasets = {name or "train": read_and_tell(source, name, reading) for name in names}
    if not whole_folder:
        (dataset,) = datasets.values()
        if out == "-":
            from shortlist.data.write import write_jsonl

            write_jsonl(dataset, sys.stdout.buffer)
            return
        dataset.write(out, format=to and to.split(".")[0], label_separator=out_label_separator)
        click.echo(f"{out}: {dataset}")
        return
    if Path(out).is_dir() and any(Path(out).iterdir()):
        raise OptionError(f"{out} is not empty; choose a new folder.")
    _write_parts(datasets, Path(out), str(to), out_label_separator)


def _write_parts(datasets: dict[str, Dataset], out: Path, to: str, label_separator: str) -> None:
    from shortlist.files import write_folder_atomically

    repository = to in FOLDER_FORMATS
    if repository:
        datasets = _over_the_same_labels(datasets)
    features = _features(datasets) if to in ("repository-pair", "repository-single") else {}
    with write_folder_atomically(out) as folder:
        for name, dataset in datasets.items():
            if repository:
                dataset.write(folder, format=to, part=name, features=features.get(name))
            else:
                dataset.write(folder / f"{name}.{to}", label_separator=label_separator)
        if not repository:  # whose forms have files of their own for label names
            _write_display_names(next(iter(datasets.values())), folder)
    for name, dataset in datasets.items():
        click.echo(f"{out}: {name}: {dataset}")


def _over_the_same_labels(datasets: dict[str, Dataset]) -> dict[str, Dataset]:
    """Label numbers must mean the same in every part."""
    names = list(dict.fromkeys(name for dataset in datasets.values() for name in dataset.label_names))
    return {part: dataset.relabelled(names) for part, dataset in datasets.items()}


def _features(datasets: dict[str, Dataset]) -> dict[str, Any]:
    """tf-idf features for the forms that hold features and not texts; learnt on the first part."""
    from shortlist.text import TfIdf, Vocabulary

    first = next(iter(datasets.values()))
    if first.features is not None:
        return {}
    vocabulary, word_ids = Vocabulary.build_and_encode(first.texts)
    tf_idf = TfIdf.fit(word_ids, len(vocabulary))
    return {part: tf_idf.transform(vocabulary.encode(dataset.texts)) for part, dataset in datasets.items()}


def _write_display_names(dataset: Dataset, folder: Path) -> None:
    import msgspec

    from shortlist.files import write_atomically

    if dataset.display_names:
        with write_atomically(folder / "label_names.json") as file:
            file.write(msgspec.json.encode(dataset.display_names))


@data.command()
@click.argument("source")
@click.argument("out", type=click.Path())
@click.option("--test", default=0.2, show_default=True, help="Share of the texts held out for testing.")
@click.option("--validation", default=0.0, show_default=True, help="Share held out for choosing between models.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same parts.")
@click.option("--time", help="Field that holds a time: the latest texts are held out.")
@click.option(
    "--to", type=click.Choice(OUTPUT_FORMATS), default="jsonl.gz", show_default=True, help="Format of the parts."
)
@click.option("--out-label-separator", default=";", show_default=True, help="Between labels in CSV and TSV.")
@reading_options
def split(
    source: str,
    out: str,
    test: float,
    validation: float,
    seed: int,
    time: str | None,
    to: str,
    out_label_separator: str,
    reading: dict[str, Any],
) -> None:
    """Cut SOURCE into train, validation and test files in the folder OUT.

    Identical texts are merged first, and each label of the held-out parts stays in training where it can.

    \b
    shortlist data split pairs.jsonl parts/ --test 0.1 --validation 0.1
    shortlist data split log.csv parts/ --time date
    """
    from shortlist.data.split import split as split_data

    if Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
        raise OptionError(f"{out} exists and is not an empty folder; choose a new one.")
    if parts_in(source):
        raise DataError(f"{source} is already cut into parts: {', '.join(parts_in(source))}.")
    if time:
        reading = {**reading, "time": time}
    dataset = read_and_tell(source, None, reading)
    parts = split_data(dataset, test=test, validation=validation, seed=seed, by_time=time is not None)
    chosen = {"train": parts.train, "validation": parts.validation, "test": parts.test}
    chosen = {name: replace(part, times=None) for name, part in chosen.items() if len(part)}
    _write_parts(chosen, Path(out), to, out_label_separator)
    if time:
        first_held_out = parts.validation if len(parts.validation) else parts.test
        cut = [_sorted_times(part) for part in (parts.train, first_held_out)]
        click.echo(f"training goes from {cut[0][0]} to {cut[0][-1]}; what is held out starts at {cut[1][0]}")
    missing = [name for name, share in (("validation", validation), ("test", test)) if share and name not in chosen]
    for name in missing:
        click.echo(
            f"there is no {name} part: there are too few texts, or their labels were needed in training", err=True
        )
    click.echo(
        f"{parts.merged_texts:,} repeated texts merged; {parts.moved_to_train:,} texts moved to training to keep "
        f"their labels there; {parts.held_out_labels_not_in_train:,} held-out labels are not in training"
    )


def _sorted_times(part: Dataset) -> Any:
    import numpy as np

    from shortlist.data.split import times_as_numbers

    assert part.times is not None
    return part.times[np.argsort(times_as_numbers(part))] if len(part) else ["–"]
