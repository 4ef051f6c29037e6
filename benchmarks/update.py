"""What `update` reaches of a full retraining, in how much of its time.

    python benchmarks/update.py DATA [--texts 20000] [--new texts|labels] [--recipe astec] [--set NAME=VALUE]

Takes some labels at random, with about `--texts` training texts, so that labels are as frequent as in all of the data.
Trains on 90 % of these texts, updates with the other 10 %, with and without replay, and trains again on all of them.
The 10 % are random texts, or, with `--new labels`, all texts of some labels, which are then new.
Prints P@1 and P@5 on the test texts of these labels, the share of the gain of the full retraining, the ratio of CPU
seconds, and whether the rows of all other labels are the same, bit for bit. One thread.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, print_json, read_splits, show, timed
from shortlist.model.model import Model
from shortlist.stages.classifier import SparseClassifier
from shortlist.stages.replacing import sparse_rows_of

NEW_SHARE = 0.1


def cut(train: shortlist.Dataset, test: shortlist.Dataset, n_texts: int) -> tuple[shortlist.Dataset, ...]:
    """The texts that have one of as many random labels as it takes for this many training texts."""
    order = np.random.default_rng(0).permutation(train.n_labels)
    place, first = np.argsort(order), np.full(len(train), train.n_labels)
    np.minimum.at(first, train.labels.row_ids, place[train.labels.values])
    n_labels = int(np.sort(first)[min(n_texts, len(train) - 1)])
    labels = [train.label_names[i] for i in np.sort(order[: max(n_labels, 1)])]
    kept = (part.relabelled(labels) for part in (train, test))
    return tuple(part.take(np.flatnonzero(part.labels.counts)) for part in kept)


def new_texts(train: shortlist.Dataset, kind: str) -> np.ndarray:
    """Which texts are new: random ones, or all that have one of as many random labels as it takes."""
    n_new = int(NEW_SHARE * len(train))
    if kind == "texts":
        place = np.argsort(np.random.default_rng(1).permutation(len(train)))
        return place < n_new
    place = np.random.default_rng(2).permutation(train.n_labels)
    first = np.full(len(train), train.n_labels)
    np.minimum.at(first, train.labels.row_ids, place[train.labels.values])
    return first <= np.sort(first)[n_new - 1]


def scores(model: Model, test: shortlist.Dataset) -> dict[str, float]:
    result = shortlist.evaluate(model.predict_dataset(test, 5, threads=1), test)
    return {name: result[name] for name in ("P@1", "P@5")}


def same_rows(one: Model, other: Model, labels: list[str]) -> bool:
    """Whether the rows of these labels have the same bytes in both models."""
    found = []
    for model in (one, other):
        places, stage = np.array([model.labels.ids[label] for label in labels], int), model.pipelines[0].classifier
        if isinstance(stage, SparseClassifier):
            rows = sparse_rows_of(stage, places).sorted_indices()
            arrays = [rows.indptr, rows.indices, rows.data]
        else:
            arrays = [stage.arrays()[name][places] for name in ("weights", "weights.scales", "biases")]
        found.append([array.tobytes() for array in arrays])
    return found[0] == found[1]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--new", choices=["texts", "labels"], default="texts")
    parser.add_argument("--recipe", default="astec")
    add_recipe_options(parser, "an option of the recipe")
    args = parser.parse_args()
    options = {"threads": 1, **parse_recipe_options(args.options)}
    train, test = cut(*read_splits(args.data), args.texts)
    is_new = new_texts(train, args.new)
    new, old = (train.take(np.flatnonzero(some)).without_unused_labels() for some in (is_new, ~is_new))

    def learn(data: shortlist.Dataset) -> tuple[float, Model]:
        seconds, model = timed(lambda: shortlist.train(data, recipe=args.recipe, **options), time.process_time)
        return seconds, model.quantized()

    _, base = learn(old)
    base.update(new.take(np.arange(min(len(new), 50))), threads=1)  # loads what is needed
    untouched = sorted(set(base.label_names) - set(new.label_names))
    rows: list[dict[str, Any]] = [{"": "90 %", **scores(base, test), "CPU seconds": None}]
    for name, replay in (("update", None), ("update with replay", old)):
        seconds, model = timed(lambda replay=replay: base.update(new, replay, threads=1), time.process_time)
        same = same_rows(base, model, untouched)
        rows.append({"": name, **scores(model, test), "CPU seconds": seconds, "other rows the same": same})
    seconds, full = learn(train.without_unused_labels())
    rows.append({"": "100 %", **scores(full, test), "CPU seconds": seconds})
    first, last = rows[0], rows[-1]
    for row in rows[1:-1]:
        row["of the time"] = row["CPU seconds"] / seconds
        for metric in ("P@1", "P@5"):
            gain = last[metric] - first[metric]
            row[f"of the gain in {metric}"] = (row[metric] - first[metric]) / gain if gain > 0 else None
    header = {name: None for row in rows for name in row}
    show([{**header, **row} for row in rows])
    sizes = {"old": len(old), "new": len(new), "test": len(test), "new labels": full.n_labels - base.n_labels}
    sizes["labels that do not learn"] = len(untouched)
    print(", ".join(f"{value:,} {name}" for name, value in sizes.items()))
    print_json("update", data=args.data, recipe=args.recipe, **sizes, results=rows)


if __name__ == "__main__":
    main()
