"""How time grows with the number of labels: prediction and training with an index of label centres.

    python benchmarks/growth.py [--sizes 10000 30000 100000 300000 1000000] [--candidates 200] [--threads 1]

Labels are random vectors in groups of 50. A prediction finds candidates for the features of one text in the index (64
cells are searched), scores the candidates with the classifier in 8 bits, and takes the best five. A training step
takes 256 texts and these candidates; its time is given per text. The fit is time = c · labels^e.
"""

from __future__ import annotations

import statistics

import numpy as np

from common import learn_from_all_candidates, make_parser, print_json, show, timed, unit
from shortlist.arrays import Ragged
from shortlist.kernels.threads import use_cores, use_threads
from shortlist.stages.classifier import RowClassifier
from shortlist.training.label_rows import LabelRows
from synthetic import label_centres, label_index, random_directions

BATCH, N_QUERIES, WARM_UP = 256, 300, 20
LEARNING_RATE = 0.002


def measure(n_labels, arguments):
    rng = np.random.default_rng(0)
    centres = label_centres(n_labels, arguments.features, rng)
    build_seconds, index = timed(lambda: label_index(centres, arguments.candidates))
    rows = LabelRows.start(n_labels, arguments.features, 2 / n_labels)
    classifier = RowClassifier({"weights": rows.weights, "biases": rows.biases}).quantized()
    labels = rng.integers(n_labels, size=max(N_QUERIES, 8 * BATCH))
    queries = unit(centres[labels] + random_directions(len(labels), arguments.features, rng))

    def predict(query):
        return classifier.best(query, index.find(query, arguments.cells), 5)

    with use_cores(1):
        predictions = [timed(lambda i=i: predict(queries[i : i + 1]))[0] for i in range(N_QUERIES)]
    with use_threads(arguments.threads):
        candidates = index.find(queries, arguments.cells).ids
    is_found = (candidates == labels[:, None]).any(axis=1)
    candidates[:, -1] = np.where(is_found, candidates[:, -1], labels)  # training always sees the positives
    steps = []
    for begin in range(0, len(queries) - BATCH + 1, BATCH):
        batch = slice(begin, begin + BATCH)
        positives = Ragged(np.arange(BATCH + 1), labels[batch].astype(np.int32))
        batch_arguments = queries[batch], candidates[batch], positives, LEARNING_RATE
        with use_threads(arguments.threads):
            steps.append(timed(lambda given=batch_arguments: rows.step(*given))[0] / BATCH)
    return {
        "labels": n_labels,
        "prediction, ms": round(1e3 * statistics.median(predictions[WARM_UP:]), 3),
        "training per text, ms": round(1e3 * statistics.median(steps[1:]), 4),
        "recall": round(float(is_found.mean()), 4),
        "index, s": round(build_seconds, 1),
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="threads for training")
    arguments = parser.parse_args()
    learn_from_all_candidates()
    results = []
    for n_labels in arguments.sizes:
        results.append(measure(n_labels, arguments))
        print(results[-1], flush=True)
    show(results)
    exponents = {}
    for name in ("prediction, ms", "training per text, ms"):
        logs = np.log([[result["labels"], result[name]] for result in results])
        exponents[name] = round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 3)
    print("exponents:", exponents)
    print_json("growth", **vars(arguments), results=results, exponents=exponents)


if __name__ == "__main__":
    main()
