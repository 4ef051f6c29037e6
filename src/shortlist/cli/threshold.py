"""`shortlist threshold`: choose the minimum score of predicted labels, and write it into the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import parts_in, read_and_warn, reading_options, with_fields_of
from shortlist.errors import DataError, OptionError
from shortlist.printable import printable


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--precision", type=float, help="The lowest threshold with at least this share of the labels right.")
@click.option("--coverage", type=float,
              help="The highest threshold that leaves at least this share of the texts a label.")  # fmt: skip
@click.option("--cost-wrong", type=float, help="Cost of a wrong label; with --cost-missing, the lowest cost per text.")
@click.option("--cost-missing", type=float, help="Cost of a right label that is left out.")
@click.option("--guarantee", type=float,
              help="The highest threshold with a right label for at least this share of fresh texts.")  # fmt: skip
@click.option("--per-label", is_flag=True,
              help="Also choose thresholds of their own for labels with at least 50 predictions.")  # fmt: skip
@click.option("-k", default=5, show_default=True, type=click.IntRange(1), help="Number of labels per text.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reading_options
def threshold(model: str, data: str, dry_run: bool, as_json: bool, reading: dict[str, Any], **options: Any) -> None:
    """Choose the minimum score of predicted labels.

    The score is the lowest one that reaches a goal on the texts of DATA. It is written into MODEL. DATA is a file, or a
    folder with a validation part (or else a test part). The model must not have learnt from its texts. From then on,
    predictions without a minimum score use the chosen one. A text whose labels all score lower gets an empty list: not
    sure. Precision is the share of the labels at or above the threshold that are right. Exit code 1 means that the goal
    cannot be reached; then nothing is written.

    \b
    shortlist threshold model/ validation.jsonl --precision 0.9
    shortlist threshold model/ parts/ --coverage 0.8 --dry-run
    shortlist threshold model/ parts/ --cost-wrong 1 --cost-missing 0.2
    shortlist threshold model/ parts/ --guarantee 0.9
    """
    from shortlist.evaluation.goals import Goal
    from shortlist.model import load
    from shortlist.model.folder import check_replaceable

    goals = ("precision", "coverage", "cost_wrong", "cost_missing", "guarantee")
    Goal(**{name: options[name] for name in goals})  # a wrong option should not wait for the data
    if not dry_run:
        check_replaceable(Path(model))
    loaded = load(model)
    table = loaded.choose_threshold(read_and_warn(data, _part(data), with_fields_of(model, reading)), **options)
    click.echo(printable(json.dumps(table.to_json(), ensure_ascii=False) if as_json else table.table()))
    if not table.reached:
        sys.exit(1)
    if dry_run:
        click.echo("--dry-run: nothing was written.", err=True)
        return
    loaded.save(model, bits=32)  # as it is stored: what is in 8 bits stays so
    click.echo(f"{model}: written.", err=True)


def _part(data: str) -> str | None:
    """The part of a folder to choose on; None for a file or a folder of shards."""
    from shortlist.model.format import is_model

    if is_model(Path(data)):
        raise OptionError(f"{data} is a model. Give the model first and the data second.")
    parts = parts_in(data)
    if not parts or "validation" in parts:
        return "validation" if parts else None
    if "test" not in parts:
        raise DataError(f"{data} has only a train part. Give texts that the model has not learnt from.")
    click.echo(
        f"{data} has no validation part: choosing on the test part, which is then no test of the threshold any more.",
        err=True,
    )
    return "test"
