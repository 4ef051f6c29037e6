"""The data of a comparison: its training and test part, facts about them, and the files that other tools read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.describe import describe, words_per_text
from shortlist.data.read import parts_of, read
from shortlist.data.split import split
from shortlist.errors import DataError, OptionError
from shortlist.evaluation.filters import places_needed
from shortlist.evaluation.overlap import Overlap, Unseen, find_leaks
from shortlist.files import write_folder_atomically
from shortlist.lazy import sparse
from shortlist.text import TfIdf, Tokenizer, Vocabulary
from shortlist.text.features import normalize_sparse_rows
from shortlist.text.perturb import PERTURBATIONS as KINDS
from shortlist.text.perturb import perturb
from shortlist.text.texts import Texts

PERTURBATIONS = tuple(KINDS)
# Test part, if the data has none.
TEST_FRACTION = 0.2
MIN_K, LARGEST_METRIC_K = 10, 5


@dataclass(frozen=True, eq=False)
class Splits:
    """The training and test part, both over the training labels.

    overlap        unseen labels, and test texts that also occur in the training part
    test_as_given  the test part with the unseen labels
    """

    name: str
    train: Dataset
    test: Dataset
    is_random: bool  # whether the test part was split off at random
    overlap: Overlap
    test_as_given: Dataset

    @staticmethod
    def read(source: str, seed: int, reading: dict[str, Any] | None = None, drop_leaks: bool = False) -> Splits:
        """Read a folder with train and test; without a test part, hold out a fifth of the texts by the seed."""
        path, reading = Path(source), reading or {}
        found = parts_of(path) if path.is_dir() else []
        if found and "train" not in found:
            raise DataError(f"{source} has no train part, only {' and '.join(found)}. Add one, such as train.jsonl.")
        train = read(source, "train" if found else None, **reading)
        is_random = "test" not in found
        if is_random:
            both = split(train, test=TEST_FRACTION, seed=seed)
            train, test = both.train, both.test
        else:
            test = read(source, "test", **reading)
        leaks = find_leaks(test, train)
        if drop_leaks:
            if leaks is None:
                raise OptionError(f"{source} has features: only leaks of texts can be found. Leave out --drop-leaks.")
            test = test.take(~leaks)
        for part, dataset in (("train", train), ("test", test)):
            if not len(dataset.labels.values):
                raise DataError(f"{source}: no text of the {part} part has a label.")
        known = test.relabelled(train.label_names)
        if not known.display_names:
            known.display_names = train.display_names
        if not train.label_frequencies[known.labels.values].any():
            raise DataError(f"{source}: no label of the test part occurs in the train part.")
        frequencies = train.relabelled(test.label_names).label_frequencies
        overlap = Overlap.count(test.labels, frequencies, leaks, "count", drop_leaks)
        return Splits(path.resolve().name, train, known, is_random, overlap, test)

    @cached_property
    def truth(self) -> Dataset:
        """The test part over the training labels and, behind them, those that do not occur in training."""
        known = self.train.label_index
        others = [name for name in self.test_as_given.label_names if name not in known]
        return self.test_as_given.relabelled([*self.train.label_names, *others])

    def fingerprint(self) -> str:
        """A hash of everything that a system learns from or is measured on."""
        return self.train.fingerprint() + self.test.fingerprint()

    @property
    def k(self) -> int:
        """How many labels each system ranks: more than usual if some of them may be filtered out later."""
        pairs = self.test.filter_pairs
        return max(MIN_K, places_needed(LARGEST_METRIC_K, pairs))

    @property
    def inputs(self) -> Any:
        """The test texts, or their features."""
        return self.test.texts if self.test.features is None else self.test.features

    def single_inputs(self, count: int) -> list[Any]:
        """The first test texts (or rows of features), to predict one at a time."""
        count = min(count, len(self.test))
        if self.test.features is None:
            return [self.test.texts[i] for i in range(count)]
        return [self.test.features[i : i + 1] for i in range(count)]

    def perturbed(self, kind: str, seed: int) -> Texts:
        """The test texts, perturbed in one of the ways of `PERTURBATIONS`."""
        return perturb(self.test.texts, kind, seed)

    def facts(self, unseen: Unseen = "count") -> dict[str, Any]:
        """What the summary says about the data; `unseen`: whether labels that do not occur in training count."""
        train, test = self.train, self.test
        counted = self.truth if unseen == "count" else test
        n_labels = int(np.count_nonzero(train.label_frequencies))
        overlap = replace(self.overlap, unseen=unseen)
        return {
            "name": self.name,
            "fingerprint": self.fingerprint(),
            "train_texts": len(train),
            "test_texts": len(test),
            "test_texts_that_count": int(np.count_nonzero(counted.labels.counts)),
            "test_part": "split off at random" if self.is_random else "as given",
            "overlap": asdict(overlap),
            "notes": overlap.notes(),
            "labels": n_labels,
            "labels_per_text": float(train.labels.counts.mean()),
            "texts_per_label": len(train.labels.values) / n_labels,
            "description": msgspec.to_builtins(describe(train, test).to_json()),
        }

    def words_per_text(self) -> dict[str, Any]:
        """A histogram of the training texts by their number of words."""
        if self.train.features is not None:
            return {}
        return words_per_text(Tokenizer().split_texts(self.train.texts)[2]) | {"texts": "training"}


def write_peer_data(
    folder: Path, splits: Splits, perturbations: tuple[str, ...], latency_texts: int, seed: int
) -> None:
    """Write the files that peers/run_peer.py reads, unless they exist.

    train.npz, test.npz, test.KIND.npz  sparse rows (indptr, indices, data, shape): sublinear tf-idf of our words
    train.words.txt and so on           the same words as text
    train.labels.npz                    label ids (indptr, values, n_labels)
    texts.json                          the first test texts
    vocabulary.txt, idf.npy             what turns these into rows
    """
    if folder.exists():
        return
    train, test = splits.train, splits.test
    labelled = np.flatnonzero(train.labels.counts)
    with write_folder_atomically(folder) as new:
        labels = train.labels.take(labelled)
        np.savez(new / "train.labels.npz", indptr=labels.indptr, values=labels.values, n_labels=train.n_labels)
        if train.features is not None:
            _write_rows(new / "train.npz", normalize_sparse_rows(sparse.csr_array(train.features))[labelled])
            _write_rows(new / "test.npz", normalize_sparse_rows(sparse.csr_array(test.features)))
            return
        vocabulary, word_ids = Vocabulary.build_and_encode(train.texts)
        words = np.asarray(list(vocabulary.words), object)
        tf_idf = TfIdf.fit(word_ids, len(vocabulary))

        def write_texts(name: str, ids: Ragged) -> None:
            _write_rows(new / f"{name}.npz", tf_idf.transform(ids))
            lines = (" ".join(words[ids.row(i)]) + "\n" for i in range(len(ids)))
            (new / f"{name}.words.txt").write_text("".join(lines), "utf-8")

        write_texts("train", word_ids.take(labelled))
        write_texts("test", vocabulary.encode(test.texts))
        for kind in perturbations:
            write_texts(f"test.{kind}", vocabulary.encode(splits.perturbed(kind, seed)))
        (new / "texts.json").write_bytes(msgspec.json.encode(splits.single_inputs(latency_texts)))
        (new / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
        np.save(new / "idf.npy", tf_idf.idf, allow_pickle=False)


def _write_rows(path: Path, matrix: sparse.csr_array) -> None:
    matrix = matrix.sorted_indices()
    np.savez(
        path,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        data=matrix.data.astype(np.float32),
        shape=np.asarray(matrix.shape, np.int64),
    )
