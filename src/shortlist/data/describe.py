"""`describe`: what is in a data set, before you train on it.

Counts and distributions as in the literature's tables, and what distorts results unnoticed: repeated texts, test texts
that occur in training, labels that cannot be learned.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

import msgspec
import numpy as np

from shortlist import tables
from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.hygiene import findings
from shortlist.kernels.strings import StringTable
from shortlist.text.same_words import number_sequences

Part = dict[str, Any]

CHART_WIDTH = 24
NONE = "–"
BLOCKS = "▏▎▍▌▋▊▉█"
# With the papers' 4 and 8 words, and the 32 words at which encoders truncate.
WORD_STEPS = (0, 1, 3, 5, 7, 9, 13, 17, 33, 100)
LABEL_STEPS = (0, 1, 2, 3, 4, 5, 10, 30, 100)
# Label frequencies span orders of magnitude: two steps per power of ten.
FREQUENCY_STEPS = (0, 1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
PAPER_COLUMNS = ("N train", "N test", "L", "points/label", "labels/point", "≤4 words", "≤8 words")
# The table, by section and row: the field of a part, and its format ("of FIELD": a count and its share of that field).
SECTIONS = {
    "size": {
        "texts": ("texts", "count"),
        "labels": ("labels", "count"),
        "labels that occur": ("labels_that_occur", "count"),
        "pairs": ("pairs", "count"),
        "distinct words": ("words.distinct", "count"),
    },
    "mean / median / max": {
        "words per text": ("words.per_text", "distribution"),
        "labels per text": ("labels_per_text", "distribution"),
        "texts per label": ("texts_per_label", "distribution"),
    },
    "short texts": {
        "at most 4 words": ("words.share_with_at_most_4", "percent"),
        "at most 8 words": ("words.share_with_at_most_8", "percent"),
    },
    "rare labels": {
        "1 text": ("share_of_labels_with_1_text", "percent"),
        "at most 2 texts": ("share_of_labels_with_at_most_2_texts", "percent"),
        "at most 5 texts": ("share_of_labels_with_at_most_5_texts", "percent"),
    },
    "possible problems": {
        "empty texts": ("words.empty_texts", "of texts"),
        "… or without a word": ("words.texts_without_words", "of texts"),
        "texts without labels": ("texts_without_labels", "of texts"),
        "repeated texts": ("words.repeated_texts", "of texts"),
        "… or the same words": ("words.repeated_word_sequences", "of texts"),
    },
    "compared with train": {
        "texts also in train": ("against_train.texts_in_train", "of texts"),
        "… or the same words": ("against_train.word_sequences_in_train", "of texts"),
        "labels not in train": ("against_train.labels_not_in_train", "of labels_that_occur"),
        "pairs with those": ("against_train.pairs_not_in_train", "of pairs"),
        "texts with only those": ("against_train.texts_with_no_label_in_train", "of texts"),
    },
}


@dataclass(frozen=True)
class Description:
    """The result of `describe`. The parts are "train" and, if given, "validation" and "test".

    The fields of a part are those of `SECTIONS`. `words` is None for data sets with features, `against_train` is None
    for the training part, and shares are between 0 and 1. `words.repeated_texts` are equal to an earlier text of the
    part; `words.repeated_word_sequences` also counts texts that differ from an earlier one only in case, punctuation or
    spacing: a model of words cannot tell them apart.
    """

    parts: dict[str, Part]
    warnings: list[str]

    @property
    def papers(self) -> dict[str, float | None]:
        """The columns of the papers' data set tables. Averages and shares are of the training part, as there."""
        train, test = self.parts["train"], self.parts.get("test")
        return {
            "train_texts": train["texts"],
            "test_texts": test["texts"] if test else None,
            "labels": train["labels"],
            "points_per_label": train["pairs"] / train["labels"] if train["labels"] else 0.0,
            "labels_per_point": train["labels_per_text"]["mean"],
            "share_with_at_most_4_words": _get(train, "words.share_with_at_most_4"),
            "share_with_at_most_8_words": _get(train, "words.share_with_at_most_8"),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers."""
        return {"papers": self.papers, **msgspec.to_builtins(self)}

    def __str__(self) -> str:
        return self.table()

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

    def _sections(self) -> dict[str, dict[str, list[str]]]:
        """The cells by section and row, one per part, without rows that no part has."""
        sections = {}
        for title, fields in SECTIONS.items():
            rows = {name: [_cell(part, *field) for part in self.parts.values()] for name, field in fields.items()}
            sections[title] = {name: cells for name, cells in rows.items() if set(cells) != {NONE}}
        if sections["size"]["labels that occur"] == sections["size"]["labels"]:
            del sections["size"]["labels that occur"]
        return {title: rows for title, rows in sections.items() if rows}

    def _charts(self) -> list[str]:
        train = self.parts["train"]
        suffix = " (train)" if len(self.parts) > 1 else ""
        shown = {name: _get(train, field) for name, (field, _) in SECTIONS["mean / median / max"].items()}
        charts = {f"{name}{suffix}": counts["histogram"] for name, counts in shown.items() if counts}
        return side_by_side([chart(title, buckets, CHART_WIDTH) for title, buckets in charts.items()])

    def _paper_cells(self) -> list[str]:
        formats = ["count", "count", "count", "average", "average", "percent", "percent"]
        return [_format(value, kind) for value, kind in zip(self.papers.values(), formats, strict=True)]


def describe(train: Dataset, test: Dataset | None = None, validation: Dataset | None = None) -> Description:
    """Describe a data set, and compare its held-out parts with the training part.

    >>> data = Dataset.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats", "blue"]])
    >>> describe(data).parts["train"]["pairs"]
    3
    """
    given = {"train": train, "validation": validation, "test": test}
    datasets = {name: dataset for name, dataset in given.items() if dataset is not None}
    tables = [StringTable() for _ in range(3)]
    ids = {name: _TextIds.build(dataset, tables) for name, dataset in datasets.items()}
    parts = {}
    for name, dataset in datasets.items():
        parts[name] = _describe_part(dataset, ids[name])
        if name != "train":
            parts[name]["against_train"] = _compare(dataset, ids[name], train, ids["train"])
    return Description(parts, _warnings(datasets))


@dataclass(frozen=True, eq=False)
class _TextIds:
    """The word ids of a part, and one id per text, the same for equal texts and for equal word sequences."""

    words: Ragged
    texts: np.ndarray
    sequences: np.ndarray

    @staticmethod
    def build(dataset: Dataset, tables: list[StringTable]) -> _TextIds | None:
        """Number words, texts and sequences by tables that all parts share; None for a data set with features."""
        if dataset.features is not None:
            return None
        words, texts, sequences = tables
        ids, numbers = number_sequences(dataset.texts, words, sequences)
        return _TextIds(ids, texts.add(dataset.texts.buffer, dataset.texts.offsets), numbers)


def _describe_part(dataset: Dataset, ids: _TextIds | None) -> Part:
    frequencies = dataset.label_frequencies[dataset.label_frequencies > 0]
    return {
        "texts": len(dataset),
        "labels": dataset.n_labels,
        "labels_that_occur": len(frequencies),
        "pairs": len(dataset.labels.values),
        "words": _describe_words(dataset, ids) if ids else None,
        "labels_per_text": _distribution(dataset.labels.counts, LABEL_STEPS),
        "texts_per_label": _distribution(frequencies, FREQUENCY_STEPS),
        "share_of_labels_with_1_text": _share(frequencies <= 1),
        "share_of_labels_with_at_most_2_texts": _share(frequencies <= 2),
        "share_of_labels_with_at_most_5_texts": _share(frequencies <= 5),
        "texts_without_labels": int(np.count_nonzero(dataset.labels.counts == 0)),
        "against_train": None,
    }


def _describe_words(dataset: Dataset, ids: _TextIds) -> dict[str, Any]:
    counts = ids.words.counts
    return {
        "per_text": _distribution(counts, WORD_STEPS),
        "distinct": int(np.count_nonzero(np.bincount(ids.words.values))),
        "share_with_at_most_4": _share(counts <= 4),
        "share_with_at_most_8": _share(counts <= 8),
        "empty_texts": int(np.count_nonzero(dataset.texts.sizes == 0)),
        "texts_without_words": int(np.count_nonzero(counts == 0)),
        "repeated_texts": len(dataset) - len(np.unique(ids.texts)),
        "repeated_word_sequences": len(dataset) - len(np.unique(ids.sequences)),
    }


def _distribution(values: np.ndarray, steps: tuple[int, ...]) -> dict[str, Any]:
    if not len(values):
        return {"mean": 0.0, "median": 0.0, "max": 0, "histogram": []}
    mean, median = float(values.mean()), float(np.median(values))
    return {"mean": mean, "median": median, "max": int(values.max()), "histogram": histogram(values, steps)}


def _share(mask: np.ndarray) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _compare(part: Dataset, ids: _TextIds | None, train: Dataset, train_ids: _TextIds | None) -> dict[str, int | None]:
    texts_in_train = sequences_in_train = None
    if ids and train_ids:
        texts_in_train = int(np.isin(ids.texts, train_ids.texts).sum())
        sequences_in_train = int(np.isin(ids.sequences, train_ids.sequences).sum())
    known = {name for name, count in zip(train.label_names, train.label_frequencies, strict=True) if count}
    is_known = np.asarray([name in known for name in part.label_names], bool)
    pair_is_known = is_known[part.labels.values]
    has_no_known_label = (part.labels.keep(pair_is_known).counts == 0) & (part.labels.counts > 0)
    return {
        "texts_in_train": texts_in_train,
        "word_sequences_in_train": sequences_in_train,
        "labels_not_in_train": int(np.count_nonzero(~is_known & (part.label_frequencies > 0))),
        "pairs_not_in_train": int(np.count_nonzero(~pair_is_known)),
        "texts_with_no_label_in_train": int(np.count_nonzero(has_no_known_label)),
    }


def _warnings(datasets: dict[str, Dataset]) -> list[str]:
    """What the reader reported, except for what the table shows; and what looks wrong."""
    # Parts that were split from one data set share its report.
    reports = {id(dataset.report): (name, dataset.report) for name, dataset in reversed(datasets.items())}
    lines = []
    for name, report in reversed(reports.values()):
        rest = replace(report, empty_texts=0, texts_without_labels=0)
        lines += [line if line.startswith(" ") else f"{name}: {line}" for line in rest.lines()]
    return lines + [f"{name}: {line}" for name, dataset in datasets.items() for line in findings(dataset)]


def _get(part: Part, field: str) -> Any:
    """The value of a field such as "texts" or "words.distinct"; None if the part does not have it."""
    value: Any = part
    for name in field.split("."):
        value = value and value[name]
    return value


def _cell(part: Part, field: str, kind: str) -> str:
    if part["against_train"] and field.startswith("share_of_labels"):
        return NONE  # only the training part decides how rare a label is for a model
    count = _get(part, field)
    total = part[kind.removeprefix("of ")] if kind.startswith("of ") else None
    if total is None:
        return _format(count, kind)
    return f"{count:,} ({_format(count / total, 'percent')})" if count else _format(count, "count")


def _format(value: Any, kind: str) -> str:
    if value is None:
        return NONE
    if kind == "distribution":
        return f"{value['mean']:,.1f} / {value['median']:,g} / {value['max']:,}"
    if kind == "percent":
        return "<0.1 %" if 0 < value < 0.0005 else f"{100 * value:.1f} %"
    return f"{value:,.2f}" if kind == "average" else f"{value:,}"


@dataclass(frozen=True)
class Bucket:
    """The number of values from `first` to `last`, both included. `last` is None in a bucket without upper bound."""

    first: int
    last: int | None
    count: int

    @property
    def name(self) -> str:
        if self.last is None:
            return f"{_short(self.first)}+"
        if self.first == self.last:
            return _short(self.first)
        # Thousands are rounded: 1K–3K ends at 2,999.
        return f"{_short(self.first)}–{_short(self.last if self.last < 1000 else self.last + 1)}"


def histogram(values: np.ndarray, steps: Sequence[int]) -> list[Bucket]:
    """Count the values between one step and the next, without the empty buckets at both ends.

    >>> [(bucket.name, bucket.count) for bucket in histogram(np.array([1, 2, 2, 7]), (0, 1, 2, 3, 10))]
    [('1', 1), ('2', 2), ('3–9', 1)]
    """
    counts = np.bincount(np.searchsorted(steps, values, side="right") - 1, minlength=len(steps)).tolist()
    lasts = [step - 1 for step in steps[1:]] + [None]
    buckets = [Bucket(*bucket) for bucket in zip(steps, lasts, counts, strict=True)]
    filled = [position for position, bucket in enumerate(buckets) if bucket.count]
    return buckets[filled[0] : filled[-1] + 1] if filled else []


def words_per_text(counts: np.ndarray) -> dict[str, Any]:
    """The distribution of words per text, for a JSON file."""
    buckets = [{"name": bucket.name, "count": bucket.count} for bucket in histogram(counts, WORD_STEPS)]
    return {"histogram": buckets, "mean": float(counts.mean()), "median": float(np.median(counts))}


def chart(title: str, buckets: Sequence[Bucket], width: int) -> list[str]:
    """Lines of exactly `width` characters: the name of each bucket, a bar, and its share of all values."""
    name_width = max((len(bucket.name) for bucket in buckets), default=0)
    total = sum(bucket.count for bucket in buckets)
    highest = max((bucket.count for bucket in buckets), default=0)
    bar_width = width - name_width - len(" 100 %") - 1
    lines = [title[:width].ljust(width)]
    for bucket in buckets:
        # In eighths of a character, and at least one of them if there is anything to show.
        eighths = max(round(8 * bar_width * bucket.count / highest), min(bucket.count, 1))
        bar = BLOCKS[-1] * (eighths // 8) + (BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
        percent = "<1 %" if 0 < 200 * bucket.count < total else f"{100 * bucket.count / total:.0f} %"
        lines.append(f"{bucket.name:>{name_width}} {bar:<{bar_width}}{percent:>6}")
    return lines


def side_by_side(charts: Sequence[Sequence[str]], gap: str = "   ") -> list[str]:
    """Charts beside each other, each as wide as its first line."""
    columns = [[line.ljust(len(lines[0])) for line in lines] for lines in charts]
    blank = [" " * len(lines[0]) for lines in charts]
    rows = itertools.zip_longest(*columns)
    return [gap.join(line or empty for line, empty in zip(row, blank, strict=True)).rstrip() for row in rows]


def _short(number: int) -> str:
    return str(number) if number < 1000 else f"{number // 1000}K"
