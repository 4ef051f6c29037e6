"""How fast, and how alike: all metrics at 1, 3 and 5, here and with napkinXC, on the same synthetic texts.

The ratio is napkinXC's time over ours on the same texts. napkinXC works text by text in Python, so it gets
a part of the texts by default; ours is also timed on all of them.

    python benchmarks/metrics.py [--texts 1000000] [--shared-texts 100000] [--labels 100000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import napkinxc.metrics as napkin
import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation import evaluate

K = (1, 3, 5)


def make_problem(n_texts, n_labels, rng):
    """Labels as frequent as in life (Zipf), one to five per text; of the predictions a part is right."""
    shares = 1 / np.arange(1, n_labels + 1)
    draw = lambda size: np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(size)).astype(np.int32)  # noqa: E731
    indptr = np.concatenate([[0], np.cumsum(rng.integers(1, 6, n_texts))])
    truth = Ragged(indptr, draw(indptr[-1]))
    predictions = draw((n_texts, 5))
    predictions[:, 0] = np.where(rng.random(n_texts) < 0.4, truth.values[indptr[:-1]], predictions[:, 0])
    return predictions, truth, np.maximum(1, (shares / shares.sum() * 3 * n_texts).astype(np.int64))


def clean(rows):
    """Python lists without repeats: napkinXC counts these twice."""
    return [list(dict.fromkeys(row)) for row in rows]


def with_napkin(truth, predictions, inverse_propensities):
    """The same metrics, but for F1@k, which napkinXC computes for one k at a time."""
    values = {
        "P": napkin.precision_at_k(truth, predictions, k=5),
        "N": napkin.ndcg_at_k(truth, predictions, k=5),
        "R": napkin.recall_at_k(truth, predictions, k=5),
        "PSP": napkin.psprecision_at_k(truth, predictions, inverse_propensities, k=5),
        "PSN": napkin.psndcg_at_k(truth, predictions, inverse_propensities, k=5),
        "coverage": napkin.coverage_at_k(truth, predictions, k=5),
        "macro-F1": napkin.macro_f1_measure_at_k(truth, predictions, k=5),
    }
    named = {f"{name}@{k}": 100 * found[k - 1] for name, found in values.items() for k in K}
    for k in K:
        named[f"F1@{k}"] = 100 * napkin.samples_f1_measure(truth, [row[:k] for row in predictions])
    return named


def seconds(work, repeats=1):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--shared-texts", type=int, default=100_000, help="texts that napkinXC gets as well")
    parser.add_argument("--labels", type=int, default=100_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    predictions, truth, frequencies = make_problem(options.texts, options.labels, rng)
    train = (frequencies, options.texts)
    evaluate(predictions[:10], truth.take(range(10)), train=train)  # compiles, or loads what was compiled

    all_seconds, whole = seconds(lambda: evaluate(predictions, truth, train=train), repeats=3)
    shared = range(min(options.shared_texts, options.texts))
    shared_rows = truth.take(shared)
    shared_truth = clean(shared_rows.row(i).tolist() for i in shared)
    shared_lists = clean(predictions[: len(shared)].tolist())
    shared_predictions = np.full((len(shared), 5), -1, np.int32)
    for row, labels in zip(shared_predictions, shared_lists, strict=True):
        row[: len(labels)] = labels
    ragged = Ragged.from_lists(shared_truth)
    our_seconds, ours = seconds(lambda: evaluate(shared_predictions, ragged, train=train), repeats=5)
    c = (np.log(options.texts) - 1) * 2.5**0.55
    inverse_propensities = 1 + c * (frequencies + 1.5) ** -0.55
    their_seconds, theirs = seconds(lambda: with_napkin(shared_truth, shared_lists, inverse_propensities))

    # Two families are defined differently on purpose (docs/metrics.md): macro-F1 over ids, F1 of short rows.
    alike = [name for name in theirs if not name.startswith(("macro-F1", "F1"))]
    difference = max(abs(ours[name] - theirs[name]) / 100 for name in alike)
    print(f"{'':34}{'texts':>10}{'seconds':>10}{'µs a text':>11}")
    for who, texts, spent in (
        ("shortlist, all metrics, k = 1, 3, 5", options.texts, all_seconds),
        ("shortlist, the same texts", len(shared), our_seconds),
        ("napkinXC, the same texts", len(shared), their_seconds),
    ):
        print(f"{who:36}{texts:>8,}{spent:>10.3f}{1e6 * spent / texts:>11.2f}")
    print(f"largest difference over {len(alike)} values: {difference:.1e}\n")
    print(whole.table(), "\n")
    summary = {
        "benchmark": "metrics",
        "opponent": "napkinXC",
        "ratio": their_seconds / our_seconds,
        "texts": options.texts,
        "seconds": all_seconds,
        "largest_difference": difference,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
