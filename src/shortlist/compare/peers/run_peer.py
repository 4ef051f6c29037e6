"""Runs another tool on the data of a comparison, in the peers' Python, which does not need to have Shortlist.

    python run_peer.py --versions PACKAGE…        print the versions of the installed packages as JSON
    python run_peer.py NAME JOB.json              train, predict, measure, and write the results

`shortlist.compare.job` describes the job and the results, `shortlist.compare.splits.write_peer_data` the data. Exit
code 3 means that the tool cannot do this job; the last line of the output says why. Every tool has its default
settings, except fastText, whose defaults do not suit many labels.

Latency is measured from the text to label ids on one thread. It includes scikit-learn's `TfidfVectorizer`, with the
vocabulary and idf that the tool was trained with. fastText splits words with the same regular expression.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import signal
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ranked = list[list[tuple[int, float]]]  # label ids and scores of each text, best first

WORDS = r"\b\w+\b"
CANNOT_RUN = 3
LATENCY_K = 5  # labels per text when latency is measured
WARM_UP_TEXTS = 20


class Data:
    """The files of the data, read on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with np.load(folder / "train.labels.npz", allow_pickle=False) as labels:
            self.indptr, self.values, self.n_labels = labels["indptr"], labels["values"], int(labels["n_labels"])

    def rows(self, name: str) -> Any:
        """A sparse matrix with one row per text."""
        with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
            content = arrays["data"], arrays["indices"], arrays["indptr"]
            return sparse.csr_matrix(content, shape=tuple(arrays["shape"]), dtype=np.float32)

    def lines(self, name: str) -> list[str]:
        """The words of each text, separated by spaces."""
        return (self.folder / f"{name}.words.txt").read_text("utf-8").split("\n")[:-1]

    def labels(self) -> list[list[int]]:
        """The sorted label ids of each text; napkinXC corrupts memory if they are not sorted."""
        bounds = zip(self.indptr[:-1], self.indptr[1:], strict=True)
        return [np.sort(self.values[begin:end]).tolist() for begin, end in bounds]

    def label_matrix(self) -> Any:
        ones = np.ones(len(self.values), np.float32)
        return sparse.csr_matrix((ones, self.values, self.indptr), shape=(len(self.indptr) - 1, self.n_labels))

    def texts(self) -> list[str]:
        path = self.folder / "texts.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else []

    def vectorizer(self) -> Any:
        """scikit-learn's way from a text to its row."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        words = (self.folder / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
        ids = {word: i for i, word in enumerate(words)}
        vectorizer = TfidfVectorizer(token_pattern=WORDS, sublinear_tf=True, vocabulary=ids, dtype=np.float32)
        vectorizer.idf_ = np.load(self.folder / "idf.npy", allow_pickle=False)
        return vectorizer


class Tool:
    """A tool over sparse rows. `options` are given by the user; `settings` are those that differ from the defaults."""

    settings: dict[str, Any]

    def __init__(self, name: str, folder: Path, threads: int, seed: int, options: dict[str, Any]) -> None:
        self.name, self.folder, self.threads, self.seed, self.settings = name, folder, threads, seed, {}
        self.options = options
        self.model_path = str(folder / "model")

    def prepare(self, data: Data) -> None:
        """Convert the data to what the tool reads; not part of the training time."""
        self.features = data.rows("train")

    def train(self, data: Data) -> None:
        raise NotImplementedError

    def save(self) -> None:
        """Save the model in `self.folder` under a name that starts with "model"."""

    def inputs(self, data: Data, name: str) -> Any:
        return data.rows(name)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        raise NotImplementedError

    def predict_text(self, data: Data, k: int) -> Callable[[str], Any]:
        """A function that predicts the labels of one text on one thread."""
        vectorizer = data.vectorizer()
        return lambda text: self.predict(vectorizer.transform([text]), k, 1)

    def multiply_adds(self, rows: Any) -> float | None:
        """The mean number of multiply-adds of one prediction; None if unknown."""
        return None


class Pecos(Tool):
    def train(self, data: Data) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        labels = data.label_matrix()
        chain = Indexer.gen(LabelEmbeddingFactory.create(labels, self.features, method="pifa"), threads=self.threads)
        self.model = XLinearModel.train(self.features, labels, C=chain, threads=self.threads)

    def save(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.model.save(self.model_path)
        self.model = XLinearModel.load(self.model_path, is_predict_only=True)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        found = self.model.predict(inputs, only_topk=k, threads=threads)
        return [sorted(row, key=lambda pair: -pair[1]) for row in row_pairs(found)]


class Omikuji(Tool):
    def prepare(self, data: Data) -> None:
        super().prepare(data)
        with (self.folder / "train.txt").open("w") as file:
            file.write(f"{self.features.shape[0]} {self.features.shape[1]} {data.n_labels}\n")
            for labels, pairs in zip(data.labels(), row_pairs(self.features), strict=True):
                file.write(",".join(map(str, labels)) + " " + " ".join(f"{j}:{value:.6f}" for j, value in pairs) + "\n")

    def train(self, data: Data) -> None:
        import omikuji

        settings = omikuji.Model.default_hyper_param()
        if self.name == "omikuji-bonsai":
            self.settings = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
            for name, value in self.settings.items():
                setattr(settings, name, value)
        self.model = omikuji.Model.train_on_data(str(self.folder / "train.txt"), settings, self.threads)

    def save(self) -> None:
        self.model.save(self.model_path)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        if threads != getattr(self, "_pool", None):
            self.model.init_prediction_thread_pool(threads)
            self._pool = threads
        return [self.model.predict(pairs, top_k=k) for pairs in row_pairs(inputs)]


class NapkinXC(Tool):
    def prepare(self, data: Data) -> None:
        super().prepare(data)
        self.labels = data.labels()

    def train(self, data: Data) -> None:
        from napkinxc.models import BR, PLT

        if self.name == "napkinxc-plt":
            self.model = PLT(self.model_path, threads=self.threads, seed=self.seed)
        else:
            # As DiSMEC: squared hinge loss, and weights close to zero are removed.
            self.settings = {"loss": "squaredHinge", "weights_threshold": 0.01, "liblinear_c": 1}
            self.model = BR(self.model_path, threads=self.threads, **self.settings)
        self.model.fit(self.features, self.labels)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        if threads != self.model.get_params()["threads"]:
            self.model.set_params(threads=threads)
        return self.model.predict_proba(inputs, top_k=k)


class FastText(Tool):
    def prepare(self, data: Data) -> None:
        with (self.folder / "train.txt").open("w", encoding="utf-8") as file:
            for labels, words in zip(data.labels(), data.lines("train"), strict=True):
                file.write(" ".join(f"__label__{label}" for label in labels) + f" {words}\n")

    def train(self, data: Data) -> None:
        import fasttext

        self.settings = {"dim": 100, "epoch": 25, "lr": 0.5, "loss": "hs"}
        self.model = fasttext.train_supervised(
            str(self.folder / "train.txt"), minCount=1, thread=self.threads, seed=self.seed, verbose=0, **self.settings
        )

    def save(self) -> None:
        self.model.save_model(self.model_path)

    def inputs(self, data: Data, name: str) -> Any:
        return data.lines(name)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        names, scores = self.model.predict(inputs, k=k)
        ids = [[int(name.removeprefix("__label__")) for name in row] for row in names]
        return [list(zip(*row, strict=True)) for row in zip(ids, scores, strict=True)]

    def predict_text(self, data: Data, k: int) -> Callable[[str], Any]:
        words = re.compile(WORDS)
        return lambda text: self.model.predict(" ".join(words.findall(text.lower())), k=k)


class OneVsRest(Tool):
    def train(self, data: Data) -> None:
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        self.settings = {"estimator": "LinearSVC"}
        self.label_ids = np.unique(data.values)
        self.model = OneVsRestClassifier(LinearSVC(), n_jobs=self.threads)
        self.model.fit(self.features, data.label_matrix()[:, self.label_ids])

    def save(self) -> None:
        weights = np.concatenate([one.coef_ for one in self.model.estimators_]).astype(np.float32)
        np.savez(self.model_path, weights=weights)

    def predict(self, inputs: Any, k: int, threads: int) -> Ranked:
        scores = self.model.decision_function(inputs).reshape(inputs.shape[0], -1)
        k = min(k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(scores, best, axis=1)
        return [
            sorted(zip(self.label_ids[columns].tolist(), row.tolist(), strict=True), key=lambda pair: -pair[1])
            for columns, row in zip(best, found, strict=True)
        ]

    def multiply_adds(self, rows: Any) -> float:
        return rows.nnz / max(rows.shape[0], 1) * len(self.label_ids)


TOOLS = {
    "pecos": Pecos,
    "omikuji-parabel": Omikuji,
    "omikuji-bonsai": Omikuji,
    "napkinxc-plt": NapkinXC,
    "napkinxc-ovr": NapkinXC,
    "fasttext": FastText,
    "sklearn-ovr": OneVsRest,
}


def main(name: str, job_file: str, tools: dict[str, type[Tool]]) -> None:
    """Run the job with the tool of this name."""
    end_with_parent()
    job = json.loads(Path(job_file).read_text("utf-8"))
    folder, k, threads = Path(job["folder"]), job["k"], job["threads"]
    data = Data(Path(job["peer_data"]))
    tool = tools[name](name, folder, threads, job["seed"], job["options"])
    tool.prepare(data)
    start = time.perf_counter()
    tool.train(data)
    train_seconds = time.perf_counter() - start
    print(f"trained in {train_seconds:.1f} s", flush=True)  # noqa: T201 - the output is a log
    tool.save()

    inputs = tool.inputs(data, "test")
    tool.predict(inputs[:100], k, threads)
    start = time.perf_counter()
    found = tool.predict(inputs, k, threads)
    bulk_seconds = time.perf_counter() - start
    predictions = as_arrays(found, k)
    for kind in job["perturbations"]:
        predictions |= as_arrays(tool.predict(tool.inputs(data, f"test.{kind}"), k, threads), k, f"{kind}.")
    np.savez(folder / "predictions.npz", **predictions)  # type: ignore[arg-type]
    texts = data.texts()
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0].startswith("model")]
    model_files = [path for path in paths if path.is_file()]
    measured = {
        "train_seconds": train_seconds,
        "model_bytes": sum(path.stat().st_size for path in model_files),
        "bulk_texts_per_second": len(found) / max(bulk_seconds, 1e-9),
        **(measure_latency(tool.predict_text(data, LATENCY_K), texts) if texts else {}),
        "multiply_adds": tool.multiply_adds(inputs),
        "peak_memory_bytes": peak_memory(),
        "options": tool.settings,
    }
    (folder / "measured.json").write_text(json.dumps(measured))


def measure_latency(predict: Callable[[Any], Any], inputs: list[Any]) -> dict[str, float | None]:
    """Median and 99th percentile of the milliseconds for one input, after a warm-up."""
    for one in inputs[:WARM_UP_TEXTS]:
        predict(one)
    times = []
    for one in inputs:
        start = time.perf_counter()
        predict(one)
        times.append(1000 * (time.perf_counter() - start))
    return {f"ms_p{p}": float(np.percentile(times, p)) if times else None for p in (50, 99)}


def row_pairs(matrix: Any) -> Iterator[list[tuple[int, float]]]:
    """The columns and values of each row of a sparse matrix."""
    for begin, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield list(zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist(), strict=True))


def as_arrays(found: Ranked, k: int, prefix: str = "") -> dict[str, np.ndarray]:
    ids, scores = np.full((len(found), k), -1, np.int32), np.zeros((len(found), k), np.float32)
    for i, row in enumerate(found):
        for rank, (label, score) in enumerate(row[:k]):
            ids[i, rank], scores[i, rank] = label, score
    return {f"{prefix}ids": ids, f"{prefix}scores": scores}


def peak_memory() -> int | None:
    """The peak resident memory of this process in bytes. getrusage would include that of the parent before exec."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):  # other systems
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def installed_versions(packages: list[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


if __name__ == "__main__":
    if sys.argv[1] == "--versions":
        print(json.dumps(installed_versions(sys.argv[2:])))  # noqa: T201
    else:
        main(sys.argv[1], sys.argv[2], TOOLS)
