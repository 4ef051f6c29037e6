"""`shortlist recipes`: which recipes there are, and the options of one of them."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import Any

import click

from shortlist.cli.reading import part_to_read, read_and_warn, reading_options

AUTO = """auto
  what    chooses one of the recipes below for your data, which is astec for most data
  choose  first: it is what `shortlist train` does without --recipe"""


@click.command()
@click.argument("recipe", required=False)
@click.option("--published", is_flag=True, help="Show the defaults of the paper, and where in the paper they are.")
@click.option("--data", "source", type=click.Path(), help="Data set to compute the defaults for.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reading_options
def recipes(recipe: str | None, published: bool, source: str | None, as_json: bool, reading: dict[str, Any]) -> None:
    """List the recipes, or the options of one RECIPE.

    Some defaults depend on the size of the data: with --data, you see the values for yours.

    \b
    shortlist recipes
    shortlist recipes astec
    shortlist recipes astec --published
    shortlist recipes astec --data pairs.jsonl
    """
    from shortlist.recipes import get_recipe, list_recipes
    from shortlist.recipes.auto import choose_recipe

    if recipe is None:
        about = [
            {name: getattr(known, name) for name in ("name", "summary", "cost", "choose_when")}
            for known in list_recipes().values()
        ]
        click.echo(json.dumps(about) if as_json else "\n".join([AUTO, *map(_about, about)]))
        return
    dataset = None if source is None else read_and_warn(source, part_to_read(source, "train"), reading)
    if recipe == "auto":
        if dataset is None:
            click.echo(AUTO)
            return
        recipe = choose_recipe(dataset.input_kind, len(dataset)).name
    sizes = None if dataset is None else (len(dataset), dataset.n_labels, dataset.input_kind, dataset.longest_row)
    known = get_recipe(recipe).as_published() if published else get_recipe(recipe)
    rows = _option_rows(known, sizes)
    if as_json:
        click.echo(json.dumps(rows))
        return
    click.echo(_about({name: getattr(known, name) for name in ("name", "summary", "cost", "choose_when")}))
    if not rows:
        click.echo("\nIt has no options.")
        return
    for_data = "" if sizes is None else f" Defaults are for {sizes[0]:,} texts and {sizes[1]:,} labels."
    click.echo(f"\nOptions, set with --set NAME=VALUE or as keyword arguments of shortlist.train.{for_data}\n")
    width = shutil.get_terminal_size((100, 24)).columns
    for row in rows:
        click.echo(f"{row['name']} = {row['default']}   ({row['range']})")
        text = row["help"] + (f" [{row['source']}]" if row["source"] else "")
        click.echo(textwrap.fill(text, width - 4, initial_indent="    ", subsequent_indent="    "))


def _about(recipe: dict[str, str]) -> str:
    lines = [("what", recipe["summary"]), ("cost", recipe["cost"]), ("choose", recipe["choose_when"])]
    return "\n".join([recipe["name"], *(f"  {name:<8}{text}" for name, text in lines)])


def _option_rows(recipe: Any, sizes: tuple[int, int, str, int] | None) -> list[dict[str, Any]]:
    from shortlist.recipes.options import resolve

    values = {} if sizes is None else resolve(recipe.name, recipe.options, {}, *sizes).to_dict()
    rows = []
    for option in recipe.options:
        default = values.get(option.name, option.rule or option.default)
        shown = option.rule if default == option.rule and option.rule else json.dumps(default, ensure_ascii=False)
        facts = {"range": option.range, "help": option.help, "source": option.source}
        rows.append({"name": option.name, "default": shown, **facts})
    return rows
