"""All metrics at 1, 3 and 5, against napkinXC on the same synthetic texts: speed and agreement.

    python benchmarks/metrics.py [--texts 1000000] [--shared-texts 100000] [--labels 100000]

The ratio is napkinXC's time over ours on the same texts. napkinXC computes in Python, text by text, so by default it
gets only some of the texts. Ours is timed on all of them as well.
"""

from __future__ import annotations

import statistics

import napkinxc.metrics as napkin
import numpy as np

from common import make_parser, print_json, show, timed
from shortlist.arrays import Ragged
from shortlist.evaluation import evaluate

KS = (1, 3, 5)


def make_problem(n_texts, n_labels, rng):
    """Label frequencies follow Zipf's law, with one to five labels per text; 40 % of the first predictions are hits."""
    weights = 1 / np.arange(1, n_labels + 1)
    cumulated = np.cumsum(weights / weights.sum())

    def draw(size):
        return np.searchsorted(cumulated, rng.random(size)).astype(np.int32)

    indptr = np.concatenate([[0], np.cumsum(rng.integers(1, 6, n_texts))])
    truth = Ragged(indptr, draw(indptr[-1]))
    predictions = draw((n_texts, 5))
    predictions[:, 0] = np.where(rng.random(n_texts) < 0.4, truth.values[indptr[:-1]], predictions[:, 0])
    return predictions, truth, np.maximum(1, (weights / weights.sum() * 3 * n_texts).astype(np.int64))


def without_repeats(rows):
    """Lists without repeated labels, which napkinXC would count twice."""
    return [list(dict.fromkeys(row)) for row in rows]


def with_napkin(truth, predictions, inverse_propensities):
    """The same metrics; napkinXC computes F1@k for one k at a time."""
    values = {
        "P": napkin.precision_at_k(truth, predictions, k=5),
        "N": napkin.ndcg_at_k(truth, predictions, k=5),
        "R": napkin.recall_at_k(truth, predictions, k=5),
        "PSP": napkin.psprecision_at_k(truth, predictions, inverse_propensities, k=5),
        "PSN": napkin.psndcg_at_k(truth, predictions, inverse_propensities, k=5),
        "coverage": napkin.coverage_at_k(truth, predictions, k=5),
        "macro-F1": napkin.macro_f1_measure_at_k(truth, predictions, k=5),
    }
    named = {f"{name}@{k}": 100 * found[k - 1] for name, found in values.items() for k in KS}
    for k in KS:
        named[f"F1@{k}"] = 100 * napkin.samples_f1_measure(truth, [row[:k] for row in predictions])
    return named


def median_seconds(work, repeats):
    runs = [timed(work) for _ in range(repeats)]
    return statistics.median(seconds for seconds, _ in runs), runs[-1][1]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--shared-texts", type=int, default=100_000, help="texts for both sides")
    parser.add_argument("--labels", type=int, default=100_000)
    arguments = parser.parse_args()
    predictions, truth, frequencies = make_problem(arguments.texts, arguments.labels, np.random.default_rng(0))
    train = (frequencies, arguments.texts)
    evaluate(predictions[:10], truth.take(range(10)), train=train)  # loads what is needed

    all_seconds, on_all = median_seconds(lambda: evaluate(predictions, truth, train=train), repeats=3)
    shared = range(min(arguments.shared_texts, arguments.texts))
    some_truth = truth.take(shared)
    true_lists = without_repeats(some_truth.row(i).tolist() for i in shared)
    predicted_lists = without_repeats(predictions[: len(shared)].tolist())
    predicted_ids = np.full((len(shared), 5), -1, np.int32)
    for row, labels in zip(predicted_ids, predicted_lists, strict=True):
        row[: len(labels)] = labels
    true_ids = Ragged.from_lists(true_lists)
    our_seconds, ours = median_seconds(lambda: evaluate(predicted_ids, true_ids, train=train), repeats=5)
    c = (np.log(arguments.texts) - 1) * 2.5**0.55
    inverse_propensities = 1 + c * (frequencies + 1.5) ** -0.55
    their_seconds, theirs = timed(lambda: with_napkin(true_lists, predicted_lists, inverse_propensities))

    # Two families are defined differently on purpose: macro-F1 and F1 (see docs/metrics.md).
    common = [name for name in theirs if not name.startswith(("macro-F1", "F1"))]
    difference = max(abs(ours[name] - theirs[name]) / 100 for name in common)
    print(on_all.table(), "\n")
    runs = [
        ("Shortlist, all texts", arguments.texts, all_seconds),
        ("Shortlist, shared texts", len(shared), our_seconds),
        ("napkinXC, shared texts", len(shared), their_seconds),
    ]
    show([{"": name, "texts": n, "seconds": seconds, "µs per text": 1e6 * seconds / n} for name, n, seconds in runs])
    print(f"\nlargest difference over {len(common)} values: {difference:.1e}")
    print_json(
        "metrics",
        opponent="napkinXC",
        ratio=their_seconds / our_seconds,
        texts=arguments.texts,
        seconds=all_seconds,
        largest_difference=difference,
    )


if __name__ == "__main__":
    main()
