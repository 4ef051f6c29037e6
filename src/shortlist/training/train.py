"""Training from beginning to end: prepare the data, run the recipe's phases, re-rank, calibrate; a model comes out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.hygiene import findings
from shortlist.data.read import read
from shortlist.data.storage import is_url
from shortlist.errors import DataError, MissingExtraError, OptionError
from shortlist.kernels.threads import n_cores, use_cores, use_threads
from shortlist.messages import show_messages
from shortlist.model.model import Model
from shortlist.recipes.auto import AUTO, MANY_TEXTS, choose_recipe
from shortlist.recipes.options import Options, count, resolve
from shortlist.recipes.recipe import Recipe, get_recipe, list_recipes, register
from shortlist.stages.encoders.transformer import torch_threads
from shortlist.tables import plain, wrapped
from shortlist.training.budget import Budget, planned_epochs
from shortlist.training.build import Build
from shortlist.training.data import TrainingData
from shortlist.training.group import ALONE, Group
from shortlist.training.memory import require_memory
from shortlist.training.networks import needs_torch
from shortlist.training.phases import phase_named, reranker_memory, reranker_named
from shortlist.training.remembered import remembering
from shortlist.training.tune import tune

log = logging.getLogger("shortlist")

KINDS = {"texts": "texts", "sparse": "sparse features", "dense": "dense features"}
HINTS = {
    "texts": "",
    "sparse": " If they are vectors, give them as a numpy array.",
    "dense": " If they are bags of words, give them as a sparse matrix (scipy).",
}


def train(
    data: Any,
    labels: Any = None,
    recipe: str | Recipe = AUTO,
    *,
    ensemble: int = 1,
    parallel: int = 1,
    published: bool = False,
    all_names: bool = False,
    **options: Any,
) -> Model:
    """Train a model on this machine: `shortlist.train` without a cluster (cluster/train.py explains the arguments)."""
    show_messages()
    if isinstance(labels, str | Recipe):
        labels, recipe = None, labels
    ensemble, parallel = (count(name, 1, "").checked(n) for name, n in (("ensemble", ensemble), ("parallel", parallel)))
    check_early(recipe, options, ensemble, published)
    data = data if labels is None else Dataset.from_lists(data, labels)
    dataset = data if isinstance(data, Dataset) else read(data)
    recipe = choose(recipe, dataset, options, ensemble, published)
    resolved = resolve_for(recipe, dataset, options)
    from shortlist.training.checkpoints import lock_checkpoints
    from shortlist.training.ensemble import refuse_other_kind, train_ensemble
    from shortlist.training.interrupts import stopping

    checkpoint_dir = resolved.get("checkpoint_dir", "")
    with lock_checkpoints(checkpoint_dir), stopping(checkpoint_dir):
        if checkpoint_dir:
            refuse_other_kind(checkpoint_dir, ensemble > 1)
        if ensemble > 1:
            model = train_ensemble(recipe, dataset, resolved, ensemble, parallel)
        else:
            model = train_one(recipe, dataset, resolved)
    model.text_fields = dataset.text_fields
    return with_all_names(model, dataset) if all_names else model


def with_all_names(model: Model, dataset: Dataset) -> Model:
    """The model with all labels that have a name and no text. Names of labels that cannot be added are no reason to
    lose what was learnt."""
    known = model.labels.ids
    names: dict[str, Any] = {label: name for label, name in dataset.display_names.items() if label not in known}
    others = dataset.more_names
    names |= {label: {"name": name, "alt_names": others[label]} for label, name in names.items() if label in others}
    try:
        model = model.add_labels(names)
    except OptionError as error:
        log.warning("the names of %s labels without texts are left out: %s", f"{len(names):,}", error)
        return model
    log.info("%s labels without texts can be predicted by their names", f"{len(names):,}")
    return model


def recipe_of(recipe: str | Recipe, published: bool) -> Recipe:
    """The recipe, by name or registered, with the defaults of its paper if `published`."""
    if isinstance(recipe, Recipe):
        register(recipe)  # so that the model can be loaded again
    else:
        recipe = get_recipe(recipe)
    return recipe.as_published() if published else recipe


def resolve_for(recipe: Recipe, dataset: Dataset, options: dict[str, Any]) -> Options:
    """The options of a recipe for this data set, after checking that it can learn from it."""
    require_inputs(recipe, dataset)
    for line in findings(dataset):
        log.warning("%s", wrapped(f"Check the data: {line}"))
    sizes = max(len(dataset), 1), max(dataset.n_labels, 1), dataset.input_kind, dataset.longest_row
    resolved = resolve(recipe.name, recipe.options, options, *sizes)
    require_words(dataset, resolved)
    show_training(recipe, dataset, resolved, options, sizes)
    return resolved


def train_one(recipe: Recipe, dataset: Dataset, options: Options, group: Group = ALONE) -> Model:
    """Train one model: this function is the whole path.

    group  workers that all call this function with the same data. Each returns the model with its own label rows
    """
    require_no_checkpoints(options)
    budget = None
    if options.get("minutes", 0):
        if group is ALONE:
            budget = Budget(options.minutes, planned_epochs(recipe, options))
        else:
            log.warning("minutes has no effect on a cluster: its workers would plan different numbers of epochs")
    with running(recipe, options):
        data = TrainingData(dataset, options)
        build = Build(recipe, data, options, group=group, budget=budget)
        phases = [phase_named(name) for name in recipe.phases]
        sizes = {k: v for phase in phases for k, v in phase.memory(build).items()} | reranker_memory(build)
        require_memory(sizes, memory_advice(dataset))
        for phase in phases:
            phase.run(build)
        pipeline = build.pipeline
        if options.get("reranker", "none") != "none":
            pipeline.reranker = reranker_named(options.reranker)(pipeline, build)
        names = dataset.label_names, dataset.display_names
        model = Model(recipe.name, options.model_options(), [pipeline], *names, records=build.records)
        with remembering(pipeline):
            tune(model, build)
    if budget is not None:
        log.info("trained in %.1f of %g minutes", budget.elapsed / 60, options.minutes)
    return model


def choose(
    recipe: str | Recipe, dataset: Dataset | None, options: Mapping[str, Any], ensemble: int, published: bool
) -> Recipe:
    """The recipe that was asked for; for "auto" the one for this data, or, before it is read, for most data."""
    if recipe == AUTO:
        kind, n_texts = ("", MANY_TEXTS) if dataset is None else (dataset.input_kind, len(dataset))
        limits = options.get("minutes") or 0, options.get("threads") or n_cores()
        recipe = choose_recipe(kind, n_texts, *limits, options, needs_seeds=ensemble > 1, published=published)
    return recipe_of(recipe, published)


def check_early(recipe: str | Recipe, options: Mapping[str, Any], ensemble: int, published: bool) -> None:
    """Raise an error for a wrong option, a file that is not there, or a part that is not installed: these should not
    wait for the data."""
    chosen = choose(recipe, None, options, ensemble, published)
    resolved = resolve(chosen.name, chosen.options, options)
    require_reranker(chosen, resolved)
    require_files(chosen, resolved)
    require_torch(chosen, resolved)


def require_inputs(recipe: Recipe, dataset: Dataset) -> None:
    """Raise an error if the recipe cannot learn from this data set."""
    if not len(dataset.labels.values):
        raise DataError("there is nothing to learn from: the data set has no text with a label")
    if dataset.features is not None:
        shape = dataset.features.shape
        if len(shape) != 2 or shape[0] != len(dataset) or not shape[1]:
            expected = f"a matrix with {len(dataset):,} rows, one per text"
            raise DataError(f"the features have shape {shape}; expected {expected}")
        if dataset.texts.sizes.any():
            raise DataError(
                "the data set has texts and features, and a model learns from one of them: set data.features to None, "
                "or use data.with_features(data.features), which has no texts"
            )
    kind = dataset.input_kind
    if kind not in recipe.takes:
        others = [other.name for other in list_recipes().values() if kind in other.takes]
        raise OptionError(
            f"{recipe.name} learns from {' or '.join(KINDS[taken] for taken in recipe.takes)}; the data set has "
            f"{KINDS[kind]}. Use {', '.join(others)}.{HINTS[kind]}"
        )


def require_words(dataset: Dataset, options: Options) -> None:
    """Raise an error if features are to be read as words, or stored as texts."""
    reranker, vectors = options.get("reranker", "none"), options.get("vectors", "")
    if dataset.input_kind == "dense" and (reranker == "words" or vectors):
        raise OptionError(
            "reranker=words and vectors are for words, and the data set has dense features: leave them out"
        )
    if dataset.features is not None and options.get("keep_texts", 0):
        raise OptionError("keep_texts stores texts, and the data set has features: leave it out")


def require_reranker(recipe: Recipe, options: Options) -> None:
    """Raise an error if the encoder cannot be there twice."""
    if options.get("reranker", "none") == "network" and recipe.encoder == "transformer":
        raise OptionError("reranker=network is a second encoder, and a model has one transformer: use words or none")


def require_no_checkpoints(options: Options) -> None:
    """Before any work: refuse to start over in a folder with an interrupted training, unless it is to be resumed."""
    folder = options.get("checkpoint_dir", "")
    if folder and not options.resume:
        from shortlist.training.checkpoints import Checkpoints, refuse_to_overwrite_stored

        if is_url(folder):
            refuse_to_overwrite_stored(folder)
            return
        # Phases, and the workers of phases that several trained together.
        phases = (path for pattern in ("*", "*/*") for path in Path(folder).glob(pattern) if path.is_dir())
        for phase in sorted(phases):
            Checkpoints(phase, {}).refuse_to_overwrite()


def show_training(
    recipe: Recipe, dataset: Dataset, options: Options, given: Mapping[str, Any], sizes: tuple[int, int, str, int]
) -> None:
    """Say what is trained on what, and which of the given options differ from the defaults for this data."""
    sizes_of = f"{len(dataset):,} texts, {dataset.n_labels:,} labels"
    n_threads = options.get("threads", n_cores())
    threads = "1 thread" if n_threads == 1 else f"{n_threads} threads"
    log.info("training %s: %s, %s", recipe.name, sizes_of, threads)
    required = {option.name: options.get(option.name, None) for option in recipe.options if option.required}
    defaults, values = (
        some.model_options() for some in (resolve(recipe.name, recipe.options, required, *sizes), options)
    )
    changed = [[name, str(values[name]), str(defaults[name])] for name in given if name in values]
    changed = [[name, value, default or "-"] for name, value, default in changed if value != default]
    if changed:
        log.info("%s", plain(["option", "value", "default"], changed))


def require_files(recipe: Recipe, options: Options) -> None:
    """Raise an error if the word vectors or the transformer that are to be read are not there, or not whole."""
    vectors = options.get("vectors", "")
    if vectors and not Path(vectors).exists():
        raise OptionError(f"vectors is {vectors!r}: there is no such file or folder. Check the path.")
    if recipe.encoder == "transformer" and options.transformer:
        from shortlist.stages.encoders.transformer import read_transformer

        read_transformer(options.transformer)


def require_torch(recipe: Recipe, options: Options) -> None:
    """Raise an error if the recipe needs torch, or a device, that is not there."""
    if not needs_torch(recipe, options):
        return
    if find_spec("torch") is None:
        raise MissingExtraError(f"training {recipe.name}", "train")
    if options.get("device", "auto") not in ("auto", "cpu"):
        from shortlist.training.learner import find_device

        find_device(options.device)


def memory_advice(dataset: Dataset) -> str:
    if dataset.input_kind != "dense":
        return "A smaller embedding_dim, fewer candidates, repetitions or channels, or a larger min_count need less."
    rows, columns = dataset.features.shape
    return (
        f"The matrix of features is {rows:,} × {columns:,}: reduce it to some hundred columns (SVD), or, if most of it "
        "is 0, give it as a sparse matrix (scipy)."
    )


@contextmanager
def running(recipe: Recipe, options: Options) -> Iterator[None]:
    """Set the number of threads of kernels and of torch, which is loaded if the recipe needs it.

    Matrix products of numpy and scipy use one thread: ours share them out, do not spin, and always add up in the same
    order.
    """
    import scipy.linalg  # noqa: F401 - here, so that `use_cores` limits it

    with use_cores(1), use_threads(options.get("threads", None)) as n_threads:
        if not needs_torch(recipe, options):
            yield
            return
        if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
            os.environ["GOMP_SPINCOUNT"] = "5000"  # idle threads of torch would keep a core busy for milliseconds
        with torch_threads(n_threads):
            yield
