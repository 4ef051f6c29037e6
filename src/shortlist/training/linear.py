"""Linear classifiers over fixed features, each label on its own: the alternatives of Table 6(c) in the DeepXML paper.

Both are support vector machines with squared hinge loss, as in LIBLINEAR. Slice learns a label on its texts and on
those that it is a candidate for; DiSMEC on all texts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.training.reranking import learn_word_weights

# Weights nearer to 0 become 0, as in the authors' programs.
MIN_WEIGHTS = {"slice": 1e-6, "dismec": 0.01}
PAIRS_PER_BLOCK = 1 << 24


def learn_rows(
    kind: str, features: np.ndarray, labels: Ragged, n_labels: int, candidates: np.ndarray, C: float
) -> Arrays:
    """The weights and biases of all labels, over features of length 1.

    kind        "slice" or "dismec"
    candidates  texts × K label ids, -1 for none
    """
    unit = sparse.csr_array(normalize_rows(features))
    weights, biases = np.zeros((n_labels, features.shape[1]), np.float32), np.zeros(n_labels, np.float32)
    blocks = _all_texts(labels, n_labels) if kind == "dismec" else [(slice(0, n_labels), labels, candidates)]
    for block, own, of_texts in blocks:
        n_rows = block.stop - block.start
        learnt = learn_word_weights(unit, own, n_rows, of_texts, C, MIN_WEIGHTS[kind], "label rows")
        rows = (learnt["weights"], learnt["words"].astype(np.int32), learnt["starts"])
        weights[block] = sparse.csr_array(rows, shape=(n_rows, features.shape[1])).toarray()
        biases[block] = learnt["biases"]
    return {"weights": weights, "biases": biases}


def _all_texts(labels: Ragged, n_labels: int) -> Iterator[tuple[slice, Ragged, np.ndarray]]:
    """Blocks of labels for which every text is an example: the labels of texts within a block, numbered from 0."""
    per_block = max(1, PAIRS_PER_BLOCK // max(len(labels), 1))
    for begin in range(0, n_labels, per_block):
        end = min(begin + per_block, n_labels)
        own = labels.keep((labels.values >= begin) & (labels.values < end))
        every = np.broadcast_to(np.arange(end - begin, dtype=np.int32), (len(labels), end - begin))
        yield slice(begin, end), Ragged(own.indptr, own.values - begin, own.weights), every
