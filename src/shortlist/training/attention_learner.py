"""What learns in AttentionXML: one network, Adam, and the mean of its weights over the later part of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays, Ragged
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.batches import Batch
from shortlist.training.heads import StepResult
from shortlist.training.learner import find_device
from shortlist.training.memory import keep_freed_memory
from shortlist.training.networks.attention import AttentionNetwork
from shortlist.training.optimization import WORD_OPTIMIZERS, adam_state, restore_adam

STEPS_BETWEEN_AVERAGES = 100  # as in the authors' program


class AttentionLearner:
    """A level of AttentionXML in training: binary cross-entropy, averaged over texts and their candidates.

    averaged_from  the step after which weights are averaged (stochastic weight averaging); the model is the mean
    optimizer      of word vectors, and of queries that only some texts see: "row-adam" or "adam"
    """

    def __init__(
        self, network: AttentionNetwork, averaged_from: int, optimizer: str = "row-adam", device: str = "cpu"
    ) -> None:
        keep_freed_memory()
        self.device = find_device(device)
        self.network = network.to(self.device)
        self._averaged_from, self._n_steps, self._n_averaged = averaged_from, 0, 0
        self._means: dict[str, Tensor] = {}
        tables = {"words": network.words, "queries": network.queries}
        sparse: dict[str, Any] = {name: table.weight for name, table in tables.items() if table.sparse}
        self._row_optimizers = {name: WORD_OPTIMIZERS[optimizer](rows) for name, rows in sparse.items()}
        self._adam = torch.optim.Adam(
            [p for p in network.parameters() if all(p is not rows for rows in sparse.values())]
        )

    def seed(self, seed: int) -> None:
        """Set the random numbers of the next step."""
        torch.manual_seed(seed)

    def step(self, batch: Batch, learning_rate: float, detach: bool = False) -> StepResult:
        """Learn from one batch."""
        self.network.train()
        word_ids = torch.from_numpy(batch.inputs).to(self.device)
        if batch.candidates is None:
            logits = self.network(word_ids)
            right = batch.positives.to_csr(logits.shape[1]).toarray() > 0
            there = np.ones(right.shape, bool)
        else:
            there = batch.candidates >= 0
            # What is no candidate repeats one, so that no other query has a gradient; its loss does not count.
            candidates = np.where(there, batch.candidates, batch.candidates[:, :1]).astype(np.int64)
            logits = self.network(word_ids, torch.from_numpy(candidates).to(self.device))
            right = are_positive(candidates, batch.positives)
        targets, weights = (torch.from_numpy(mask.astype(np.float32)).to(self.device) for mask in (right, there))
        total = nn.functional.binary_cross_entropy_with_logits(logits, targets, weights, reduction="sum")
        (total / there.sum()).backward()
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.step()
        self._adam.zero_grad()
        for optimizer in self._row_optimizers.values():
            optimizer.step(learning_rate)
        self._n_steps += 1
        if self._n_steps > self._averaged_from and self._n_steps % STEPS_BETWEEN_AVERAGES == 0:
            self._average()
        return StepResult(float(total.detach()) / len(logits))

    @torch.no_grad()
    def _average(self) -> None:
        self._n_averaged += 1
        for name, values in self.network.state_dict().items():
            if name not in self._means:
                self._means[name] = torch.zeros_like(values)
            self._means[name] += (values - self._means[name]) / self._n_averaged

    def for_prediction(self) -> Arrays:
        """The arrays that a model predicts with: "encoder.…", "rows.…"; of the mean weights, once there are some."""
        if not self._means:
            return self.network.arrays()
        learning = {name: values.clone() for name, values in self.network.state_dict().items()}
        self.network.load_state_dict(self._means)
        arrays = self.network.arrays()
        self.network.load_state_dict(learning)
        return arrays

    def state(self) -> Arrays:
        """Everything that changes in training, to resume from."""
        tensors = {**with_prefix("network", self.network.state_dict()), **with_prefix("mean", self._means)}
        for name, optimizer in self._row_optimizers.items():
            tensors |= with_prefix(name, optimizer.state())
        tensors |= adam_state(self._adam)
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        return {**arrays, "n_steps": np.asarray(self._n_steps), "n_averaged": np.asarray(self._n_averaged)}

    def restore(self, arrays: Arrays) -> None:
        """Become what `state` saved."""
        tensors = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
        self.network.load_state_dict(without_prefix("network", tensors))
        self._means = {name: values.clone() for name, values in without_prefix("mean", tensors).items()}
        self._n_steps, self._n_averaged = int(arrays["n_steps"]), int(arrays["n_averaged"])
        for name, optimizer in self._row_optimizers.items():
            for what, values in optimizer.state().items():
                values.copy_(tensors[f"{name}.{what}"])
        restore_adam(self._adam, tensors)


def are_positive(candidates: np.ndarray, positives: Ragged) -> np.ndarray:
    """Whether each candidate (texts × K rows) is among the positive rows of its text.

    >>> are_positive(np.array([[4, 7], [7, 9]]), Ragged.from_lists([[7], [4, 9]])).tolist()
    [[False, True], [False, True]]
    """
    width = int(max(candidates.max(initial=0), positives.values.max(initial=0))) + 1
    keys = np.arange(len(candidates))[:, None] * width + candidates
    return np.isin(keys, positives.row_ids * width + positives.values)
