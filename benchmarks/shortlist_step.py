"""A training step of DeepXML's extreme phase, against the published formulation: frozen features, 500 candidates.

    python benchmarks/shortlist_step.py [--labels 131072] [--batch 256] [--candidates 500] [--threads 2]

Ours is the residual block followed by `LabelRows.step`. The opponent is the published formulation in plain
torch: look up the rows of the candidates (texts × candidates × features), multiply with `bmm`, binary cross-entropy,
autograd, SparseAdam for rows and biases, Adam for the block. Both see the same features, candidates and positives. The
sides take turns, and the median of the repeats counts. The ratio is our texts per second over the opponent's.
"""

from __future__ import annotations

from common import learn_from_all_candidates, make_parser, print_json, show, take_turns  # isort: skip - before torch

import numpy as np
import torch
from torch import nn

from shortlist.arrays import Ragged
from shortlist.kernels.threads import use_threads
from shortlist.training.batches import Batch
from shortlist.training.heads import BlockOptions, HeadOptions
from shortlist.training.learner import Learner
from shortlist.training.networks.bag import GivenFeatures
from shortlist.training.networks.layers import ResidualBlock

LEARNING_RATE, DROPOUT, N_POSITIVES = 0.002, 0.5, 3
IDENTITY = BlockOptions(init="identity")
PUBLISHED, OURS = "lookup, bmm, SparseAdam", "Shortlist"


def make_batches(arguments, rng):
    """Endless batches of features and distinct candidates, the first few of which are positives."""
    n_texts = arguments.batch
    while True:
        features = rng.standard_normal((n_texts, arguments.features), dtype=np.float32)
        # The candidates of a text are close to each other, so several texts share a candidate.
        start = rng.integers(arguments.labels, size=(n_texts, 1))
        steps = rng.integers(1, 8, size=(n_texts, arguments.candidates)).cumsum(axis=1)
        candidates = ((start + steps) % arguments.labels).astype(np.int32)
        positives = np.sort(candidates[:, :N_POSITIVES], axis=1)
        yield Batch(features, Ragged(np.arange(n_texts + 1) * N_POSITIVES, positives.ravel()), candidates)


def our_step(arguments):
    network = GivenFeatures(arguments.features, DROPOUT)
    learner = Learner(network, arguments.labels, N_POSITIVES, head=HeadOptions(block=IDENTITY))
    return lambda batch: learner.step(batch, LEARNING_RATE)


class Published:
    def __init__(self, arguments):
        self.rows = nn.Embedding(arguments.labels, arguments.features, sparse=True)
        self.biases = nn.Embedding(arguments.labels, 1, sparse=True)
        self.block, self.dropout = ResidualBlock(arguments.features, IDENTITY), nn.Dropout(DROPOUT)
        self.optimisers = [
            torch.optim.SparseAdam([self.rows.weight, self.biases.weight], lr=LEARNING_RATE),
            torch.optim.Adam(self.block.parameters(), lr=LEARNING_RATE),
        ]
        self.loss = nn.BCEWithLogitsLoss(reduction="sum")

    def step(self, batch):
        candidates = torch.from_numpy(batch.candidates).long()
        targets = torch.zeros(candidates.shape)
        targets[:, :N_POSITIVES] = 1
        inner = self.block(self.dropout(torch.from_numpy(batch.inputs)))
        logits = torch.bmm(self.rows(candidates), inner[:, :, None]).squeeze(2) + self.biases(candidates).squeeze(2)
        loss = self.loss(logits, targets) / len(candidates)
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in self.optimisers:
            optimiser.step()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256, help="texts per batch")
    parser.add_argument("--candidates", type=int, default=500, help="candidates per text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    learn_from_all_candidates()
    steps = {PUBLISHED: Published(arguments).step, OURS: our_step(arguments)}
    # Each side gets its own, equal sequence of batches, made beforehand.
    rng_batches = make_batches(arguments, np.random.default_rng(0))
    batches = [next(rng_batches) for _ in range(arguments.repeats + 1)]
    sequences = {name: iter(batches) for name in steps}
    sides = {name: lambda name=name: steps[name](next(sequences[name])) for name in steps}
    torch.set_num_threads(arguments.threads)
    with use_threads(arguments.threads):
        seconds = take_turns(sides, arguments.repeats)
    ratio = seconds[PUBLISHED] / seconds[OURS]
    show([{"": name, "step s": side, "texts/s": round(arguments.batch / side)} for name, side in seconds.items()])
    print(f"\nratio {ratio:.1f}")
    print_json("shortlist_step", ratio=round(ratio, 3), seconds=seconds, **vars(arguments))


if __name__ == "__main__":
    main()
