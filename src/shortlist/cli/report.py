"""`shortlist report`: measure one model and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from shortlist.cli.reading import part_to_read, parts_in, read_and_warn, reading_options, unseen_option
from shortlist.errors import OptionError


@click.command()
@click.argument("model", type=click.Path())
@click.argument("test", type=click.Path())
@click.option("--train", "train_source", type=click.Path(), help="Training data, for PSP and rare labels.")
@click.option("--out", default="report", show_default=True, type=click.Path(), help="Folder for the report.")
@unseen_option
@click.option("--seed", default=0, show_default=True, help="Random seed for sampling and perturbation.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@reading_options
def report(
    model: str,
    test: str,
    train_source: str | None,
    out: str,
    unseen: Literal["count", "ignore"],
    seed: int,
    threads: int | None,
    reading: dict[str, Any],
) -> None:
    """Measure MODEL on TEST and write OUT/report.html, a self-contained page, and OUT/report.md.

    TEST is a file, or a folder with a test part. If the folder has a train part, it is used for propensities and label
    frequencies. The report shows texts of TEST: share it only with people who may read them.

    \b
    shortlist report model/ test.jsonl --train train.jsonl
    shortlist report model/ parts/ --out report/
    """
    from shortlist.compare.results import Store
    from shortlist.model import load
    from shortlist.model.format import is_model
    from shortlist.report.measure import measure_model
    from shortlist.report.model import model_page

    if train_source is None and "train" in parts_in(test):
        train_source = test
    if is_model(Path(test)):
        raise OptionError(f"{test} is a model. Give the model first and the test data second.")
    if unseen == "ignore" and train_source is None:
        raise OptionError("--unseen ignore needs the training data. Add it with --train.")
    if Path(out).exists() and not Path(out).is_dir():
        raise OptionError(f"{out} is a file. --out must name a folder for the report.")
    if Store.is_comparison(Path(out)):
        raise OptionError(f"{out} holds a comparison, which has its own report. Choose another folder (--out).")
    loaded = load(model)
    test_data = read_and_warn(test, part_to_read(test, "test"), reading)
    train_data = read_and_warn(train_source, part_to_read(train_source, "train"), reading) if train_source else None
    name = Path(model).resolve().name
    found = measure_model(loaded, test_data, train_data, name=name, unseen=unseen, seed=seed, threads=threads)
    page = Path(out) / "report.html"
    model_page(found).write(page, page.with_suffix(".md"))
    click.echo(f"{page}: P@1 {found.entry.scores['P@1']:.2f}, median latency {found.entry.ms_p50:.2f} ms")
