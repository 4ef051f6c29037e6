"""Every table and figure of both papers on your data, beside the papers' own values.

    python benchmarks/reproduce DATA --out paper/ [--quick] [--only systems fan-out] [--vectors glove.txt]
        [--peers-python .venv-peers/bin/python] [--texts N] [--epochs N] [--orders N] [--repetitions N]

DATA is a folder with a train and a test part. Systems are trained as published (`NAME@published`), each once, in a
process of its own; if interrupted, run the same command to resume. The first line says about how long it takes.
`--texts`, `--epochs`, `--orders` and `--repetitions` make it shorter without leaving out a row. `--quick` is all of
them at their smallest: it shows that everything runs, and its values mean nothing. `--vectors` gives word vectors to
start from (the papers use GloVe and fastText), `--transformer` a Hugging Face folder for LightXML and BERT's row,
`--peers-python` the Python with the linear tools. Results: OUT/report.html and report.md. The last line printed is
JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measures
import numpy as np
import report
import sections
from experiments import Plan, entries, tables
from progress import Progress

import shortlist
from shortlist.cli.train import option_value
from shortlist.compare import Settings, compare
from shortlist.compare.measure import Convention
from shortlist.compare.plan import plan as plan_entries
from shortlist.compare.results import Entry, Store
from shortlist.compare.splits import Splits
from shortlist.data.write import write
from shortlist.errors import ShortlistError, Stopped
from shortlist.kernels.threads import n_cores

QUICK = {"texts": 2000, "epochs": 2, "orders": 2, "repetitions": 2}
TEST_TEXTS_OF_CUT = 3000
MEASURED = ("data", "options", "word-order", "quantiles", "shortlists", "features")


def main() -> None:
    arguments = parse()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("shortlist").setLevel(logging.INFO)
    out = arguments.out
    try:
        run(arguments, str(arguments.data) if not arguments.texts else cut(arguments.data, out, arguments.texts))
    except Stopped as stopped:
        raise SystemExit(str(stopped)) from None
    except ShortlistError as error:
        raise SystemExit(f"error: {error}") from None


def run(arguments: argparse.Namespace, source: str) -> None:
    out, splits = arguments.out, Splits.read(source, 0)
    plan = Plan(
        splits.train.n_labels,
        len(splits.train),
        float(sections.word_counts(splits.train).mean()),
        arguments.vectors,
        arguments.transformer,
        arguments.epochs,
        arguments.orders,
        arguments.repetitions,
        peers=arguments.peers_python is not None,
        input_kind=splits.train.input_kind,
    )
    all_tables = tables(plan)
    chosen = [table for table in all_tables if table.rows and wanted(table.key, arguments.only)]
    left_out = [table.key for table in all_tables if not table.rows and wanted(table.key, arguments.only)]
    if left_out:
        print(
            f"left out: {', '.join(left_out)}: none of their systems learns from {plan.input_kind} features", flush=True
        )
    recipes, peers = entries(chosen)
    progress = Progress(recipes + peers, len(splits.train), splits.train.n_labels)
    if chosen:
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
            convention=Convention(unseen="ignore"),
        )
        compare(settings, on_summary=lambda summary: print(progress.after(summary), flush=True))
    done = stored(out / "systems")
    systems = next(table.rows for table in all_tables if table.key == "systems")
    more = {"modules-c": parabel_row(arguments, plan, splits)} if wanted("modules-c", arguments.only) else {}
    made = [sections.of_systems(table, done, more.get(table.key, {})) for table in chosen]
    made += measured(arguments, plan, splits, systems, {n: done[e] for n, e in systems.items() if e in done})
    name = arguments.data.resolve().name
    report.write(out, f"Both papers on {name}", lead(arguments, plan, splits, name), made)
    print(f"{out}/report.html")
    scores = {name: {m: round(entry.scores[m], 2) for m in measures.METRICS} for name, entry in done.items()}
    print(json.dumps({"benchmark": "reproduce", "data": name, "quick": arguments.quick, "scores": scores}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with train and test")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="the smallest run: " + str(QUICK))
    parser.add_argument("--texts", type=int, help="train on so many random texts (default: all)")
    parser.add_argument("--epochs", type=int, help="most epochs of a phase (default: as published)")
    parser.add_argument("--orders", type=int, help="other orders of words and of dimensions (default: 10)")
    parser.add_argument("--repetitions", type=int, help="most repetitions of MACH (default: as published, 32)")
    parser.add_argument("--only", nargs="+", default=[], help="tables to make, such as systems fan-out word-order")
    parser.add_argument("--vectors", default="", help="file of word vectors to start from")
    parser.add_argument("--transformer", default="", help="Hugging Face folder for LightXML and BERT")
    parser.add_argument("--minutes", type=float, default=240, help="time limit per system")
    parser.add_argument("--threads", type=int, help="number of threads; all cores by default")
    parser.add_argument("--peers-python", help="the Python with the linear tools (`make peers`)")
    arguments = parser.parse_args()
    known = {table.key for table in tables(Plan(1000))} | set(MEASURED)
    for name in arguments.only:
        if name not in known:
            parser.error(f"there is no table {name!r}; the tables are {', '.join(sorted(known))}")
    for name, smallest in QUICK.items():
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}; it must be at least 1")
        default = 10 if name == "orders" else 0
        setattr(arguments, name, value or (smallest if arguments.quick else default))
    return arguments


def wanted(key: str, only: list[str]) -> bool:
    return not only or key in only


def cut(data: Path, out: Path, n_texts: int) -> str:
    """A random cut of the data with the labels of its training texts, written once."""
    folder = out / f"cut-{n_texts}"
    for part, most in (("train", n_texts), ("test", min(n_texts, TEST_TEXTS_OF_CUT))):
        path, of_features = folder / f"{part}.jsonl", folder / f"{part}.txt"
        if not path.exists() and not of_features.exists():
            folder.mkdir(parents=True, exist_ok=True)
            dataset = shortlist.read(data, part)
            rows = np.sort(np.random.default_rng(0).permutation(len(dataset))[:most])
            if dataset.features is None:
                write(dataset.take(rows), path)
            else:
                write(dataset.take(rows), folder, format="repository-single", part=part)
    return str(folder)


def lead(arguments: argparse.Namespace, plan: Plan, splits: Splits, name: str) -> str:
    parts = [
        f"{len(splits.train):,} training texts, {len(splits.test):,} test texts and {splits.train.n_labels:,} labels "
        f"of {name}. Systems are as published unless a row says otherwise. Labels unseen in training are ignored.",
        f"Word vectors start from {Path(plan.vectors).name}." if plan.vectors else
        "Without a file of word vectors (--vectors), published systems start from random ones; ours learn theirs.",
    ]  # fmt: skip
    if plan.n_epochs:
        parts.append(f"No phase has more than {plan.n_epochs} epochs; published systems need more.")
    if plan.n_repetitions:
        parts.append(f"MACH has {plan.n_repetitions} repetitions at most.")
    return " ".join(parts) + (" A quick run: the values mean nothing." if arguments.quick else "")


def stored(folder: Path) -> dict[str, Entry]:
    """The systems that are measured, by their names in `compare`."""
    if not folder.exists():
        return {}
    return {entry.name: entry for entry in Store(folder).load_all().values() if entry.status == "done"}


def trained(out: Path, name: str | None) -> Any:
    """The model of an entry; None if there is none."""
    if name is None:
        return None
    (entry,) = plan_entries(name, "none", option_value)
    folder = out / "systems" / "models" / entry.file_name
    return shortlist.load(folder) if folder.exists() else None


def measured(
    arguments: argparse.Namespace, plan: Plan, splits: Splits, systems: dict[str, str], done: dict[str, Entry]
) -> list[report.Section]:
    """Tables and figures about the data, and those measured on trained models."""
    made, only = [], arguments.only
    if wanted("data", only):
        made.append(sections.data(splits))
    if wanted("options", only):
        made.append(sections.options(done))
    if wanted("word-order", only) and (plus := trained(arguments.out, systems.get("InceptionXML+"))) is not None:
        made.append(sections.word_order(plus, splits, plan.n_orders))
    if wanted("quantiles", only):
        made.append(sections.quantiles(done))
    if wanted("shortlists", only) and (astec := trained(arguments.out, systems.get("Astec"))) is not None:
        made.append(sections.shortlists(astec, splits))
    if wanted("features", only):
        made.append(sections.features(feature_rows(arguments, plan, splits)))
    return made


def keep(arguments: argparse.Namespace, splits: Splits, name: str, compute: Callable[[], Any]) -> Any:
    """A row that `compare` does not train, from OUT/other-rows.json or computed."""
    key = f"{splits.fingerprint()} {name}"
    return measures.remembered(arguments.out / "other-rows.json", key, compute)


def parabel_row(arguments: argparse.Namespace, plan: Plan, splits: Splits) -> report.Rows:
    """DeepXML, Table 6(c): Parabel over Astec's features, if the other tools are there."""
    name = plan.published("astec", reranker="none")
    model = trained(arguments.out, name)
    if arguments.peers_python is None or model is None:
        return {}

    def compute() -> dict[str, float]:
        parts = (splits.train, splits.test)
        train, test = (measures.intermediate_features(model, measures.inputs(part)) for part in parts)
        return measures.parabel(arguments.peers_python, arguments.threads or n_cores(), (train, test), *parts)

    return {"Parabel": keep(arguments, splits, f"Parabel on {name}", compute)}


def feature_rows(arguments: argparse.Namespace, plan: Plan, splits: Splits) -> report.Rows:
    """DeepXML, Table 9: systems on given dense features."""
    threads, parts = arguments.threads or n_cores(), (splits.train, splits.test)
    given = measures.dense_features(*parts)
    rows = {}
    for title, recipe in (("DeepXML", "deepxml-features"), ("Slice", "slice@published"), ("centroid", "centroid")):
        options = {"threads": threads, **plan.fewer(recipe, {}, "dense")}
        rows[title] = keep(
            arguments, splits, f"{title} {options}",
            lambda recipe=recipe, options=options: measures.on_features(recipe, given, *parts, **options),
        )  # fmt: skip
        print(f"features: {title} {rows[title]}", flush=True)
    if arguments.peers_python is not None:
        rows["Parabel"] = keep(
            arguments, splits, "Parabel on features",
            lambda: measures.parabel(arguments.peers_python, threads, given, *parts),
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
