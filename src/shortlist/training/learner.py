"""What learns: an encoder's network, the label rows after a residual block, and their optimisers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import OptionError
from shortlist.kernels.candidates import add_wanted
from shortlist.labels.tree import LabelTree
from shortlist.stages.attention_layer import rows_of_clusters
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.batches import Batch
from shortlist.training.device_rows import DeviceRows
from shortlist.training.group import ALONE, Group, own_clusters, summed
from shortlist.training.heads import OUR_ENCODER, OUR_HEAD, EncoderOptions, HeadOptions, StepResult
from shortlist.training.label_rows import Candidates, Clusters, LabelRows
from shortlist.training.memory import keep_freed_memory
from shortlist.training.networks.layers import Dropout, ResidualBlock
from shortlist.training.optimization import WORD_OPTIMIZERS, adam_state, restore_adam
from shortlist.training.processor import bfloat16_product, has_fast_bfloat16
from shortlist.training.sharding import best_clusters


@dataclass(frozen=True)
class ClusterSearch:
    """How a meta-classifier chooses the labels that a text is trained on.

    n_searched      clusters that a text sees
    whole_clusters  what is added for labels of the text that are not in them: their whole clusters, or they alone
    """

    tree: LabelTree
    n_searched: int
    whole_clusters: bool = True


class Head:
    """Label rows, after a residual block or without one; a bottleneck for `n_features` may come first.

    group  workers that have other rows. What is before the rows is the same on all of them, and stays so
    """

    def __init__(
        self,
        rows: LabelRows,
        device: torch.device,
        options: HeadOptions = OUR_HEAD,
        n_features: int = 0,
        group: Group = ALONE,
    ) -> None:
        width, self._group = rows.weights.shape[1], group
        block = nn.Identity() if options.block is None else ResidualBlock(width, options.block)
        self.projection = nn.Linear(n_features, width).to(device) if options.bottleneck else None
        self.block, self.dropout = block.to(device), Dropout(options.dropout)
        if has_fast_bfloat16():
            rows.product = bfloat16_product
        self.rows: Any = rows if device.type == "cpu" else DeviceRows(rows, device)

    def learn(
        self, features: Tensor, candidates: Candidates, positives: Ragged, learning_rate: float, logits_out: Any = None
    ) -> float:
        """One step of the rows. Returns the loss, and adds the gradient to `features.grad`."""
        projected = features if self.projection is None else self.projection(features)
        hidden = self.dropout(self.block(projected))
        of_own_rows = self.rows.step(hidden.detach(), candidates, positives, learning_rate, logits_out)
        loss, gradient = summed(self._group, *of_own_rows)
        hidden.backward(torch.as_tensor(gradient))
        return loss

    def arrays(self) -> Arrays:
        """What prediction needs: weights, biases, and the block's."""
        arrays = {name: array for name, array in self.rows.arrays().items() if name in ("weights", "biases")}
        if self.projection is not None:
            weights, biases = (tensor.detach().cpu().numpy().copy() for tensor in self.projection.parameters())
            arrays |= {"projection": weights, "projection_biases": biases}
        return arrays | (self.block.arrays() if isinstance(self.block, ResidualBlock) else {})


class Learner:
    """A network and its label rows in training.

    Without `search`, a text sees all labels, or the candidates of its batch. With it, a meta-classifier learns on all
    clusters, and the label rows learn on the labels of the clusters that it ranks best, and on the positives.

    group, own  workers that train together, and the label rows of this one. With `search`, each owns a range of
                clusters and the rows of their labels
    """

    def __init__(
        self,
        network: Any,
        n_labels: int,
        labels_per_text: float,
        search: ClusterSearch | None = None,
        seed: int = 0,
        device: str = "cpu",
        head: HeadOptions = OUR_HEAD,
        meta_head: HeadOptions = OUR_HEAD,
        encoder: EncoderOptions = OUR_ENCODER,
        rows: LabelRows | None = None,
        group: Group = ALONE,
        own: np.ndarray | None = None,
    ) -> None:
        keep_freed_memory()
        self.device = find_device(device if group.size == 1 else "cpu")  # what workers send each other is there
        self.network, self.search = network.to(self.device), search
        width = head.bottleneck or network.n_features
        if search is not None:
            tree = search.tree
            self._clusters, self._rows, self._starts = own_clusters(tree.cluster_starts, group)
            self._row_of_label = np.empty(n_labels, np.int64)
            self._row_of_label[tree.order] = np.arange(n_labels)
            own = self._rows.ids
        if rows is None:
            rows = LabelRows.start(n_labels, width, labels_per_text / n_labels, seed, head.rows, own)
        self.heads = {"rows": Head(rows, self.device, head, network.n_features, group)}
        if search is not None:
            prior, sizes = labels_per_text / tree.n_clusters, (tree.n_clusters, network.n_features)
            meta_rows = LabelRows.start(*sizes, prior, seed + 1, meta_head.rows, self._clusters.ids)
            self.heads["meta"] = Head(meta_rows, self.device, meta_head, group=group)
        blocks = nn.ModuleDict({f"{name}_block": head.block for name, head in self.heads.items()})
        if (projection := self.heads["rows"].projection) is not None:
            blocks["rows_projection"] = projection
        self._modules = nn.ModuleDict({"network": self.network, **blocks})
        vectors = network.words.weight if _has_sparse_words(network) else None
        self._words = None if vectors is None else WORD_OPTIMIZERS[head.rows.optimizer](vectors)
        dense = [p for p in self.network.parameters() if p is not vectors]
        groups = [
            {"params": [p for p in dense if p.ndim > 1], "rate": encoder.rate, "weight_decay": encoder.weight_decay},
            {"params": [p for p in dense if p.ndim <= 1], "rate": encoder.rate},  # biases and norms do not decay
            {"params": list(blocks.parameters()), "rate": 1.0},
        ]
        self._adam = torch.optim.AdamW(groups, weight_decay=0.0)

    def seed(self, seed: int) -> None:
        """Set the random numbers of the next step."""
        torch.manual_seed(seed)

    def step(self, batch: Batch, learning_rate: float, detach: bool = False) -> StepResult:
        """Learn from one batch. `detach`: the label rows learn, but do not move the encoder."""
        self._modules.train()
        given = (batch.inputs,) if batch.weights is None else (batch.inputs, batch.weights)
        inputs = [torch.from_numpy(array).to(self.device) for array in given]
        fast = self.device.type == "cpu" and has_fast_bfloat16()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=fast):
            features = self.network(*inputs)
        shared = features.detach().float().requires_grad_()
        if self.search is None:
            loss = self.heads["rows"].learn(shared, batch.candidates, batch.positives, learning_rate)
            result = StepResult(loss)
        else:
            result = self._step_on_clusters(shared, batch.positives, learning_rate, detach, self.search)
        if features.requires_grad:
            features.backward(shared.grad.to(features.dtype))
        for group in self._adam.param_groups:
            group["lr"] = learning_rate * group["rate"]
        self._adam.step()
        self._adam.zero_grad()
        if self._words is not None:
            self._words.step(learning_rate)
        return result

    def _step_on_clusters(
        self, shared: Tensor, positives: Ragged, learning_rate: float, detach: bool, search: ClusterSearch
    ) -> StepResult:
        tree, own = search.tree, self._clusters
        logits = np.empty((len(positives), len(own)), np.float32)
        right = Ragged(positives.indptr, tree.cluster_of_label[positives.values]).distinct(tree.n_clusters)
        meta_loss = self.heads["meta"].learn(shared, None, own.own_pairs(right), learning_rate, logits)
        best = best_clusters(own, logits, search.n_searched)
        clusters, n_found = with_positives(best, right)
        rows = self._rows.own_pairs(Ragged(positives.indptr, self._row_of_label[positives.values], positives.weights))
        candidates: Candidates = Clusters(own.own_ids(clusters), self._starts)
        if not search.whole_clusters:
            candidates, _ = with_positives(rows_of_clusters(own.own_ids(best), self._starts), rows)
        features = shared.detach().requires_grad_() if detach else shared
        loss = self.heads["rows"].learn(features, candidates, rows, learning_rate)
        return StepResult(loss, meta_loss, len(right.values), n_found)

    def for_prediction(self) -> Arrays:
        """The arrays that a model predicts with: "encoder.…", "rows.…", "meta.…"."""
        arrays = with_prefix("encoder", self.network.arrays())
        for name, head in self.heads.items():
            arrays |= with_prefix(name, head.arrays())
        return arrays

    def state(self) -> Arrays:
        """Everything that changes in training, to resume from."""
        tensors = with_prefix("module", self._modules.state_dict())
        if self._words is not None:
            tensors |= with_prefix("words", self._words.state())
        tensors |= adam_state(self._adam)
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        for name, head in self.heads.items():
            arrays |= with_prefix(f"head.{name}", head.rows.arrays())
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Become what `state` saved."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self._modules.load_state_dict(without_prefix("module", tensors))
        if self._words is not None:
            for name, tensor in self._words.state().items():
                tensor.copy_(tensors[f"words.{name}"])
        restore_adam(self._adam, tensors)
        for head_name, head in self.heads.items():
            for name, value in vars(head.rows).items():
                if f"head.{head_name}.{name}" in arrays:
                    saved = arrays if isinstance(value, np.ndarray) else tensors
                    value[...] = saved[f"head.{head_name}.{name}"]


def _has_sparse_words(network: Any) -> bool:
    words = getattr(network, "words", None)
    return isinstance(words, nn.Embedding) and words.sparse


def with_positives(clusters: np.ndarray, positives: Ragged) -> tuple[np.ndarray, int]:
    """The clusters (or rows) of each text, and its positives that are missing; -1 for none; how many were not missing.

    None may occur twice in a row of `positives`.
    """
    k = clusters.shape[1]
    extended = np.empty((len(clusters), k + int(positives.counts.max(initial=0))), np.int32)
    extended[:, :k] = clusters
    return extended, add_wanted(extended, k, positives.indptr, positives.values)


def find_device(name: str) -> torch.device:
    """The device with this name; "auto" is CUDA where it is available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"device {name!r} is not available ({reason}); use cpu, cuda or auto") from None
    return device
