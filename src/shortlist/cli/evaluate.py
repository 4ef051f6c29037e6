"""`shortlist evaluate`: metrics of a model, or of a file of predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import (
    drop_leaks_option,
    part_to_read,
    propensity_options,
    read_and_warn,
    read_test_and_train,
    reading_options,
    tail_option,
    unseen_option,
    with_fields_of,
)
from shortlist.cli.train import RECIPE_HELP, set_option, use_recipe
from shortlist.errors import DataError, OptionError

if TYPE_CHECKING:
    from shortlist.data import Dataset
    from shortlist.evaluation import Evaluation
    from shortlist.training.cross_validation import CrossValidation


@click.command()
@click.argument("predictions", type=click.Path())
@click.argument("truth", type=click.Path(), required=False)
@click.option("--train", "train_source", type=click.Path(), help="Training data, for PSP, leaks and unseen labels.")
@click.option("-k", "ks", default="1,3,5", show_default=True, help="Ranks to measure at.")
@unseen_option
@drop_leaks_option
@tail_option
@click.option("--in-order", is_flag=True,
              help="Rank the predictions of a file as they are listed, whatever their scores.")  # fmt: skip
@click.option("--intervals", is_flag=True, help="95 % confidence intervals by bootstrap.")
@click.option("--filter", "filter_file", type=click.Path(), help="filter_labels_test.txt: pairs to ignore.")
@click.option("--hierarchy", type=click.Path(),
              help="File of children and parents, for hierarchical precision, recall and F1.  "
              "[default: the model's, if it has one]")  # fmt: skip
@propensity_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--folds", type=int, help="Cross-validate a recipe on the data with this many folds.")
@click.option("--recipe", help=f"With --folds: {RECIPE_HELP[0].lower()}{RECIPE_HELP[1:]}")
@set_option
@reading_options
def evaluate(
    predictions: str,
    truth: str | None,
    train_source: str | None,
    ks: str,
    folds: int | None,
    recipe: str | None,
    filter_file: str | None,
    tail: float | str,
    as_json: bool,
    reading: dict[str, Any],
    options: dict[str, Any],
    **measuring: Any,
) -> None:
    """Measure a model, or a file of predictions.

    PREDICTIONS is a model or such a file. TRUTH is a file, or a folder with a test part; its train part, if any, is
    used for propensities, leaks and unseen labels. A file of predictions has one line per text of TRUTH, in the same
    order: {"labels": [best, second, …], "scores": […]}. Labels with scores are ranked by score; predictions made with
    --tail need --in-order. A model's threshold is not applied, because metrics at k count labels that are left out as
    misses.

    With --folds, the only argument is a file of texts and labels, or a folder with a train part. A recipe is trained
    and measured once per fold.

    \b
    shortlist evaluate model/ parts/
    shortlist evaluate model/ parts/ --tail auto
    shortlist evaluate predictions.jsonl test.jsonl --train train.jsonl
    shortlist evaluate model/ parts/ --hierarchy broader.tsv
    shortlist evaluate scores.npz LF-AmazonTitles-131K/ -a 0.6 -b 2.6
    shortlist evaluate --folds 5 pairs.jsonl --recipe astec --set n_epochs=5
    """
    cut = _ranks(ks)
    result: Evaluation | CrossValidation
    if folds is not None:
        refused = {"--train": train_source, "--filter": filter_file, "--tail": tail}
        flags = ("intervals", "drop_leaks", "in_order", "hierarchy")
        refused |= {f"--{name.replace('_', '-')}": measuring.pop(name) for name in flags}
        _refuse("--folds splits one data set", {"a second argument": truth, **refused})
        result = _cross_validate(predictions, folds, recipe, reading, options | measuring | {"k": cut})
    else:
        _refuse("without --folds, nothing is trained", {"--recipe": recipe, "--set": options})
        if truth is None:
            raise OptionError("give the data to measure on after the predictions or the model, or set --folds.")
        result = _evaluate(predictions, truth, train_source, cut, filter_file, tail, reading, measuring)
    click.echo(json.dumps(result.to_json()) if as_json else result.table())


def _refuse(why: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(f"{why}: leave out {name}.")


def _cross_validate(
    source: str, folds: int, recipe: str | None, reading: dict[str, Any], options: dict[str, Any]
) -> CrossValidation:
    from shortlist.training.cross_validation import cross_validate

    recipe = recipe or "auto"
    use_recipe(recipe)
    return cross_validate(read_and_warn(source, part_to_read(source, "train"), reading), recipe, folds, **options)


def _evaluate(
    predictions: str,
    truth: str,
    train_source: str | None,
    ks: tuple[int, ...],
    filter_file: str | None,
    tail: float | str,
    reading: dict[str, Any],
    measuring: dict[str, Any],
) -> Evaluation:
    from shortlist.data import Dataset
    from shortlist.data.predictions import read_predictions
    from shortlist.evaluation import evaluate as measure
    from shortlist.evaluation.filters import places_needed
    from shortlist.model.format import is_model

    if Path(predictions).is_dir() and not is_model(Path(predictions)):
        raise OptionError(f"{predictions} is a folder but not a model; give a model or a file of predictions.")
    truth_data, train_data = read_test_and_train(truth, train_source, with_fields_of(predictions, reading))
    filter_pairs = _filter_pairs(filter_file, truth_data)
    # Labels that are filtered out make room for the next ones.
    places = places_needed(max(ks), filter_pairs)
    if Path(predictions).is_dir():
        from shortlist.model import load

        model = load(predictions)
        predicted = model.predict_dataset(truth_data, places, tail=tail)  # type: ignore[arg-type]
        measuring["hierarchy"] = measuring["hierarchy"] or model.hierarchy
    else:
        if tail:
            raise OptionError(f"--tail is for a model that makes the predictions; {predictions} has them already.")
        predicted = read_predictions(predictions)
        if not isinstance(predicted, Dataset):
            predicted = _by_label_id(predicted, places, predictions, truth, truth_data)
    if measuring["drop_leaks"] and train_data is None:
        raise OptionError("--drop-leaks needs the training data. Add it with --train.")
    return measure(predicted, truth_data, train=train_data, k=ks, filter_pairs=filter_pairs, **measuring)


def _by_label_id(scores: Any, places: int, path: str, truth: str, truth_data: Dataset) -> Dataset:
    """Predictions from a matrix of scores, whose label ids mean something only if the truth has the same ids."""
    from shortlist.arrays import Ragged, counts_to_indptr
    from shortlist.data import Dataset
    from shortlist.evaluation.inputs import convert_predictions, top_k

    if not Path(truth).is_dir() or scores.shape[1] != truth_data.n_labels:
        raise DataError(
            f"{path} has scores for {scores.shape[1]:,} label ids; {truth} has {truth_data.n_labels:,} labels"
            f"{'' if Path(truth).is_dir() else ' by name'}. Give the Repository folder that the ids belong to, or "
            'predictions by name, one {"labels": [best, second, …]} per line.'
        )
    if scores.shape[0] != len(truth_data):
        raise DataError(f"{path} has {scores.shape[0]:,} rows; {truth} has {len(truth_data):,} texts.")
    ids = top_k(convert_predictions(scores).rows, places)
    labels = Ragged(counts_to_indptr((ids >= 0).sum(axis=1)), ids[ids >= 0])
    return Dataset(truth_data.texts, labels, truth_data.label_names)


def _ranks(ks: str) -> tuple[int, ...]:
    try:
        return tuple(int(k) for k in ks.split(","))
    except ValueError:
        raise OptionError(f"-k is {ks!r}; expected comma-separated whole numbers such as 1,3,5") from None


def _filter_pairs(path: str | None, truth: Dataset) -> Any:
    if path is None:
        return truth.filter_pairs
    from shortlist.data.options import ReadOptions
    from shortlist.data.records import ReadReport
    from shortlist.data.repository import read_filter_pairs

    return read_filter_pairs(Path(path), truth, ReadReport(), ReadOptions(show_progress=False))
