"""A training step on all labels, against plain torch with the same weights, features and positives.

    python benchmarks/all_labels_step.py [--labels 33000] [--features 480] [--batch 128] [--threads 1 2]

Ours is `LabelRows.step` with all labels as candidates. The opponent is `nn.Linear`, `BCEWithLogitsLoss` and Adam:
forward, backward (including the gradient of the features) and optimiser step. Its target matrix is built beforehand. A
second opponent uses torch's fused Adam. The sides take turns, and the median of the repeats counts. The ratio is the
opponent's time over ours. Our gradient of the features, from 16-bit products where the processor supports them, is
compared with torch's.
"""

from __future__ import annotations

import os

from common import make_parser, print_json, show, take_turns  # isort: skip - before torch

import numpy as np
import torch
from torch import nn

from shortlist.kernels.threads import use_threads
from shortlist.training.label_rows import LabelRows
from synthetic import random_labels

LEARNING_RATE = 0.002
LABELS_PER_TEXT = 2.5
ADAM, FUSED_ADAM, OURS = "nn.Linear, Adam", "nn.Linear, fused Adam", "Shortlist"


class Ours:
    def __init__(self, n_labels, features, positives):
        self.rows = LabelRows.start(n_labels, features.shape[1], prior=LABELS_PER_TEXT / n_labels)
        self.features, self.positives = features, positives

    def step(self):
        return self.rows.step(self.features, None, self.positives, LEARNING_RATE)[1]


class Torch:
    """The same layer in torch, from the same weights; the loss is summed over labels, like ours."""

    def __init__(self, n_labels, features, positives, fused):
        start = LabelRows.start(n_labels, features.shape[1], prior=LABELS_PER_TEXT / n_labels)
        self.linear = nn.Linear(features.shape[1], n_labels)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(start.weights))
            self.linear.bias.copy_(torch.from_numpy(start.biases))
        self.loss = nn.BCEWithLogitsLoss(reduction="sum")
        self.optimiser = torch.optim.Adam(self.linear.parameters(), lr=LEARNING_RATE, fused=fused)
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


def run(n_labels, features, positives, threads, repeats):
    """The seconds of each side, and the relative difference between our first gradient and torch's."""
    sides = {
        ADAM: Torch(n_labels, features, positives, fused=False),
        FUSED_ADAM: Torch(n_labels, features, positives, fused=True),
        OURS: Ours(n_labels, features, positives),
    }
    torch.set_num_threads(threads)
    with use_threads(threads):
        first = {name: side.step() for name, side in sides.items()}
        seconds = take_turns({name: side.step for name, side in sides.items()}, repeats)
    difference = np.linalg.norm(first[OURS] - first[ADAM]) / np.linalg.norm(first[ADAM])
    return seconds, float(difference)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--labels", type=int, default=33_000)
    parser.add_argument("--features", type=int, default=480)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, nargs="+", default=[len(os.sched_getaffinity(0))])
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    features = rng.standard_normal((arguments.batch, arguments.features), dtype=np.float32)
    positives = random_labels(arguments.batch, arguments.labels, LABELS_PER_TEXT, rng)
    print(f"{arguments.labels:,} labels, {arguments.features} features, batch {arguments.batch}\n")
    table, runs = [], []
    for threads in arguments.threads:
        seconds, difference = run(arguments.labels, features, positives, threads, arguments.repeats)
        ratios = {name: side / seconds[OURS] for name, side in seconds.items()}
        table += [
            {"": name, "threads": threads, "step s": seconds[name], "ratio": round(ratio, 2)}
            for name, ratio in ratios.items()
        ]
        runs.append({"threads": threads, "seconds": seconds, "ratios": ratios, "gradient_difference": difference})
    show(table)
    worst = max(run["gradient_difference"] for run in runs)
    print(f"\nOur gradient of the features differs from torch's by at most {worst:.2%} (norm of the difference).")
    print_json("all_labels_step", ratio=round(runs[-1]["ratios"][ADAM], 3), **vars(arguments), runs=runs)


if __name__ == "__main__":
    main()
