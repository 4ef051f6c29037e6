"""Table 6 of the paper on DeepXML: one module at a time exchanged, without the re-ranker.

    python benchmarks/modules.py DATA/tibkat-sid [--texts 20000] [--tables a b c d] [--set dimensions=200]

(a) the encoder, (b) the surrogate task, (c) the classifier, (d) how negatives are sampled. The first row of every table
is Astec as it is. Test part; labels unseen in training are ignored.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import shortlist
from shortlist.arrays import Ragged
from shortlist.cli.models import option_value
from shortlist.heads.word_rows import WordRows
from shortlist.tables import plain

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
ASTEC = ("astec", {})
TABLES = {
    "a": {
        "Astec's bag": ASTEC,
        "InceptionXML's convolutions": ("inceptionxml-deepxml", {}),
        "XML-CNN": ("deepxml-cnn", {}),
        "MACH's MLP": ("deepxml-mlp", {}),
    },
    "b": {
        "clusters of labels": ASTEC,
        "labels thrown together": ("astec", {"surrogate": "hashed"}),
        "frequent labels": ("astec", {"surrogate": "frequent"}),
        "unsupervised": ("astec", {"surrogate": "none"}),
    },
    "c": {
        "rows and transfer": ASTEC,
        "support vector machines (DiSMEC)": ("svm", {}),
        "nearest neighbours": ("knn", {}),
    },
    "d": {
        "index of labels": ASTEC,
        "indexes of labels and texts": ("astec", {"share": 0.5}),
        "as Slice": ("astec", {"sampling": "slice"}),
        "frequent labels": ("astec", {"sampling": "frequent"}),
        "uniform": ("astec", {"sampling": "uniform"}),
    },
}


class OtherClassifier:
    """Astec's features and shortlists, with something else in the place of its rows."""

    def __init__(self, model, kind, train):
        self.model, self.kind = model, kind
        if kind == "svm":
            features = self.features(train)
            ids, _, _ = model.pipeline.shortlister.shortlist(features, 100, model.searched)
            self.rows = WordRows.learn(sparse.csr_array(features), train.labels, train.n_labels, ids)

    def features(self, data):
        vectors = self.model.pipeline.encoder.encode(self.model.vocabulary.encode(data.texts))
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def predict_dataset(self, data):
        features = self.features(data)
        ids, cosines, votes = self.model.pipeline.shortlister.shortlist(features, 500, self.model.searched)
        if self.kind == "svm":
            scores = self.rows.scores(Ragged.from_csr(features), ids)
        else:
            scores = np.where(ids >= 0, cosines + votes, -np.inf)  # cosines of what is there may be below 0
        best = np.take_along_axis(ids, np.argsort(-scores, axis=1, kind="stable")[:, :5], axis=1)
        return [[self.model.label_names[i] for i in row if i >= 0] for row in best.tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, help="train on so many texts, drawn at random; all by default")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--set", dest="options", action="append", default=[], help="NAME=VALUE for all recipes")
    chosen = parser.parse_args()
    options = {name: option_value(value) for name, _, value in (item.partition("=") for item in chosen.options)}
    train, test = shortlist.read(chosen.folder, "train"), shortlist.read(chosen.folder, "test")
    if chosen.texts is not None:
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train))[: chosen.texts]))
    train = train.without_unused_labels()
    print(train, flush=True)
    astec, results = None, []
    for table in chosen.tables:
        for name, (recipe, how) in TABLES[table].items():
            start = time.perf_counter()
            if recipe in ("svm", "knn"):
                model = OtherClassifier(astec[0], recipe, train)
            elif (recipe, how) == ASTEC and astec is not None:
                model = astec[0]
            else:
                model = shortlist.train(train, recipe=recipe, **{**options, "reranker": False, **how})
            seconds = time.perf_counter() - start
            if (recipe, how) == ASTEC:
                astec = astec or (model, seconds)
                seconds = astec[1]
            result = shortlist.evaluate(model.predict_dataset(test), test, train=train, unseen="ignore")
            results.append({"table": table, "": name, **{m: f"{result[m]:.2f}" for m in METRICS}, "s": round(seconds)})
            print(results[-1], flush=True)
    print(plain(list(results[0]), [[str(value) for value in row.values()] for row in results]))
    print(json.dumps({"benchmark": "modules", "options": options, "results": results}))


if __name__ == "__main__":
    main()
