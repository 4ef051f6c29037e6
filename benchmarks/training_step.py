"""A whole training step of `inceptionxml+`, here and as published: the same weights, texts, labels and clusters.

    python benchmarks/training_step.py [--labels 131072] [--clusters 16384] [--top 800] [--batches 128 256 512]

The opponent is the published formulation in plain torch: texts padded to 32 words, attention through matrices of
dimensions × dimensions, three convolutions, a linear layer over the clusters, the rows of all candidates looked up for
each text (batch × candidates × features) and multiplied with `bmm`, SparseAdam for label rows and word vectors, Adam
for the rest. `--opponent-rows dense` gives it Adam over all label rows instead. At 128 texts the process needs 5 GB.

Texts have 9 words on average and are put into batches of about equal length, as in training. Each side runs alone,
on the same batches, after a warm-up, and the median of the repeats counts. The ratio is the opponent's time over ours
at the same batch size: above 1, we are faster. Losses of the first step, from the same weights and without dropout,
show that both sides compute the same.

Clusters are chosen by random scores, the same for both sides, so that both do the same work and nearly all rows are
seen by some text, which is the worst for us. With `--own-choice` each side goes by its own meta head. On random labels
these soon choose much the same clusters for all texts, ours sooner: the two sides then touch different numbers of rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from unittest import mock

import shortlist  # noqa: F401 isort: skip - before torch, for it tells OpenMP's threads how to wait
import numpy as np
import torch
from torch import nn

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.encoders.dropout import Dropout
from shortlist.encoders.inception import STRIDE, InceptionEncoder
from shortlist.heads.block import ResidualBlock
from shortlist.heads.label_rows import LabelRows
from shortlist.kernels.threads import n_cores
from shortlist.labels.tree import LabelTree
from shortlist.shortlisters.clusters import top_clusters, with_positives
from shortlist.tables import plain
from shortlist.training import batches
from shortlist.training import learner as learner_module
from shortlist.training.batches import BATCHES_PER_RUN, epoch_batches, padded
from shortlist.training.learner import Learner, Shortlisting

RATE = 0.002
WORDS_PER_TEXT = 9
LABELS_PER_TEXT = 2.5
MAX_WORDS = 32
PARTS = ("encoder", "meta head", "choice", "label rows", "backward")
OURS = "Shortlist"


@dataclass
class Sizes:
    """Labels are numbered in the order of their clusters: cluster c holds `starts[c]` to `starts[c + 1]`."""

    words: int
    labels: int
    clusters: int
    top: int
    threads: int
    own_choice: bool

    @property
    def starts(self):
        return np.arange(self.clusters + 1) * self.labels // self.clusters


@dataclass
class Batch:
    word_ids: torch.Tensor
    labels: Ragged
    clusters: Ragged
    scores: torch.Tensor | None  # to choose clusters by, instead of the meta head's


@dataclass
class Step:
    """What a step did: its loss, the clusters each text saw, and the seconds of its parts."""

    loss: float = 0.0
    clusters: torch.Tensor | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, part):
        """Everything since the last lap went into this part."""
        now = time.perf_counter()
        self.seconds[part], self.last = now - self.last, now


def use_exactly(threads):
    """This many threads in torch."""
    torch.set_num_threads(threads)


def make_batches(sizes, n_texts, batch_size):
    """Uniform random words and labels."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(WORDS_PER_TEXT, n_texts), 1, MAX_WORDS)
    word_ids = Ragged(counts_to_indptr(lengths), rng.integers(0, sizes.words, lengths.sum(), np.int32))
    texts = np.repeat(np.arange(n_texts), 1 + rng.poisson(LABELS_PER_TEXT - 1, n_texts))
    labels = without_repeats(texts, rng.integers(0, sizes.labels, len(texts)), n_texts)
    homes = np.searchsorted(sizes.starts, labels.values, side="right") - 1
    clusters = without_repeats(labels.row_ids, homes, n_texts)
    for rows in epoch_batches(lengths, batch_size, seed=0, epoch=0):
        ids = torch.from_numpy(padded(word_ids, rows, MAX_WORDS, sizes.words))
        scores = torch.from_numpy(rng.random((len(rows), sizes.clusters), np.float32))
        yield Batch(ids, labels.take(rows), clusters.take(rows), None if sizes.own_choice else scores)


def without_repeats(rows, values, n_rows):
    rows, values = np.unique(np.stack([rows, values]), axis=1)
    return Ragged(counts_to_indptr(np.bincount(rows, minlength=n_rows)), values.astype(np.int32))


def side_by_side(ragged):
    """As a tensor, filled up with -1."""
    return torch.from_numpy(padded(ragged, np.arange(len(ragged)), max(ragged.counts), -1))


def clusters_to_see(logits, batch, top):
    """The best clusters of each text, then those of its own labels that are not among them (-1 for none)."""
    best = torch.topk(logits if batch.scores is None else batch.scores, top, sorted=False).indices
    is_best = torch.zeros(logits.shape, dtype=torch.bool).scatter_(1, best, True)
    own = side_by_side(batch.clusters)
    own[is_best.gather(1, own.clamp(min=0))] = -1
    return torch.cat([best, own], dim=1)


def optimisers_of(*modules):
    """SparseAdam for what has sparse gradients, Adam for the rest."""
    parts = [part for module in modules for part in module.modules()]
    sparse = [part.weight for part in parts if isinstance(part, nn.Embedding) and part.sparse]
    known = {id(weight) for weight in sparse}
    rest = [weight for module in modules for weight in module.parameters() if id(weight) not in known]
    return [torch.optim.SparseAdam(sparse, lr=RATE), torch.optim.Adam(rest, lr=RATE)]


class Ours:
    """The learner that trains the recipes, with a stop-watch at its parts."""

    def __init__(self, sizes):
        torch.manual_seed(0)
        self.sizes = sizes
        encoder = InceptionEncoder(sizes.words, max_words=MAX_WORDS)
        tree = LabelTree.from_clusters(np.repeat(np.arange(sizes.clusters), np.diff(sizes.starts)))
        shortlisting = Shortlisting(tree, sizes.top)
        self.learner = Learner(encoder, sizes.labels, LABELS_PER_TEXT, shortlisting, threads=sizes.threads)
        self.dropouts = [part for part in encoder.modules() if isinstance(part, Dropout)]
        self.below = [part.below for part in self.dropouts]

    def train(self, mode=True):
        for part, below in zip(self.dropouts, self.below, strict=True):
            part.below = below if mode else 0

    def step(self, batch):
        step, learner = Step(), self.learner
        spent = dict.fromkeys(PARTS, 0.0)

        def timed(part, function, *arguments):
            start = time.perf_counter()
            result = function(*arguments)
            spent[part] += time.perf_counter() - start
            return result

        def choose(logits, top, threads):
            return timed("choice", top_clusters, logits if batch.scores is None else batch.scores.numpy(), top, threads)

        def see(top, wanted):
            clusters, found = timed("choice", with_positives, top, wanted)
            step.clusters = torch.from_numpy(clusters)
            return clusters, found

        encode, meta, rows = (
            learner.encoder.forward,
            learner.meta.rows.step_on_all,
            learner.extreme.rows.step_on_clusters,
        )
        with (
            mock.patch.object(learner_module, "top_clusters", choose),
            mock.patch.object(learner_module, "with_positives", see),
            mock.patch.object(learner.encoder, "forward", partial(timed, "encoder", encode)),
            mock.patch.object(learner.meta.rows, "step_on_all", partial(timed, "meta head", meta), create=True),
            mock.patch.object(
                learner.extreme.rows, "step_on_clusters", partial(timed, "label rows", rows), create=True
            ),
        ):
            result = learner.step(batches.Batch(batch.word_ids.numpy(), batch.labels), RATE)
        step.lap("all")
        spent["backward"] = step.seconds.pop("all") - sum(spent.values())
        step.seconds, step.loss = spent, result.loss + result.meta_loss
        return step


class PublishedEncoder(InceptionEncoder):
    """The same weights, computed as written in the paper."""

    def __init__(self, n_words):
        super().__init__(n_words, max_words=MAX_WORDS)
        self.dropout = nn.Dropout(0.25)

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
        self._start_as_ours(n_features)
        # The labels of each cluster, and a last cluster for "none".
        sizes_of = np.append(np.diff(sizes.starts), 0)
        self.labels_of = torch.full((sizes.clusters + 1, max(sizes_of)), sizes.labels)
        self.labels_of[torch.from_numpy(np.arange(max(sizes_of)) < sizes_of[:, None])] = torch.arange(sizes.labels)
        self.optimisers = optimisers_of(self)

    @torch.no_grad()
    def _start_as_ours(self, n_features):
        meta = LabelRows.start(self.sizes.clusters, n_features, LABELS_PER_TEXT / self.sizes.clusters, seed=1)
        self.meta.weight.copy_(torch.from_numpy(meta.weights))
        self.meta.bias.copy_(torch.from_numpy(meta.biases))
        rows = LabelRows.start(self.sizes.labels, n_features, LABELS_PER_TEXT / self.sizes.labels)
        self.rows.weight[:-1].copy_(torch.from_numpy(rows.weights))
        self.biases.weight[:-1, 0].copy_(torch.from_numpy(rows.biases))

    def step(self, batch):
        step = Step()
        features = self.encoder(batch.word_ids)
        meta_logits = self.meta(self.meta_block(features))
        meta_targets = torch.zeros_like(meta_logits)
        meta_targets[batch.clusters.row_ids, batch.clusters.values] = 1

        step.clusters = clusters_to_see(meta_logits.detach(), batch, self.sizes.top)
        candidates = self.labels_of[step.clusters].flatten(1)
        targets = (candidates[:, :, None] == side_by_side(batch.labels)[:, None]).any(dim=2).float()
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
        step.lap("all")
        step.loss = loss.item()
        return step


@dataclass
class Result:
    name: str
    batch: int
    first_loss: float
    rows_seen: float
    seconds: float
    parts: dict[str, float]


def run(sizes, n_texts, name, make_side, batch_size, warm_up, repeats):
    """Train a new model for a few steps; medians over all but the first, which is without dropout."""
    side = make_side()
    steps = []
    for batch in islice(make_batches(sizes, n_texts, batch_size), warm_up + repeats):
        side.train(bool(steps))
        steps.append(side.step(batch))
    if torch.get_num_threads() != sizes.threads:
        raise SystemExit(
            f"torch ran with {torch.get_num_threads()} threads, not {sizes.threads}: these times do not count"
        )
    timed = steps[warm_up:]
    seen = [len(step.clusters[step.clusters >= 0].unique()) / sizes.clusters for step in timed]
    seconds = statistics.median(sum(step.seconds.values()) for step in timed)
    parts = {part: round(statistics.median(step.seconds[part] for step in timed), 5) for part in timed[0].seconds}
    return Result(
        name, batch_size, round(steps[0].loss, 5), round(statistics.median(seen), 4), round(seconds, 5), parts
    )


def main():
    cores = n_cores()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=16_384)
    parser.add_argument("--top", type=int, default=800, help="clusters a text sees, besides those of its labels")
    parser.add_argument("--own-choice", action="store_true", help="clusters by each side's meta head: unequal work")
    parser.add_argument("--words", type=int, default=100_000, help="words in the vocabulary")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 256, 512], help="our batch sizes")
    parser.add_argument("--opponent-batches", type=int, nargs="*", default=[128])
    parser.add_argument("--opponent-rows", choices=["sparse", "dense"], nargs="+", default=["sparse"])
    parser.add_argument("--threads", type=int, default=cores, help="default: all cores")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--opponent-repeats", type=int, default=3)
    chosen = parser.parse_args()
    if not 1 <= chosen.threads <= cores:
        parser.error(f"--threads must be from 1 to {cores}, the number of cores")
    if not chosen.top <= chosen.clusters <= chosen.labels:
        parser.error("there must be at least as many --labels as --clusters, and as many of these as --top")

    sizes = Sizes(chosen.words, chosen.labels, chosen.clusters, chosen.top, chosen.threads, chosen.own_choice)
    n_texts = BATCHES_PER_RUN * max(chosen.batches + chosen.opponent_batches)
    use_exactly(chosen.threads)
    print(f"{sizes.labels:,} labels in {sizes.clusters:,} clusters, {sizes.top:,} for each text")
    print(f"{sizes.threads} threads, warmed up, median of {chosen.repeats} (opponent: {chosen.opponent_repeats})\n")
    runs = [
        (f"published, {rows}", partial(Published, sizes, sparse=rows == "sparse"), batch, 2, chosen.opponent_repeats)
        for rows in chosen.opponent_rows
        for batch in chosen.opponent_batches
    ]
    runs += [(OURS, partial(Ours, sizes), batch, 3, chosen.repeats) for batch in chosen.batches]
    results = [run(sizes, n_texts, *each) for each in runs]
    ours = {result.batch: result.seconds for result in results if result.name == OURS}

    cells = []
    for result in results:
        ratio = f"{result.seconds / ours[result.batch]:.1f}" if result.batch in ours else "–"
        parts = [f"{result.parts[part]:.3f}" if part in result.parts else "–" for part in PARTS]
        rate = f"{result.batch / result.seconds:,.0f}"
        row = [result.name, str(result.batch), f"{result.seconds:.3f}", ratio, rate, *parts]
        cells.append([*row, f"{result.rows_seen:.0%}", f"{result.first_loss:.4f}"])
    print(plain(["", "batch", "step s", "ratio", "texts/s", *PARTS, "rows seen", "first loss"], cells))
    print(
        "\nratio: times as long as ours at the same batch size; encoder and backward with the residual blocks, backward"
    )
    print("with the optimisers; rows seen: label rows that are candidates for a text of the batch")
    ratios = [result.seconds / ours[result.batch] for result in results if result.name != OURS and result.batch in ours]
    summary = {
        "benchmark": "training_step",
        "ratio": round(ratios[0], 3) if ratios else None,
        "n_labels": sizes.labels,
        "n_clusters": sizes.clusters,
        "top": sizes.top,
        "threads": sizes.threads,
        "own_choice": sizes.own_choice,
        "runs": [vars(result) for result in results],
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
