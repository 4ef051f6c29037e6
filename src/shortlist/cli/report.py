"""`shortlist report`: measure one model and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import drop_leaks_option, read_test_and_train, reading_options, unseen_option, with_fields_of
from shortlist.errors import OptionError
from shortlist.tables import wrapped


@click.command()
@click.argument("model", type=click.Path())
@click.argument("test", type=click.Path())
@click.option("--train", "train_source", type=click.Path(), help="Training data, for PSP, rare labels and leaks.")
@click.option("--out", default="report", show_default=True, type=click.Path(), help="Folder for the report.")
@unseen_option
@drop_leaks_option
@click.option("--seed", default=0, show_default=True, help="Random seed for sampling and perturbation.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@reading_options
def report(model: str, test: str, train_source: str | None, out: str, reading: dict[str, Any], **options: Any) -> None:
    """Write a report on where MODEL is right and where not.

    The report is OUT/report.html, a self-contained page, and OUT/report.md. TEST is a file, or a folder with a test
    part. If the folder has a train part, it is used for propensities and label frequencies. The report shows texts of
    TEST: share it only with people who may read them.

    \b
    shortlist report model/ test.jsonl --train train.jsonl
    shortlist report model/ parts/ --out report/
    """
    from shortlist.compare.results import Store
    from shortlist.model import load
    from shortlist.report.measure import measure_model
    from shortlist.report.model import model_page

    if Path(out).exists() and not Path(out).is_dir():
        raise OptionError(f"{out} is a file. --out must name a folder for the report.")
    if Store.is_comparison(Path(out)):
        raise OptionError(f"{out} holds a comparison, which has its own report. Choose another folder (--out).")
    loaded = load(model)
    test_data, train_data = read_test_and_train(test, train_source, with_fields_of(model, reading))
    for option, is_set in (("--unseen ignore", options["unseen"] == "ignore"), ("--drop-leaks", options["drop_leaks"])):
        if is_set and train_data is None:
            raise OptionError(f"{option} needs the training data. Add it with --train.")
    found = measure_model(loaded, test_data, train_data, name=Path(model).resolve().name, **options)
    page = Path(out) / "report.html"
    model_page(found).write(page, page.with_suffix(".md"))
    for note in found.overlap_notes:
        click.echo(wrapped(note))
    click.echo(f"{page}: P@1 {found.entry.scores['P@1']:.2f}, median latency {found.entry.ms_p50:.2f} ms")
