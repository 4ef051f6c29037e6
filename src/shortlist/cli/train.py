"""`shortlist train`: train a model and save it."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import part_to_read, read_and_warn, reading_options
from shortlist.errors import DataError, OptionError


def option_value(text: str) -> Any:
    """JSON values (numbers, true, lists) as what they are, anything else as a string."""
    for read in (json.loads, float):  # .5 is a number to everybody but JSON
        try:
            return read(text)
        except ValueError:
            continue
    return text


def read_settings(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise click.BadParameter(f"{item!r} is not NAME=VALUE")
        options[name.replace("-", "_")] = option_value(value)
    return options


def use_recipe(name: str) -> None:
    """Let child processes find a recipe that was named by module: they inherit the environment."""
    from shortlist.recipes.recipe import VARIABLE

    if ":" in name:
        known = [known for known in os.environ.get(VARIABLE, "").split(",") if known]
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, name]))


RECIPE_HELP = "Name of a recipe (see `shortlist recipes`), or package.module:NAME. auto: astec for most data."
set_option = click.option(
    "--set",
    "options",
    multiple=True,
    callback=read_settings,
    metavar="NAME=VALUE",
    help="Set an option of the recipe. `shortlist recipes RECIPE` lists them.",
)


@click.command()
@click.argument("source")
@click.option("--recipe", default="auto", show_default=True, help=RECIPE_HELP)
@click.option("--out", required=True, type=click.Path(), help="Folder for the model.")
@set_option
@click.option("--published", is_flag=True, help="Start from the defaults of the recipe's paper.")
@click.option("--minutes", type=float, help="Time limit for training: runs fewer epochs if needed.")
@click.option("--threads", type=int, help="Number of threads.  [default: all cores]")
@click.option("--device", help="cpu, cuda, cuda:1, or auto (CUDA where it is available, except for bags of words).")
@click.option("--seed", type=int, help="Random seed. The same seed, data and threads give the same model.")
@click.option("--ensemble", default=1, show_default=True, help="Number of models whose scores are averaged.")
@click.option("--parallel", default=1, show_default=True, help="Number of ensemble members to train at the same time.")
@click.option("--bits", default=8, show_default=True, help="Bits per weight in the saved model: 8 or 32.")
@click.option("--hierarchy", type=click.Path(), help="File of children and parents, to store with the model.")
@click.option("--all-names", is_flag=True, help="Also predict labels that have a name (--label-names) but no text.")
@click.option("--overwrite", is_flag=True, help="Replace the model in OUT, if there is one.")
@click.option("--resume", is_flag=True, default=None, help="Continue an interrupted training.")
@click.option("--cluster", help="Train on a Ray cluster: auto, local, or its address. All machines must see the paths.")
@click.option("--workers", type=int, help="Number of processes on the cluster. Each holds a share of the labels.")
@reading_options
def train(
    source: str,
    recipe: str,
    out: str,
    options: dict[str, Any],
    published: bool,
    ensemble: int,
    parallel: int,
    bits: int,
    hierarchy: str | None,
    all_names: bool,
    overwrite: bool,
    cluster: str | None,
    workers: int | None,
    reading: dict[str, Any],
    **run_options: Any,
) -> None:
    """Train a model on SOURCE and save it.

    SOURCE is a file, or a folder with a train part. The default recipe is astec for most data. `shortlist recipes` says
    when another one is better. Set options of the recipe with --set NAME=VALUE, once for each option; `shortlist
    recipes astec` lists those of astec.

    A long training writes checkpoints to OUT.checkpoints. If it is interrupted, rerun the same command with --resume.

    \b
    shortlist train pairs.jsonl --out model/
    shortlist train pairs.jsonl --out model/ --minutes 5
    shortlist train parts/ --recipe astec --set n_epochs=5 --out model/
    shortlist train parts/ --recipe astec --published --out model/
    shortlist train parts/ --recipe astec --ensemble 3 --parallel 2 --out model/
    shortlist train parts/ --recipe my_package.my_module:RECIPE --out model/
    shortlist train parts/ --recipe astec --cluster auto --workers 8 --out model/
    """
    from shortlist.data.storage import is_url
    from shortlist.model.folder import check_bits
    from shortlist.model.own_labels import hierarchy_for
    from shortlist.recipes import get_recipe
    from shortlist.training.train import check_early
    from shortlist.training.train import train as train_model

    if cluster is None and (is_url(source) or is_url(out)):
        raise OptionError("URLs are for training on a cluster: add --cluster, or copy the data to this machine")
    check_bits(bits)
    checkpoints = _checkpoints_for(out, source, bool(run_options["resume"]), overwrite)
    if checkpoints is None:
        click.echo(f"{out}: already complete.", err=True)
        return
    use_recipe(recipe)
    options |= {name: value for name, value in run_options.items() if value is not None}
    if recipe == "auto" or "checkpoint_dir" in get_recipe(recipe).option_names:
        options.setdefault("checkpoint_dir", checkpoints)
    check_early(recipe, options, ensemble, published)  # before the data is read
    part = part_to_read(source, "train")
    if cluster is not None:
        from shortlist.cluster.train import run_on_cluster
        from shortlist.cluster.worker import TrainJob

        if ensemble > 1 or hierarchy is not None or all_names:
            raise OptionError(
                "--ensemble, --hierarchy and --all-names are for one machine: leave them out, or --cluster. To store a "
                "hierarchy or add labels later, use `shortlist labels`"
            )
        start = time.perf_counter()
        paths = (path if is_url(path) else str(Path(path).resolve()) for path in (source, out))
        job = TrainJob(next(paths), recipe, next(paths), part, reading, published, options, bits)
        run_on_cluster(job, cluster, workers or 1)
        what, title = source, get_recipe(recipe).name if recipe != "auto" else recipe
    else:
        if workers is not None:
            raise OptionError("--workers is for a cluster: give its address with --cluster, too, or use --threads")
        dataset = read_and_warn(source, part, reading)
        what = str(dataset)
        levels = None if hierarchy is None else hierarchy_for(dataset.label_names, hierarchy)  # before the work, too
        start = time.perf_counter()
        how: dict[str, Any] = {"ensemble": ensemble, "parallel": parallel, "published": published}
        model = train_model(dataset, recipe, all_names=all_names, **how, **options)
        if levels is not None:
            inclusive = levels.is_inclusive(dataset.labels, dataset.label_names)
            model.set_hierarchy(levels, dataset.display_names, inclusive)
        model.save(out, bits)
        title = model.title
    if options.get("checkpoint_dir") == checkpoints:
        _remove_checkpoints(checkpoints)  # the model is safe now
    click.echo(f"{out}: {title}, {what} in {time.perf_counter() - start:.1f} s")


def _checkpoints_for(out: str, source: str, resume: bool, overwrite: bool) -> str | None:
    """Where checkpoints go; None if the model is there already. Raises an error where OUT must not be written to.

    This is checked before the work, not after it. A model beside checkpoints was saved by the training that is resumed.
    """
    from shortlist.data.storage import exists, is_url, join
    from shortlist.files import is_complete
    from shortlist.model.folder import check_replaceable
    from shortlist.model.format import CONFIG

    if is_url(out):
        checkpoints = f"{out.rstrip('/')}.checkpoints"
        is_resumed, is_done = resume and exists(checkpoints), exists(join(out, CONFIG))
    else:
        folder = Path(out).resolve()
        checkpoints = str(folder.with_name(f"{folder.name}.checkpoints"))
        is_resumed, is_done = resume and Path(checkpoints).exists(), is_complete(Path(out) / CONFIG, [source])
    if resume and not overwrite and not is_resumed and is_done:
        return None
    if not is_url(out):
        check_replaceable(Path(out), overwrite or is_resumed)
    elif exists(out) and not (is_resumed or (overwrite and is_done)):
        raise OptionError(f"{out} already exists. Choose another name, or, if it is a model, add --overwrite.")
    return checkpoints


def _remove_checkpoints(place: str) -> None:
    from shortlist.data.storage import is_url, remove
    from shortlist.files import lock_folder, remove_folder

    if is_url(place):
        remove(place)
        return
    # Another training may have taken the folder since.
    with suppress(DataError, FileNotFoundError), lock_folder(Path(place)):
        remove_folder(Path(place))
