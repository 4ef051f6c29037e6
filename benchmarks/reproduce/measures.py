"""What the papers measure on a trained model beside its accuracy: word order, shortlists, and Theorem 1."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

import shortlist
from shortlist.errors import ShortlistError
from shortlist.files import write_atomically
from shortlist.labels.centroids import label_centroids
from shortlist.lazy import sparse
from shortlist.text import TfIdf, Vocabulary
from shortlist.text.perturb import perturb

TEXTS_PER_BLOCK = 256
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
OMIKUJI = Path(__file__).parent.parent / "peers" / "omikuji_features.py"


def remembered(file: Path, key: str, compute: Callable[[], Any]) -> Any:
    """What was computed before under this key, or compute it and keep it in the file."""
    known = json.loads(file.read_text()) if file.exists() else {}
    if key not in known:
        known[key] = compute()
        with write_atomically(file) as out:
            out.write(json.dumps(known, indent=1).encode())
    return known[key]


def scores(ids: Any, test: Any, train: Any) -> dict[str, float]:
    """The metrics of ranked label ids; labels unseen in training are ignored."""
    found = shortlist.evaluate(ids, test.labels, train=(train.label_frequencies, len(train)), unseen="ignore")
    return {metric: round(float(found[metric]), 2) for metric in METRICS}


def inputs(part: Any) -> Any:
    """What models learn from and predict: the texts of a part, or its features."""
    return part.texts if part.features is None else part.features


def word_order(model: Any, test: Any, train: Any, n_orders: int) -> dict[str, dict[str, float]]:
    """InceptionXML, Table 4: P@3 and P@5 of the test texts as written, and with their words in other orders."""

    def score(texts: Any) -> np.ndarray:
        found = scores(model.rank(texts, 5)[0], test, train)
        return np.array([found["P@3"], found["P@5"]])

    permuted = np.array([score(perturb(test.texts, "shuffled", seed)) for seed in range(n_orders)])
    rows = {
        "as written": score(test.texts),
        "words permuted": permuted.mean(axis=0),
        "± deviation": permuted.std(axis=0),
    }
    return {name: {"P@3": round(values[0], 2), "P@5": round(values[1], 2)} for name, values in rows.items()}


def final_features(model: Any, given: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Astec's intermediate features v, the final ones x̂ = v + ReLU(R·v), and R."""
    pipeline = model.pipelines[0]
    features = pipeline.encoder.encode(pipeline.vocabulary.encode(given))
    return features, pipeline.classifier.layer.hidden(features), pipeline.classifier.layer.block


def shortlist_overlap(model: Any, train: Any, test: Any, k: int = 500) -> float:
    """DeepXML §4, module II: the share of the k nearest labels by v that are also the k nearest by x̂, in per cent.

    Both are computed exactly, with the label centres of the same features.
    """
    k = min(k, max(train.n_labels // 10, 1))
    nearest = []
    for of_train, of_test in zip(
        final_features(model, inputs(train))[:2], final_features(model, inputs(test))[:2], strict=True
    ):
        centres = np.asarray(label_centroids(sparse.csr_array(of_train), train.labels, train.n_labels).todense())
        nearest.append(_nearest(of_test, centres, k))
    shared = [len(np.intersect1d(*both)) for both in zip(*nearest, strict=True)]
    return 100 * float(np.mean(shared)) / k


def _nearest(queries: np.ndarray, centres: np.ndarray, k: int) -> np.ndarray:
    blocks = [queries[i : i + TEXTS_PER_BLOCK] @ centres.T for i in range(0, len(queries), TEXTS_PER_BLOCK)]
    return np.concatenate([np.argpartition(-block, k - 1, axis=1)[:, :k] for block in blocks])


def theorem_1(model: Any, train: Any, n_pairs: int = 20_000) -> dict[str, float]:
    """DeepXML, Theorem 1: whether both bounds hold on training texts and (text, label) pairs drawn at random.

    lambda          the spectral norm of R
    (a)             share of the texts with ‖x̂ − v‖ ≤ λ·‖v‖
    (b)             share of the pairs with C(v, μ⁰)/(1 + ε) ≤ C(x̂, μ) ≤ C(v, μ⁰) + ε. The theorem needs v ≥ 0, as the
                    ReLU of the published form gives
    mean distance   the mean of ‖x̂ − v‖ / ‖v‖: how far the features really move
    """
    v, x, block = final_features(model, inputs(train))
    bound = float(np.linalg.norm(block, 2))
    lengths, moved = np.linalg.norm(v, axis=1), np.linalg.norm(x - v, axis=1)
    rng = np.random.default_rng(0)
    texts, labels = rng.integers(len(v), size=n_pairs), rng.integers(train.n_labels, size=n_pairs)
    n_texts = train.label_frequencies[labels]
    before, after = (_cosines(features, train, texts, labels) for features in (v, x))
    epsilon = (1 + bound * np.sqrt(n_texts)) ** 2 - 1
    slack = 1e-4
    holds = (before / (1 + epsilon) <= after + slack) & (after <= before + epsilon + slack)
    known = lengths > 0
    return {
        "lambda": round(bound, 4),
        "(a) %": round(100 * float((moved <= bound * lengths * (1 + slack)).mean()), 2),
        "(b) %": round(100 * float(holds[n_texts > 0].mean()), 2),
        "mean distance": round(float((moved[known] / lengths[known]).mean()), 3),
    }


def _cosines(features: np.ndarray, train: Any, texts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The cosines of texts and label centres, both by these features."""
    means = (
        sparse.csr_array(
            (np.ones(len(train.labels.values)), train.labels.values, train.labels.indptr),
            shape=(len(train), train.n_labels),
        ).T
        @ features
    )
    length = np.linalg.norm(means, axis=1)[labels] * np.linalg.norm(features, axis=1)[texts]
    return np.einsum("ij,ij->i", means[labels], features[texts]) / np.maximum(length, 1e-12)


def intermediate_features(model: Any, given: Any) -> np.ndarray:
    """Astec's intermediate features v, at length 1."""
    v, _, _ = final_features(model, given)
    return (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def parabel(python: str, threads: int, given: tuple[np.ndarray, np.ndarray], train: Any, test: Any) -> dict[str, float]:
    """Parabel (Omikuji) on the features of the training and of the test part, in the peers' Python."""
    labelled = np.flatnonzero(train.labels.counts)
    labels = train.labels.take(labelled)
    with tempfile.TemporaryDirectory() as folder:
        for name, features in (("train", given[0][labelled]), ("test", given[1])):
            np.save(f"{folder}/{name}.npy", features)
        np.savez(f"{folder}/labels.npz", indptr=labels.indptr, values=labels.values, n_labels=train.n_labels)
        command = [python, str(OMIKUJI), folder, str(threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ShortlistError(f"Omikuji failed in {python}: {done.stderr.strip()[-300:]}")
        seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
        return {**scores(np.load(f"{folder}/best.npy"), test, train), "training s": round(seconds, 1)}


def dense_features(train: Any, test: Any, n_features: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Dense features of all texts: those that are there, or tf-idf rows, projected on their first right singular
    vectors."""
    if train.input_kind == "dense":
        return train.features, test.features
    if train.input_kind == "sparse":
        rows, test_rows = (sparse.csr_array(part.features) for part in (train, test))
    else:
        vocabulary, ids = Vocabulary.build_and_encode(train.texts)
        tf_idf = TfIdf.fit(ids, len(vocabulary))
        rows, test_rows = tf_idf.transform(ids), tf_idf.transform(vocabulary.encode(test.texts))
    _, _, axes = svds(rows.astype(np.float64), k=min(n_features, min(rows.shape) - 1), random_state=0)
    return (rows @ axes.T).astype(np.float32), (test_rows @ axes.T).astype(np.float32)


def on_features(recipe: str, given: tuple[np.ndarray, np.ndarray], train: Any, test: Any, **options: Any) -> Any:
    """The metrics of a recipe that is trained on dense features."""
    model = shortlist.train(train.with_features(given[0]), recipe=recipe, **options)
    return scores(model.rank(given[1], 5)[0], test, train)
