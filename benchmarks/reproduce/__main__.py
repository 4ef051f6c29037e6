"""Every table and figure of both papers on your data, beside the papers' own values.

    python benchmarks/reproduce DATA --out paper/ [--quick] [--only systems fan-out] [--vectors glove.txt]

DATA is a folder with a train and a test part. Systems are trained as published (`NAME@published`), each once, in a
process of its own; if interrupted, run the same command to resume. `--quick` trains two epochs on a cut of 2,000 texts:
it shows that everything runs, and its values mean nothing. `--vectors` gives word vectors to start from (the papers use
GloVe and fastText), `--transformer` a Hugging Face folder for LightXML and BERT's row. Results: OUT/report.html and
report.md. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import measures
import numpy as np
import papers
import report
from experiments import Plan, Table, entries, tables

import shortlist
from shortlist.cli.train import option_value
from shortlist.compare import Settings, compare
from shortlist.compare.plan import plan as plan_entries
from shortlist.compare.results import Entry, Store
from shortlist.compare.splits import Splits
from shortlist.data.write import write
from shortlist.report import plots
from shortlist.report.plots import duration

QUICK_TEXTS, QUICK_TEST_TEXTS = 2000, 500
MEASURES = ("data", "options", "word-order", "quantiles", "shortlists")
# Seconds per 10,000 texts and epoch on 2 cores with some thousand labels: a first guess, which finished rows correct.
SECONDS = {"inceptionxml": 12.0, "xml-cnn": 10.0, "attentionxml": 60.0, "lightxml": 600.0, "mach": 30.0}
OTHER_SECONDS, PEER_SECONDS, EPOCHS = 3.0, 1.0, 30


def main() -> None:
    arguments = parse()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    out = arguments.out
    source = cut(arguments.data, out / "cut") if arguments.quick else str(arguments.data)
    splits = Splits.read(source, 0)
    plan = Plan(
        splits.train.n_labels,
        arguments.vectors,
        arguments.transformer,
        arguments.quick,
        peers=arguments.peers_python is not None,
    )
    chosen = [table for table in tables(plan) if wanted(table.key, arguments.only)]
    recipes, peers = entries(chosen)
    progress = Progress(recipes + peers, len(splits.train))
    print(progress, flush=True)
    settings = Settings(
        source=source,
        out=str(out / "systems"),
        entries=plan_entries(",".join(recipes) or "none", ",".join(peers) or "none", option_value),
        minutes=arguments.minutes,
        threads=arguments.threads,
        peers_python=arguments.peers_python,
        keep_models=True,
        latency_texts=200,
    )
    compare(settings, on_summary=lambda summary: print(progress.after(summary), flush=True))
    done = stored(out / "systems")
    sections = [section(table, done) for table in chosen]
    sections += measured(arguments, plan, out / "systems" / "models", splits, done)
    name = arguments.data.resolve().name
    lead = (
        f"{len(splits.train):,} training texts and {splits.train.n_labels:,} labels of {name}. Systems are as "
        "published unless a row says otherwise; labels unseen in training are ignored."
        + (" A quick run on a cut: the values mean nothing." if arguments.quick else "")
    )
    report.write(out, f"Both papers on {name}", lead, sections)
    print(f"{out}/report.html")
    scores = {name: entry.scores for name, entry in done.items()}
    print(json.dumps({"benchmark": "reproduce", "data": name, "quick": arguments.quick, "scores": scores}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with train and test")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="a cut of the data and two epochs")
    parser.add_argument("--only", nargs="+", default=[], help="tables to make, such as systems fan-out word-order")
    parser.add_argument("--vectors", default="", help="file of word vectors to start from")
    parser.add_argument("--transformer", default="", help="Hugging Face folder for LightXML and BERT")
    parser.add_argument("--minutes", type=float, default=240, help="time limit per system")
    parser.add_argument("--threads", type=int, help="number of threads; all cores by default")
    parser.add_argument("--peers-python", help="the Python with the linear tools (`make peers`)")
    arguments = parser.parse_args()
    known = {table.key for table in tables(Plan(1000))} | set(MEASURES)
    for name in arguments.only:
        if name not in known:
            parser.error(f"there is no table {name!r}; the tables are {', '.join(sorted(known))}")
    return arguments


def wanted(key: str, only: list[str]) -> bool:
    return not only or key in only


def cut(data: Path, folder: Path) -> str:
    """A small random cut of the data, written once."""
    for part, most in (("train", QUICK_TEXTS), ("test", QUICK_TEST_TEXTS)):
        path = folder / f"{part}.jsonl"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            dataset = shortlist.read(data, part)
            rows = np.sort(np.random.default_rng(0).permutation(len(dataset))[:most])
            write(dataset.take(rows), path)
    return str(folder)


class Progress:
    """How many systems are done, and about how long the others will take."""

    def __init__(self, names: list[str], n_texts: int) -> None:
        self._guess = {name: guess_seconds(name, n_texts) for name in names}
        self._started = time.monotonic()

    def __str__(self) -> str:
        return (
            f"{len(self._guess)} systems; about {duration(sum(self._guess.values()))} on 2 cores, if none is stored yet"
        )

    def after(self, summary: dict[str, Any]) -> str:
        """The same after some systems: those that are done tell how far off the guesses are."""
        took = {e["name"]: e["train_seconds"] for e in summary["entries"] if e["train_seconds"] is not None}
        done = [name for name in self._guess if any(e["name"] == name for e in summary["entries"])]
        guessed = sum(self._guess[name] for name in done if name in took)
        factor = sum(took[name] for name in done if name in took) / guessed if guessed else 1.0
        left = factor * sum(seconds for name, seconds in self._guess.items() if name not in done)
        return f"{len(done)} of {len(self._guess)} systems; about {duration(left)} left"


def guess_seconds(name: str, n_texts: int) -> float:
    if "@" not in name and ":" not in name and name not in shortlist.list_recipes():
        return PEER_SECONDS * n_texts / 1000
    family = next((family for family in SECONDS if name.startswith(family)), "")
    members = 3 if "*3" in name else 1
    epochs = 2 if "n_epochs=2" in name else EPOCHS
    return members * epochs * SECONDS.get(family, OTHER_SECONDS) * n_texts / 10_000


def stored(folder: Path) -> dict[str, Entry]:
    """The systems that are measured, by their names in `compare`."""
    return {entry.name: entry for entry in Store(folder).load_all().values() if entry.status == "done"}


def values(entry: Entry) -> dict[str, float]:
    """What tables show of a system."""
    found = dict(entry.scores)
    facts = {
        "GFLOPs": (entry.multiply_adds, 1e9),
        "training s": (entry.train_seconds, 1),
        "ms": (entry.ms_p50, 1),
        "MB": (entry.model_bytes, 1e6),
    }
    return found | {name: value / unit for name, (value, unit) in facts.items() if value is not None}


def section(table: Table, done: dict[str, Entry]) -> report.Section:
    """A table of trained systems, with the figure that belongs to it."""
    of_rows = {name: done[entry] for name, entry in table.rows.items() if entry in done}
    ours = {name: values(entry) for name, entry in of_rows.items()}
    made = report.table_section(table, ours)
    if table.key == "fan-out":
        made.figures = report.curves_figure(of_rows, [name for name in of_rows if name.startswith("10 ")])
    if table.key == "dimensions" and len(ours) > 2:
        others = [row for name, row in ours.items() if name != "as given"]
        made.figures = [
            plots.spread({m: [row[m] for row in others] for m in table.metrics}, "spread around the median")
        ]
    if table.key == "recast":
        made.text += recast(ours)
    return made


def recast(ours: report.Rows) -> str:
    """DeepXML, Table 4: the gain in P@1, and how many times as fast training is."""
    parts = []
    for name in ("XML-CNN", "MACH"):
        if name in ours and f"DeepXML + {name}" in ours:
            alone, within = ours[name], ours[f"DeepXML + {name}"]
            speed = alone["training s"] / within["training s"]
            parts.append(
                f"{name} gains {within['P@1'] - alone['P@1']:+.2f} points and trains {speed:.1f} times as fast"
            )
    return f" Here: {'; '.join(parts)}." if parts else ""


def measured(
    arguments: argparse.Namespace, plan: Plan, models: Path, splits: Splits, done: dict[str, Entry]
) -> list[report.Section]:
    """Tables and figures about the data, and those measured on trained models."""
    sections = []

    def model(name: str) -> Any:
        entry = plan_entries(name, "none", option_value)[0]
        folder = models / entry.file_name
        return shortlist.load(folder) if folder.exists() else None

    only, systems = arguments.only, next(table for table in tables(plan) if table.key == "systems").rows
    if wanted("data", only):
        sections.append(about_data(splits))
    if wanted("options", only):
        sections.append(about_options({name: done[entry] for name, entry in systems.items() if entry in done}))
    if wanted("word-order", only) and (plus := model(systems["InceptionXML+"])) is not None:
        found = measures.word_order(plus, splits.test, splits.train, plan.n_orders())
        table = Table(
            "word-order",
            papers.INCEPTIONXML,
            "Table 4",
            "Test texts with their words in other orders",
            dict.fromkeys(found, ""),
            ("P@3", "P@5"),
            papers.WORD_ORDER,
            "A minor dip.",
        )
        sections.append(report.table_section(table, found))
    if wanted("quantiles", only):
        named = {name: done[entry] for name, entry in systems.items() if entry in done}
        figures = report.quantile_figure(named, ("Astec", "our Astec", "Parabel", "Bonsai"))
        place = f"{papers.DEEPXML}, Figure 3"
        sections.append(
            report.Section("Rare and frequent labels", place, "Astec gains most on rare labels.", figures=figures)
        )
    if wanted("shortlists", only) and (astec := model(systems["Astec"])) is not None:
        sections.append(about_shortlists(astec, splits))
    return sections


def about_data(splits: Splits) -> report.Section:
    """InceptionXML, Table 5 and Figure 6."""
    train, test = splits.train, splits.test
    counts = np.array([len(text.split()) for text in train.texts])
    facts = {
        "labels": train.n_labels,
        "training texts": len(train),
        "test texts": len(test),
        "texts per label": len(train.labels.values) / train.n_labels,
        "labels per text": len(train.labels.values) / len(train),
        "≤ 4 words %": 100 * float((counts <= 4).mean()),
        "≤ 8 words %": 100 * float((counts <= 8).mean()),
    }
    shown = [f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in facts.values()]
    bounds = [0, 2, 4, 6, 8, 12, 16, 32, 10**9]
    names = [f"{low + 1}–{high}" for low, high in pairwise(bounds[:-1])] + ["more"]
    histogram = plots.histogram(
        list(zip(names, np.histogram(counts, [b + 1 for b in bounds])[0].tolist(), strict=True)),
        "words",
        "words per text",
    )
    place = f"{papers.INCEPTIONXML}, Table 5 and Figure 6"
    return report.Section("The data", place, "", list(facts), [shown], [histogram])


def about_options(named: dict[str, Entry]) -> report.Section:
    """InceptionXML, Table 6: the options that each system was trained with."""
    shown = (
        "n_epochs",
        "n_surrogate_epochs",
        "batch_size",
        "learning_rate",
        "n_clusters",
        "n_clusters_searched",
        "dropout",
    )
    rows = [
        [name, *(str(entry.options.get(option, report.MISSING)) for option in shown)] for name, entry in named.items()
    ]
    place = f"{papers.INCEPTIONXML}, Table 6; DeepXML, Table 5"
    return report.Section("Options", place, "All options of each system are in systems/entries.", ["", *shown], rows)


def about_shortlists(astec: Any, splits: Splits) -> report.Section:
    """DeepXML, Theorem 1, and the overlap of shortlists by the intermediate and by the final features."""
    overlap = measures.shortlist_overlap(astec, splits.train, splits.test)
    theorem = measures.theorem_1(astec, splits.train)
    facts = {"overlap %": f"{overlap:.1f} ({papers.SHORTLIST_OVERLAP:g})", **{k: f"{v:g}" for k, v in theorem.items()}}
    text = (
        "Overlap: the share of the labels nearest to the intermediate features that are also nearest to the final "
        "ones. (a) and (b): the share of texts, and of random pairs of a text and a label, for which the bounds hold."
    )
    return report.Section(
        "Shortlists and Theorem 1", f"{papers.DEEPXML}, §4", text, list(facts), [list(facts.values())]
    )


if __name__ == "__main__":
    main()
