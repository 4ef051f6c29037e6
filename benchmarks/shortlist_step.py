"""A training step of DeepXML's extreme phase, here and as published: frozen features, 500 candidates a text.

    python benchmarks/shortlist_step.py [--labels 131072] [--batch 256] [--candidates 500] [--threads 2]

Ours is the residual block before `LabelRows.step_on_labels`. The opponent is the published formulation written plainly
in torch: look up the candidates' rows (texts × candidates × features), multiply with `bmm`, binary cross-entropy,
autograd, SparseAdam for rows and biases and Adam for the block. Both see the same features, candidates and positives.
The sides take turns after a warm-up; the median of the repeats counts. The ratio is texts a second, ours over theirs.
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

from shortlist.arrays import Ragged
from shortlist.encoders.given import GivenFeatures
from shortlist.heads.block import ResidualBlock
from shortlist.tables import plain
from shortlist.training.batches import Batch
from shortlist.training.learner import Learner, torch_threads

RATE, DROPOUT, N_POSITIVE = 0.002, 0.5, 3


def make_batches(chosen, n_batches, rng):
    """Features, candidates without repeats, the first few of which are right."""
    batches = []
    for _ in range(n_batches):
        features = rng.standard_normal((chosen.batch, chosen.features), dtype=np.float32)
        # Candidates of a text are neighbours of each other, not drawn evenly: a label is wanted by several texts.
        start = rng.integers(chosen.labels, size=(chosen.batch, 1))
        steps = rng.integers(1, 8, size=(chosen.batch, chosen.candidates)).cumsum(axis=1)
        candidates = ((start + steps) % chosen.labels).astype(np.int32)
        positives = np.sort(candidates[:, :N_POSITIVE], axis=1)
        right = Ragged(np.arange(chosen.batch + 1) * N_POSITIVE, positives.ravel())
        batches.append(Batch(features, right, candidates))
    return batches


class Ours:
    name = "Shortlist"

    def __init__(self, chosen):
        self.learner = Learner(
            GivenFeatures(chosen.features, DROPOUT), chosen.labels, N_POSITIVE, threads=chosen.threads, identity=True
        )

    def step(self, batch):
        return self.learner.step(batch, RATE).loss


class Published:
    name = "lookup, bmm, SparseAdam"

    def __init__(self, chosen):
        self.threads = chosen.threads
        self.rows = nn.Embedding(chosen.labels, chosen.features, sparse=True)
        self.biases = nn.Embedding(chosen.labels, 1, sparse=True)
        self.block, self.dropout = ResidualBlock(chosen.features, identity=True), nn.Dropout(DROPOUT)
        self.sparse = torch.optim.SparseAdam([self.rows.weight, self.biases.weight], lr=RATE)
        self.dense = torch.optim.Adam(self.block.parameters(), lr=RATE)
        self.loss = nn.BCEWithLogitsLoss(reduction="sum")

    def step(self, batch):
        with torch_threads(self.threads):
            candidates = torch.from_numpy(batch.candidates).long()
            truth = torch.zeros(candidates.shape)
            truth[:, :N_POSITIVE] = 1
            inner = self.block(self.dropout(torch.from_numpy(batch.inputs)))
            logits = torch.bmm(self.rows(candidates), inner[:, :, None]).squeeze(2) + self.biases(candidates).squeeze(2)
            loss = self.loss(logits, truth) / len(candidates)
            self.sparse.zero_grad()
            self.dense.zero_grad()
            loss.backward()
            self.sparse.step()
            self.dense.step()
        return float(loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    batches = make_batches(chosen, chosen.repeats + 1, np.random.default_rng(0))
    sides = [Published(chosen), Ours(chosen)]
    times = {side.name: [] for side in sides}
    for number, batch in enumerate(batches):
        for side in sides:
            start = time.perf_counter()
            side.step(batch)
            if number:  # the first one is for warming up
                times[side.name].append(time.perf_counter() - start)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    rows = [[name, f"{seconds:.4f}", f"{chosen.batch / seconds:,.0f}"] for name, seconds in medians.items()]
    print(plain(["", "step, s", "texts/s"], rows))
    ratio = medians[Published.name] / medians[Ours.name]
    print(f"ratio {ratio:.1f} at {chosen.labels:,} labels, {chosen.candidates} candidates, {chosen.threads} threads")
    print(json.dumps({"benchmark": "shortlist_step", **vars(chosen), "seconds": medians, "ratio": ratio}))


if __name__ == "__main__":
    main()
