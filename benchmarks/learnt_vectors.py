"""Do vectors learnt from the training texts say more than random ones, and what do they cost?

    python benchmarks/learnt_vectors.py DATA/cooking-se --vectors glove.txt

A fifth of the training texts is held out, and labelled by the nearest label: a text is the tf-idf weighted mean
of its words' vectors, a label the mean of its training texts. Random vectors are the opponent: with them, this
is nearest centroids over a random projection of the bag of words.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import shortlist
from shortlist.arrays import Ragged
from shortlist.text import TfIdf, Vocabulary
from shortlist.text.learnt_vectors import learn_vectors
from shortlist.text.pretrained_vectors import load_vectors, random_vectors


class NearestLabel:
    """One cut of the training data, on which any table of word vectors can be tried."""

    def __init__(self, dataset: shortlist.Dataset, n_tried: int, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(dataset))
        n_held_out = len(dataset) // 5
        held_out, rest = dataset.take(order[:n_held_out][:n_tried]), dataset.take(np.sort(order[n_held_out:]))
        self.vocabulary, self.word_ids = Vocabulary.build_and_encode(rest.texts, min_count=2)
        self.labels, self.n_labels = rest.labels, rest.n_labels
        self._truth = held_out.labels
        tf_idf = TfIdf.fit(self.word_ids, len(self.vocabulary))
        self._train = tf_idf.transform(self.word_ids)
        self._held_out = tf_idf.transform(self.vocabulary.encode(held_out.texts))

    def precision_at_1(self, vectors: np.ndarray) -> float:
        label_rows = self.labels.to_csr(self.n_labels)
        centroids = unit(label_rows.T @ unit(self._train @ vectors))
        texts = unit(self._held_out @ vectors)
        hits = 0
        for first in range(0, len(texts), 256):
            nearest = (texts[first : first + 256] @ centroids.T).argmax(axis=1)
            hits += sum(label in self._truth.row(first + row) for row, label in enumerate(nearest))
        return 100 * hits / len(texts)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a data set: a folder with train.jsonl.gz or the like")
    parser.add_argument("--dimensions", type=int, default=300)
    parser.add_argument("--vectors", type=Path, help="also try word vectors from this file")
    parser.add_argument("--texts", type=int, default=10_000, help="hold-out texts to label, at most")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    dataset = shortlist.read(arguments.folder, "train")
    cut = NearestLabel(dataset, arguments.texts, arguments.seed)
    words, dimensions, seed = cut.vocabulary.words, arguments.dimensions, arguments.seed
    learn_vectors(Ragged.from_lists([[0, 1], [1, 2]]), 3, 2)  # compiles the kernels, or loads them from the cache
    print(f"{arguments.folder.name}: {len(cut.word_ids):,} texts, {len(words):,} words, {cut.n_labels:,} labels")
    print(f"peak memory before learning: {peak_gigabytes():.2f} GB\n")
    print(f"{'':26}{'dimensions':>10}{'P@1':>8}{'seconds':>9}{'peak GB':>9}")

    def row(name: str, make: object) -> dict[str, float]:
        start = time.perf_counter()
        vectors = make()
        seconds, peak = time.perf_counter() - start, peak_gigabytes()
        precision = cut.precision_at_1(vectors)
        print(f"{name:26}{vectors.shape[1]:10}{precision:8.2f}{seconds:9.1f}{peak:9.2f}", flush=True)
        return {"P@1": round(precision, 2), "seconds": round(seconds, 2), "peak_gb": round(peak, 2)}

    labels = {"labels": cut.labels, "n_labels": cut.n_labels}
    # Learning goes first: the peak only ever rises, and trying vectors takes memory, too.
    texts = row("learnt from texts", lambda: learn_vectors(cut.word_ids, len(words), dimensions, seed=seed))
    both = row(
        "learnt from texts + labels",
        lambda: learn_vectors(cut.word_ids, len(words), dimensions, seed=seed, **labels),
    )
    random = row("random", lambda: random_vectors(words, dimensions, seed))
    result = {
        "ratio": round(both["P@1"] / random["P@1"], 4),
        "ratio_is": "P@1 of vectors learnt from texts and labels / random",
        "ratio_texts_only": round(texts["P@1"] / random["P@1"], 4),
        "seconds": both["seconds"],
        "data": arguments.folder.name,
        "dimensions": dimensions,
        "texts": texts,
        "texts_and_labels": both,
        "random": random,
    }
    if arguments.vectors:
        result["loaded"] = row(
            arguments.vectors.name[:26], lambda: load_vectors(arguments.vectors, words, seed=seed)[0]
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
