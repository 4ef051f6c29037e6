"""`shortlist merge`: one file per stage again, from a model folder with shards."""

from __future__ import annotations

import click

from shortlist.cli.reading import change_model, new_model_options


@click.command()
@click.argument("model", type=click.Path())
@new_model_options
def merge(model: str, out: str, overwrite: bool) -> None:
    """Join the shards of a model that was trained on a cluster.

    A model with shards predicts and serves as it is, but every process has a copy of the rows in memory. A merged
    model is mapped into memory: it starts faster, and the processes of a machine share it.

    \b
    shortlist merge model/ --out one/
    """
    change_model(model, out, overwrite, lambda loaded: loaded)
    click.echo(f"{out}: merged")
