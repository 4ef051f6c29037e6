"""Train and measure another tool; run as a file by the Python that has it, which need not have Shortlist.

    python run_peer.py --versions PACKAGE…        which of these are installed, as JSON
    python run_peer.py NAME JOB.json              train, predict, time, and write what came out

A job names a folder with data (`shortlist.compare.parts.write_peers_data` says what is in it), a folder to write to,
and how many threads, labels a text and ways of disturbing there are. What is written: predictions.npz with `ids` and
`scores` (texts × places, -1 for none) and the same for each way (`shuffled.ids`, …), and measured.json. Exit code 3
says that the tool cannot do this job; the last line printed says why. Every tool has its default settings, but
fastText, which has none for this many labels.

Times of one text go from the text as it is to labels: scikit-learn's `TfidfVectorizer` with the vocabulary and idf that
the tool was trained with, then the tool, on one thread; fastText cuts words with the same regular expression.
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
from typing import Any

import numpy as np
from scipy import sparse

WORDS = r"\b\w+\b"
CANNOT = 3
TIMED_PLACES = 5  # labels of a text that is timed alone


class Data:
    """The files of the data, read when wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with np.load(folder / "train.labels.npz", allow_pickle=False) as labels:
            self.indptr, self.values, self.n_labels = labels["indptr"], labels["values"], int(labels["n_labels"])

    def rows(self, name: str) -> Any:
        """Sparse rows."""
        with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
            parts = arrays["data"], arrays["indices"], arrays["indptr"]
            return sparse.csr_matrix(parts, shape=tuple(arrays["shape"]), dtype=np.float32)

    def lines(self, name: str) -> list[str]:
        return (self.folder / f"{name}.words.txt").read_text("utf-8").split("\n")[:-1]

    def labels(self) -> list[list[int]]:
        """The labels of each text, in rising order: napkinXC ends with a broken memory where they do not rise."""
        bounds = zip(self.indptr[:-1], self.indptr[1:])  # noqa: B905 - also for the oldest Python that peers have
        return [np.sort(self.values[begin:end]).tolist() for begin, end in bounds]

    def truth(self) -> Any:
        ones = np.ones(len(self.values), np.float32)
        return sparse.csr_matrix((ones, self.values, self.indptr), shape=(len(self.indptr) - 1, self.n_labels))

    def texts(self) -> list[str]:
        path = self.folder / "texts.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else []

    def vectorizer(self) -> Any:
        """From a text as it is to its row, by scikit-learn."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        words = (self.folder / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
        numbers = {word: i for i, word in enumerate(words)}
        vectorizer = TfidfVectorizer(token_pattern=WORDS, sublinear_tf=True, vocabulary=numbers, dtype=np.float32)
        vectorizer.idf_ = np.load(self.folder / "idf.npy", allow_pickle=False)
        return vectorizer


class Tool:
    """A tool over sparse rows. `settings` is what was set, for the record."""

    settings: dict[str, Any]

    def __init__(self, name: str, folder: Path, threads: int, seed: int) -> None:
        self.name, self.folder, self.threads, self.seed, self.settings = name, folder, threads, seed, {}

    def prepare(self, data: Data) -> None:
        """Bring the data into the form that the tool takes; not part of the training time."""
        self.features = data.rows("train")

    def train(self, data: Data) -> None:
        raise NotImplementedError

    def save(self) -> None:
        """Leave the model in `self.folder` / model."""

    def inputs(self, data: Data, name: str) -> Any:
        return data.rows(name)

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        raise NotImplementedError

    def one(self, data: Data, k: int) -> Any:
        """A function from a text to its labels."""
        vectorizer = data.vectorizer()
        return lambda text: self.predict(vectorizer.transform([text]), k, 1)

    def multiply_adds(self, rows: Any) -> float | None:
        """Of a prediction, on average; None where nobody can say."""
        return None


class Pecos(Tool):
    def train(self, data: Data) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        truth = data.truth()
        chain = Indexer.gen(LabelEmbeddingFactory.create(truth, self.features, method="pifa"), threads=self.threads)
        self.model = XLinearModel.train(self.features, truth, C=chain, threads=self.threads)

    def save(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.model.save(str(self.folder / "model"))
        self.model = XLinearModel.load(str(self.folder / "model"), is_predict_only=True)

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        found = self.model.predict(inputs, only_topk=k, threads=threads)
        return pairs_of(found)


class Omikuji(Tool):
    def prepare(self, data: Data) -> None:
        super().prepare(data)
        rows, pointers = self.features, self.features.indptr
        with (self.folder / "train.txt").open("w") as file:
            file.write(f"{rows.shape[0]} {rows.shape[1]} {data.n_labels}\n")
            for i, own in enumerate(data.labels()):
                begin, end = pointers[i], pointers[i + 1]
                pairs = zip(rows.indices[begin:end].tolist(), rows.data[begin:end].tolist())  # noqa: B905
                file.write(",".join(map(str, own)) + " " + " ".join(f"{j}:{value:.6f}" for j, value in pairs) + "\n")

    def train(self, data: Data) -> None:
        import omikuji

        settings = omikuji.Model.default_hyper_param()
        if self.name == "omikuji-bonsai":
            self.settings = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
            for name, value in self.settings.items():
                setattr(settings, name, value)
        self.model = omikuji.Model.train_on_data(str(self.folder / "train.txt"), settings, self.threads)

    def save(self) -> None:
        self.model.save(str(self.folder / "model"))

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        if threads != getattr(self, "_pool", None):
            self.model.init_prediction_thread_pool(threads)
            self._pool = threads
        found = []
        for i in range(inputs.shape[0]):
            begin, end = inputs.indptr[i], inputs.indptr[i + 1]
            row = list(zip(inputs.indices[begin:end].tolist(), inputs.data[begin:end].tolist()))  # noqa: B905
            found.append(self.model.predict(row, top_k=k))
        return found


class NapkinXC(Tool):
    def prepare(self, data: Data) -> None:
        super().prepare(data)
        self.labels = data.labels()

    def train(self, data: Data) -> None:
        from napkinxc.models import BR, PLT

        if self.name == "napkinxc-plt":
            self.model = PLT(str(self.folder / "model"), threads=self.threads, seed=self.seed)
        else:
            # DiSMEC: squared hinge loss, and weights next to zero cut off.
            self.settings = {"loss": "squaredHinge", "weights_threshold": 0.01, "liblinear_c": 1}
            self.model = BR(str(self.folder / "model"), threads=self.threads, **self.settings)
        self.model.fit(self.features, self.labels)

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        if threads != self.model.get_params()["threads"]:
            self.model.set_params(threads=threads)
        return self.model.predict_proba(inputs, top_k=k)


class FastText(Tool):
    def prepare(self, data: Data) -> None:
        with (self.folder / "train.txt").open("w", encoding="utf-8") as file:
            for own, words in zip(data.labels(), data.lines("train")):  # noqa: B905
                file.write(" ".join(f"__label__{label}" for label in own) + f" {words}\n")

    def train(self, data: Data) -> None:
        import fasttext

        self.settings = {"dim": 100, "epoch": 25, "lr": 0.5, "loss": "hs"}
        self.model = fasttext.train_supervised(
            str(self.folder / "train.txt"), minCount=1, thread=self.threads, seed=self.seed, verbose=0, **self.settings
        )

    def save(self) -> None:
        self.model.save_model(str(self.folder / "model"))

    def inputs(self, data: Data, name: str) -> Any:
        return data.lines(name)

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        names, scores = self.model.predict(inputs, k=k)
        start = len("__label__")
        return [
            [(int(name[start:]), float(score)) for name, score in zip(*row)]  # noqa: B905
            for row in zip(names, scores)  # noqa: B905
        ]

    def one(self, data: Data, k: int) -> Any:
        words = re.compile(WORDS)
        return lambda text: self.model.predict(" ".join(words.findall(text.lower())), k=k)


class OneVsRest(Tool):
    def train(self, data: Data) -> None:
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        self.settings = {"estimator": "LinearSVC"}
        known = np.unique(data.values)
        self.known = known
        self.model = OneVsRestClassifier(LinearSVC(), n_jobs=self.threads)
        self.model.fit(self.features, data.truth()[:, known])

    def save(self) -> None:
        weights = np.concatenate([one.coef_ for one in self.model.estimators_]).astype(np.float32)
        np.savez(self.folder / "model.npz", weights=weights)

    def predict(self, inputs: Any, k: int, threads: int) -> list[list[tuple[int, float]]]:
        scores = self.model.decision_function(inputs).reshape(inputs.shape[0], -1)
        k = min(k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(scores, best, axis=1)
        return [
            sorted(zip(self.known[ids].tolist(), row.tolist()), key=lambda pair: -pair[1])  # noqa: B905
            for ids, row in zip(best, found)  # noqa: B905
        ]

    def multiply_adds(self, rows: Any) -> float:
        return rows.nnz / max(rows.shape[0], 1) * len(self.known)


TOOLS = {
    "pecos": Pecos,
    "omikuji-parabel": Omikuji,
    "omikuji-bonsai": Omikuji,
    "napkinxc-plt": NapkinXC,
    "napkinxc-ovr": NapkinXC,
    "fasttext": FastText,
    "sklearn-ovr": OneVsRest,
}


def main(name: str, job_file: str) -> None:
    """Do the job."""
    end_with_parent()
    job = json.loads(Path(job_file).read_text("utf-8"))
    folder, k, threads = Path(job["folder"]), job["places"], job["threads"]
    data = Data(Path(job["data"]))
    tool = TOOLS[name](name, folder, threads, job["seed"])
    tool.prepare(data)
    start = time.perf_counter()
    tool.train(data)
    trained = time.perf_counter() - start
    print(f"trained in {trained:.1f} s", flush=True)  # noqa: T201 - this is a script, and what it says goes to a log
    tool.save()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "model" in str(path))

    inputs = tool.inputs(data, "test")
    tool.predict(inputs[:100], k, threads)
    start = time.perf_counter()
    found = tool.predict(inputs, k, threads)
    bulk = time.perf_counter() - start
    results = as_arrays(found, k)
    for way in job["ways"]:
        results.update(as_arrays(tool.predict(tool.inputs(data, f"test.{way}"), k, threads), k, f"{way}."))
    times = one_at_a_time(tool, data, TIMED_PLACES)
    np.savez(folder / "predictions.npz", **results)  # type: ignore[arg-type]
    measured = {
        "train_seconds": trained,
        "model_bytes": size,
        "bulk_texts_per_second": len(found) / max(bulk, 1e-9),
        "ms_p50": float(np.percentile(times, 50)) if times else None,
        "ms_p99": float(np.percentile(times, 99)) if times else None,
        "flops": tool.multiply_adds(inputs),
        "peak_memory_bytes": peak_memory(),
        "options": tool.settings,
    }
    (folder / "measured.json").write_text(json.dumps(measured))


def one_at_a_time(tool: Tool, data: Data, k: int) -> list[float]:
    """Milliseconds from each of some texts to its labels, one after the other, on one thread."""
    texts = data.texts()
    if not texts:
        return []
    predict, times = tool.one(data, k), []
    for text in texts[:20]:
        predict(text)
    for text in texts:
        start = time.perf_counter()
        predict(text)
        times.append(1000 * (time.perf_counter() - start))
    return times


def pairs_of(matrix: Any) -> list[list[tuple[int, float]]]:
    """The columns and values of each row, the largest first."""
    found = []
    for begin, end in zip(matrix.indptr[:-1], matrix.indptr[1:]):  # noqa: B905
        pairs = zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist())  # noqa: B905
        found.append(sorted(pairs, key=lambda pair: -pair[1]))
    return found


def as_arrays(found: list[list[tuple[int, float]]], k: int, prefix: str = "") -> dict[str, np.ndarray]:
    ids, scores = np.full((len(found), k), -1, np.int32), np.zeros((len(found), k), np.float32)
    for i, row in enumerate(found):
        for place, (label, score) in enumerate(row[:k]):
            ids[i, place], scores[i, place] = label, score
    return {f"{prefix}ids": ids, f"{prefix}scores": scores}


def peak_memory() -> int | None:
    """The most memory that this process has had, in bytes; unlike getrusage's figure, not that of who started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def end_with_parent() -> None:
    """Ask the system to end this process when the one that started it has ended, however."""
    with contextlib.suppress(OSError, AttributeError):  # where it is not Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def versions(packages: list[str]) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--versions":
        print(json.dumps(versions(sys.argv[2:])))  # noqa: T201
    else:
        main(sys.argv[1], sys.argv[2])
