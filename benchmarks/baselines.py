"""The two baselines on real data sets, measured as the published tables are.

    python benchmarks/baselines.py DATA/cooking-se DATA/tibkat-sid

Labels unseen in training are ignored, and texts that have no others are left out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import shortlist

METRICS = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="data sets, each a folder with train and test")
    parser.add_argument("--recipes", default="popular,centroid")
    arguments = parser.parse_args()
    results = []
    for folder in arguments.folders:
        train, test = shortlist.read(folder, "train"), shortlist.read(folder, "test")
        print(f"\n{folder.name}: {len(train):,} / {len(test):,} texts, {train.n_labels:,} labels")
        print(f"{'':12}" + "".join(f"{name:>8}" for name in METRICS) + f"{'train s':>10}{'µs/text':>10}")
        for recipe in arguments.recipes.split(","):
            start = time.perf_counter()
            model = shortlist.train(train, recipe=recipe)
            trained = time.perf_counter()
            predictions = model.predict_dataset(test)
            seconds = time.perf_counter() - trained
            result = shortlist.evaluate(predictions, test, train=train, unseen="ignore")
            row = {name: round(result[name], 2) for name in METRICS}
            times = f"{trained - start:10.1f}{1e6 * seconds / len(test):10.0f}"
            print(f"{recipe:12}" + "".join(f"{value:8.2f}" for value in row.values()) + times)
            results.append({"data": folder.name, "recipe": recipe, **row})
    by_set = {row["data"]: {} for row in results}
    for row in results:
        by_set[row["data"]][row["recipe"]] = row["P@1"]
    ratios = [
        scores["centroid"] / scores["popular"] for scores in by_set.values() if {"centroid", "popular"} <= set(scores)
    ]
    print(
        json.dumps(
            {"ratio": min(ratios, default=None), "ratio_is": "P@1 centroid / popular, lowest", "results": results}
        )
    )


if __name__ == "__main__":
    main()
