"""`shortlist merge`: one file per stage again, from a model folder with shards."""

from __future__ import annotations

import click

from shortlist.cli.reading import check_out_model, overwrite_model_option


@click.command()
@click.argument("model", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Folder of the merged model.")
@overwrite_model_option
def merge(model: str, out: str, overwrite: bool) -> None:
    """Join the shards of a model that was trained on a cluster.

    A model with shards predicts and serves as it is, but every process has a copy of the rows in memory. A merged
    model is mapped into memory: it starts faster, and the processes of a machine share it.

    \b
    shortlist merge model/ --out one/
    """
    from shortlist.model import load
    from shortlist.model.folder import save_model

    check_out_model(model, out, overwrite)
    save_model(load(model), out, bits=32)  # as they are: what is in 8 bits stays so
    click.echo(f"{out}: merged")
