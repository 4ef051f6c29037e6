"""What is compared: a row for each recipe, with its options, and for each of the other tools (peers)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shortlist.errors import OptionError
from shortlist.model.registry import checked_options, list_recipes, options_of

SCRIPT = Path(__file__).parent / "peers" / "run_peer.py"
ALL, NONE = "all", "none"


@dataclass(frozen=True)
class Peer:
    """Another tool, and how to run it.

    package      what has to be installed
    script       run by the peers' Python as `script NAME JOB`; see peers/run_peer.py for what it has to do
    most_pairs   more labels times texts than these would take it days
    needs_words  whether it reads texts, and no features
    """

    name: str
    title: str
    package: str
    script: Path = SCRIPT
    most_pairs: float = float("inf")
    needs_words: bool = False


_PEERS = [
    Peer("pecos", "PECOS XR-Linear", "libpecos"),
    Peer("omikuji-parabel", "Omikuji (Parabel)", "omikuji"),
    Peer("omikuji-bonsai", "Omikuji (Bonsai)", "omikuji"),
    Peer("napkinxc-plt", "napkinXC PLT", "napkinxc"),
    Peer("napkinxc-ovr", "napkinXC one-vs-rest (as DiSMEC)", "napkinxc", most_pairs=1e9),
    Peer("fasttext", "fastText", "fasttext-wheel", needs_words=True),
    Peer("sklearn-ovr", "scikit-learn one-vs-rest", "scikit-learn", most_pairs=3e7),
]


def peers() -> dict[str, Peer]:
    """Every peer by name."""
    return {peer.name: peer for peer in _PEERS}


@dataclass(frozen=True)
class RowPlan:
    """One row of the comparison, before it is run."""

    name: str
    kind: Literal["recipe", "peer"]
    title: str
    recipe: str = ""
    ensemble: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    peer: Peer | None = None
    ablation: str = ""
    cells: tuple[str | int, ...] = ()  # what it is called in the table of its ablation

    @property
    def file_name(self) -> str:
        """The name as files have it."""
        return re.sub(r"[^A-Za-z0-9+._=-]+", "_", self.name.replace("*", "x"))


def plan(recipe_names: str, peer_names: str, value_of: Callable[[str], Any]) -> list[RowPlan]:
    """The rows that these names ask for, recipes first; there may be none.

    recipe_names  "all", "none", or names with commas between: astec, a variant astec:epochs=5:dropout=0.3, or an
                  ensemble astec*3
    peer_names    "all", "none", or names with commas between
    value_of      what an option's value in writing stands for

    >>> [row.title for row in plan("centroid,astec*3", "fasttext", str)]
    ['centroid', 'astec × 3', 'fastText']
    """
    rows = [_recipe_row(name, value_of) for name in names_of(recipe_names, list_recipes())]
    rows += [_peer_row(name) for name in names_of(peer_names, peers())]
    by_file: dict[str, str] = {}
    for row in rows:
        if (other := by_file.setdefault(row.file_name, row.name)) != row.name or rows.count(row) > 1:
            raise OptionError(f"{row.name!r} stands twice among what is to be compared ({other!r}).")
    return rows


def names_of(given: str, known: Sequence[str] | dict[str, Any]) -> list[str]:
    """The names that are asked for: "all", "none", or with commas between."""
    if given.strip() == NONE:
        return []
    return list(known) if given.strip() == ALL else [name.strip() for name in given.split(",") if name.strip()]


def _recipe_row(name: str, value_of: Callable[[str], Any]) -> RowPlan:
    head, *settings = name.split(":")
    recipe, star, times = head.partition("*")
    kinds = options_of(recipe)
    options = named_options(name, settings, recipe, kinds, value_of)
    if star and (not times.isdecimal() or int(times) < 1):
        raise OptionError(f"{name!r}: expected how many models an ensemble has after the star, such as astec*3.")
    ensemble = int(times) if star else 1
    if ensemble > 1 and "seed" not in kinds:
        raise OptionError(f"{name!r}: recipe {recipe!r} has no seed; an ensemble of it would be the same model again.")
    title = f"{recipe} × {ensemble}" if ensemble > 1 else recipe
    if options:
        title += f" ({', '.join(f'{option}={value}' for option, value in options.items())})"
    return RowPlan(name, "recipe", title, recipe, ensemble, options)


def named_options(
    name: str, settings: Sequence[str], recipe: str, kinds: Mapping[str, Any], value_of: Callable[[str], Any]
) -> dict[str, Any]:
    """Options in writing, OPTION=VALUE each, of something that is called `name`."""
    options = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        option = option.replace("-", "_")
        if not equals or option not in kinds:
            raise OptionError(
                f"{name!r}: {setting!r} is no option of recipe {recipe!r}. Expected NAME:OPTION=VALUE, with an option "
                f"of {', '.join(kinds) or 'none'}."
            )
        options[option] = value_of(value)
    try:
        return checked_options(recipe, options)
    except OptionError as error:
        raise OptionError(f"{name!r}: {error}.") from None


def _peer_row(name: str) -> RowPlan:
    known = peers()
    if name not in known:
        raise OptionError(f"there is no peer {name!r}; there are {', '.join(known)}.")
    return RowPlan(name, "peer", known[name].title, peer=known[name])
