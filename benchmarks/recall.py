"""Shortlist recall: how many of the test texts' labels are among the first 10, 20, … candidates of a model.

    python benchmarks/recall.py MODEL DATA/yso-finna-en [--texts 20000] [--search-effort 1] [--threads 2]

For models of DeepXML's pipeline: what both indexes find, what the index of label centres finds alone, and what the
votes of neighbouring texts find alone. Labels unseen in training are not counted.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import shortlist
from shortlist.tables import plain

SIZES = (10, 20, 50, 100, 200, 300, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=20_000, help="so many test texts, drawn at random")
    parser.add_argument(
        "--search-effort", type=float, default=1.0, help="times as many cells of labels as the model would"
    )
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args()
    model, test = shortlist.load(chosen.model), shortlist.read(chosen.folder, "test")
    rows = np.sort(np.random.default_rng(0).permutation(len(test))[: chosen.texts])
    test = test.take(rows)
    number = {name: i for i, name in enumerate(model.label_names)}
    labels = np.asarray([number.get(name, -1) for name in test.label_names])[test.labels.values]
    text_of_label = test.labels.row_ids[labels >= 0]
    labels = labels[labels >= 0]
    features = model.pipeline.encoder.encode(model.vocabulary.encode(test.texts))
    merged = model.pipeline.shortlister
    n_cells = max(1, round(chosen.search_effort * model.searched))
    ways = {"both": merged, "label centres": replace(merged, texts=None), "votes of texts": replace(merged, share=1.0)}
    results = {}
    for name, shortlister in ways.items():
        ids, cosines, votes = shortlister.shortlist(features, max(SIZES), n_cells, chosen.threads)
        if shortlister.texts is None:  # what is found among the centres comes in no order
            ids = np.take_along_axis(ids, np.argsort(-cosines, axis=1, kind="stable"), axis=1)
        if shortlister.share == 1:
            ids = np.where(votes > 0, ids, -1)
        places = (ids[text_of_label] == labels[:, None]).argmax(axis=1)
        found = ids[text_of_label, places] == labels
        results[name] = [round(100 * float((found & (places < size)).mean()), 2) for size in SIZES]
    print(plain(["candidates", *map(str, SIZES)], [[name, *map(str, row)] for name, row in results.items()]))
    print(json.dumps({"benchmark": "recall", "cells": n_cells, "sizes": SIZES, "results": results}))


if __name__ == "__main__":
    main()
