"""`shortlist labels`: list, add, remove and rename the labels of a model, and store lists of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shortlist.cli.reading import change_model, new_model_options
from shortlist.errors import OptionError
from shortlist.printable import printable, printable_line

if TYPE_CHECKING:
    from shortlist.model import Model

_names = click.option(
    "--name", "pairs", nargs=2, multiple=True, metavar="LABEL NAME", help="A label and its name. Repeat for several."
)


@click.group()
def labels() -> None:
    """List, add, remove or rename the labels of a model.

    Nothing is trained: a new label can be predicted by its name at once, and everything else stays the same.
    """


@labels.command("list")
@click.argument("model", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help='Print one JSON line per label: {"label": …, "name": …}.')
def list_labels(model: str, as_json: bool) -> None:
    """Print the labels, one per line. A name follows after a tab."""
    from shortlist.model import load

    loaded = load(model)
    for label in loaded.label_names:
        name = loaded.display_names.get(label, "")
        if as_json:
            click.echo(printable(json.dumps({"label": label, "name": name or label}, ensure_ascii=False)))
        else:
            click.echo("\t".join(map(printable_line, filter(None, (label, name)))))


@labels.command()
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path(), required=False)
@_names
@new_model_options
def add(model: str, file: str | None, pairs: tuple[tuple[str, str], ...], out: str, overwrite: bool) -> None:
    """Add labels, which are predicted by their names.

    FILE names them: JSON {"label": "name"}, or two columns (.tsv, .csv). In JSON, a label can have several names:
    {"name": …, "alt_names": […], "description": …}.

    \b
    shortlist labels add model/ new.tsv --out model2/
    shortlist labels add model/ --name J45.9 "Asthma, unspecified" --out model2/
    """
    names = _read_names(file, pairs)
    _write(model, out, overwrite, lambda loaded: loaded.add_labels(names), f"{len(names):,} labels added")


@labels.command()
@click.argument("model", type=click.Path())
@click.argument("entries", nargs=-1, required=True)
@new_model_options
def remove(model: str, entries: tuple[str, ...], out: str, overwrite: bool) -> None:
    """Remove labels.

    ENTRIES are labels, names, prefixes such as "J45*", or "@NAME" for a stored list.

    \b
    shortlist labels remove model/ J45.9 "J20*" --out model2/
    """
    _write(model, out, overwrite, lambda loaded: loaded.remove_labels(entries), "removed")


@labels.command()
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path(), required=False)
@_names
@new_model_options
def rename(model: str, file: str | None, pairs: tuple[tuple[str, str], ...], out: str, overwrite: bool) -> None:
    """Give labels other display names: those of FILE, as for `add`.

    Predictions stay the same.
    """
    names = {
        label: name["name"] if isinstance(name, dict) else name for label, name in _read_names(file, pairs).items()
    }
    _write(model, out, overwrite, lambda loaded: loaded.rename_labels(names), f"{len(names):,} labels renamed")


@labels.command("store-list")
@click.argument("model", type=click.Path())
@click.argument("name")
@click.argument("entries", nargs=-1)
@new_model_options
def store_list(model: str, name: str, entries: tuple[str, ...], out: str, overwrite: bool) -> None:
    """Store a list of labels with the model.

    --allow and --deny then take it as @NAME. Without ENTRIES, the list is removed.

    \b
    shortlist labels store-list model/ billable "J45*" "J20*" --out model/
    """

    def with_list(loaded: Model) -> Model:
        loaded.store_list(name, entries or None)
        return loaded

    _write(model, out, overwrite, with_list, f"list @{name} {'stored' if entries else 'removed'}")


@labels.command()
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path(), required=False)
@click.option("--label-names", type=click.Path(), help="File of display names for parents that are no labels.")
@click.option("--inclusive", is_flag=True, help="The training texts have the parents of their labels as labels, too.")
@new_model_options
def hierarchy(
    model: str, file: str | None, label_names: str | None, inclusive: bool, out: str, overwrite: bool
) -> None:
    """Store which labels are above which.

    `predict --levels` then uses it. Without FILE, the hierarchy is removed. FILE has a child and its parent per line
    (.csv, .tsv, .jsonl), or is SKOS or OWL (.ttl, .rdf, .owl, .nt, .jsonld).

    \b
    shortlist labels hierarchy model/ broader.tsv --out model/
    shortlist labels hierarchy model/ gnd.ttl --out model/
    """
    from shortlist.data.label_names import read_label_names

    names = read_label_names(label_names) if label_names else {}

    def with_hierarchy(loaded: Model) -> Model:
        loaded.set_hierarchy(file, names, inclusive)
        if loaded.hierarchy is not None:
            n_known = len(loaded.labels.ids.keys() & loaded.hierarchy.ids.keys())
            click.echo(f"{file}: {len(loaded.hierarchy.labels):,} labels, {n_known:,} of them in the model.", err=True)
        return loaded

    _write(model, out, overwrite, with_hierarchy, f"hierarchy {'stored' if file else 'removed'}")


def _read_names(file: str | None, pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The names of labels, and all further ones of those that have several."""
    from shortlist.data.label_names import read_names

    shown, others = read_names(file) if file else ({}, {})
    names: dict[str, Any] = {**shown, **dict(pairs)}
    names |= {label: {"name": names[label], "alt_names": more} for label, more in others.items()}
    if not names:
        raise OptionError("there are no labels: give a file of labels and names, or --name LABEL NAME.")
    return names


def _write(model: str, out: str, overwrite: bool, change: Callable[[Model], Model], what: str) -> None:
    before, changed = change_model(model, out, overwrite, change)
    click.echo(f"{out}: {what}; {before:,} labels before, {changed.n_labels:,} now.", err=True)
