"""A training step on all labels, here and in plain torch: the same weights, the same features, the same positives.

    python benchmarks/all_labels_step.py [--labels 33000] [--features 480] [--batch 128] [--threads 1 2]

Ours is `LabelRows.step_on_all`. The opponent is `nn.Linear`, `BCEWithLogitsLoss` and Adam: forward, backward (to the
features, too) and the step of the optimiser; its matrix of targets is made beforehand and not timed. A second opponent
has torch's fused Adam. The sides take turns, after a warm-up, and the median of the repeats counts. The ratio is the
opponent's time over ours: above 1, we are faster. Our gradients for the features, from 16-bit products where the
processor has them, are compared with torch's from the same weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import shortlist  # noqa: F401 isort: skip - before torch, for it tells OpenMP's threads how to wait
import numpy as np
import torch
from torch import nn

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.heads.label_rows import LabelRows
from shortlist.kernels.threads import n_cores
from shortlist.tables import plain

RATE = 0.002
LABELS_PER_TEXT = 2.5
WARM_UP = 2
ORDINARY, FUSED, OURS = "nn.Linear, Adam", "nn.Linear, fused Adam", "Shortlist"


def make_positives(n_samples, n_labels, rng):
    """For each sample one label or more, none twice."""
    counts = np.minimum(1 + rng.poisson(LABELS_PER_TEXT - 1, n_samples), n_labels)
    values = [rng.choice(n_labels, count, replace=False) for count in counts]
    return Ragged(counts_to_indptr(counts), np.concatenate(values).astype(np.int32))


class Ours:
    def __init__(self, n_labels, features, positives, threads):
        self.rows = LabelRows.start(n_labels, features.shape[1], prior=LABELS_PER_TEXT / n_labels)
        self.features, self.positives, self.threads = features, positives, threads

    def step(self):
        return self.rows.step_on_all(self.features, self.positives, RATE, self.threads)[1]


class Plain:
    """The same layer in torch, from the same weights; the loss is summed over labels as ours is."""

    def __init__(self, n_labels, features, positives, fused):
        start = LabelRows.start(n_labels, features.shape[1], prior=LABELS_PER_TEXT / n_labels)
        self.linear = nn.Linear(features.shape[1], n_labels)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(start.weights))
            self.linear.bias.copy_(torch.from_numpy(start.biases))
        self.loss = nn.BCEWithLogitsLoss(reduction="sum")
        self.optimiser = torch.optim.Adam(self.linear.parameters(), lr=RATE, fused=fused)
        self.features = torch.from_numpy(features).requires_grad_()
        self.targets = torch.zeros(len(features), n_labels)
        self.targets[positives.row_ids, positives.values] = 1

    def step(self):
        self.features.grad = None
        self.optimiser.zero_grad()
        loss = self.loss(self.linear(self.features), self.targets) / len(self.features)
        loss.backward()
        self.optimiser.step()
        return self.features.grad.numpy()


def use_exactly(threads):
    """This many threads in torch."""
    torch.set_num_threads(threads)


def medians(sides, repeats):
    """The median seconds of each side's step; they take turns, so that a busy moment hits all."""
    seconds = {name: [] for name in sides}
    for _ in range(WARM_UP + repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            side.step()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(runs[WARM_UP:]) for name, runs in seconds.items()}


def run(n_labels, features, positives, threads, repeats):
    """The seconds of each side, and how far our first gradient is from torch's."""
    use_exactly(threads)
    sides = {
        ORDINARY: Plain(n_labels, features, positives, fused=False),
        FUSED: Plain(n_labels, features, positives, fused=True),
        OURS: Ours(n_labels, features, positives, threads),
    }
    first = {name: side.step() for name, side in sides.items()}
    difference = np.linalg.norm(first[OURS] - first[ORDINARY]) / np.linalg.norm(first[ORDINARY])
    seconds = medians(sides, repeats)
    if torch.get_num_threads() != threads:
        raise SystemExit(f"torch ran with {torch.get_num_threads()} threads, not {threads}: these times do not count")
    return seconds, float(difference)


def main():
    cores = n_cores()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=33_000)
    parser.add_argument("--features", type=int, default=480)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, nargs="+", default=[cores], help="default: all cores")
    parser.add_argument("--repeats", type=int, default=21)
    chosen = parser.parse_args()
    if not all(1 <= threads <= cores for threads in chosen.threads):
        parser.error(f"--threads must be from 1 to {cores}, the number of cores")

    rng = np.random.default_rng(0)
    features = rng.standard_normal((chosen.batch, chosen.features), dtype=np.float32)
    positives = make_positives(chosen.batch, chosen.labels, rng)
    print(f"{chosen.labels:,} labels, {chosen.features} features, batch {chosen.batch}")
    print(f"sides take turns, warmed up, median of {chosen.repeats}; ratio: times as long as ours\n")
    cells, results = [], []
    for threads in chosen.threads:
        seconds, difference = run(chosen.labels, features, positives, threads, chosen.repeats)
        cells += [[name, str(threads), f"{each:.4f}", f"{each / seconds[OURS]:.2f}"] for name, each in seconds.items()]
        results.append(
            {
                "threads": threads,
                "ratio": round(seconds[ORDINARY] / seconds[OURS], 3),
                "ratio_fused": round(seconds[FUSED] / seconds[OURS], 3),
                "seconds": round(seconds[OURS], 5),
                "torch_seconds": round(seconds[ORDINARY], 5),
                "torch_fused_seconds": round(seconds[FUSED], 5),
                "gradient_difference": round(difference, 6),
            }
        )
    print(plain(["", "threads", "step s", "ratio"], cells))
    worst = max(result["gradient_difference"] for result in results)
    print(f"\nOur gradient for the features is within {worst:.2%} of torch's (norm of the difference).")
    sizes = {"n_labels": chosen.labels, "n_features": chosen.features, "batch": chosen.batch}
    print(json.dumps({"benchmark": "all_labels_step", **results[-1], **sizes, "runs": results}))


if __name__ == "__main__":
    main()
