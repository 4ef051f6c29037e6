"""How time grows with the number of labels: a prediction and a training sample of DeepXML's pipeline, synthetic labels.

    python benchmarks/growth.py [--sizes 10000 30000 100000 300000 1000000] [--candidates 200] [--threads 1]

Labels are points about common centres, in groups of 50, as subjects are about topics. A prediction: features of one
text to a shortlist by the index of label centres, of whose cells 64 are searched (on commit-files, 63 are enough), the
candidates' rows in 8 bits scored, the best five; how often the right label is on the shortlist, too. A training sample:
its share of a step on 256 texts with these shortlists. Fitted is time = c · labels^e.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

import numpy as np

from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.heads.label_rows import LabelRows
from shortlist.heads.runtime import HeadRuntime
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.centres import unit
from shortlist.shortlisters.merged import MergedShortlister
from shortlist.tables import plain

GROUP, BATCH, QUERIES = 50, 256, 300


def points(n, n_features, rng):
    """Unit vectors in groups."""
    middles = unit(rng.standard_normal((-(-n // GROUP), n_features), dtype=np.float32))
    noise = unit(rng.standard_normal((n, n_features), dtype=np.float32))
    return unit(np.repeat(middles, GROUP, axis=0)[:n] + noise)


def measure(n_labels, chosen):
    rng = np.random.default_rng(0)
    centres = points(n_labels, chosen.features, rng)
    start = time.perf_counter()
    index = CellIndex.build(centres)
    build = time.perf_counter() - start
    index = replace(index, vectors=index.vectors.in_8_bits())
    n_cells = chosen.cells
    nothing = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
    shortlister = MergedShortlister(index, np.arange(n_labels, dtype=np.int32), None, nothing, 0, 0.0, n_labels)
    rows = LabelRows.start(n_labels, chosen.features, 2 / n_labels)
    stored = QuantizedMatrix.of_floats(rows.weights).in_8_bits().to_arrays("weights")
    head = HeadRuntime({**stored, "biases": rows.biases}, n_labels, chosen.features)
    right = rng.integers(n_labels, size=max(QUERIES, 8 * BATCH))
    queries = unit(centres[right] + unit(rng.standard_normal((len(right), chosen.features), dtype=np.float32)))
    predictions = []
    for query in queries[:QUERIES]:
        start = time.perf_counter()
        ids, _, _ = shortlister.shortlist(query[None], chosen.candidates, n_cells, 1)
        logits = head.logits_of(query[None], ids, 1)
        np.argsort(-logits[0])[:5]
        predictions.append(time.perf_counter() - start)
    shortlists, _, _ = shortlister.shortlist(queries, chosen.candidates, n_cells, chosen.threads)
    found = float((shortlists == right[:, None]).any(axis=1).mean())
    steps = []
    for begin in range(0, len(queries) - BATCH + 1, BATCH):
        block = slice(begin, begin + BATCH)
        there = (shortlists[block] == right[block, None]).any(axis=1)
        shortlists[block, -1] = np.where(there, shortlists[block, -1], right[block])
        positives = Ragged(np.arange(BATCH + 1), right[block].astype(np.int32))
        start = time.perf_counter()
        rows.step_on_labels(queries[block], shortlists[block], positives, 0.002, chosen.threads)
        steps.append((time.perf_counter() - start) / BATCH)
    return {
        "labels": n_labels,
        "prediction, ms": round(1e3 * statistics.median(predictions[20:]), 3),
        "training sample, ms": round(1e3 * statistics.median(steps[1:]), 4),
        "right one found": round(found, 4),
        "index, s": round(build, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    results = []
    for n_labels in chosen.sizes:
        results.append(measure(n_labels, chosen))
        print(results[-1], flush=True)
    print(plain(list(results[0]), [[f"{value:,}" for value in row.values()] for row in results]))
    exponents = {}
    for name in ("prediction, ms", "training sample, ms"):
        logs = np.log([[row["labels"], row[name]] for row in results])
        exponents[name] = round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 3)
    print("exponents:", exponents)
    print(json.dumps({"benchmark": "growth", **vars(chosen), "results": results, "exponents": exponents}))


if __name__ == "__main__":
    main()
