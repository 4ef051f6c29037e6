"""`describe`: what is in a data set, before you train on it.

Counts and distributions as in the literature's tables, and what distorts results unnoticed: repeated texts, test texts
that occur in training, labels that cannot be learned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any

import numpy as np

from shortlist import tables
from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.histogram import FREQUENCY_STEPS, LABEL_STEPS, WORD_STEPS, Bucket, chart, histogram, side_by_side
from shortlist.kernels.strings import StringTable

TEXTS_PER_BLOCK = 16_384
CHART_WIDTH = 24
NONE = "–"
PAPER_COLUMNS = ("N train", "N test", "L", "points/label", "labels/point", "≤4 words", "≤8 words")


@dataclass(frozen=True)
class Distribution:
    """Of a count, such as words per text. All zero if there is nothing to count."""

    mean: float
    median: float
    max: int
    histogram: list[Bucket]

    @staticmethod
    def of(values: np.ndarray, steps: tuple[int, ...]) -> Distribution:
        if not len(values):
            return Distribution(0.0, 0.0, 0, [])
        return Distribution(float(values.mean()), float(np.median(values)), int(values.max()), histogram(values, steps))

    def __str__(self) -> str:
        return f"{self.mean:,.1f} / {self.median:,g} / {self.max:,}"


@dataclass(frozen=True)
class Words:
    """Facts about texts; data sets with features have none.

    `repeated_texts` are equal to an earlier text of the same part. `repeated_word_sequences` also counts texts that
    differ from an earlier one only in case, punctuation or spacing: a model of words cannot tell them apart.
    """

    per_text: Distribution
    distinct: int
    share_with_at_most_4: float
    share_with_at_most_8: float
    empty_texts: int
    texts_without_words: int
    repeated_texts: int
    repeated_word_sequences: int


@dataclass(frozen=True)
class AgainstTrain:
    """A held-out part compared with the training part; texts and word sequences as in `Words`."""

    texts_in_train: int | None
    word_sequences_in_train: int | None
    labels_not_in_train: int
    pairs_not_in_train: int
    texts_with_no_label_in_train: int


@dataclass(frozen=True)
class Part:
    """One part of a data set. `share_of_labels_…` are shares of the labels that occur in it."""

    texts: int
    labels: int
    labels_that_occur: int
    pairs: int
    words: Words | None
    labels_per_text: Distribution
    texts_per_label: Distribution
    share_of_labels_with_1_text: float
    share_of_labels_with_at_most_2_texts: float
    share_of_labels_with_at_most_5_texts: float
    texts_without_labels: int
    against_train: AgainstTrain | None


@dataclass(frozen=True)
class Description:
    """The result of `describe`. The parts are "train" and, if given, "validation" and "test"."""

    parts: dict[str, Part]
    warnings: list[str]

    @property
    def papers(self) -> dict[str, float | None]:
        """The columns of the papers' data set tables. Averages and shares are of the training part, as there."""
        train, test = self.parts["train"], self.parts.get("test")
        return {
            "train_texts": train.texts,
            "test_texts": test.texts if test else None,
            "labels": train.labels,
            "points_per_label": train.pairs / train.labels if train.labels else 0.0,
            "labels_per_point": train.labels_per_text.mean,
            "share_with_at_most_4_words": train.words.share_with_at_most_4 if train.words else None,
            "share_with_at_most_8_words": train.words.share_with_at_most_8 if train.words else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers; shares are between 0 and 1."""
        return {"papers": self.papers, **asdict(self)}

    def table(self) -> str:
        """Text for a terminal of 80 columns."""
        rows = []
        for title, section in self._sections().items():
            rows.append([title, *[""] * len(self.parts)])
            rows += [[f"  {name}", *cells] for name, cells in section.items()]
        blocks = [tables.plain(["", *self.parts], rows), "\n".join(self._charts())]
        blocks.append(tables.plain(PAPER_COLUMNS, [self._paper_cells()]))
        if self.warnings:
            # Wrap at 80 columns, but do not break paths.
            indent: Any = {"initial_indent": "  ", "subsequent_indent": "    "}
            whole: Any = {"break_long_words": False, "break_on_hyphens": False}
            lines = [line for warning in self.warnings for line in wrap(warning, 80, **indent, **whole)]
            blocks.append("\n".join(["warnings", *lines]))
        return "\n\n".join(blocks)

    def to_markdown(self) -> str:
        """The same as Markdown, for a report."""
        blocks = [
            tables.markdown([title, *self.parts], [[name, *cells] for name, cells in rows.items()])
            for title, rows in self._sections().items()
        ]
        blocks.append("\n".join(["```text", *self._charts(), "```"]))
        blocks.append(tables.markdown(PAPER_COLUMNS, [self._paper_cells()]))
        if self.warnings:
            blocks.append("\n".join(["Warnings:", "", *(f"- {line.strip()}" for line in self.warnings)]))
        return "\n\n".join(blocks) + "\n"

    def _sections(self) -> dict[str, dict[str, list[str]]]:
        """Rows by title and name, one cell per part, without rows that no part has."""
        by_part = [_cells(part) for part in self.parts.values()]
        sections: dict[str, dict[str, list[str]]] = {}
        for title, names in by_part[0].items():
            rows = {name: [cells[title][name] for cells in by_part] for name in names}
            rows = {name: row for name, row in rows.items() if set(row) != {NONE}}
            if rows:
                sections[title] = rows
        if sections["size"]["labels that occur"] == sections["size"]["labels"]:
            del sections["size"]["labels that occur"]
        return sections

    def _charts(self) -> list[str]:
        train = self.parts["train"]
        shown = {"labels per text": train.labels_per_text, "texts per label": train.texts_per_label}
        if train.words:
            shown = {"words per text": train.words.per_text, **shown}
        suffix = " (train)" if len(self.parts) > 1 else ""
        return side_by_side([chart(title + suffix, counts.histogram, CHART_WIDTH) for title, counts in shown.items()])

    def _paper_cells(self) -> list[str]:
        *counts, points_per_label, labels_per_point, at_most_4, at_most_8 = self.papers.values()
        cells = [NONE if count is None else f"{count:,}" for count in counts]
        cells += [f"{points_per_label:,.2f}", f"{labels_per_point:,.2f}"]
        return [*cells, _percent(at_most_4), _percent(at_most_8)]


def describe(train: Dataset, test: Dataset | None = None, validation: Dataset | None = None) -> Description:
    """Describe a data set, and compare its held-out parts with the training part.

    >>> data = Dataset.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats", "blue"]])
    >>> describe(data).parts["train"].pairs
    3
    """
    given = {"train": train, "validation": validation, "test": test}
    datasets = {name: dataset for name, dataset in given.items() if dataset is not None}
    vocabulary = StringTable()
    indexes = {name: _TextIndex.build(dataset, vocabulary) for name, dataset in datasets.items()}
    parts = {}
    for name, dataset in datasets.items():
        against = None if name == "train" else _compare(dataset, indexes[name], train, indexes["train"])
        parts[name] = _describe_part(dataset, indexes[name], against)
    return Description(parts, _warnings(datasets))


@dataclass(frozen=True, eq=False)
class _TextIndex:
    """The word ids of a part, and its distinct texts and word sequences."""

    word_ids: Ragged
    texts: StringTable
    sequences: StringTable

    @staticmethod
    def build(dataset: Dataset, vocabulary: StringTable) -> _TextIndex | None:
        if dataset.features is not None:
            return None
        index = _TextIndex(_word_ids(dataset, vocabulary), StringTable(), StringTable())
        index.texts.add(dataset.texts.buffer, dataset.texts.offsets)
        index.sequences.add(*index.sequence_bytes())
        return index

    def sequence_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """The word ids of each text as bytes, equal for texts with the same words in the same order."""
        return self.word_ids.values.view(np.uint8), self.word_ids.indptr * self.word_ids.values.itemsize


def _word_ids(dataset: Dataset, vocabulary: StringTable) -> Ragged:
    """The words of each text, numbered by a table of all words that the parts share."""
    # Imported here because `text` imports `data`; only the description needs the opposite direction.
    from shortlist.text.tokenizer import Tokenizer

    tokenizer = Tokenizer()
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(dataset), TEXTS_PER_BLOCK):
        words, ends, words_per_text = tokenizer.split_texts(dataset.texts[start : start + TEXTS_PER_BLOCK])
        ids.append(vocabulary.add(words, np.concatenate([np.zeros(1, np.int64), ends])))
        counts.append(words_per_text)
    return Ragged(counts_to_indptr(np.concatenate(counts)), np.concatenate(ids))


def _describe_part(dataset: Dataset, index: _TextIndex | None, against_train: AgainstTrain | None) -> Part:
    frequencies = dataset.label_frequencies[dataset.label_frequencies > 0]
    return Part(
        texts=len(dataset),
        labels=dataset.n_labels,
        labels_that_occur=len(frequencies),
        pairs=len(dataset.labels.values),
        words=_describe_words(dataset, index) if index else None,
        labels_per_text=Distribution.of(dataset.labels.counts, LABEL_STEPS),
        texts_per_label=Distribution.of(frequencies, FREQUENCY_STEPS),
        share_of_labels_with_1_text=_share(frequencies <= 1),
        share_of_labels_with_at_most_2_texts=_share(frequencies <= 2),
        share_of_labels_with_at_most_5_texts=_share(frequencies <= 5),
        texts_without_labels=int(np.count_nonzero(dataset.labels.counts == 0)),
        against_train=against_train,
    )


def _describe_words(dataset: Dataset, index: _TextIndex) -> Words:
    counts = index.word_ids.counts
    return Words(
        per_text=Distribution.of(counts, WORD_STEPS),
        distinct=int(np.count_nonzero(np.bincount(index.word_ids.values))),
        share_with_at_most_4=_share(counts <= 4),
        share_with_at_most_8=_share(counts <= 8),
        empty_texts=int(np.count_nonzero(dataset.texts.sizes == 0)),
        texts_without_words=int(np.count_nonzero(counts == 0)),
        repeated_texts=len(dataset) - len(index.texts),
        repeated_word_sequences=len(dataset) - len(index.sequences),
    )


def _compare(part: Dataset, index: _TextIndex | None, train: Dataset, train_index: _TextIndex | None) -> AgainstTrain:
    texts_in_train = sequences_in_train = None
    if index and train_index:
        texts_in_train = int(np.sum(train_index.texts.find(part.texts.buffer, part.texts.offsets) >= 0))
        sequences_in_train = int(np.sum(train_index.sequences.find(*index.sequence_bytes()) >= 0))
    known = {name for name, count in zip(train.label_names, train.label_frequencies, strict=True) if count}
    is_known = np.asarray([name in known for name in part.label_names], bool)
    pair_is_known = is_known[part.labels.values]
    has_no_known_label = (part.labels.keep(pair_is_known).counts == 0) & (part.labels.counts > 0)
    return AgainstTrain(
        texts_in_train=texts_in_train,
        word_sequences_in_train=sequences_in_train,
        labels_not_in_train=int(np.count_nonzero(~is_known & (part.label_frequencies > 0))),
        pairs_not_in_train=int(np.count_nonzero(~pair_is_known)),
        texts_with_no_label_in_train=int(np.count_nonzero(has_no_known_label)),
    )


def _warnings(datasets: dict[str, Dataset]) -> list[str]:
    """What the reader reported, except for what the table shows."""
    # Parts that were split from one data set share its report.
    reports = {id(dataset.report): (name, dataset.report) for name, dataset in reversed(datasets.items())}
    lines = []
    for name, report in reversed(reports.values()):
        rest = replace(report, empty_texts=0, texts_without_labels=0)
        lines += [line if line.startswith(" ") else f"{name}: {line}" for line in rest.lines()]
    return lines


def _share(mask: np.ndarray) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _cells(part: Part) -> dict[str, dict[str, str]]:
    """The table column of one part, by title and row."""
    words, against = part.words, part.against_train
    return {
        "size": {
            "texts": f"{part.texts:,}",
            "labels": f"{part.labels:,}",
            "labels that occur": f"{part.labels_that_occur:,}",
            "pairs": f"{part.pairs:,}",
            "distinct words": f"{words.distinct:,}" if words else NONE,
        },
        "mean / median / max": {
            "words per text": str(words.per_text) if words else NONE,
            "labels per text": str(part.labels_per_text),
            "texts per label": str(part.texts_per_label),
        },
        "short texts": {
            "at most 4 words": _percent(words and words.share_with_at_most_4),
            "at most 8 words": _percent(words and words.share_with_at_most_8),
        },
        # Only for the training part, which decides how rare a label is for a model.
        "rare labels": {
            "1 text": NONE if against else _percent(part.share_of_labels_with_1_text),
            "at most 2 texts": NONE if against else _percent(part.share_of_labels_with_at_most_2_texts),
            "at most 5 texts": NONE if against else _percent(part.share_of_labels_with_at_most_5_texts),
        },
        "possible problems": {
            "empty texts": _count(words and words.empty_texts, part.texts),
            "… or without a word": _count(words and words.texts_without_words, part.texts),
            "texts without labels": _count(part.texts_without_labels, part.texts),
            "repeated texts": _count(words and words.repeated_texts, part.texts),
            "… or the same words": _count(words and words.repeated_word_sequences, part.texts),
        },
        "compared with train": {
            "texts also in train": _count(against and against.texts_in_train, part.texts),
            "… or the same words": _count(against and against.word_sequences_in_train, part.texts),
            "labels not in train": _count(against and against.labels_not_in_train, part.labels_that_occur),
            "pairs with those": _count(against and against.pairs_not_in_train, part.pairs),
            "texts with only those": _count(against and against.texts_with_no_label_in_train, part.texts),
        },
    }


def _count(count: Any, total: int) -> str:
    """A count and its share of the total."""
    if not count:
        return NONE if count is None else "0"
    return f"{count:,} ({_percent(count / total)})"


def _percent(share: Any) -> str:
    if share is None:
        return NONE
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
