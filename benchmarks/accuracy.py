"""Recipes on real data sets, measured as the published tables are.

    python benchmarks/accuracy.py DATA/cooking-se DATA/tibkat-sid
    python benchmarks/accuracy.py DATA/tibkat-sid --recipes inceptionxml,inceptionxml+ --set epochs=6 --threads 2

Labels unseen in training are ignored, and texts that have no others are left out. The last columns say how P@5 changes
when the words of each test text are put in another order (5 orders), how long training took, the largest memory of the
process so far, and how long a text takes when all are predicted at once. `--save FOLDER` keeps the models.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import time
from pathlib import Path

import numpy as np

import shortlist
from shortlist.cli.models import option_value
from shortlist.data.texts import Texts
from shortlist.tables import plain

METRICS = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")
ORDERS = 5
BASELINES = ("popular", "centroid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="data sets, each a folder with train and test")
    parser.add_argument("--recipes", default="popular,centroid")
    parser.add_argument("--set", dest="options", action="append", default=[], help="NAME=VALUE for the deep recipes")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    options = {name: option_value(value) for name, _, value in (item.partition("=") for item in chosen.options)}
    results = []
    for folder in chosen.folders:
        train, test = shortlist.read(folder, "train"), shortlist.read(folder, "test")
        print(f"\n{folder.name}: {len(train):,} / {len(test):,} texts, {train.n_labels:,} labels", flush=True)
        rows = []
        for recipe in chosen.recipes.split(","):
            row = measure(recipe, train, test, {} if recipe in BASELINES else options, chosen.threads, chosen.save)
            results.append({"data": folder.name, "recipe": recipe, **row})
            rows.append([recipe, *(f"{value:.2f}" for value in row.values())])
            print(rows[-1], file=sys.stderr, flush=True)
        print(plain(["", *row], rows))
    print(json.dumps({"benchmark": "accuracy", "options": options, "results": results}))


def measure(recipe, train, test, options, threads, save):
    """Train, and measure on the test part."""
    threads = {} if threads is None or recipe == "popular" else {"threads": threads}
    start = time.perf_counter()
    model = shortlist.train(train, recipe=recipe, **options, **threads)
    trained = time.perf_counter() - start
    if save is not None:
        model.save(save / f"{recipe}")
    start = time.perf_counter()
    predictions = model.predict_dataset(test)
    seconds = time.perf_counter() - start
    result = shortlist.evaluate(predictions, test, train=train, unseen="ignore")
    row = {name: round(result[name], 2) for name in METRICS}
    if recipe not in BASELINES:
        row["P@5 shuffled, %"] = round(100 * (shuffled_p5(model, train, test) / result["P@5"] - 1), 2)
    row["train s"] = round(trained, 1)
    row["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    row["ms/text"] = 1e3 * seconds / len(test)
    return row


def shuffled_p5(model, train, test):
    """P@5 when words come in another order, on average."""
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(ORDERS):
        texts = [" ".join(rng.permutation(text.split())) if text.strip() else text for text in test.texts]
        other = shortlist.Dataset(Texts.from_strings(texts), test.labels, test.label_names, test.display_names)
        scores.append(shortlist.evaluate(model.predict_dataset(other), other, train=train, unseen="ignore")["P@5"])
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
