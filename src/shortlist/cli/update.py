"""`shortlist update`: update a model with new texts."""

from __future__ import annotations

import time
from typing import Any

import click

from shortlist.cli.reading import (
    change_model,
    check_out_model,
    new_model_options,
    part_to_read,
    read_and_warn,
    reading_options,
    with_fields_of,
)


@click.command()
@click.argument("model", type=click.Path())
@click.argument("source")
@click.option("--replay", help="The old data, or part of it: new labels learn not to answer for it.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of samples.")
@new_model_options
@reading_options
def update(
    model: str,
    source: str,
    out: str,
    replay: str | None,
    threads: int | None,
    seed: int,
    overwrite: bool,
    reading: dict[str, Any],
) -> None:
    """Update MODEL with new texts.

    SOURCE has the texts. Only the labels of these texts change, and new labels are added. Everything else stays the
    same, bit for bit. A label with a weight of 0 is wrong for its text, as in files of `shortlist serve --feedback`.

    \b
    shortlist update model/ new.jsonl --out model2/
    shortlist update model/ new.jsonl --replay old.jsonl --out model/
    """
    check_out_model(model, out, overwrite)
    reading = with_fields_of(model, reading)
    new = read_and_warn(source, part_to_read(source, "train"), reading)
    old = None if replay is None else read_and_warn(replay, part_to_read(replay, "train"), reading)
    start = time.perf_counter()
    _, changed = change_model(model, out, overwrite, lambda loaded: loaded.update(new, old, threads, seed))
    about = changed.facts["updates"][-1]
    seconds = time.perf_counter() - start
    click.echo(
        f"{out}: learnt from {about['texts']:,} texts in {seconds:.1f} s; {about['new_labels']:,} new labels, "
        f"{changed.n_labels:,} in all.",
        err=True,
    )
    if "P@1" in about:
        click.echo(
            f"P@1 on {about['held_out_texts']:,} new texts, which were held out at first: {about['P@1_before']} before "
            f"the update, {about['P@1']} after it. Calibration {about['calibration']}.",
            err=True,
        )
    else:
        click.echo("Too few new texts to hold some out: calibration and threshold stay as they are.", err=True)
