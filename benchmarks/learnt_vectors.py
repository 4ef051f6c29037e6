"""Are word vectors learnt from the training texts better than random ones, and what do they cost?

    python benchmarks/learnt_vectors.py DATA/cooking-se --vectors glove.txt

A fifth of the training texts is held out and assigned the nearest label. A text is the tf-idf weighted mean of its word
vectors, a label the mean of its training texts. The opponent is random vectors, which amount to nearest centroids over
a random projection of the bag of words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shortlist
from common import make_parser, peak_gb, print_json, show, timed, unit
from shortlist.arrays import Ragged
from shortlist.text import TfIdf, Vocabulary
from shortlist.text.learnt_vectors import learn_vectors
from shortlist.text.pretrained_vectors import load_vectors, random_vectors


class NearestLabel:
    """One split of the training data, to evaluate word vectors on."""

    def __init__(self, dataset: shortlist.Dataset, n_texts: int, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(dataset))
        n_held_out = len(dataset) // 5
        held_out, rest = dataset.take(order[:n_held_out][:n_texts]), dataset.take(np.sort(order[n_held_out:]))
        self.vocabulary, self.word_ids = Vocabulary.build_and_encode(rest.texts, min_count=2)
        self.labels, self.n_labels = rest.labels, rest.n_labels
        self._truth = held_out.labels
        tf_idf = TfIdf.fit(self.word_ids, len(self.vocabulary))
        self._train = tf_idf.transform(self.word_ids)
        self._held_out = tf_idf.transform(self.vocabulary.encode(held_out.texts))

    def precision_at_1(self, vectors: np.ndarray) -> float:
        centroids = unit(self.labels.to_csr(self.n_labels).T @ unit(self._train @ vectors))
        texts = unit(self._held_out @ vectors)
        hits = 0
        for first in range(0, len(texts), 256):
            nearest = (texts[first : first + 256] @ centroids.T).argmax(axis=1)
            hits += sum(label in self._truth.row(first + row) for row, label in enumerate(nearest))
        return 100 * hits / len(texts)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a data set with a training part")
    parser.add_argument("--dimensions", type=int, default=300)
    parser.add_argument("--vectors", type=Path, help="also evaluate word vectors from this file")
    parser.add_argument("--texts", type=int, default=10_000, help="maximum number of held-out texts")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the split")
    arguments = parser.parse_args()

    split = NearestLabel(shortlist.read(arguments.folder, "train"), arguments.texts, arguments.seed)
    words, dimensions, seed = split.vocabulary.words, arguments.dimensions, arguments.seed
    learn_vectors(Ragged.from_lists([[0, 1], [1, 2]]), 3, 2)  # loads what is needed
    print(f"{arguments.folder.name}: {len(split.word_ids):,} texts, {len(words):,} words, {split.n_labels:,} labels")
    print(f"peak memory before learning: {peak_gb():.2f} GB\n")

    labels = {"labels": split.labels, "n_labels": split.n_labels}
    # Learning comes first, because peak memory never falls and evaluating needs memory as well.
    sources = {
        "learnt from texts": lambda: learn_vectors(split.word_ids, len(words), dimensions, seed=seed),
        "learnt from texts and labels": lambda: learn_vectors(
            split.word_ids, len(words), dimensions, seed=seed, **labels
        ),
        "random": lambda: random_vectors(words, dimensions, seed),
    }
    if arguments.vectors:
        sources[arguments.vectors.name] = lambda: load_vectors(arguments.vectors, words, seed=seed)[0]
    results = []
    for name, make_vectors in sources.items():
        seconds, vectors = timed(make_vectors)
        costs = {"seconds": round(seconds, 2), "peak GB": round(peak_gb(), 2)}
        precision = round(split.precision_at_1(vectors), 2)
        results.append({"": name, "dimensions": vectors.shape[1], "P@1": precision, **costs})
    show(results)
    texts, both, random = (result["P@1"] for result in results[:3])
    print_json(
        "learnt_vectors",
        ratio=round(both / random, 4),
        ratio_is="P@1 of vectors learnt from texts and labels / random",
        ratio_texts_only=round(texts / random, 4),
        data=arguments.folder.name,
        results=results,
    )


if __name__ == "__main__":
    main()
