"""Predict texts one at a time with other tools; run by `benchmarks/latency.py` inside the peers' environment.

    python one_at_a_time.py DATA/train.jsonl.gz TEXTS.json MODELS TOOL…

Tools are parabel and bonsai (Omikuji) and pecos (XR-Linear). Models that are not in the folder MODELS yet are trained
first, with default settings, on tf-idf of single words, and kept there. Prints one JSON line a tool: milliseconds a
text, text in and labels out, one thread.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer


def main(train_file, texts_file, models, *tools):
    folder = Path(models)
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(train_file, "rt") as file:
        rows = [json.loads(line) for line in file]
    names = sorted({label for row in rows for label in row["labels"]})
    number = {name: i for i, name in enumerate(names)}
    vectorizer = TfidfVectorizer(token_pattern=r"\b\w+\b", sublinear_tf=True, dtype=np.float32)
    features = vectorizer.fit_transform(row["text"] for row in rows)
    labels = [[number[label] for label in row["labels"]] for row in rows]
    texts = json.loads(Path(texts_file).read_text())
    for tool in tools:
        predict = {"parabel": omikuji, "bonsai": omikuji, "pecos": pecos}[tool](tool, folder, features, labels, names)
        times = []
        for text in texts:
            start = time.perf_counter()
            predict(vectorizer.transform([text]))
            times.append(1000 * (time.perf_counter() - start))
        print(json.dumps({"tool": tool, "milliseconds": times}), flush=True)


def omikuji(tool, folder, features, labels, names):
    import omikuji

    path = folder / tool
    if not path.exists():
        data = folder / "train.txt"
        write_repository_format(data, features, labels, len(names))
        settings = omikuji.Model.default_hyper_param()
        if tool == "bonsai":
            settings.cluster_balanced, settings.cluster_k, settings.collapse_every_n_layers = False, 100, 0
            settings.max_depth = 3
        omikuji.Model.train_on_data(str(data), settings).save(str(path))
    model = omikuji.Model.load(str(path))
    model.init_prediction_thread_pool(1) if hasattr(model, "init_prediction_thread_pool") else None

    def predict(row):
        pairs = list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        return [(names[label], score) for label, score in model.predict(pairs, top_k=5)]

    return predict


def pecos(tool, folder, features, labels, names):
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    path = folder / tool
    if not path.exists():
        indptr = np.cumsum([0] + [len(row) for row in labels])
        ids = np.concatenate([np.asarray(row) for row in labels])
        truth = sparse.csr_matrix((np.ones(len(ids), np.float32), ids, indptr), shape=(len(labels), len(names)))
        chain = Indexer.gen(LabelEmbeddingFactory.create(truth, features, method="pifa"))
        XLinearModel.train(features, truth, C=chain).save(str(path))
    model = XLinearModel.load(str(path), is_predict_only=True)

    def predict(row):
        found = model.predict(row, only_topk=5, threads=1)
        return [(names[label], score) for label, score in zip(found.indices, found.data, strict=True)]

    return predict


def write_repository_format(path, features, labels, n_labels):
    with path.open("w") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {n_labels}\n")
        for i, own in enumerate(labels):
            begin, end = features.indptr[i], features.indptr[i + 1]
            pairs = zip(features.indices[begin:end].tolist(), features.data[begin:end].tolist(), strict=True)
            file.write(",".join(map(str, own)) + " " + " ".join(f"{i}:{v:.6f}" for i, v in pairs) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
