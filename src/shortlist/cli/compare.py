"""`shortlist compare`: recipes and other tools on the same data, measured in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import POSITIVE, drop_leaks_option, propensity_options, reading_options, unseen_option
from shortlist.errors import ShortlistError

PEERS_PYTHON = Path(".venv-peers/bin/python")


@click.command()
@click.argument("source")
@click.option("--out", required=True, type=click.Path(), help="Folder for the results.")
@click.option("--recipes", multiple=True, help="all, none, or names (see above).  [default: popular,centroid,astec]")
@click.option("--peers", multiple=True, help="Other tools: all, none, or names.  [default: all]")
@click.option(
    "--peers-python",
    type=click.Path(),
    help=f"Python that has the other tools.  [default: {PEERS_PYTHON}, if it exists]",
)
@click.option("--ablations", multiple=True, help="all, none, fan-out or dimensions.  [default: none]")
@click.option("--minutes", default=60.0, show_default=True, type=POSITIVE, help="Time limit per entry, in minutes.")
@click.option(
    "--memory", "memory_gb", type=POSITIVE, help="Memory limit per entry, in GB.  [default: 90 % of free memory]"
)
@click.option(
    "--threads", type=click.IntRange(1), help="Threads for training and bulk prediction.  [default: all cores]"
)
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@drop_leaks_option
@unseen_option
@click.option("--robustness", is_flag=True, help="Also predict perturbed test texts.")
@click.option(
    "--latency-texts",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="Number of test texts to predict one at a time.",
)
@click.option("--rerun", multiple=True, help="Name of a stored entry to run again, or all.")
@click.option("--keep-models", is_flag=True, help="Keep the recipes' models in OUT/models.")
@propensity_options
@reading_options
def compare(
    recipes: tuple[str, ...],
    peers: tuple[str, ...],
    ablations: tuple[str, ...],
    unseen: Any,
    a: float,
    b: float,
    **settings: Any,
) -> None:
    """Train recipes and other tools, and compare them.

    SOURCE is a folder with a train and a test part. Of any other data set, a fifth of the texts is held out at random.
    A recipe may have options (astec:dropout=0.3) or be an ensemble (astec*3). The other tools run in a separate Python,
    which `make peers` sets up; those that are not installed are skipped. Each entry runs in its own process, so a crash
    or an exceeded limit affects that entry only. Results are stored in OUT (report.html, table.md, summary.json,
    entries/). If interrupted, run the same command to resume.

    \b
    shortlist compare data/ --out report/
    shortlist compare data/ --recipes all --minutes 240 --out report/
    shortlist compare data/ --recipes "astec,astec:dropout=0.3" --out report/
    shortlist compare data/ --peers fasttext --rerun fasttext --out report/
    shortlist compare data/ --recipes none --ablations dimensions --out report/
    """
    from shortlist.cli.train import option_value
    from shortlist.compare import Settings
    from shortlist.compare import compare as run
    from shortlist.compare.measure import Convention
    from shortlist.compare.plan import ALL, DEFAULT_RECIPES, NONE, plan
    from shortlist.report import write_comparison

    if settings["peers_python"] is None and PEERS_PYTHON.exists():
        settings["peers_python"] = str(PEERS_PYTHON.absolute())
    entries = plan(
        ",".join(recipes) or DEFAULT_RECIPES, ",".join(peers) or ALL, option_value, ",".join(ablations) or NONE
    )
    out = Path(settings["out"])
    summary = run(
        Settings(entries=entries, convention=Convention(unseen, a, b), **settings),
        on_summary=lambda summary: write_comparison(summary, out),
    )
    click.echo((out / "table.md").read_text())
    if not any(entry["status"] == "done" for entry in summary["entries"]):
        raise ShortlistError(f"no entry could be measured. The output of each one is in {out}/entries/.")
