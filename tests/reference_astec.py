"""Astec as published, slowly: the formulas of the DeepXML paper in plain numpy and torch, to compare the library with.

Nothing here imports the library. Where the paper leaves something open, comments name what its authors' program does.
"""

from __future__ import annotations

import itertools

import numpy as np

try:
    import torch
except ImportError:  # then only the parts without training can be used
    torch = None


def correlation_objective(centroids, correlations, is_plus):
    """Appendix A.2, term by term: what a partition of the labels into two halves is worth.

    The paper writes arg min over dot products; larger dot products are better, so the best partition has the largest.
    The means μ± are the directions that are best for the given halves.
    """
    unit = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    n_labels = len(unit)
    sums = {True: np.zeros(unit.shape[1]), False: np.zeros(unit.shape[1])}
    for label in range(n_labels):
        side = bool(is_plus[label])
        sums[side] += correlations[label, label] * unit[label]
        for other in range(n_labels):
            sums[side] += correlations[label, other] * unit[other]
    means = {side: total / np.linalg.norm(total) for side, total in sums.items()}
    value = 0.0
    for label in range(n_labels):
        mean = means[bool(is_plus[label])]
        value += correlations[label, label] * unit[label] @ mean
        for other in range(n_labels):
            value += correlations[label, other] * unit[other] @ mean
    return value


def best_halves(centroids, correlations):
    """The largest value of the objective over all balanced partitions of an even number of labels."""
    n_labels = len(centroids)
    values = []
    for plus in itertools.combinations(range(n_labels), n_labels // 2):
        is_plus = np.isin(np.arange(n_labels), plus)
        values.append(correlation_objective(centroids, correlations, is_plus))
    return max(values)


def shortlist_scores(query, centres, owner, n_centres, texts, labels_of_texts, n_texts, gamma):
    """Module II: labels of the nearest centres and of the nearest texts, and their similarities.

    The program keeps a label's largest cosine with its centres, adds up the cosines of the texts that have it, divides
    by the largest of these sums, and adds both with weights of 1 − γ and γ. A label that one side misses has 0 there.
    """
    cosines, sums = {}, {}
    for centre in nearest(query, centres, n_centres):
        label = int(owner[centre])
        cosines[label] = max(cosines.get(label, -1.0), cosine(query, centres[centre]))
    for text in nearest(query, texts, n_texts):
        for label in labels_of_texts[text]:
            sums[label] = sums.get(label, 0.0) + cosine(query, texts[text])
    largest = max(sums.values(), default=1.0)
    votes = {label: total / largest for label, total in sums.items()}
    scores = {
        label: gamma * votes.get(label, 0.0) + (1 - gamma) * cosines.get(label, 0.0) for label in {*cosines, *votes}
    }
    return scores, cosines, votes


def nearest(query, vectors, n):
    return np.argsort([-cosine(query, vector) for vector in vectors], kind="stable")[:n]


def cosine(one, other):
    lengths = np.linalg.norm(one.astype(np.float64)) * np.linalg.norm(other.astype(np.float64))
    return float(one.astype(np.float64) @ other / lengths) if lengths else 0.0


def similarity(cosines, votes, gamma):
    """The base similarity s(v) of labels: the program adds what both indexes find with weights of 1 − γ and γ."""
    return gamma * votes + (1 - gamma) * cosines


def mixed_score(logits, similarities, alpha):
    """Section 4, "Log-time prediction": ŷ = α · σ(w · x̂) + (1 − α) · σ(s(v))."""
    return alpha * sigmoid(logits) + (1 - alpha) * sigmoid(similarities)


def reranked_score(first, logits, beta):
    """Section 4: ȳ = β · σ(w̃ · x̃) + (1 − β) · ŷ."""
    return beta * sigmoid(logits) + (1 - beta) * first


def sigmoid(values):
    values = np.asarray(values, np.float64)
    return 1 / (1 + np.exp(-values))


def relu(values):
    """max(0, x), with a slope of 0 at 0."""
    return torch.where(values > 0, values, torch.zeros_like(values))


class Encoder:
    """Section 4, module I: v = ReLU(Σ x_t · e_t) over tf-idf weights x of length 1.

    dropout  applied to v, as in the program; a function, so that a test decides what is dropped
    """

    def __init__(self, vectors, dropout=lambda values: values):
        self.vectors = torch.tensor(vectors, requires_grad=True)
        self.dropout = dropout

    def __call__(self, tfidf):
        sums = torch.stack([sum(x * self.vectors[t] for t, x in text) for text in tfidf])
        return self.dropout(relu(sums))


def tfidf(texts, idf):
    """(word, weight) for each word of each text; a word that occurs twice counts twice; weights have length 1."""
    rows = []
    for words in texts:
        length = sum(float(idf[word]) ** 2 for word in words) ** 0.5
        rows.append([(word, float(idf[word]) / length) for word in words])
    return rows


class Block:
    """Section 4, module III: x̂ = v + ReLU(R · v), with the spectral norm of R restricted to λ by power iteration [38].

    Miyato et al. divide R by σ = uᵀ · R · v', which one step of power iteration per training step keeps up to date; u
    and v' do not take part in the gradient. The program adds dropout behind the ReLU, and a bias, which starts at 0.

    bound     λ; 0: R is not restricted
    residual  false for the fully connected block that the paper compares with
    bias      whether there is a bias, as in the program
    """

    def __init__(self, weight, u, v, bound=1.0, residual=True, dropout=lambda values: values, bias=False):
        self.weight = torch.tensor(weight, requires_grad=True)
        self.bias = torch.zeros(len(weight), requires_grad=bias)
        self.u, self.v = torch.tensor(u), torch.tensor(v)
        self.bound, self.residual, self.dropout = bound, residual, dropout

    def matrix(self, training=True):
        if not self.bound:
            return self.weight
        with torch.no_grad():
            if training:
                self.u = self.weight @ self.v
                self.u = self.u / self.u.norm()
                self.v = self.weight.T @ self.u
                self.v = self.v / self.v.norm()
        return self.bound * self.weight / (self.u @ self.weight @ self.v)

    def __call__(self, features, training=True):
        moved = relu(features @ self.matrix(training).T + self.bias)
        moved = self.dropout(moved) if training else moved
        return features + moved if self.residual else moved


def cross_entropy(logits, targets):
    """Equation (1) for one text: Σ log(1 + exp(−y · w · x̂)), with y of 1 or −1."""
    signs = 2 * targets - 1
    return torch.log1p(torch.exp(-signs * logits)).sum()


class Training:
    """Adam on the means over a batch of each text's loss; vectors and rows that a step does not touch stay as they are.

    encoder  None: module IV, where v is given
    """

    def __init__(self, encoder, block, rows, learning_rate):
        self.encoder, self.block = encoder, block
        self.rows = torch.tensor(rows, requires_grad=True)
        of_block = [] if block is None else [p for p in (block.weight, block.bias) if p.requires_grad]
        self.dense = torch.optim.Adam(of_block, lr=learning_rate) if of_block else None
        touched = [self.rows] if encoder is None else [self.rows, encoder.vectors]
        self.moments = {id(p): [torch.zeros_like(p), torch.zeros_like(p), 0] for p in touched}
        self.learning_rate = learning_rate

    def step(self, inputs, labels, candidates=None):
        """candidates: the labels that each text sees; None: all labels, and then all rows move."""
        features = inputs if self.encoder is None else self.encoder(inputs)
        hidden = features if self.block is None else self.block(features)
        total = 0.0
        for row, own in enumerate(labels):
            seen = list(range(len(self.rows))) if candidates is None else list(candidates[row])
            targets = torch.tensor([float(label in own) for label in seen])
            total = total + cross_entropy(self.rows[seen] @ hidden[row], targets)
        loss = total / len(labels)
        loss.backward()
        if self.dense is not None:
            self.dense.step()
            self.dense.zero_grad()
        with torch.no_grad():
            if candidates is None:
                self._adam(self.rows, slice(None), on_corrected=True)
            else:
                self._adam(self.rows, sorted({label for row in candidates for label in row}))
            if self.encoder is not None:
                self._adam(self.encoder.vectors, sorted({word for text in inputs for word, _ in text}))
        return float(loss.detach())

    def _adam(self, parameter, seen, on_corrected=False):
        """Kingma and Ba (2015) with β of 0.9 and 0.999, for the rows that a step has seen.

        ε is added to the corrected root, as in their algorithm, or to the root before it is corrected, as they describe
        it in section 2 and torch's SparseAdam does it.
        """
        mean, square, n_steps = self.moments[id(parameter)]
        gradient = parameter.grad
        n_steps += 1
        mean[seen] = 0.9 * mean[seen] + 0.1 * gradient[seen]
        square[seen] = 0.999 * square[seen] + 0.001 * gradient[seen] ** 2
        root, correction = square[seen].sqrt(), (1 - 0.999**n_steps) ** 0.5
        root = root / correction + 1e-8 if on_corrected else (root + 1e-8) / correction
        parameter[seen] -= self.learning_rate * mean[seen] / (1 - 0.9**n_steps) / root
        self.moments[id(parameter)][2] = n_steps
        parameter.grad = None
