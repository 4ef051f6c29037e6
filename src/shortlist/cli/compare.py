"""`shortlist compare`: recipes and other tools on the same data, measured in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shortlist.cli.reading import reading_options
from shortlist.errors import ShortlistError

PEERS_PYTHON = Path(".venv-peers/bin/python")


@click.command()
@click.argument("source")
@click.option("--out", required=True, type=click.Path(), help="Folder for the results.")
@click.option("--recipes", multiple=True, help="all, none, or names; see below.  [default: popular,centroid,astec]")
@click.option("--peers", multiple=True, help="all, none, or names of other tools.  [default: all]")
@click.option("--peers-python", type=click.Path(), help=f"Python that has them.  [default: {PEERS_PYTHON}, if there]")
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="A row may take so long; then it is given up.")  # fmt: skip
@click.option("--memory", type=click.FloatRange(0, min_open=True),
              help="A row may take so many GB.  [default: nine tenths of what is free]")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="In training and in bulk; as many as cores by default.")
@click.option("--seed", default=0, show_default=True, help="Where chance begins.")
@click.option("--ablations", multiple=True,
              help="all, none, or fan-out, dimensions: variants of InceptionXML.  [default: none]")  # fmt: skip
@click.option("--robustness", is_flag=True, help="Also on test texts with words shuffled, dropped, and misspelt.")
@click.option("--latency-texts", default=1000, show_default=True, type=click.IntRange(1),
              help="So many test texts are predicted one at a time.")  # fmt: skip
@click.option("--again", multiple=True, help="Name of a row to run again, though it is there; all for all of them.")
@click.option("--keep-models", is_flag=True, help="Keep the recipes' models in OUT/models.")
@click.option("-a", default=0.55, show_default=True, help="A of the propensity model.")
@click.option("-b", default=1.5, show_default=True, help="B of the propensity model.")
@reading_options
def compare(
    source: str,
    out: str,
    recipes: tuple[str, ...],
    peers: tuple[str, ...],
    peers_python: str | None,
    minutes: float,
    memory: float | None,
    threads: int | None,
    seed: int,
    ablations: tuple[str, ...],
    robustness: bool,
    latency_texts: int,
    again: tuple[str, ...],
    keep_models: bool,
    a: float,
    b: float,
    reading: dict[str, Any],
) -> None:
    """Train recipes and other tools on SOURCE, a folder with train and test parts, and compare them on the test part.

    Without a test part, about a fifth of the texts is held out by the seed, where their labels have others to learn
    from. A recipe may have options (astec:epochs=5) and be an ensemble (astec*3). Other tools are run by a Python of
    their own, which `make peers` sets up; one that is not there is left out with a note. Each row has a process of its
    own: one that dies, hangs or takes too much memory costs its row. What is done is stored in OUT (report.html,
    table.md, summary.json, rows/), and the same command goes on from there.

    \b
    shortlist compare parts/ --out report/
    shortlist compare parts/ --recipes all --peers all --minutes 240 --out report/
    shortlist compare parts/ --recipes "centroid,astec,astec:epochs=5:dropout=0.3,astec*3" --peers none --out report/
    shortlist compare parts/ --peers omikuji-bonsai,fasttext --again fasttext --robustness --out report/
    shortlist compare parts/ --recipes none --peers none --ablations fan-out:epochs=5,dimensions --out report/
    """
    from shortlist.cli.models import option_value
    from shortlist.compare import Settings
    from shortlist.compare import compare as run
    from shortlist.compare.ablations import plan_ablations
    from shortlist.compare.measure import Convention
    from shortlist.compare.plan import plan
    from shortlist.report import write_comparison

    if peers_python is None and PEERS_PYTHON.exists():
        peers_python = str(PEERS_PYTHON.absolute())
    rows = plan(",".join(recipes) or "popular,centroid,astec", ",".join(peers) or "all", option_value)
    summary = run(
        Settings(
            source=source,
            out=out,
            rows=rows,
            ablations=plan_ablations(",".join(ablations) or "none", option_value),
            seed=seed,
            minutes=minutes,
            memory_gb=memory,
            threads=threads,
            robustness=robustness,
            again=again,
            peers_python=peers_python,
            latency_texts=latency_texts,
            convention=Convention(a=a, b=b),
            keep_models=keep_models,
            reading=reading,
        ),
        on_summary=lambda summary: write_comparison(summary, Path(out)),
    )
    click.echo((Path(out) / "table.md").read_text())
    if not any(row["status"] == "done" for row in summary["rows"]) and not summary["ablations"]:
        raise ShortlistError(f"nothing could be measured. {out}/rows/ has what each row said.")
