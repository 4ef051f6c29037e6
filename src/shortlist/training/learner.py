"""What learns: an encoder, one head or two, and their optimisers; one step on a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import DataError, OptionError
from shortlist.heads.head import Head
from shortlist.heads.label_rows import LabelRows, has_short_products
from shortlist.kernels.threads import use_threads
from shortlist.labels.tree import LabelTree
from shortlist.shortlisters.clusters import top_clusters, with_positives
from shortlist.training.batches import Batch
from shortlist.training.memory import keep_freed_memory
from shortlist.training.word_optimiser import WordOptimiser


@dataclass(frozen=True)
class Shortlisting:
    """How a meta head shortlists: the clusters, how many of them a text sees, and in whose form."""

    tree: LabelTree
    top: int
    lightxml: bool = False


@dataclass(frozen=True)
class StepResult:
    """Losses of a step; of the clusters that hold a positive, how many there were and the meta head had found."""

    loss: float
    meta_loss: float = 0.0
    wanted: int = 0
    found: int = 0


class Learner:
    """An encoder and its heads in training.

    Without `shortlisting` every text sees all labels, or the candidates that its batch brings. With it, a meta head
    over clusters learns on all clusters and the labels' head on those of the clusters that the meta head ranks best,
    and of the positives' clusters.
    """

    def __init__(
        self,
        encoder: Any,
        n_labels: int,
        labels_per_text: float,
        shortlisting: Shortlisting | None = None,
        seed: int = 0,
        threads: int | None = None,
        device: str = "cpu",
        identity: bool = False,
    ) -> None:
        """`identity`: the labels' residual block starts as the identity, not at random."""
        keep_freed_memory()
        self.device = chosen_device(device)
        self.encoder = encoder.to(self.device)
        self.shortlisting, self.threads = shortlisting, threads
        rows = LabelRows.start(n_labels, encoder.n_features, labels_per_text / n_labels, seed)
        self.extreme = Head(rows, self.device, identity=identity)
        self.meta = None
        if shortlisting is not None:
            tree = shortlisting.tree
            meta_rows = LabelRows.start(
                tree.n_clusters, encoder.n_features, labels_per_text / tree.n_clusters, seed + 1
            )
            self.meta = Head(meta_rows, self.device, residual=not shortlisting.lightxml)
            self._row_of_label = np.empty(n_labels, np.int64)
            self._row_of_label[tree.order] = np.arange(n_labels)
        self._modules = nn.ModuleDict(
            {"encoder": self.encoder, **{f"{n}_block": h.block for n, h in self.heads.items()}}
        )
        vectors = encoder.words.weight if hasattr(encoder, "words") else None
        self._words = None if vectors is None else WordOptimiser(vectors)
        dense = [parameter for parameter in self._modules.parameters() if parameter is not vectors]
        self._dense = torch.optim.Adam(dense)

    @property
    def heads(self) -> dict[str, Head]:
        return {"extreme": self.extreme} | ({} if self.meta is None else {"meta": self.meta})

    def step(self, batch: Batch, rate: float, detached: bool = False) -> StepResult:
        """Learn from one batch.

        `detached`: the labels' head learns, but what it would have the encoder change is not passed on.
        """
        self._modules.train()
        with torch_threads(self.threads):
            inputs = torch.from_numpy(batch.inputs).to(self.device)
            short = self.device.type == "cpu" and has_short_products()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=short):
                features = self.encoder(inputs)
            shared = features.detach().float().requires_grad_()
            if self.meta is not None:
                result = self._shortlisted_step(shared, batch.positives, rate, detached)
            else:
                result = StepResult(self.extreme.learn(shared, lambda inner: self._step_on_rows(inner, batch, rate)))
            if features.requires_grad:
                features.backward(shared.grad.to(features.dtype))
            for group in self._dense.param_groups:
                group["lr"] = rate
            self._dense.step()
            self._dense.zero_grad()
            if self._words is not None:
                self._words.step(rate)
        return result

    def _step_on_rows(self, inner: Any, batch: Batch, rate: float) -> tuple[float, Any]:
        """On the candidates of the batch, or on all labels where it has none."""
        rows = self.extreme.rows
        if batch.candidates is None:
            return rows.step_on_all(inner, batch.positives, rate, self.threads)
        return rows.step_on_labels(inner, batch.candidates, batch.positives, rate, self.threads)

    def _shortlisted_step(self, shared: Tensor, positives: Ragged, rate: float, detached: bool) -> StepResult:
        assert self.meta is not None
        assert self.shortlisting is not None
        tree, meta, threads = self.shortlisting.tree, self.meta, self.threads
        logits = np.empty((len(positives), tree.n_clusters), np.float32)
        wanted = distinct(Ragged(positives.indptr, tree.cluster_of_label[positives.values]), tree.n_clusters)
        meta_loss = meta.learn(shared, lambda inner: meta.rows.step_on_all(inner, wanted, rate, threads, logits))
        clusters, found = with_positives(top_clusters(logits, self.shortlisting.top, threads), wanted)
        rows = Ragged(positives.indptr, self._row_of_label[positives.values])
        loss = self.extreme.learn(
            shared.detach().requires_grad_() if detached else shared,
            lambda inner: self.extreme.rows.step_on_clusters(inner, clusters, tree.cluster_starts, rows, rate, threads),
        )
        return StepResult(loss, meta_loss, len(wanted.values), found)

    def for_prediction(self) -> dict[str, np.ndarray]:
        """The arrays that a model predicts with."""
        arrays = {f"encoder.{name}": array for name, array in self.encoder.to_arrays().items()}
        for head_name, head in self.heads.items():
            arrays |= {f"{head_name}.{name}": array for name, array in head.to_arrays().items()}
        return arrays

    def state(self) -> dict[str, np.ndarray]:
        """Everything that changes in training, to go on from later."""
        tensors = {f"module.{name}": tensor for name, tensor in self._modules.state_dict().items()}
        if self._words is not None:
            tensors |= {f"words.{name}": tensor for name, tensor in self._words.state().items()}
        for number, moments in self._dense.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": tensor for name, tensor in moments.items()}
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        for head_name, head in self.heads.items():
            arrays |= {f"rows.{head_name}.{name}": array for name, array in head.rows.to_arrays().items()}
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Become what `state` saved."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        modules = {name.removeprefix("module."): t for name, t in tensors.items() if name.startswith("module.")}
        self._modules.load_state_dict(modules)
        if self._words is not None:
            for name, tensor in self._words.state().items():
                tensor.copy_(tensors[f"words.{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("adam."):
                _, number, what = name.split(".")
                moments.setdefault(int(number), {})[what] = tensor.clone()  # Adam would take it as its own
        self._dense.load_state_dict({**self._dense.state_dict(), "state": moments})
        for head_name, head in self.heads.items():
            for name, value in vars(head.rows).items():
                if f"rows.{head_name}.{name}" in arrays:
                    value[...] = (arrays if isinstance(value, np.ndarray) else tensors)[f"rows.{head_name}.{name}"]


def distinct(rows: Ragged, n_values: int) -> Ragged:
    """Each row with no value twice, in rising order."""
    pairs = np.unique(rows.row_ids.astype(np.int64) * n_values + rows.values)
    counts = np.bincount(pairs // n_values, minlength=len(rows))
    return Ragged(counts_to_indptr(counts), (pairs % n_values).astype(np.int32))


def chosen_device(name: str) -> torch.device:
    """The device of this name; "auto" is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"device {name!r} cannot be used here ({reason}); use cpu, cuda or auto") from None
    return device


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Run the block with this many threads in kernels and torch (None: one per core)."""
    with use_threads(threads) as n_threads:
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def need_finite(arrays: dict[str, np.ndarray]) -> None:
    """Refuse weights that are no longer numbers."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"training went astray: {name} holds values that are not finite. Lower the rate.")
