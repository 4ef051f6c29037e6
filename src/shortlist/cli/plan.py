"""`shortlist plan`: what a training on a cluster will need, before anything is rented."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from shortlist.cli.reading import POSITIVE, FloatRange


class Number(click.ParamType):
    """A whole number that may be written as 100e6."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = float(value)
        except ValueError:
            number = 0
        if not 1 <= number <= 1e15 or number != int(number):
            self.fail(f"{value!r} is not a positive whole number such as 100000 or 100e6.", param, ctx)
        return int(number)


@click.command()
@click.option("--labels", "n_labels", type=Number(), required=True, help="Number of labels, for example 100e6.")
@click.option("--texts", "n_texts", type=Number(), required=True, help="Number of training texts.")
@click.option("--workers", "n_workers", type=Number(), default=1, show_default=True, help="Workers that share labels.")
@click.option("--recipe", default="astec", show_default=True, help="Recipe to train.")
@click.option("--words", "n_words", type=Number(), default=500_000, show_default=True, help="Size of the vocabulary.")
@click.option("--words-per-text", type=POSITIVE, default=9.0, show_default=True, help="Mean number of words per text.")
@click.option("--labels-per-text", type=POSITIVE, default=3.0, show_default=True,
              help="Mean number of labels per text.")  # fmt: skip
@click.option("--dim", type=click.IntRange(1), help="Dimension of word vectors.  [default: the recipe's]")
@click.option(
    "--memory", "memory_gb", type=POSITIVE, default=64.0, show_default=True, help="Memory of a worker, in GB."
)
@click.option("--cores", type=click.IntRange(1), default=16, show_default=True, help="Cores of a worker.")
@click.option("--network", "network_gbit", type=POSITIVE, default=10.0, show_default=True,
              help="Network of a worker, in Gbit/s.")  # fmt: skip
@click.option("--price", type=FloatRange(0), default=0.0, show_default=True, help="Price of a worker per hour.")
@click.option("--measure", is_flag=True, help="Measure the speed of this machine's cores first (some seconds).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(recipe: str, dim: int | None, measure: bool, as_json: bool, **given: Any) -> None:
    """Plan a training on a cluster: memory, time, network, price.

    Memory is computed by the same formulas that training checks before it starts. Times assume that every core is
    as fast as the one that was measured, so take them as an estimate. Exit code 1 means that it does not fit.

    \b
    shortlist plan --labels 3e6 --texts 2e6
    shortlist plan --labels 100e6 --texts 1e9 --workers 64 --price 0.9
    """
    from shortlist.cluster.plan import Machine, Sizes, make_plan, measure_speeds
    from shortlist.tables import plain

    of_machine = {name: given.pop(name) for name in ("memory_gb", "cores", "network_gbit", "price")}
    speeds = measure_speeds() if measure else None
    options = {} if dim is None else {"embedding_dim": dim}
    made = make_plan(Sizes(**given), Machine(**of_machine), recipe, speeds, **options)
    totals = {
        "peak_gb": made.peak_gb,
        "fits": made.fits,
        "hours": made.hours,
        "price": made.price,
        "model_gb": made.model_bytes / 1e9,
        "checkpoint_gb": made.checkpoint_bytes / 1e9,
        "data_gb": made.data_bytes / 1e9,
        "speeds": vars(made.speeds),
    }
    if as_json:
        click.echo(json.dumps({"phases": made.rows, **totals}))
    else:
        header = ["phase", "GB per worker", "largest part", "epochs", "hours per epoch", "waiting", "kB per step"]
        rows = [[row["phase"], f"{row['memory_gb']:,.1f}", row["largest"], str(row["n_epochs"]),
                 f"{row['epoch_hours']:,.2f}", f"{100 * row['waiting']:.0f} %", f"{row['step_kb']:,.0f}"]
                for row in made.rows]  # fmt: skip
        click.echo(plain(header, rows))
        price = f", {made.price:,.0f} in the currency of --price" if made.price else ""
        click.echo(f"\n{made.hours:,.1f} hours on {made.sizes.n_workers:,} workers{price}.")
        click.echo(f"Disk: model {totals['model_gb']:,.1f} GB, checkpoints {totals['checkpoint_gb']:,.1f} GB.")
        speed = made.speeds
        source = "measured here" if measure else "of our test machine; --measure measures yours"
        click.echo(f"Speed of a core ({source}): {speed.rows / 1e9:.1f} and {speed.dense / 1e9:.1f} billion "
                   "multiply-adds per second, in label rows and in matrix products.")  # fmt: skip
        verdict = "It fits." if made.fits else f"It does not fit: {made.peak_gb:,.1f} GB per worker are needed."
        click.echo(f"{verdict} A worker has {made.machine.memory_gb:,.1f} GB.")
    if not made.fits:
        sys.exit(1)
