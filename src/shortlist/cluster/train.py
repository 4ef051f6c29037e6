"""`shortlist.train`: on this machine (training/train.py), or on a Ray cluster, with the labels sharded over workers.

Recipes, options and files are the same. Every worker reads the data itself and runs `train_one` (training/train.py).

sharded      what has a row per label or cluster: label rows with their optimiser state, label centres and their index,
             the candidates of the training texts, the rows of the surrogate task and of the meta-classifier; the words
             of the re-ranker are learnt by the worker that owns the label
replicated   texts, vocabulary, word vectors, label tree, encoder, residual block, the lexical features and the weights
             of the re-ranker; they are computed by every worker, and are the same on all of them
summed       per step, the gradient to the features (batch × D); with a meta-classifier, its gradient, too, and workers
             tell each other their best clusters

Workers write checkpoints, each for its own shard. If one is lost, all start again from the last checkpoint that all
have, and end in the same model, bit for bit. If the driver is lost, rerun with `--resume`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.data import storage
from shortlist.errors import ModelError, OptionError, ShortlistError
from shortlist.model.folder import check_bits, check_replaceable, load
from shortlist.model.format import CONFIG, is_model, read_config, require_own_files
from shortlist.model.model import Model
from shortlist.recipes.options import count, resolve
from shortlist.recipes.recipe import PUBLISHED, Recipe, list_recipes
from shortlist.training import train as one_machine
from shortlist.training.checkpoints import lock_checkpoints
from shortlist.training.interrupts import stopping
from shortlist.training.train import AUTO, choose, require_no_checkpoints

if TYPE_CHECKING:
    from shortlist.cluster.worker import TrainJob

log = logging.getLogger("shortlist")

# A training that loses workers this often has another problem.
MAX_LOSSES = 25


def train(
    data: Any,
    labels: Any = None,
    recipe: str | Recipe = AUTO,
    *,
    ensemble: int = 1,
    parallel: int = 1,
    published: bool = False,
    all_names: bool = False,
    cluster: str = "",
    workers: int = 1,
    **options: Any,
) -> Model:
    """Train a model.

    data       a data set, or anything that `shortlist.read` reads; or a list of texts, with their labels
    labels     one label, or a list of labels, for each of the texts. `train(data, "astec")` is the recipe
    recipe     a name from `shortlist.list_recipes()`, "package.module:NAME", or a `Recipe`, which is registered. "auto"
               is astec for most data
    ensemble   number of models with different seeds whose scores are averaged
    parallel   number of them to train at the same time, each in a process of its own
    published  start from the defaults of the recipe's paper; the same as the recipe "NAME@published"
    all_names  labels of the data set that have a name and no text can be predicted, too: see `Model.add_labels`
    cluster    train on a Ray cluster: its address, "auto" or "local". The data is then a path, and `checkpoint_dir` a
               folder, that all machines see, or URLs. The model stays in this folder; `save` copies it
    workers    number of processes there, which share the labels out; each has `threads` cores, 1 by default
    options    options of the recipe, such as `seed`, `threads`, `minutes`; `shortlist recipes NAME` lists them

    >>> model = train(["red shoes", "blue hat"], ["shoes", "hats"])
    >>> model.predict("a hat")[0].label
    'hats'
    """
    if isinstance(labels, str | Recipe):
        labels, recipe = None, labels
    if not cluster:
        if workers != 1:
            raise OptionError('workers are for a cluster: give its address, such as cluster="auto", too')
        how = {"ensemble": ensemble, "parallel": parallel, "published": published, "all_names": all_names}
        return one_machine.train(data, labels, recipe, **how, **options)  # type: ignore[arg-type]
    if ensemble != 1 or all_names:
        raise OptionError("ensembles and all_names are for one machine: leave them out, or cluster")
    if labels is not None or not isinstance(data, str | Path):
        raise OptionError("on a cluster, every worker reads the data itself: give the path of a file or folder")
    folder = options.get("checkpoint_dir", "")
    if not folder:
        raise OptionError("training on a cluster needs checkpoint_dir: a folder that all machines see")
    from shortlist.cluster.worker import TrainJob

    source, out = absolute(data), storage.join(absolute(folder), "model")
    job = TrainJob(source, recipe, out, published=published, options=options, bits=32)
    return train_on_cluster(job, cluster, workers)


def absolute(path: str | Path) -> str:
    """A path as all machines know it."""
    return str(path) if storage.is_url(path) else str(Path(path).absolute())


def train_on_cluster(job: TrainJob, cluster: str, workers: int) -> Model:
    """Train, and save to `job.out`, a folder that all machines see; the model as it was saved."""
    run_on_cluster(job, cluster, workers)
    with storage.local_copy(job.out) as folder:
        return load(folder)


def run_on_cluster(job: TrainJob, cluster: str, workers: int) -> None:
    """Train, and save to `job.out`."""
    from shortlist.cluster.connection import connected

    recipe = choose(job.recipe, None, job.options, 1, job.published)
    workers = count("workers", 1, "").checked(workers)
    named = recipe.name.removesuffix(PUBLISHED) if job.recipe == AUTO else job.recipe
    job = replace(job, recipe=named, options={"threads": 1, **job.options})
    options = resolve(recipe.name, recipe.options, job.options)
    require_cluster(recipe, options)
    check_bits(job.bits)
    if not storage.is_url(job.out):
        check_replaceable(Path(job.out))
    elif not options.resume:  # else it may hold a part of the model, from an upload that was interrupted
        check_replaceable_at(job.out)
    with lock_checkpoints(options.checkpoint_dir), stopping(options.checkpoint_dir):
        require_no_checkpoints(options)
        with connected(cluster) as ray:
            run_until_done(ray, job, workers, options.threads)


def check_replaceable_at(url: str) -> None:
    """As `check_replaceable`, for a folder at a URL: whatever is there is removed before the model is written."""
    names = {stored.url.removeprefix(f"{url.rstrip('/')}/") for stored in storage.files_below(url)}
    if not names:
        return
    if CONFIG in names:
        with storage.local_copy(url, CONFIG) as folder:
            if is_model(folder):
                try:
                    config, _ = read_config(folder)
                except ModelError as error:
                    raise ModelError(f"{error} Nothing was written.".replace(str(folder), url)) from None
                require_own_files(url, names, config)
                return
    raise ModelError(f"{url} exists and is not a model: nothing was written. Choose another URL.")


def run_until_done(ray: Any, job: TrainJob, n_workers: int, n_threads: int) -> None:
    """Train; if a worker is lost, start all again from the last checkpoint."""
    from shortlist.cluster.workers import run_workers

    n_losses = 0
    while (lost := run_workers(ray, job, n_workers, n_threads)) is not None:
        n_losses += 1
        if n_losses == MAX_LOSSES:
            raise ShortlistError(
                f"the training lost workers {n_losses} times, the last time: {lost.reason}. Find out why in Ray's "
                "dashboard or logs, then rerun with --resume."
            )
        log.warning("%s. Starting again from the last checkpoint (loss %d)", lost.reason, n_losses)
        job = job.resumed()


def require_cluster(recipe: Recipe, options: Any) -> None:
    """Raise an error if the recipe, with these options, cannot be trained on a cluster."""
    if not recipe.on_cluster:
        able = ", ".join(name for name, other in list_recipes().items() if other.on_cluster)
        raise OptionError(f"{recipe.name} cannot be trained on a cluster. Use {able}, or leave out --cluster.")
    for name, values in recipe.on_cluster.items():
        if options.get(name, values[0]) not in values:
            able = " or ".join(repr(value) for value in values)
            raise OptionError(
                f"{name} is {options.get(name, None)!r}; on a cluster, {recipe.name} takes {able}. Change it, or leave "
                "out --cluster."
            )
    if not options.checkpoint_dir:
        raise OptionError("training on a cluster needs checkpoint_dir: a folder that all machines see")
