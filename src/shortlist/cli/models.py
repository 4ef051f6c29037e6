"""`shortlist train`, `evaluate`, `recipes`."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from shortlist.cli.reading import part_to_read, parts_in, read_and_warn, reading_options, unseen_option
from shortlist.errors import DataError, OptionError

if TYPE_CHECKING:
    from shortlist.data import Dataset


def _values(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE options; values that are JSON (numbers, true, lists) become what they say."""
    options: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise click.BadParameter(f"{item!r} is not NAME=VALUE")
        options[name.replace("-", "_")] = option_value(value)
    return options


def option_value(text: str) -> Any:
    """What is JSON (numbers, true, lists) as what it says, anything else as text."""
    for read in (json.loads, float):  # .5 is a number to everybody but JSON
        try:
            return read(text)
        except ValueError:
            continue
    return text


@click.command()
@click.argument("source")
@click.option("--recipe", default="centroid", show_default=True, help="See `shortlist recipes`.")
@click.option("--out", required=True, type=click.Path(), help="Folder for the model.")
@click.option("--set", "options", multiple=True, callback=_values, help="NAME=VALUE: an option of the recipe.")
@click.option("--threads", type=int, help="How many cores to use; all by default.")
@click.option("--device", help="cpu, cuda, or auto (CUDA where there is one).")
@click.option("--seed", type=int, help="Where chance begins; the same seed gives the same model.")
@click.option("--ensemble", type=int, help="Train so many, seed after seed, that predict together (mean of scores).")
@click.option("--parallel", type=int, help="How many of an ensemble to train at once; one by default.")
@click.option("--bits", default=8, show_default=True, help="8, or 32: four times as large, and as it was learnt.")
@click.option("--resume", is_flag=True, help="Go on with a training that was stopped or killed.")
@reading_options
def train(
    source: str,
    recipe: str,
    out: str,
    options: dict[str, Any],
    threads: int | None,
    device: str | None,
    seed: int | None,
    ensemble: int | None,
    parallel: int | None,
    bits: int,
    resume: bool,
    reading: dict[str, Any],
) -> None:
    """Train a model on SOURCE (a file, or a folder with a train part) and save it.

    A long training writes checkpoints to OUT.checkpoints; if it is stopped, the same command with --resume goes on.

    \b
    shortlist train pairs.jsonl --recipe inceptionxml+ --out model/
    shortlist train parts/ --recipe centroid --set min_count=2 --out model/
    shortlist train parts/ --recipe astec --ensemble 3 --parallel 2 --out model/
    """
    from shortlist.model import train as train_model
    from shortlist.model.base import check_bits
    from shortlist.model.folder import check_replaceable
    from shortlist.model.registry import options_of

    folder = Path(out)
    check_bits(bits)
    check_replaceable(folder)  # before the work, not after it
    known = options_of(recipe)
    given = {"threads": threads, "device": device, "seed": seed, "ensemble": ensemble, "parallel": parallel}
    options |= {name: value for name, value in given.items() if value is not None}
    checkpoints = folder.resolve().with_name(f"{folder.resolve().name}.checkpoints")
    if "checkpoints" in known:
        options.setdefault("checkpoints", str(checkpoints))
    if resume:
        options["resume"] = True
    dataset = read_and_warn(source, part_to_read(source, "train"), reading)
    start = time.perf_counter()
    model = train_model(dataset, recipe, **options)
    model.save(out, bits)
    if options.get("checkpoints") == str(checkpoints):
        # The model is safe now. Aside first: half a folder of checkpoints would look like a damaged one.
        aside = checkpoints.with_name(f".{checkpoints.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        if checkpoints.exists():
            checkpoints.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    click.echo(f"{out}: {model.title}, {dataset} in {time.perf_counter() - start:.1f} s")


@click.command()
@click.argument("predictions", type=click.Path())
@click.argument("truth", type=click.Path())
@click.option("--train", "train_source", type=click.Path(), help="Training data, for PSP and quantiles.")
@click.option("-k", "ks", default="1,3,5", show_default=True, help="Ranks to measure at.")
@unseen_option
@click.option("--intervals", is_flag=True, help="95 % confidence intervals by bootstrap.")
@click.option("--filter", "filter_file", type=click.Path(), help="filter_labels_test.txt: pairs to ignore.")
@click.option("-a", default=0.55, show_default=True, help="A of the propensity model.")
@click.option("-b", default=1.5, show_default=True, help="B of the propensity model.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@reading_options
def evaluate(
    predictions: str,
    truth: str,
    train_source: str | None,
    ks: str,
    unseen: Literal["count", "ignore"],
    intervals: bool,
    filter_file: str | None,
    a: float,
    b: float,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Measure PREDICTIONS (a file, or a model that will make them) against TRUTH.

    TRUTH is a file, or a folder with a test part; its train part, if any, serves for propensities. A file of
    predictions has one line a text of TRUTH, in the same order: {"labels": [best, second, …], "scores": […]}.

    \b
    shortlist evaluate model/ parts/
    shortlist evaluate predictions.jsonl test.jsonl --train train.jsonl --intervals
    shortlist evaluate scores.npz LF-AmazonTitles-131K/ -a 0.6 -b 2.6
    """
    from shortlist.data import Dataset
    from shortlist.data.predictions import read_predictions
    from shortlist.evaluation import evaluate as measure
    from shortlist.evaluation.filters import most_per_text
    from shortlist.model.folder import is_model

    cut = _ranks(ks)
    if is_model(Path(truth)):
        raise OptionError(f"{truth} is a model: give the model (or predictions) first and the truth second.")
    if Path(predictions).is_dir() and not is_model(Path(predictions)):
        raise OptionError(f"{predictions} is a folder but not a model; give a model or a file of predictions.")
    truth_data = read_and_warn(truth, part_to_read(truth, "test"), reading)
    train_data = _train_data(truth, train_source, reading)
    filter_pairs = _filter_pairs(filter_file, truth_data)
    # Labels that are filtered out make room for the next, which must be there.
    places = max(cut) + (0 if filter_pairs is None else most_per_text(filter_pairs[:, 0]))
    if Path(predictions).is_dir():
        from shortlist.model import load

        predicted = load(predictions).predict_dataset(truth_data, places)
    else:
        predicted = read_predictions(predictions)
        if not isinstance(predicted, Dataset):
            predicted = _by_label_number(predicted, places, predictions, truth, truth_data)
    result = measure(
        predicted,
        truth_data,
        train=train_data,
        k=cut,
        filter_pairs=filter_pairs,
        unseen=unseen,
        a=a,
        b=b,
        intervals=intervals,
    )
    click.echo(json.dumps(result.to_json()) if as_json else result.table())


def _by_label_number(scores: Any, places: int, path: str, truth: str, truth_data: Dataset) -> Dataset:
    """A matrix of scores speaks of labels by number: that means something only where the truth numbers them, too."""
    from shortlist.arrays import Ragged, counts_to_indptr
    from shortlist.data import Dataset
    from shortlist.evaluation.inputs import top_scores

    if not Path(truth).is_dir() or scores.shape[1] != truth_data.n_labels:
        raise DataError(
            f"{path} has scores for {scores.shape[1]:,} numbered labels; {truth} has {truth_data.n_labels:,} labels"
            f"{'' if Path(truth).is_dir() else ' by name'}. Give the Repository folder that the numbers belong to, or "
            'predictions by name: {"labels": [best, second, …]} a line.'
        )
    if scores.shape[0] != len(truth_data):
        raise DataError(f"{path} has {scores.shape[0]:,} rows; {truth} has {len(truth_data):,} texts.")
    ids = top_scores(scores, places)
    labels = Ragged(counts_to_indptr((ids >= 0).sum(axis=1)), ids[ids >= 0])
    return Dataset(truth_data.texts, labels, truth_data.label_names)


def _ranks(ks: str) -> tuple[int, ...]:
    try:
        return tuple(int(k) for k in ks.split(","))
    except ValueError:
        raise OptionError(f"-k is {ks!r}; expected whole numbers with commas between, such as 1,3,5") from None


def _train_data(truth: str, train_source: str | None, reading: dict[str, Any]) -> Dataset | None:
    if train_source is None and "train" in parts_in(truth):
        train_source = truth
    if train_source is None:
        return None
    return read_and_warn(train_source, part_to_read(train_source, "train"), reading)


def _filter_pairs(path: str | None, truth: Dataset) -> Any:
    if path is None:
        return truth.filter_pairs
    from shortlist.data.options import ReadOptions
    from shortlist.data.read_report import ReadReport
    from shortlist.data.repository import read_filter_pairs

    return read_filter_pairs(Path(path), truth, ReadReport(), ReadOptions(show_progress=False))


@click.command()
def recipes() -> None:
    """List the recipes: what each is, what it costs, when to choose it."""
    from shortlist.model import list_recipes as all_recipes

    for recipe in all_recipes().values():
        click.echo(f"{recipe.name}\n  what    {recipe.what}\n  cost    {recipe.cost}\n  choose  {recipe.choose_when}")
