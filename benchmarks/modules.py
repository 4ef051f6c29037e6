"""Table 6 of the DeepXML paper: one component of Astec at a time is exchanged, without the re-ranker.

    python benchmarks/modules.py DATA/tibkat-sid [--texts 20000] [--tables a b c d] [--set dropout=0.3]
        [--peers-python .venv-peers/bin/python]

(a) the encoder, (b) the surrogate task, (c) the classifier, (d) negative sampling. The first row of every table is
Astec itself. Parabel is Omikuji on Astec's features, in the peers' Python (`make peers`); without it, the row is left
out. Measured on the test part; labels unseen in training are ignored.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

import shortlist
from common import (
    add_recipe_options,
    changed,
    make_parser,
    parse_recipe_options,
    print_json,
    read_splits,
    show,
    timed,
    unit,
)
from shortlist.kernels.threads import n_cores
from shortlist.stages.candidates import Candidates
from shortlist.stages.classifier import RowClassifier
from shortlist.training.word_weights import learn_word_weights

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
        "hashed labels": ("astec", {"surrogate": "hashed"}),
        "frequent labels": ("astec", {"surrogate": "frequent"}),
        "none: initial vectors (learnt with labels), frozen": ("astec", {"surrogate": "none"}),
    },
    "c": {
        "one-vs-rest, transferred features": ASTEC,
        "support vector machines (DiSMEC)": ("svm", {}),
        "nearest neighbours": ("knn", {}),
        "Parabel (Omikuji)": ("parabel", {}),
    },
    "d": {
        "index of labels": ASTEC,
        "indexes of labels and texts": ("astec", {"vote_weight": 0.5}),
        "as in Slice": ("astec", {"negative_sampling": "slice"}),
        "frequent labels": ("astec", {"negative_sampling": "frequent"}),
        "uniform": ("astec", {"negative_sampling": "uniform"}),
    },
}
SVM_CANDIDATES, N_CANDIDATES = 100, 500
OMIKUJI = str(Path(__file__).parent / "peers" / "omikuji_features.py")


class OtherClassifier:
    """The features and candidates of an Astec model with another classifier."""

    def __init__(self, model, kind, train):
        self.model, self.kind = model, kind
        if kind == "svm":
            features = self.features(train)
            ids = self.candidates(features, SVM_CANDIDATES).ids
            learnt = learn_word_weights(sparse.csr_array(features), train.labels, train.n_labels, ids)
            shape = (train.n_labels, features.shape[1])
            weights = sparse.csr_array((learnt["weights"], learnt["words"], learnt["starts"]), shape=shape)
            self.classifier = RowClassifier({"weights": weights.toarray(), "biases": learnt["biases"]})

    def features(self, data):
        pipeline = self.model.pipelines[0]
        return unit(pipeline.encoder.encode(pipeline.vocabulary.encode(data.texts)))

    def candidates(self, features, n_candidates):
        stage = self.model.pipelines[0].candidates
        return changed(stage, n_candidates=n_candidates).find(features, stage.n_searched)

    def predict_dataset(self, data):
        features = self.features(data)
        candidates = self.candidates(features, N_CANDIDATES)
        if self.kind == "svm":
            best, _ = self.classifier.best(features, Candidates(candidates.ids), 5)
        else:
            cosines, votes = candidates.evidence
            scores = np.where(candidates.ids >= 0, cosines + votes, -np.inf)  # a cosine may be below 0
            order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
            best = np.take_along_axis(candidates.ids, order, axis=1)
        return [[self.model.label_names[i] for i in row if i >= 0] for row in best.tolist()]


class Parabel:
    """Omikuji's label tree over the features of an Astec model; it learns and predicts in the peers' Python."""

    def __init__(self, model, train, test, python, threads):
        self.model, encode = model, OtherClassifier(model, "knn", train).features
        train = train.take(np.flatnonzero(train.labels.counts))
        with tempfile.TemporaryDirectory() as folder:
            for name, data in (("train", train), ("test", test)):
                np.save(f"{folder}/{name}.npy", encode(data))
            labels = {"indptr": train.labels.indptr, "values": train.labels.values, "n_labels": train.n_labels}
            np.savez(f"{folder}/labels.npz", **labels)
            command = [python, OMIKUJI, folder, str(threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            self.seconds, self.best = json.loads(done.stdout.splitlines()[-1])["seconds"], np.load(f"{folder}/best.npy")

    def predict_dataset(self, data):
        assert len(data) == len(self.best)
        return [[self.model.label_names[i] for i in row if i >= 0] for row in self.best.tolist()]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a data set with train and test")
    parser.add_argument("--texts", type=int, help="number of random training texts (default: all)")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--peers-python", default=".venv-peers/bin/python", help="the Python that has Omikuji")
    add_recipe_options(parser, "an option for all recipes")
    arguments = parser.parse_args()
    options = parse_recipe_options(arguments.options) | {"reranker": False}
    train, test = read_splits(arguments.folder)
    if arguments.texts is not None:
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train))[: arguments.texts]))
    train = train.without_unused_labels()
    print(train, flush=True)
    astec_seconds, astec = timed(lambda: shortlist.train(train, recipe="astec", **options))
    results = []
    for table in arguments.tables:
        for name, (recipe, changes) in TABLES[table].items():
            seconds, model = astec_seconds, astec
            if recipe == "parabel":
                if not Path(arguments.peers_python).exists():
                    print(f"{name} is left out: no {arguments.peers_python}; run `make peers`", flush=True)
                    continue
                model = Parabel(astec, train, test, arguments.peers_python, options.get("threads", n_cores()))
                seconds = model.seconds
            elif recipe in ("svm", "knn"):
                seconds, model = timed(lambda kind=recipe: OtherClassifier(astec, kind, train))
            elif (recipe, changes) != ASTEC:
                given = options | changes
                seconds, model = timed(lambda recipe=recipe, given=given: shortlist.train(train, recipe, **given))
            found = shortlist.evaluate(model.predict_dataset(test), test, train=train, unseen="ignore")
            scores = {metric: round(found[metric], 2) for metric in METRICS}
            results.append({"table": table, "": name, **scores, "s": round(seconds)})
            print(results[-1], flush=True)
    show(results)
    print_json("modules", options=options, results=results)


if __name__ == "__main__":
    main()
