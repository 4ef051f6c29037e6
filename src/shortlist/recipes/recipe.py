"""`Recipe`: a named choice of encoder, phases of training and defaults; and the registry, open to other packages.

A package adds a recipe with `shortlist.register(recipe)`, or with an entry point in the group `shortlist.recipes`:

    [project.entry-points."shortlist.recipes"]
    my-recipe = "my_package.my_module:RECIPE"

The command line also takes `--recipe my_package.my_module:RECIPE`, and the environment variable SHORTLIST_RECIPES a
comma-separated list of such names. A model folder never names code to import: whoever loads it registers the recipe.

A recipe named after a paper has a second set of defaults, the paper's: `astec@published`.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from shortlist.errors import ModelError, OptionError
from shortlist.recipes.options import Option, Published, with_published
from shortlist.stages.encoders import ENCODERS, Encoder, FunctionEncoder
from shortlist.stages.encoders.encoder import Encode

log = logging.getLogger("shortlist")

GROUP, VARIABLE = "shortlist.recipes", "SHORTLIST_RECIPES"
PUBLISHED = "@published"
FAMILIES = ("baselines", "astec", "inceptionxml", "xml_cnn", "attentionxml", "mach", "slice", "deepxml", "transformer")


class UnknownEncoderError(ModelError):
    """A model is whole, but its encoder is from a package that is not known here."""


@dataclass(frozen=True)
class CustomEncoder:
    """An encoder from another package.

    name     its name in model folders
    network  `network(data, options, vectors)` gives a torch module: padded word ids (batch × words, padding =
             `data.n_words`) to features (batch × `module.n_features`). `module.arrays()` gives what `encode` needs
    encode   `encode(arrays, word_ids)`, without torch: the same features, from a `Ragged` of word ids

    If the recipe takes sparse features, the module gets their weights as a second argument, and the `Ragged` has them,
    too. If it takes dense features, module and `encode` get these (batch × columns) in place of word ids.

    `docs/own-encoder.md` has a whole example.

    >>> CustomEncoder("my-encoder", network=lambda *_: None, encode=lambda arrays, word_ids: None).name
    'my-encoder'
    """

    name: str
    network: Callable[..., Any]
    encode: Encode

    def __post_init__(self) -> None:
        if self.name in ENCODERS:
            raise OptionError(f"encoder {self.name!r} has the name of a built-in one; choose another name")


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    name, summary, cost, choose_when  what `shortlist recipes` prints
    encoder                           the name of a built-in encoder, or a `CustomEncoder`
    phases                            names of the phases of training, in order (training/phases/)
    options                           every option with its default, meaning and range
    takes                             what it can learn from: "texts", "sparse" features, "dense" features
    published                         defaults that differ in the paper, by name of the option
    on_cluster                        options, and the values of each that can be trained on a cluster; empty: it cannot

    >>> import dataclasses
    >>> mine = dataclasses.replace(get_recipe("centroid"), name="mine", summary="centroids, named by me")
    >>> mine.phases
    ('centroids',)
    """

    name: str
    summary: str
    cost: str
    choose_when: str
    encoder: str | CustomEncoder
    phases: tuple[str, ...]
    options: tuple[Option, ...] = ()
    takes: tuple[str, ...] = ("texts",)
    published: Mapping[str, Published] = field(default_factory=dict)
    on_cluster: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def option_names(self) -> set[str]:
        return {option.name for option in self.options}

    @property
    def is_baseline(self) -> bool:
        """Whether nothing in it is random or learnt in epochs: no seed, no device and no checkpoints matter."""
        return self.encoder in ("none", "tfidf")

    def as_published(self) -> Recipe:
        """The same recipe with the defaults of its paper. The published form is its own published form."""
        if self.name.endswith(PUBLISHED):
            return self
        if not self.published:
            raise OptionError(f"recipe {self.name!r} has no published form")
        return replace(
            self,
            name=f"{self.name}{PUBLISHED}",
            summary=f"{self.name} with the defaults of its paper",
            choose_when="to compare with the paper",
            options=with_published(self.options, self.published),
            published={},
        )


_registered: dict[str, Recipe] = {}


def register(recipe: Recipe) -> None:
    """Make a recipe known by its name, in this process. One that was registered before under this name is replaced.

    >>> register(get_recipe("centroid"))  # a recipe of yours
    """
    if not isinstance(recipe, Recipe):
        raise OptionError(f"register takes a Recipe, not {type(recipe).__name__}")
    known = {**_plugged_in(os.environ.get(VARIABLE, "")), **_built_in()}.get(recipe.name, recipe)
    if known != recipe:
        raise OptionError(f"there is another recipe {recipe.name!r}; choose another name")
    _registered[recipe.name] = recipe


def list_recipes() -> dict[str, Recipe]:
    """Every recipe by name: built-in ones first, then those of other packages.

    >>> list(list_recipes())[:3]
    ['popular', 'centroid', 'astec']
    """
    return {**_built_in(), **_plugged_in(os.environ.get(VARIABLE, "")), **_registered}


def get_recipe(name: str) -> Recipe:
    """The recipe with this name, or the one that `package.module:NAME` names, which is registered, too.

    `NAME@published` is the recipe with the defaults of its paper.

    >>> get_recipe("astec").phases
    ('surrogate', 'candidates', 'classifier')
    """
    if name.endswith(PUBLISHED):
        return get_recipe(name.removesuffix(PUBLISHED)).as_published()
    if ":" in name:
        recipe = _import_recipe(name)
        register(recipe)
        return recipe
    # Built-in ones first: a module that is being imported for its own recipe may ask for them.
    known = _built_in() if name in _built_in() else list_recipes()
    if name == "auto":
        raise OptionError("'auto' is chosen for the data when a model is trained; name a recipe here, such as 'astec'")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? All" if close else "the"
        raise OptionError(f"there is no recipe {name!r}; {hint} recipes are auto, {', '.join(known)}.")
    return known[name]


@cache
def _built_in() -> dict[str, Recipe]:
    modules = [importlib.import_module(f"shortlist.recipes.{family}") for family in FAMILIES]
    return {recipe.name: recipe for module in modules for recipe in module.RECIPES}


def entry_points(group: str) -> Any:
    """The entry points of installed packages. Loading a model that needs none does not wait for the import."""
    from importlib import metadata

    return metadata.entry_points(group=group)


@cache
def _plugged_in(from_environment: str) -> dict[str, Recipe]:
    """Recipes of installed packages, and of the environment variable. A broken package costs its own recipes only."""
    found: dict[str, Recipe] = {}
    for entry in entry_points(group=GROUP):
        try:
            recipe = _checked(entry.load(), entry.value)
        except Exception as error:  # noqa: BLE001 - whatever another package raises
            log.warning("recipe %s of %s cannot be used: %s", entry.name, entry.value, error)
        else:
            found[recipe.name] = recipe
    named = [_import_recipe(name.strip()) for name in from_environment.split(",") if name.strip()]
    return found | {recipe.name: recipe for recipe in named}


def _import_recipe(name: str) -> Recipe:
    module, _, attribute = name.partition(":")
    try:
        recipe = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"recipe {name!r} cannot be imported ({error}). Is its package installed, or its folder on PYTHONPATH?"
        ) from None
    return _checked(recipe, name)


def _checked(recipe: Any, where: str) -> Recipe:
    """The recipe, or an error if it is something else or has the name of a built-in one."""
    if not isinstance(recipe, Recipe):
        raise OptionError(f"{where} is of type {type(recipe).__name__}; expected a shortlist.Recipe")
    if _built_in().get(recipe.name, recipe) != recipe:
        raise OptionError(f"{where} has the name of a built-in recipe, {recipe.name!r}; choose another name")
    return recipe


def load_encoder(kind: str, recipe: str, arrays: dict[str, Any], config: dict[str, Any], **sizes: int) -> Encoder:
    """The encoder of a saved model: a built-in one, or that of a registered recipe."""
    if kind in ENCODERS:
        return ENCODERS[kind].from_arrays(arrays, config, **sizes)
    # Its own recipe first: another one may have an encoder of the same name.
    for known in sorted(list_recipes().values(), key=lambda known: known.name != recipe):
        if isinstance(known.encoder, CustomEncoder) and known.encoder.name == kind:
            return FunctionEncoder(arrays, config, kind, known.encoder.encode)
    raise UnknownEncoderError(
        f"its encoder {kind!r:.60} is not known here: recipe {recipe!r:.60} belongs to another package or release. "
        f"Install it, call shortlist.register, or set {VARIABLE}=package.module:NAME."
    )
