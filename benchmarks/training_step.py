"""A whole training step of `inceptionxml+`, against the published formulation: same weights, texts, labels, clusters.

    python benchmarks/training_step.py [--labels 131072] [--clusters 16384] [--searched 800] [--batches 128 256 512]

The opponent is the published formulation in plain torch: texts padded to 32 words, attention through matrices of
dimensions × dimensions, three convolutions, a linear layer over the clusters, the rows of all candidates looked up for
each text (batch × candidates × features) and multiplied with `bmm`, SparseAdam for label rows and word vectors, Adam
for the rest. `--opponent-rows dense` uses Adam for all label rows instead. At 128 texts the process needs 5 GB.

Texts have 9 words on average and are batched by length, as in training. Each side runs alone on the same batches, and
the median of the repeats counts. The ratio is the opponent's time over ours at the same batch size. The losses of the
first step, from the same weights and without dropout, show that both sides compute the same.

Clusters are selected by random scores, the same for both sides, so that both do the same work. Nearly all rows are then
candidates of some text, which is our worst case.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from functools import partial
from itertools import islice

from common import learn_from_all_candidates, make_parser, print_json, show, timed  # isort: skip - before torch

import numpy as np
import torch
from torch import nn

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.kernels.threads import use_threads
from shortlist.labels.tree import LabelTree
from shortlist.stages.encoders.inception import STRIDE
from shortlist.training import batches
from shortlist.training.batches import BATCHES_PER_RUN, epoch_batches, padded
from shortlist.training.label_rows import LabelRows
from shortlist.training.learner import ClusterSearch, Learner
from shortlist.training.networks.inception import InceptionNetwork
from shortlist.training.networks.layers import Dropout, ResidualBlock
from synthetic import distinct, random_labels

LEARNING_RATE = 0.002
WORDS_PER_TEXT = 9
LABELS_PER_TEXT = 2.5
MAX_WORDS = 32
DROPOUT = 0.25
OURS = "Shortlist"


@dataclass
class Sizes:
    """Labels are numbered in the order of their clusters: cluster c holds `starts[c]` to `starts[c + 1]`."""

    words: int
    labels: int
    clusters: int
    searched: int
    threads: int

    @property
    def starts(self):
        return np.arange(self.clusters + 1) * self.labels // self.clusters


@dataclass
class Batch:
    word_ids: np.ndarray
    labels: Ragged
    clusters: Ragged
    scores: np.ndarray  # clusters are selected by these instead of the meta-classifier's scores


def make_batches(sizes, n_texts, batch_size):
    """Uniformly random words and labels."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(WORDS_PER_TEXT, n_texts), 1, MAX_WORDS)
    word_ids = Ragged(counts_to_indptr(lengths), rng.integers(0, sizes.words, lengths.sum(), np.int32))
    labels = random_labels(n_texts, sizes.labels, LABELS_PER_TEXT, rng)
    clusters_of_labels = np.searchsorted(sizes.starts, labels.values, side="right") - 1
    clusters = distinct(labels.row_ids, clusters_of_labels, n_texts)
    for rows in epoch_batches(lengths, batch_size, seed=0, epoch=0):
        ids = padded(word_ids, rows, MAX_WORDS, sizes.words)
        scores = rng.random((len(rows), sizes.clusters), np.float32)
        yield Batch(ids, labels.take(rows), clusters.take(rows), scores)


def as_tensor(ragged):
    """One row per text, padded with -1."""
    return torch.from_numpy(padded(ragged, np.arange(len(ragged)), max(ragged.counts), -1))


def selected_clusters(batch, n_searched):
    """The best clusters of each text, then those of its own labels that are not among them (-1 for none)."""
    scores = torch.from_numpy(batch.scores)
    best = torch.topk(scores, n_searched, sorted=False).indices
    is_best = torch.zeros(scores.shape, dtype=torch.bool).scatter_(1, best, True)
    own = as_tensor(batch.clusters)
    own[is_best.gather(1, own.clamp(min=0))] = -1
    return torch.cat([best, own], dim=1)


class Ours:
    """The learner that trains the recipes."""

    def __init__(self, sizes):
        torch.manual_seed(0)
        network = InceptionNetwork(sizes.words, max_words=MAX_WORDS)
        tree = LabelTree.from_clusters(np.repeat(np.arange(sizes.clusters), np.diff(sizes.starts)))
        self.learner = Learner(network, sizes.labels, LABELS_PER_TEXT, ClusterSearch(tree, sizes.searched))
        self.meta = self.learner.heads["meta"] = MetaHead(self.learner.heads["meta"])
        self.dropouts = [(part, part.below) for part in network.modules() if isinstance(part, Dropout)]

    def use_dropout(self, on):
        for part, below in self.dropouts:
            part.below = below if on else 0

    def step(self, batch):
        """One step, with the clusters selected by the batch's scores; returns the loss."""
        self.meta.scores = batch.scores
        result = self.learner.step(batches.Batch(batch.word_ids, batch.labels), LEARNING_RATE)
        return result.loss + result.meta_loss


class MetaHead:
    """The meta-classifier, which learns as usual, then gives the batch's scores as its logits."""

    def __init__(self, head):
        self.head = head

    def learn(self, features, candidates, positives, learning_rate, logits_out):
        loss = self.head.learn(features, candidates, positives, learning_rate, logits_out)
        logits_out[:] = self.scores
        return loss


class PublishedEncoder(InceptionNetwork):
    """The same weights, computed as written in the paper."""

    def __init__(self, n_words):
        super().__init__(n_words, max_words=MAX_WORDS)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, word_ids):
        word_ids = nn.functional.pad(word_ids, (0, MAX_WORDS - word_ids.shape[1]), value=self.padding)
        vectors = self.words(word_ids)
        by_word, by_dimension = self.attention
        x = self._attended(by_word, vectors, vectors)
        x = self._attended(by_dimension, x.transpose(1, 2), vectors.transpose(1, 2)).transpose(1, 2)
        x = self.project(x.transpose(1, 2)).transpose(1, 2)
        x = torch.cat([self._circular(branch, x) for branch in self.branches], dim=1)
        x = self.dropout(nn.functional.gelu(self.branch_norm(x)))
        x = nn.functional.gelu(self.last_norm(self.last(x)))
        return self.dropout(x.flatten(1))

    def _attended(self, attention, query, key):
        return query + attention.gate * ((query @ key.transpose(1, 2)) @ (attention.mix.weight @ key))

    def _circular(self, branch, x):
        side = (branch.kernel_size[0] - STRIDE) // 2
        return branch(nn.functional.pad(x, (side, side), mode="circular"))


class Published(nn.Module):
    def __init__(self, sizes, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.sizes = sizes
        self.encoder = PublishedEncoder(sizes.words)
        n_features = self.encoder.n_features
        self.label_block, self.meta_block = ResidualBlock(n_features), ResidualBlock(n_features)
        self.meta = nn.Linear(n_features, sizes.clusters)
        self.rows = nn.Embedding(sizes.labels + 1, n_features, padding_idx=sizes.labels, sparse=sparse)
        self.biases = nn.Embedding(sizes.labels + 1, 1, padding_idx=sizes.labels, sparse=sparse)
        self._copy_our_weights(n_features)
        # The labels of each cluster, and an empty last cluster.
        cluster_sizes = np.append(np.diff(sizes.starts), 0)
        self.labels_of = torch.full((sizes.clusters + 1, max(cluster_sizes)), sizes.labels)
        is_label = np.arange(max(cluster_sizes)) < cluster_sizes[:, None]
        self.labels_of[torch.from_numpy(is_label)] = torch.arange(sizes.labels)
        self.optimisers = self._make_optimisers()

    @torch.no_grad()
    def _copy_our_weights(self, n_features):
        meta = LabelRows.start(self.sizes.clusters, n_features, LABELS_PER_TEXT / self.sizes.clusters, seed=1)
        self.meta.weight.copy_(torch.from_numpy(meta.weights))
        self.meta.bias.copy_(torch.from_numpy(meta.biases))
        rows = LabelRows.start(self.sizes.labels, n_features, LABELS_PER_TEXT / self.sizes.labels)
        self.rows.weight[:-1].copy_(torch.from_numpy(rows.weights))
        self.biases.weight[:-1, 0].copy_(torch.from_numpy(rows.biases))

    def _make_optimisers(self):
        """SparseAdam for sparse gradients, Adam for the rest."""
        sparse = [part.weight for part in self.modules() if isinstance(part, nn.Embedding) and part.sparse]
        known = {id(weight) for weight in sparse}
        rest = [weight for weight in self.parameters() if id(weight) not in known]
        return [torch.optim.SparseAdam(sparse, lr=LEARNING_RATE), torch.optim.Adam(rest, lr=LEARNING_RATE)]

    def use_dropout(self, on):
        self.encoder.dropout.p = DROPOUT if on else 0

    def step(self, batch):
        features = self.encoder(torch.from_numpy(batch.word_ids))
        meta_logits = self.meta(self.meta_block(features))
        meta_targets = torch.zeros_like(meta_logits)
        meta_targets[batch.clusters.row_ids, batch.clusters.values] = 1

        candidates = self.labels_of[selected_clusters(batch, self.sizes.searched)].flatten(1)
        targets = (candidates[:, :, None] == as_tensor(batch.labels)[:, None]).any(dim=2).float()
        is_label = (candidates < self.sizes.labels).float()
        logits = torch.bmm(self.rows(candidates), self.label_block(features)[:, :, None]) + self.biases(candidates)

        entropy = nn.functional.binary_cross_entropy_with_logits
        loss = entropy(meta_logits, meta_targets, reduction="sum")
        loss = loss + entropy(logits.squeeze(2), targets, is_label, reduction="sum")
        loss = loss / len(features)
        loss.backward()
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        return loss.item()


def run(sizes, n_texts, name, make_side, batch_size, warm_up, repeats):
    """Train a new model for some steps; the first one is without dropout."""
    side, times, losses = make_side(), [], []
    for batch in islice(make_batches(sizes, n_texts, batch_size), warm_up + repeats):
        side.use_dropout(bool(losses))
        seconds, loss = timed(lambda batch=batch: side.step(batch))
        times.append(seconds)
        losses.append(loss)
    return {"": name, "batch": batch_size, "step s": statistics.median(times[warm_up:]), "first loss": losses[0]}


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=16_384)
    parser.add_argument("--searched", type=int, default=800, help="clusters per text, besides those of its labels")
    parser.add_argument("--words", type=int, default=100_000, help="size of the vocabulary")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 256, 512], help="our batch sizes")
    parser.add_argument("--opponent-batches", type=int, nargs="*", default=[128])
    parser.add_argument("--opponent-rows", choices=["sparse", "dense"], nargs="+", default=["sparse"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--opponent-repeats", type=int, default=3)
    arguments = parser.parse_args()
    learn_from_all_candidates()
    if not arguments.searched <= arguments.clusters <= arguments.labels:
        parser.error("expected --searched <= --clusters <= --labels")

    sizes = Sizes(arguments.words, arguments.labels, arguments.clusters, arguments.searched, arguments.threads)
    n_texts = BATCHES_PER_RUN * max(arguments.batches + arguments.opponent_batches)
    print(f"{sizes.labels:,} labels in {sizes.clusters:,} clusters, {sizes.searched:,} clusters per text")
    torch.set_num_threads(sizes.threads)
    with use_threads(sizes.threads):
        results = [
            run(sizes, n_texts, f"published, {rows}", partial(Published, sizes, rows == "sparse"), batch, 2,
                arguments.opponent_repeats)
            for rows in arguments.opponent_rows
            for batch in arguments.opponent_batches
        ]  # fmt: skip
        results += [
            run(sizes, n_texts, OURS, partial(Ours, sizes), batch, 3, arguments.repeats) for batch in arguments.batches
        ]
    ours = {result["batch"]: result["step s"] for result in results if result[""] == OURS}
    for result in results:
        result["texts/s"] = round(result["batch"] / result["step s"])
        result["ratio"] = round(result["step s"] / ours[result["batch"]], 2) if result["batch"] in ours else None
    show(results)
    ratios = [result["ratio"] for result in results if result[""] != OURS and result["ratio"]]
    print_json("training_step", ratio=ratios[0] if ratios else None, **vars(arguments), results=results)


if __name__ == "__main__":
    main()
