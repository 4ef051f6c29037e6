"""The summary of a comparison: summary.json for programs and table.md for people, written after every entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shortlist.compare.ablations import ablation_tables
from shortlist.compare.measure import METRICS, best_systems, differences_to_best
from shortlist.compare.results import DATA, MACHINE, Entry, Store
from shortlist.compare.splits import Splits
from shortlist.files import write_atomically
from shortlist.tables import markdown

N_EXAMPLES, EXAMPLE_K = 12, 5
SIGNIFICANT_P = 0.05
MISSING = "–"
# Header, key of the entry, unit, format.
COSTS = (
    ("training s", "train_seconds", 1, "{:,.1f}"),
    ("peak GB", "peak_memory_bytes", 1e9, "{:,.2f}"),
    ("model MB", "model_bytes", 1e6, "{:,.1f}"),
    ("one text ms p50", "ms_p50", 1, "{:.3f}"),
    ("p99", "ms_p99", 1, "{:.3f}"),
    ("bulk texts/s", "bulk_texts_per_second", 1, "{:,.0f}"),
    ("million multiply-adds", "multiply_adds", 1e6, "{:.3f}"),
)


def summarise(store: Store, splits: Splits, order: Sequence[str], seed: int) -> dict[str, Any]:
    """Write both files from the stored entries: first those named in `order` (file names), then the others."""
    stored = store.load_all()
    files = [name for name in order if name in stored] + [name for name in stored if name not in order]
    systems = [name for name in files if not stored[name].ablation]
    done = {name: stored[name] for name in systems if stored[name].status == "done"}
    scores = {name: entry.scores for name, entry in done.items()}
    differences = differences_to_best(scores, {name: store.load_arrays(f"{name}.resamples") for name in done})
    data, machine = store.read_json(DATA), store.read_json(MACHINE)
    entries = {name: msgspec.to_builtins(entry) | {"note": _note(entry, machine)} for name, entry in stored.items()}
    summary = {
        "data": data,
        "machine": machine,
        "entries": [
            {**entries[name], "files": name, "difference_to_best": differences.get(name, {})} for name in systems
        ],
        "best": {metric: stored[name].name for metric, name in best_systems(scores).items()},
        "examples": _examples(store, splits, done, seed),
        "ablations": ablation_tables(entries[name] for name in files if stored[name].ablation),
        "words_per_text": splits.words_per_text(),
    }
    store.write_json("summary.json", summary)
    with write_atomically(store.folder / "table.md") as file:
        file.write(_tables(summary).encode())
    return summary


def _note(entry: Entry, machine: dict[str, Any]) -> str:
    """The note of an entry, and how the conditions of its run differ from those of the last run."""
    now = {"threads": machine["threads"], "seed": machine["seed"], "processor": machine["cpu"]}
    different = [f"{name} {value}" for name, value in entry.run_with.items() if value != now[name]]
    notes = [entry.note, f"run with {', '.join(different)}" if different else ""]
    return "; ".join(note for note in notes if note)


def _examples(store: Store, splits: Splits, done: dict[str, Entry], seed: int) -> list[dict[str, Any]]:
    """Random test texts with the predictions of each system."""
    test, names, known = splits.test, splits.train.label_names, splits.train.label_index
    with_labels = np.flatnonzero(test.labels.counts)
    drawn = np.random.default_rng(seed).choice(with_labels, min(N_EXAMPLES, len(with_labels)), replace=False)
    predictions = {entry.name: store.load_arrays(f"{name}.predictions") for name, entry in done.items()}
    examples = []
    for text in np.sort(drawn).tolist():
        true_labels = set(test.labels.row(text).tolist())
        found: dict[str, list[Any]] = {}
        for system, arrays in predictions.items():
            best = zip(arrays["ids"][text, :EXAMPLE_K].tolist(), arrays["scores"][text].tolist(), strict=False)
            found[system] = [
                [names[label], test.display_name(names[label]), score, label in true_labels]
                for label, score in best
                if label >= 0
            ]
        labels = [
            test.display_name(label) + ("" if label in known else " (not in training)")
            for label in splits.test_as_given.labels_of(text)
        ]
        examples.append({"text": test.texts[text], "labels": labels, "predictions": found})
    return examples


def _tables(summary: dict[str, Any]) -> str:
    """Markdown tables of accuracy, costs, robustness and ablations, and notes."""
    data, machine, ablations = summary["data"], summary["machine"], summary["ablations"]
    done = [entry for entry in summary["entries"] if entry["status"] == "done"]
    blocks = [
        f"# {data['name']}",
        f"{data['train_texts']:,} training and {data['test_texts_that_count']:,} test texts, {data['labels']:,} labels "
        f"({machine['cpu']}, {machine['threads']} thread{'s' * (machine['threads'] > 1)}).",
    ]
    if done:
        scores = [[entry["title"], *(_score(entry, metric) for metric in METRICS)] for entry in done]
        costs = [[entry["title"], *(_cost(entry[key], unit, form) for _, key, unit, form in COSTS)] for entry in done]
        blocks += [
            markdown(["%", *METRICS], scores),
            "Bold: best. *: not significantly worse than the best "
            f"(p ≥ {SIGNIFICANT_P}, paired bootstrap over the test texts).",
            markdown(["", *(header for header, *_ in COSTS)], costs),
        ]
        kinds = list(dict.fromkeys(kind for entry in done for kind in entry["robustness"]))
        if kinds:
            changes = [[entry["title"], *(_change(entry, kind) for kind in kinds)] for entry in done]
            blocks.append(markdown(["P@1 on perturbed texts (change)", *kinds], changes))
    for table in ablations:
        cells = [[_cell(value) for value in row] for row in table["rows"]]
        blocks += [f"**{table['question']}** {table['lead']}.", markdown(table["header"], cells)]
    notes = [
        f"- {entry['title']}{'' if entry in done else ', ' + entry['status']}: {entry['note']}"
        for entry in sorted(summary["entries"], key=lambda entry: entry["status"] == "done")
        if entry["note"]
    ]
    notes += [f"- {table['title']}, {name}: {note}" for table in ablations for name, note in table["notes"].items()]
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else [])) + "\n"


def _score(entry: dict[str, Any], metric: str) -> str:
    score, behind = f"{entry['scores'][metric]:.2f}", entry["difference_to_best"].get(metric)
    if behind is None:
        return f"**{score}**"
    return f"{score} *" if behind["p"] >= SIGNIFICANT_P else score


def _cost(value: float | None, unit: float, form: str) -> str:
    return MISSING if value is None else form.format(value / unit)


def _change(entry: dict[str, Any], kind: str) -> str:
    if kind not in entry["robustness"]:
        return MISSING
    value = entry["robustness"][kind]["P@1"]
    return f"{value:.2f} ({value - entry['scores']['P@1']:+.2f})"


def _cell(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:.2f}" if isinstance(value, float) else str(value)
