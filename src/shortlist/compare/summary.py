"""What a comparison says so far: summary.json for machines, table.md for people, written anew after every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shortlist.compare.ablations import tables
from shortlist.compare.measure import METRICS
from shortlist.compare.parts import Parts
from shortlist.compare.results import DATA, Row, Store
from shortlist.compare.significance import best_of_each, differences_to_best
from shortlist.files import write_atomically
from shortlist.tables import markdown

EXAMPLES, SHOWN = 12, 5
SURE = 0.05
NOTHING = "–"


def summarise(store: Store, parts: Parts, order: Sequence[str], seed: int) -> dict[str, Any]:
    """Write both files from the rows that are there: those of `order` first, by the names of their files."""
    stored = store.all()
    files = [name for name in order if name in stored] + [name for name in stored if name not in order]
    systems = [name for name in files if not stored[name].ablation]
    done = {name: stored[name] for name in systems if stored[name].status == "done"}
    scores = {name: row.scores for name, row in done.items()}
    resampled = {name: store.load_arrays(f"{name}.resamples") for name in done}
    differences = differences_to_best(scores, resampled)
    data, machine = store.read_json(DATA), store.read_json("machine.json")
    told = {name: msgspec.to_builtins(row) | {"note": _note(row, machine)} for name, row in stored.items()}
    rows = [{**told[name], "files": name, "difference_to_best": differences.get(name, {})} for name in systems]
    variants = [told[name] for name in files if stored[name].ablation]
    summary = {
        "data": data,
        "machine": machine,
        "rows": rows,
        "best": {metric: stored[name].name for metric, name in best_of_each(scores).items()},
        "examples": examples(store, parts, done, seed),
        "ablations": tables(variants),
        "words_per_text": parts.words_per_text(),
    }
    store.write_json("summary.json", summary)
    with write_atomically(store.folder / "table.md") as file:
        file.write(table(summary).encode())
    return summary


def _note(row: Row, machine: dict[str, Any]) -> str:
    """The row's note, and under what other conditions it was run than what was run last."""
    now = {"threads": machine["threads"], "seed": machine["seed"], "processor": machine["cpu"]}
    others = [f"{name} {value}" for name, value in row.run_with.items() if value != now[name]]
    return "; ".join(part for part in (row.note, f"run with {', '.join(others)}" if others else "") if part)


def examples(store: Store, parts: Parts, done: dict[str, Row], seed: int) -> list[dict[str, Any]]:
    """Some test texts, drawn by the seed and not for what they show, and what each system says about them."""
    test, names = parts.test, parts.train.label_names
    with_labels = np.flatnonzero(test.labels.counts)
    drawn = np.random.default_rng(seed).choice(with_labels, min(EXAMPLES, len(with_labels)), replace=False)
    predictions = {row.name: store.load_arrays(f"{name}.predictions") for name, row in done.items()}
    found = []
    for text in np.sort(drawn).tolist():
        right = set(test.labels.row(text).tolist())

        def shown(arrays: dict[str, np.ndarray], text: int = text, right: set[int] = right) -> list[list[Any]]:
            best = zip(arrays["ids"][text, :SHOWN].tolist(), arrays["scores"][text, :SHOWN].tolist(), strict=True)
            return [
                [names[label], test.display_name(names[label]), score, label in right]
                for label, score in best
                if label >= 0
            ]

        found.append(
            {
                "text": test.texts[text],
                "labels": [_true_name(label, parts) for label in parts.as_given.labels_of(text)],
                "predictions": {name: shown(arrays) for name, arrays in predictions.items()},
            }
        )
    return found


def _true_name(label: str, parts: Parts) -> str:
    name = parts.test.display_name(label)
    return name if label in parts.train.label_index else f"{name} (not in training)"


def table(summary: dict[str, Any]) -> str:
    """Markdown: how good, what it costs, and what could not be measured."""
    data, machine = summary["data"], summary["machine"]
    done = [row for row in summary["rows"] if row["status"] == "done"]
    lines = [
        f"# {data['name']}",
        f"{data['train_texts']:,} training and {data['test_texts_that_count']:,} test texts, {data['labels']:,} labels "
        f"({machine['cpu']}, {machine['threads']} thread{'s' * (machine['threads'] > 1)}).",
    ]
    if done:
        accuracy = [[row["title"], *(_score(row, metric) for metric in METRICS)] for row in done]
        cost = [[row["title"], *_cost(row)] for row in done]
        lines += [
            markdown(["%", *METRICS], accuracy),
            f"Bold: the best. *: not surely worse than the best (p ≥ {SURE}, paired bootstrap over the test texts).",
            markdown(_COST, cost),
        ]
        ways = list(dict.fromkeys(way for row in done for way in row["robustness"]))
        if ways:
            rows = [[row["title"], *(_change(row, way) for way in ways)] for row in done]
            lines.append(markdown(["P@1, and how disturbed texts change it", *ways], rows))
    for one in summary["ablations"]:
        cells = [[_number(value) for value in row] for row in one["rows"]]
        lines += [f"**{one['question']}** {one['lead']}.", markdown(one["header"], cells)]
    notes = [f"- {row['title']}, {row['status']}: {row['note']}" for row in summary["rows"] if row["status"] != "done"]
    notes += [f"- {row['title']}: {row['note']}" for row in done if row["note"]]
    notes += [f"- {one['title']}, {row}: {note}" for one in summary["ablations"] for row, note in one["notes"].items()]
    return "\n\n".join(lines + (["\n".join(notes)] if notes else [])) + "\n"


_COST = ["", "training s", "peak GB", "model MB", "one text ms p50", "p99", "bulk texts/s", "million multiply-adds"]


def _score(row: dict[str, Any], metric: str) -> str:
    value, behind = f"{row['scores'][metric]:.2f}", row["difference_to_best"].get(metric)
    if behind is None:
        return f"**{value}**"
    return f"{value} *" if behind["p"] >= SURE else value


def _cost(row: dict[str, Any]) -> list[str]:
    cells = [
        (row["train_seconds"], 1, "{:,.1f}"),
        (row["peak_memory_bytes"], 1e9, "{:,.2f}"),
        (row["model_bytes"], 1e6, "{:,.1f}"),
        (row["ms_p50"], 1, "{:.3f}"),
        (row["ms_p99"], 1, "{:.3f}"),
        (row["bulk_texts_per_second"], 1, "{:,.0f}"),
        (row["flops"], 1e6, "{:.3f}"),
    ]
    return [NOTHING if value is None else form.format(value / unit) for value, unit, form in cells]


def _number(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _change(row: dict[str, Any], way: str) -> str:
    if way not in row["robustness"]:
        return NOTHING
    value = row["robustness"][way]["P@1"]
    return f"{value:.2f} ({value - row['scores']['P@1']:+.2f})"
