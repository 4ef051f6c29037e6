"""InceptionXML and InceptionXML+ from the formulas of the paper, in plain torch: slow, dense, and easy to check.

Nothing here comes from the package. Texts are padded to the full number of words, attention makes whole matrices,
circular padding copies dimensions, and every sum is in float64. Dropout is left out.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, conv1d, gelu

WIDTHS, STRIDE, LAST_WIDTH = (4, 8, 16), 4, 16
EPSILON = 1e-5  # of batch norms


class Reference:
    """The encoder, both heads and their optimisers, from the state dict of a learner.

    rows, meta_rows  weights and biases of labels and of clusters (None: a model without clusters; no biases: None)
    clusters         the labels of each cluster
    block            "relu" or "gelu", and "spectral", "batch" or "none"; None: no block (LightXML)
    """

    def __init__(self, state, rows, meta_rows=None, clusters=None, max_words=32, value="vectors", block=None):
        tensors = {name: torch.tensor(array, dtype=torch.float64) for name, array in state.items()}
        is_buffer = ("._u", "._v", "running_mean", "running_var", "num_batches_tracked")
        self.buffers = {name: tensor for name, tensor in tensors.items() if name.endswith(is_buffer)}
        self.p = {name: tensor.requires_grad_() for name, tensor in tensors.items() if name not in self.buffers}
        for name, arrays in {"rows": rows, "meta": meta_rows}.items():
            for what, array in zip(("weights", "biases"), arrays or (), strict=False):
                if array is not None:
                    self.p[f"{name}.{what}"] = torch.tensor(array, dtype=torch.float64).requires_grad_()
        self.clusters, self.max_words, self.value, self.block = clusters, max_words, value, block
        self.padding = len(self.p["network.words.weight"]) - 1
        self.training = True
        lazily = ["network.words.weight", *(["rows.weights"] if clusters else [])]
        self.lazy = torch.optim.SparseAdam([self.p[name] for name in lazily])
        self.adam = torch.optim.Adam([tensor for name, tensor in self.p.items() if name not in lazily])

    def spectral_norm(self, name):
        """W / σ, with one step of the power iteration in training."""
        weight = self.p[f"{name}.parametrizations.weight.original"]
        u, v = (self.buffers[f"{name}.parametrizations.weight.0.{which}"] for which in ("_u", "_v"))
        if self.training:
            fixed = weight.detach()
            u.copy_(nn.functional.normalize(fixed @ v, dim=0, eps=1e-12))
            v.copy_(nn.functional.normalize(fixed.T @ u, dim=0, eps=1e-12))
        return weight / (u.clone() @ weight @ v.clone())

    def batch_norm(self, name, x):
        """Over texts and positions (batch × channels, or batch × channels × positions)."""
        axes = [0, *range(2, x.dim())]
        mean, variance = x.mean(axes), x.var(axes, unbiased=False)
        if self.training:
            with torch.no_grad():
                self.buffers[f"{name}.running_mean"].lerp_(mean, 0.1)
                self.buffers[f"{name}.running_var"].lerp_(x.var(axes, unbiased=True), 0.1)
        else:
            mean, variance = self.buffers[f"{name}.running_mean"], self.buffers[f"{name}.running_var"]
        shape = [1, -1] + [1] * (x.dim() - 2)
        normed = (x - mean.view(shape)) / (variance.view(shape) + EPSILON).sqrt()
        return normed * self.p[f"{name}.weight"].view(shape) + self.p[f"{name}.bias"].view(shape)

    def attend(self, name, query, key, value):
        """SA(q, k, v) = q + γ · (q·kᵀ)·(C·v), for matrices of one text each."""
        mix = self.spectral_norm(f"{name}.mix")
        return query + self.p[f"{name}.gate"] * ((query @ key.transpose(1, 2)) @ (mix @ value))

    def encode(self, texts):
        """The features h_f of texts, which are lists of word ids."""
        ids = torch.full((len(texts), self.max_words), self.padding)
        for row, words in enumerate(texts):
            ids[row, : len(words)] = torch.as_tensor(words)
        embedded = self.p["network.words.weight"][ids]  # E(x): words × dimensions
        x = self.attend("network.attention.0", embedded, embedded, embedded)
        key = embedded.transpose(1, 2)
        query = x.transpose(1, 2)
        value = query if self.value == "query" else key
        x = self.attend("network.attention.1", query, key, value).transpose(1, 2)
        x = conv1d(x, self.p["network.project.weight"][:, :, None], self.p["network.project.bias"])
        x = self.batch_norm("network.project_norm", gelu(x))
        branches = []
        for i, width in enumerate(WIDTHS):
            side = (width - STRIDE) // 2
            wrapped = torch.cat([x[..., x.shape[2] - side :], x, x[..., :side]], dim=2)
            weight, bias = self.p[f"network.branches.{i}.weight"], self.p[f"network.branches.{i}.bias"]
            branches.append(conv1d(wrapped, weight, bias, stride=STRIDE))
        x = self.batch_norm("network.branch_norm", gelu(torch.cat(branches, dim=1)))
        x = conv1d(x, self.p["network.last.weight"], self.p["network.last.bias"], stride=STRIDE)
        return self.batch_norm("network.last_norm", gelu(x)).flatten(1)

    def hidden(self, head, features):
        """relu(R · h) + h."""
        if self.block is None:
            return features
        activation, norm = self.block
        name = f"{head}_block.linear"
        weight = self.spectral_norm(name) if norm == "spectral" else self.p[f"{name}.weight"]
        x = features @ weight.T + self.p[f"{name}.bias"]
        x = torch.relu(x) if activation == "relu" else gelu(x)
        return (self.batch_norm(f"{head}_block.norm", x) if norm == "batch" else x) + features

    def logits(self, head, features):
        logits = self.hidden(head, features) @ self.p[f"{head}.weights"].T
        return logits + self.p[f"{head}.biases"] if f"{head}.biases" in self.p else logits

    def step(self, texts, labels, learning_rate, n_searched=0, detach=False):
        """One step of training (Algorithm 1): the extreme loss, the meta loss, and the candidates of each text."""
        self.training = True
        features = self.encode(texts)
        meta_loss, candidates = torch.zeros(()), [list(range(len(self.p["rows.weights"])))] * len(texts)
        if self.clusters:
            meta_logits = self.logits("meta", features)
            is_cluster = [[float(bool(set(own) & set(cluster))) for cluster in self.clusters] for own in labels]
            meta_loss = binary_cross_entropy_with_logits(meta_logits, torch.tensor(is_cluster, dtype=torch.float64))
            candidates = []
            for row, own in enumerate(labels):
                best = meta_logits[row].topk(n_searched).indices.tolist()
                seen = [label for cluster in best for label in self.clusters[cluster]]
                candidates.append(seen + [label for label in own if label not in seen])  # add missing positives
        logits = self.logits("rows", features.detach() if detach else features)
        n_seen = max(map(len, candidates))
        loss = torch.zeros((), dtype=torch.float64)
        for row, (seen, own) in enumerate(zip(candidates, labels, strict=True)):
            truth = torch.tensor([float(label in own) for label in seen], dtype=torch.float64)
            loss = loss + binary_cross_entropy_with_logits(logits[row, seen], truth, reduction="sum")
        loss = loss / (len(texts) * n_seen)  # the mean over batch × candidates, padded to the most
        self.adam.zero_grad()
        self.lazy.zero_grad()
        (loss + meta_loss).backward()
        self._make_sparse("network.words.weight", [word for words in texts for word in words])
        if self.clusters:
            self._make_sparse("rows.weights", [label for seen in candidates for label in seen])
        for optimiser in (self.adam, self.lazy):
            optimiser.param_groups[0]["lr"] = learning_rate
            optimiser.step()
        return loss.item(), meta_loss.item(), candidates

    def _make_sparse(self, name, seen):
        """Keep the gradient of the rows that were seen, in the form that SparseAdam takes."""
        parameter, rows = self.p[name], torch.tensor(sorted(set(seen)))
        values = parameter.grad[rows]
        parameter.grad = torch.sparse_coo_tensor(rows[None], values, parameter.shape, check_invariants=True)
