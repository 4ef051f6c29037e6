"""The linear model that the demo compares with: Omikuji's Parabel over tf-idf, with its default settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omikuji

import shortlist
from shortlist.text import TfIdf, Vocabulary


def train_and_predict(train: shortlist.Dataset, test: shortlist.Dataset, k: int = 5) -> list[list[str]]:
    """The k best labels of each test text, best first."""
    vocabulary, word_ids = Vocabulary.build_and_encode(train.texts)
    tfidf = TfIdf.fit(word_ids, len(vocabulary))
    bounds = zip(train.labels.indptr[:-1], train.labels.indptr[1:], strict=True)
    with tempfile.TemporaryDirectory() as folder, without_output():
        path = Path(folder) / "train.txt"
        with path.open("w") as file:
            file.write(f"{len(train)} {len(vocabulary)} {train.n_labels}\n")
            for (begin, end), pairs in zip(bounds, pairs_of(tfidf.transform(word_ids)), strict=True):
                labels = sorted(train.labels.values[begin:end].tolist())
                words = " ".join(f"{word}:{weight:.6f}" for word, weight in pairs)
                file.write(f"{','.join(map(str, labels))} {words}\n")
        model = omikuji.Model.train_on_data(str(path))
        rows = pairs_of(tfidf.transform(vocabulary.encode(test.texts)))
        return [[train.label_names[label] for label, _ in model.predict(row, top_k=k)] for row in rows]


def pairs_of(rows: Any) -> Iterator[list[tuple[int, float]]]:
    """Columns and values of each row of a sparse matrix."""
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        yield list(zip(rows.indices[begin:end].tolist(), rows.data[begin:end].tolist(), strict=True))


@contextmanager
def without_output() -> Iterator[None]:
    """Omikuji writes a line for every step, and has no option against it."""
    sys.stdout.flush()
    nowhere, kept = os.open(os.devnull, os.O_WRONLY), {number: os.dup(number) for number in (1, 2)}
    for number in kept:
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
