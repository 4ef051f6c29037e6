"""What to compare: one planned entry per recipe with its options, per other tool (peer), and per ablation variant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shortlist.compare.ablations import ABLATIONS
from shortlist.errors import OptionError
from shortlist.recipes import get_recipe, list_recipes
from shortlist.recipes.options import resolve

RUN_PEER = Path(__file__).parent / "peers" / "run_peer.py"
RUN_XR_TRANSFORMER = RUN_PEER.with_name("xr_transformer.py")
ALL, NONE = "all", "none"
DEFAULT_RECIPES = "popular,centroid,astec"


@dataclass(frozen=True)
class Peer:
    """Another tool, and how to run it.

    package     the package that must be installed
    script      run by the peers' Python as `script NAME JOB`; see peers/run_peer.py
    max_pairs   largest number of labels times texts that it can train on in reasonable time
    needs_text  whether it reads texts and cannot use features
    options     options that it accepts, as `NAME:option=value`
    needs       the option without which it is skipped
    """

    name: str
    title: str
    package: str
    script: Path = RUN_PEER
    max_pairs: float = float("inf")
    needs_text: bool = False
    options: tuple[str, ...] = ()
    needs: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("pecos", "PECOS XR-Linear", "libpecos"),
        Peer("omikuji-parabel", "Omikuji (Parabel)", "omikuji"),
        Peer("omikuji-bonsai", "Omikuji (Bonsai)", "omikuji"),
        Peer("napkinxc-plt", "napkinXC PLT", "napkinxc"),
        Peer("napkinxc-ovr", "napkinXC one-vs-rest (as DiSMEC)", "napkinxc", max_pairs=1e9),
        Peer("fasttext", "fastText", "fasttext-wheel", needs_text=True),
        Peer("sklearn-ovr", "scikit-learn one-vs-rest", "scikit-learn", max_pairs=3e7),
        Peer(
            "xr-transformer",
            "PECOS XR-Transformer",
            "libpecos",
            RUN_XR_TRANSFORMER,
            needs_text=True,
            options=("weights", "num_train_epochs"),
            needs="weights",
        ),
    )
}


@dataclass(frozen=True)
class EntryPlan:
    """One entry of the comparison, before it runs."""

    name: str
    kind: Literal["recipe", "peer"]
    title: str
    recipe: str = ""
    ensemble: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    peer: Peer | None = None
    labels_per_cluster: int | None = None  # becomes an option once the number of labels is known

    @property
    def file_name(self) -> str:
        return re.sub(r"[^A-Za-z0-9+._=@-]+", "_", self.name.replace("*", "x"))


def plan(recipes: str, peers: str, parse_value: Callable[[str], Any], ablations: str = NONE) -> list[EntryPlan]:
    """Plan the entries; recipes come first. Each argument is "all", "none", or names separated by commas.

    recipes      a recipe (astec), a variant (astec:dropout=0.3:seed=5), or an ensemble (astec*3)
    peers        see `PEERS`; xr-transformer:weights=FOLDER
    ablations    see `ABLATIONS`; options apply to all variants (dimensions:dropout=0.3)
    parse_value  turns the text of an option's value into the value

    >>> [entry.title for entry in plan("centroid,astec*3", "fasttext", str)]
    ['centroid', 'astec × 3', 'fastText']
    >>> [entry.name for entry in plan("none", "none", str, ablations="fan-out")][:2]
    ['fan-out:8,synchronised', 'fan-out:8,not detached']
    """
    ready = [name for name, recipe in list_recipes().items() if not any(o.required for o in recipe.options)]
    entries = [_plan_recipe(name, parse_value) for name in _split_names(recipes, ready)]
    entries += [_plan_peer(name, parse_value) for name in _split_names(peers, PEERS)]
    entries += [entry for name in _split_names(ablations, ABLATIONS) for entry in _plan_ablation(name, parse_value)]
    by_file: dict[str, str] = {}
    for entry in entries:
        if entry.file_name in by_file:
            raise OptionError(f"{entry.name!r} is listed twice (as {by_file[entry.file_name]!r}); list it once.")
        by_file[entry.file_name] = entry.name
    return entries


def _split_names(given: str, known: Collection[str]) -> list[str]:
    if given.strip() == NONE:
        return []
    return list(known) if given.strip() == ALL else [name.strip() for name in given.split(",") if name.strip()]


def _plan_recipe(name: str, parse_value: Callable[[str], Any]) -> EntryPlan:
    head, *settings = name.split(":")
    is_known = head.partition("*")[0] in list_recipes()
    if settings and "=" not in settings[0] and not is_known:  # package.module:NAME
        head = f"{head}:{settings.pop(0)}"
    recipe, star, count = head.partition("*")
    options = _parse_options(name, settings, recipe, parse_value)
    if star and (not count.isdecimal() or int(count) < 1):
        raise OptionError(f"{name!r}: expected the number of models after the star, such as astec*3.")
    ensemble = int(count) if star else 1
    if ensemble > 1 and get_recipe(recipe).is_baseline:
        raise OptionError(f"{name!r}: all models of an ensemble of {recipe} would be equal.")
    title = f"{recipe} × {ensemble}" if ensemble > 1 else recipe
    if options:
        title += f" ({', '.join(f'{option}={value}' for option, value in options.items())})"
    return EntryPlan(name, "recipe", title, recipe, ensemble, options)


def _plan_peer(name: str, parse_value: Callable[[str], Any]) -> EntryPlan:
    head, *settings = name.split(":")
    if head not in PEERS:
        raise OptionError(f"unknown peer {head!r}; choose from {', '.join(PEERS)}.")
    peer, options = PEERS[head], _split_options(name, settings, parse_value)
    for option in options:
        if option not in peer.options:
            raise OptionError(f"{name!r}: {head} has no option {option!r}; it has {', '.join(peer.options) or 'none'}.")
    return EntryPlan(head, "peer", peer.title, options=options, peer=peer)


def _plan_ablation(name: str, parse_value: Callable[[str], Any]) -> Iterator[EntryPlan]:
    head, *settings = name.split(":")
    if head not in ABLATIONS:
        raise OptionError(f"unknown ablation {head!r}; choose from {', '.join(ABLATIONS)}.")
    options = _parse_options(name, settings, ABLATIONS[head][0].recipe, parse_value)
    for variant in ABLATIONS[head]:
        entry, chosen = f"{head}:{variant.name}", {"reranker": False} | variant.options | options
        n_labels = variant.labels_per_cluster
        yield EntryPlan(entry, "recipe", entry, variant.recipe, options=chosen, labels_per_cluster=n_labels)


def _parse_options(name: str, settings: list[str], recipe: str, parse_value: Callable[[str], Any]) -> dict[str, Any]:
    """Parse OPTION=VALUE settings of a recipe; `name` is for error messages."""
    options = _split_options(name, settings, parse_value)
    try:
        checked = resolve(recipe, get_recipe(recipe).options, options).to_dict()
        return {option: checked[option] for option in options}
    except OptionError as error:
        raise OptionError(f"{name!r}: {str(error).rstrip('.')}.") from None


def _split_options(name: str, settings: list[str], parse_value: Callable[[str], Any]) -> dict[str, Any]:
    options = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"{name!r}: expected OPTION=VALUE after the colon, not {setting!r}.")
        options[option.replace("-", "_")] = parse_value(value)
    return options
