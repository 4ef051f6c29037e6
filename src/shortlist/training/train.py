"""Training from beginning to end: prepare the data, run the recipe's phases, re-rank, calibrate; a model comes out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.hygiene import findings
from shortlist.data.read import read
from shortlist.errors import DataError, MissingExtraError, OptionError
from shortlist.kernels.threads import use_cores, use_threads
from shortlist.model.model import Model
from shortlist.recipes.options import Options, count, resolve
from shortlist.recipes.recipe import Recipe, get_recipe, list_recipes, register
from shortlist.tables import wrapped
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
    dataset: Any,
    recipe: str | Recipe = "centroid",
    ensemble: int = 1,
    parallel: int = 1,
    published: bool = False,
    **options: Any,
) -> Model:
    """Train a model on a data set, or on anything that `shortlist.read` reads.

    recipe     a name from `shortlist.list_recipes()`, "package.module:NAME", or a `Recipe`, which is registered
    ensemble   number of models with different seeds whose scores are averaged
    parallel   number of them to train at the same time, each in a process of its own
    published  start from the defaults of the recipe's paper; the same as the recipe "NAME@published"
    options    options of the recipe; `shortlist recipes NAME` lists them

    >>> model = train([("red shoes", ["shoes"]), ("blue hat", ["hats"])], recipe="centroid")
    >>> model.predict("a hat")[0].label
    'hats'
    """
    recipe = recipe_of(recipe, published)
    ensemble, parallel = (count(name, 1, "").checked(n) for name, n in (("ensemble", ensemble), ("parallel", parallel)))
    resolve(recipe.name, recipe.options, options)  # a wrong option should not wait for the data
    dataset = dataset if isinstance(dataset, Dataset) else read(dataset)
    resolved = resolve_for(recipe, dataset, options)
    from shortlist.training.checkpoints import lock_checkpoints
    from shortlist.training.ensemble import refuse_other_kind, train_ensemble

    checkpoint_dir = resolved.get("checkpoint_dir", "")
    with lock_checkpoints(checkpoint_dir):
        if checkpoint_dir:
            refuse_other_kind(checkpoint_dir, ensemble > 1)
        if ensemble > 1:
            model = train_ensemble(recipe, dataset, resolved, ensemble, parallel)
        else:
            model = train_one(recipe, dataset, resolved)
    model.text_fields = dataset.text_fields
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
    require_reranker(recipe, resolved)
    return resolved


def train_one(recipe: Recipe, dataset: Dataset, options: Options, group: Group = ALONE) -> Model:
    """Train one model: this function is the whole path.

    group  workers that all call this function with the same data. Each returns the model with its own label rows
    """
    require_no_checkpoints(options)
    show_options(options)
    with running(recipe, options):
        data = TrainingData(dataset, options)
        build = Build(recipe, data, options, group=group)
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
    return model


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
    """Raise an error if dense features are to be read as words."""
    reranker, vectors = options.get("reranker", "none"), options.get("vectors", "")
    if dataset.input_kind == "dense" and (reranker == "words" or vectors):
        raise OptionError(
            "reranker=words and vectors are for words, and the data set has dense features: leave them out"
        )


def require_reranker(recipe: Recipe, options: Options) -> None:
    """Raise an error if the encoder cannot be there twice."""
    if options.get("reranker", "none") == "network" and recipe.encoder == "transformer":
        raise OptionError("reranker=network is a second encoder, and a model has one transformer: use words or none")


def require_no_checkpoints(options: Options) -> None:
    """Before any work: refuse to start over in a folder with an interrupted training, unless it is to be resumed."""
    folder = options.get("checkpoint_dir", "")
    if folder and not options.resume:
        from shortlist.training.checkpoints import Checkpoints

        # Phases, and the workers of phases that several trained together.
        phases = (path for pattern in ("*", "*/*") for path in Path(folder).glob(pattern) if path.is_dir())
        for phase in sorted(phases):
            Checkpoints(phase, {}).refuse_to_overwrite()


def show_options(options: Options) -> None:
    shown = options.model_options()
    if shown:
        log.info("options: %s", ", ".join(f"{name} {value}" for name, value in shown.items() if value != ""))


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

    Matrix products of numpy use one thread: ours share them out, do not spin, and always add up in the same order.
    """
    with use_cores(1), use_threads(options.get("threads", None)) as n_threads:
        if not needs_torch(recipe, options):
            yield
            return
        if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
            os.environ["GOMP_SPINCOUNT"] = "5000"  # idle threads of torch would keep a core busy for milliseconds
        try:
            import torch
        except ImportError:
            raise MissingExtraError(f"training {recipe.name}", "train") from None
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
