"""`describe`: what is in a data set, before anything is trained on it.

Counts and spreads in the papers' terms, and what spoils results unseen: repeated texts, test texts that
already stand in training, labels that nobody can learn.
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
NOTHING = "–"
PAPERS_COLUMNS = ("N train", "N test", "L", "points/label", "labels/point", "≤4 words", "≤8 words")


@dataclass(frozen=True)
class Spread:
    """How a count, such as the words of a text, is distributed; all zero where there is nothing to count."""

    mean: float
    median: float
    most: int
    histogram: list[Bucket]


@dataclass(frozen=True)
class Words:
    """What only texts have, and data sets of plain features have not.

    `repeated_texts` stand in the same part before, letter for letter; `repeated_wordings` are those and the
    ones that differ only in case, punctuation or spacing, which a model that sees words cannot tell apart.
    """

    per_text: Spread
    distinct: int
    share_with_at_most_4: float
    share_with_at_most_8: float
    empty_texts: int
    texts_without_words: int
    repeated_texts: int
    repeated_wordings: int


@dataclass(frozen=True)
class AgainstTrain:
    """A held-out part compared with training; "texts" and "wordings" as in `Words`."""

    texts_in_train: int | None
    wordings_in_train: int | None
    labels_not_in_train: int
    pairs_not_in_train: int
    texts_with_no_label_in_train: int


@dataclass(frozen=True)
class Part:
    """One part of a data set. The tail shares are of the labels that occur, with at most so many texts."""

    texts: int
    labels: int
    labels_that_occur: int
    pairs: int
    words: Words | None
    labels_per_text: Spread
    texts_per_label: Spread
    share_of_labels_with_1_text: float
    share_of_labels_with_at_most_2_texts: float
    share_of_labels_with_at_most_5_texts: float
    texts_without_labels: int
    against_train: AgainstTrain | None


@dataclass(frozen=True)
class Description:
    """What `describe` found. The parts are "train" and, where given, "validation" and "test"."""

    parts: dict[str, Part]
    noticed: list[str]

    @property
    def papers(self) -> dict[str, float | None]:
        """The columns of the papers' tables; averages and shares are over training, as there."""
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
        """For a terminal of 80 columns."""
        sections = self._sections()
        all_rows = [row for rows in sections.values() for row in rows.items()]
        names = max(len(name) for name, _ in all_rows)
        widths = [max(map(len, column)) for column in zip(self.parts, *(cells for _, cells in all_rows), strict=True)]

        def line(name: str, cells: list[str]) -> str:
            return f"{name:<{names + 2}}" + "".join(f"  {cell:>{w}}" for cell, w in zip(cells, widths, strict=True))

        lines = [line("", list(self.parts))]
        for title, rows in sections.items():
            lines += [title, *(line(f"  {name}", cells) for name, cells in rows.items())]
        lines += ["", *self._charts(), "", *_papers_lines(self._papers_cells())]
        if self.noticed:
            lines += ["", "noticed while reading"]
            for remark in self.noticed:
                lines += _wrapped(remark)
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """The same for a report: tables, and the histograms as a block of text."""
        blocks = [
            tables.markdown([title, *self.parts], [[name, *cells] for name, cells in rows.items()])
            for title, rows in self._sections().items()
        ]
        blocks.append("\n".join(["```text", *self._charts(), "```"]))
        blocks.append(tables.markdown(list(PAPERS_COLUMNS), [self._papers_cells()]))
        if self.noticed:
            blocks.append("\n".join(["Noticed while reading:", "", *(f"- {line.strip()}" for line in self.noticed)]))
        return "\n\n".join(blocks) + "\n"

    def _sections(self) -> dict[str, dict[str, list[str]]]:
        """Under each title the rows by name, a cell for each part; rows that no part has are left out."""
        by_part = [_cells(part) for part in self.parts.values()]
        sections: dict[str, dict[str, list[str]]] = {}
        for title, names in by_part[0].items():
            rows = {name: [cells[title][name] for cells in by_part] for name in names}
            rows = {name: row for name, row in rows.items() if any(cell != NOTHING for cell in row)}
            if rows:
                sections[title] = rows
        if sections["size"]["labels that occur"] == sections["size"]["labels"]:
            del sections["size"]["labels that occur"]
        return sections

    def _charts(self) -> list[str]:
        train = self.parts["train"]
        spreads = {"labels per text": train.labels_per_text, "texts per label": train.texts_per_label}
        if train.words:
            spreads = {"words per text": train.words.per_text, **spreads}
        of_which = " (train)" if len(self.parts) > 1 else ""
        charts = [chart(title + of_which, spread.histogram, CHART_WIDTH) for title, spread in spreads.items()]
        return side_by_side(charts)

    def _papers_cells(self) -> list[str]:
        *counts, points_per_label, labels_per_point, at_most_4, at_most_8 = self.papers.values()
        cells = [NOTHING if count is None else f"{count:,}" for count in counts]
        cells += [f"{points_per_label:,.2f}", f"{labels_per_point:,.2f}"]
        return cells + [NOTHING if share is None else _share(share) for share in (at_most_4, at_most_8)]


def describe(train: Dataset, test: Dataset | None = None, validation: Dataset | None = None) -> Description:
    """Count what is in a data set, and compare its held-out parts with training.

    >>> data = Dataset.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats", "blue"]])
    >>> describe(data).parts["train"].pairs
    3
    """
    given = {"train": train, "validation": validation, "test": test}
    datasets = {name: dataset for name, dataset in given.items() if dataset is not None}
    vocabulary = StringTable()
    views = {name: _View.of(dataset, vocabulary) for name, dataset in datasets.items()}
    parts = {}
    for name, dataset in datasets.items():
        against_train = None if name == "train" else _compare(dataset, views[name], train, views["train"])
        parts[name] = _describe_part(dataset, views[name], against_train)
    return Description(parts, _noticed(datasets))


@dataclass(frozen=True, eq=False)
class _View:
    """A part's words, and tables of its distinct texts and of its distinct wordings."""

    word_ids: Ragged
    texts: StringTable
    wordings: StringTable

    @staticmethod
    def of(dataset: Dataset, vocabulary: StringTable) -> _View | None:
        if dataset.features is not None:
            return None
        view = _View(_word_ids(dataset, vocabulary), StringTable(), StringTable())
        view.texts.add(dataset.texts.buffer, dataset.texts.offsets)
        view.wordings.add(*view.wording_bytes())
        return view

    def wording_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """Each text's word numbers as bytes: the same for texts with the same words in the same order."""
        return self.word_ids.values.view(np.uint8), self.word_ids.indptr * self.word_ids.values.itemsize


def _word_ids(dataset: Dataset, vocabulary: StringTable) -> Ragged:
    """The words of each text, numbered by a table that all parts share and that leaves no word out."""
    # Imported here: `text` stands on `data`, and only the description looks the other way.
    from shortlist.text.tokenizer import Tokenizer

    tokenizer = Tokenizer()
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(dataset), TEXTS_PER_BLOCK):
        words, ends, per_text = tokenizer.split_texts(dataset.texts[start : start + TEXTS_PER_BLOCK])
        ids.append(vocabulary.add(words, np.concatenate([np.zeros(1, np.int64), ends])))
        counts.append(per_text)
    return Ragged(counts_to_indptr(np.concatenate(counts)), np.concatenate(ids))


def _describe_part(dataset: Dataset, view: _View | None, against_train: AgainstTrain | None) -> Part:
    frequencies = dataset.label_frequencies[dataset.label_frequencies > 0]
    return Part(
        texts=len(dataset),
        labels=dataset.n_labels,
        labels_that_occur=len(frequencies),
        pairs=len(dataset.labels.values),
        words=_describe_words(dataset, view) if view else None,
        labels_per_text=_spread_of(dataset.labels.counts, LABEL_STEPS),
        texts_per_label=_spread_of(frequencies, FREQUENCY_STEPS),
        share_of_labels_with_1_text=_share_of(frequencies <= 1),
        share_of_labels_with_at_most_2_texts=_share_of(frequencies <= 2),
        share_of_labels_with_at_most_5_texts=_share_of(frequencies <= 5),
        texts_without_labels=int(np.count_nonzero(dataset.labels.counts == 0)),
        against_train=against_train,
    )


def _describe_words(dataset: Dataset, view: _View) -> Words:
    per_text = view.word_ids.counts
    return Words(
        per_text=_spread_of(per_text, WORD_STEPS),
        distinct=int(np.count_nonzero(np.bincount(view.word_ids.values))),
        share_with_at_most_4=_share_of(per_text <= 4),
        share_with_at_most_8=_share_of(per_text <= 8),
        empty_texts=int(np.count_nonzero(dataset.texts.sizes == 0)),
        texts_without_words=int(np.count_nonzero(per_text == 0)),
        repeated_texts=len(dataset) - len(view.texts),
        repeated_wordings=len(dataset) - len(view.wordings),
    )


def _compare(part: Dataset, view: _View | None, train: Dataset, train_view: _View | None) -> AgainstTrain:
    texts_in_train = wordings_in_train = None
    if view and train_view:
        found = train_view.texts.find(part.texts.buffer, part.texts.offsets)
        texts_in_train = int(np.count_nonzero(found >= 0))
        found = train_view.wordings.find(*view.wording_bytes())
        wordings_in_train = int(np.count_nonzero(found >= 0))
    known = train.label_frequencies > 0
    ids = (train.label_index.get(name, -1) for name in part.label_names)
    label_in_train = np.asarray([known[i] if i >= 0 else False for i in ids], bool)
    pair_in_train = label_in_train[part.labels.values]
    hopeless = (part.labels.keep(pair_in_train).counts == 0) & (part.labels.counts > 0)
    return AgainstTrain(
        texts_in_train=texts_in_train,
        wordings_in_train=wordings_in_train,
        labels_not_in_train=int(np.count_nonzero(~label_in_train & (part.label_frequencies > 0))),
        pairs_not_in_train=int(np.count_nonzero(~pair_in_train)),
        texts_with_no_label_in_train=int(np.count_nonzero(hopeless)),
    )


def _spread_of(values: np.ndarray, steps: tuple[int, ...]) -> Spread:
    if not len(values):
        return Spread(0.0, 0.0, 0, [])
    return Spread(float(values.mean()), float(np.median(values)), int(values.max()), histogram(values, steps))


def _noticed(datasets: dict[str, Dataset]) -> list[str]:
    """What reading noticed and the table does not show anyway."""
    lines, seen = [], set()
    for name, dataset in datasets.items():
        if id(dataset.report) not in seen:  # parts cut from one data set share its report
            rest = replace(dataset.report, empty_texts=0, texts_without_labels=0)
            lines += [line if line.startswith(" ") else f"{name}: {line}" for line in rest.lines()]
        seen.add(id(dataset.report))
    return lines


def _share_of(mask: np.ndarray) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _cells(part: Part) -> dict[str, dict[str, str]]:
    """One part's column of the table, by title and row."""
    words, against = part.words, part.against_train
    return {
        "size": {
            "texts": f"{part.texts:,}",
            "labels": f"{part.labels:,}",
            "labels that occur": f"{part.labels_that_occur:,}",
            "pairs": f"{part.pairs:,}",
            "distinct words": f"{words.distinct:,}" if words else NOTHING,
        },
        "mean / median / most": {
            "words per text": _spread(words.per_text) if words else NOTHING,
            "labels per text": _spread(part.labels_per_text),
            "texts per label": _spread(part.texts_per_label),
        },
        "short texts": {
            "at most 4 words": _share(words.share_with_at_most_4) if words else NOTHING,
            "at most 8 words": _share(words.share_with_at_most_8) if words else NOTHING,
        },
        # What is rare in a held-out part says nothing: how rare a label is to a model, training decides.
        "rare labels": {
            "1 text": NOTHING if against else _share(part.share_of_labels_with_1_text),
            "at most 2 texts": NOTHING if against else _share(part.share_of_labels_with_at_most_2_texts),
            "at most 5 texts": NOTHING if against else _share(part.share_of_labels_with_at_most_5_texts),
        },
        "worth a look": {
            "empty texts": _count(words and words.empty_texts, part.texts),
            "… or without a word": _count(words and words.texts_without_words, part.texts),
            "texts without labels": _count(part.texts_without_labels, part.texts),
            "repeated texts": _count(words and words.repeated_texts, part.texts),
            "… or the same words": _count(words and words.repeated_wordings, part.texts),
        },
        "against train": {
            "texts also in train": _count(against and against.texts_in_train, part.texts),
            "… or the same words": _count(against and against.wordings_in_train, part.texts),
            "labels not in train": _count(against and against.labels_not_in_train, part.labels_that_occur),
            "pairs with those": _count(against and against.pairs_not_in_train, part.pairs),
            "texts with only those": _count(against and against.texts_with_no_label_in_train, part.texts),
        },
    }


def _count(count: Any, whole: int) -> str:
    """A count and its share of the whole; a dash where there is nothing to count."""
    if not count:
        return NOTHING if count is None else "0"
    return f"{count:,} ({_share(count / whole)})"


def _share(share: float) -> str:
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _spread(spread: Spread) -> str:
    return f"{spread.mean:,.1f} / {spread.median:,g} / {spread.most:,}"


def _wrapped(remark: str) -> list[str]:
    """Cut to 80 columns; but paths stay whole, even where that takes a wider line."""
    return wrap(
        remark, 80, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _papers_lines(cells: list[str]) -> list[str]:
    widths = [max(len(name), len(cell)) for name, cell in zip(PAPERS_COLUMNS, cells, strict=True)]
    rows = (PAPERS_COLUMNS, cells)
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
