"""The data of a comparison: its two parts, a checksum, what there is to say about them, and the peers' files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.describe import describe
from shortlist.data.histogram import words_per_text
from shortlist.data.read import parts_of, read
from shortlist.data.split import split
from shortlist.data.texts import Texts
from shortlist.errors import DataError
from shortlist.evaluation.filters import most_per_text
from shortlist.files import write_folder_atomically
from shortlist.lazy import sparse
from shortlist.text import TfIdf, Tokenizer, Vocabulary
from shortlist.text.bag import unit_rows
from shortlist.text.disturbed import disturbed

# What is cut off for the test where the data has no test part.
TEST_SHARE = 0.2
PLACES, LARGEST_K = 10, 5
RANKS_SHOWN = 50


@dataclass(frozen=True, eq=False)
class Parts:
    """A training and a test part over the training labels: labels that occur in the test part alone are left out."""

    name: str
    train: Dataset
    test: Dataset
    cut: bool  # whether the test part was cut from the rest here
    unseen: dict[str, int]  # labels, pairs and texts of the test part that training knows nothing of
    as_given: Dataset  # the test part with these

    @staticmethod
    def read(source: str, seed: int, reading: dict[str, Any] | None = None) -> Parts:
        """The parts of a folder; of anything that has no test part, a fifth is held out by the seed."""
        path, reading = Path(source), reading or {}
        there = parts_of(path) if path.is_dir() else []
        if there and "train" not in there:
            raise DataError(f"{source} has no train part, only {' and '.join(there)}.")
        train = read(source, "train" if there else None, **reading)
        if "test" in there:
            test, cut = read(source, "test", **reading), False
        else:
            both = split(train, test=TEST_SHARE, seed=seed)
            train, test, cut = both.train, both.test, True
        for part, dataset in (("train", train), ("test", test)):
            if not len(dataset.labels.values):
                raise DataError(f"{source}: no text of its {part} part has a label.")
        known = test.relabelled(train.label_names)
        known = known if known.display_names else _named_as(known, train)
        in_train = train.label_frequencies[known.labels.values] > 0
        kept = known.labels.keep(in_train)
        unseen = {
            "labels": int(np.count_nonzero(test.label_frequencies)) - len(np.unique(kept.values)),
            "pairs": len(test.labels.values) - len(kept.values),
            "texts": int(np.count_nonzero((kept.counts == 0) & (test.labels.counts > 0))),
        }
        if not len(kept.values):
            raise DataError(f"{source}: no label of the test part occurs in the train part.")
        return Parts(path.resolve().name, train, known, cut, unseen, test)

    def checksum(self) -> str:
        """Of all that a system learns from or is measured on."""
        digest = xxhash.xxh3_128()
        for part in (self.train, self.test):
            texts, labels = part.texts, part.labels
            arrays = [texts.buffer[texts.offsets[0] : texts.offsets[-1]], texts.sizes, labels.indptr, labels.values]
            if part.filter_pairs is not None:
                arrays.append(part.filter_pairs)
            if part.features is not None:
                rows = sparse.csr_array(part.features)
                arrays += [rows.indptr, rows.indices, rows.data]
            for array in arrays:
                digest.update(f"{array.shape};".encode())
                digest.update(np.ascontiguousarray(array).data)
        for name in self.train.label_names:
            digest.update(f"{name}\n{self.train.display_name(name)}\n".encode())
        return digest.hexdigest()

    @property
    def places(self) -> int:
        """How many labels each system ranks: some more where pairs that must not count may be among them."""
        pairs = self.test.filter_pairs
        return max(PLACES, LARGEST_K + (0 if pairs is None else most_per_text(pairs[:, 0])))

    @property
    def inputs(self) -> Any:
        """What a model is given to predict."""
        return self.test.texts if self.test.features is None else self.test.features

    def facts(self) -> dict[str, Any]:
        """What there is to say about the data, as JSON holds it."""
        train, test = self.train, self.test
        frequencies = np.sort(train.label_frequencies[train.label_frequencies > 0])[::-1]
        ranks = np.unique(np.geomspace(1, len(frequencies), min(RANKS_SHOWN, len(frequencies))).astype(int))
        return {
            "name": self.name,
            "checksum": self.checksum(),
            "train_texts": len(train),
            "test_texts": len(test),
            "test_texts_that_count": int(np.count_nonzero(test.labels.counts)),
            "test_part": "cut from the data here, at random" if self.cut else "as given",
            "unseen_in_training": self.unseen,
            "labels": len(frequencies),
            "labels_per_text": float(train.labels.counts.mean()),
            "texts_per_label": float(frequencies.mean()),
            "label_frequencies": {
                "median": float(np.median(frequencies)),
                "most": int(frequencies[0]),
                "share_with_1_text": float((frequencies == 1).mean()),
                "share_with_at_most_5_texts": float((frequencies <= 5).mean()),
                "by_rank": [[int(rank), int(frequencies[rank - 1])] for rank in ranks],
            },
            "description": msgspec.to_builtins(describe(train, test).to_json()),
        }

    def words_per_text(self) -> dict[str, Any]:
        """How many training texts have how many words."""
        if self.train.features is not None:
            return {}
        return words_per_text(Tokenizer().split_texts(self.train.texts)[2]) | {"texts": "training"}


def _named_as(test: Dataset, train: Dataset) -> Dataset:
    test.display_names = train.display_names
    return test


def write_peers_data(folder: Path, parts: Parts, ways: tuple[str, ...], latency_texts: int, seed: int) -> None:
    """The files that the peers' scripts read, once, all or nothing.

    train.npz, test.npz and test.WAY.npz hold sparse rows (indptr, indices, data, shape): tf-idf, sublinear, of words
    as we cut them; train.labels.npz the labels' numbers (indptr, values, n_labels); .words.txt the same words as
    text; texts.json the first test texts as they are, vocabulary.txt and idf.npy what makes rows of them.
    """
    if folder.exists():
        return
    train, test = parts.train, parts.test
    labelled = np.flatnonzero(train.labels.counts)
    with write_folder_atomically(folder) as beside:
        labels = train.labels.take(labelled)
        np.savez(beside / "train.labels.npz", indptr=labels.indptr, values=labels.values, n_labels=train.n_labels)
        if train.features is not None:
            _write_rows(beside / "train.npz", unit_rows(sparse.csr_array(train.features))[labelled])
            _write_rows(beside / "test.npz", unit_rows(sparse.csr_array(test.features)))
            return
        vocabulary, word_ids = Vocabulary.build_and_encode(train.texts)
        tf_idf = TfIdf.fit(word_ids, len(vocabulary))

        def put(name: str, ids: Ragged) -> None:
            _write_rows(beside / f"{name}.npz", tf_idf.transform(ids))
            words = np.asarray(list(vocabulary.words), object)
            lines = (" ".join(words[ids.row(i)]) + "\n" for i in range(len(ids)))
            (beside / f"{name}.words.txt").write_text("".join(lines), "utf-8")

        put("train", word_ids.take(labelled))
        put("test", vocabulary.encode(test.texts))
        for way in ways:
            put(f"test.{way}", vocabulary.encode(disturbed(test.texts, way, seed)))
        (beside / "texts.json").write_bytes(msgspec.json.encode(first_texts(test.texts, latency_texts)))
        (beside / "vocabulary.txt").write_text("".join(f"{word}\n" for word in vocabulary.words), "utf-8")
        np.save(beside / "idf.npy", tf_idf.idf, allow_pickle=False)


def first_texts(texts: Texts, count: int) -> list[str]:
    """The texts that are predicted one at a time, for their times."""
    return [texts[i] for i in range(min(count, len(texts)))]


def _write_rows(path: Path, matrix: sparse.csr_array) -> None:
    matrix = matrix.sorted_indices()
    np.savez(
        path,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        data=matrix.data.astype(np.float32),
        shape=np.asarray(matrix.shape, np.int64),
    )
