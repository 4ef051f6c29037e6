"""The summary of a comparison: summary.json, written after every entry. Reports show what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shortlist.arrays import random_generator
from shortlist.compare.measure import best_systems, differences_to_best
from shortlist.compare.results import DATA, MACHINE, Entry, Store
from shortlist.compare.splits import Splits

N_EXAMPLES, EXAMPLE_K = 12, 5


def summarise(store: Store, splits: Splits, order: Sequence[str], seed: int) -> dict[str, Any]:
    """Write summary.json from the stored entries: first those named in `order` (file names), then the others."""
    stored = store.load_all()
    files = [name for name in order if name in stored] + [name for name in stored if name not in order]
    done = {name: stored[name] for name in files if stored[name].status == "done"}
    scores = {name: entry.scores for name, entry in done.items()}
    differences = differences_to_best(scores, {name: store.load_arrays(f"{name}.resamples") for name in done})
    data, machine = store.read_json(DATA), store.read_json(MACHINE)
    for name, entry in stored.items():
        entry.note, entry.difference_to_best = _note(entry, machine), differences.get(name, {})
    summary = {
        "data": data,
        "machine": machine,
        "entries": [{**msgspec.to_builtins(stored[name]), "files": name} for name in files],
        "best": {metric: stored[name].name for metric, name in best_systems(scores).items()},
        "examples": _examples(store, splits, done, seed),
        "words_per_text": splits.words_per_text(),
    }
    store.write_json("summary.json", summary)
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
    drawn = random_generator(seed).choice(with_labels, min(N_EXAMPLES, len(with_labels)), replace=False)
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
