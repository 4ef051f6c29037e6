"""The paper's Table 3: three forms of shortlisting at several fan-outs, the number of candidates kept the same.

    python benchmarks/ablation.py DATA/tibkat-sid [--texts 30000] [--fan-outs 8 32] [--set epochs=4]

Synchronised and detached for a quarter of the training, without detaching, and in LightXML's form (no residual in the
meta head, scores multiplied). Fan-out: labels in a cluster. Test part; labels unseen in training are ignored.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import shortlist
from shortlist.cli.models import option_value
from shortlist.tables import plain

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
FORMS = {
    "synchronised, detached": {},
    "without detaching": {"detached": 0.0},
    "LightXML's form": {"detached": 0.0, "form": "lightxml"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, help="train on so many texts, drawn at random; all by default")
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--set", dest="options", action="append", default=[], help="NAME=VALUE for the recipe")
    chosen = parser.parse_args()
    options = {name: option_value(value) for name, _, value in (item.partition("=") for item in chosen.options)}
    train, test = shortlist.read(chosen.folder, "train"), shortlist.read(chosen.folder, "test")
    if chosen.texts is not None:
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train))[: chosen.texts]))
    train = train.without_unused_labels()
    print(train, flush=True)
    results = []
    for fan_out in chosen.fan_outs:
        for form, how in FORMS.items():
            start = time.perf_counter()
            clusters = -(-train.n_labels // fan_out)
            model = shortlist.train(train, recipe="inceptionxml+", clusters=clusters, **{**options, **how})
            seconds = time.perf_counter() - start
            result = shortlist.evaluate(model.predict_dataset(test), test, train=train, unseen="ignore")
            recall = model.records[-1]["meta_recall"]
            results.append({"fan-out": fan_out, "form": form, **{name: round(result[name], 2) for name in METRICS}})
            results[-1] |= {"meta recall": recall, "s": round(seconds)}
            print(results[-1], flush=True)
    print(plain(list(results[0]), [[str(value) for value in row.values()] for row in results]))
    print(json.dumps({"benchmark": "ablation", "options": options, "results": results}))


if __name__ == "__main__":
    main()
