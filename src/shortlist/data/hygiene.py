"""Common mistakes in data: `findings` names them with counts and advice, `fix` repairs what can be repaired."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.builder import drop_repeated_labels
from shortlist.data.dataset import Dataset
from shortlist.data.records import ReadReport, shorten
from shortlist.data.split import merge_identical_texts
from shortlist.kernels.strings import StringTable
from shortlist.text.texts import Texts

FIX = "`shortlist data convert --fix`"
TEXTS_SAMPLED = 2000
MIN_TEXTS_LIKE_IDS = 0.8
MIN_REPEATED_TEXTS = 0.05
MIN_LABELS_WITH_SEPARATOR = 0.5
SEPARATORS = (";", "|", "\t", ",")
NATURAL_SEPARATORS = (",",)  # many good labels contain a comma
# No space, at least one digit: numbers, article codes, UUIDs, addresses.
LOOKS_LIKE_ID = re.compile(r"(?=\S*\d)[\w.:/#?=&%-]{3,}")


class Fixed(NamedTuple):
    """A repaired data set, and what was done."""

    dataset: Dataset
    done: list[str]


def findings(dataset: Dataset) -> list[str]:
    """What looks wrong in a data set, and what to do about it.

    >>> data = Dataset.from_lists(["red shoes", "blue shoes", "hat"], [["Shoes"], ["shoes"], ["hats"]])
    >>> print(*findings(data))  # doctest: +ELLIPSIS
    1 label differs from another only in case or spaces, such as 'Shoes' and 'shoes'. To merge: ...
    """
    found = []
    if separator := wrong_separator(dataset):
        count, example = _labels_with(separator, dataset)
        found.append(
            f"{_count(count, 'label contains', 'labels contain')} {separator!r}, such as {shorten(example)}. If it "
            f"separates labels, read the data with label_separator={separator!r} (--label-separator)."
        )
    elif spellings := _spellings(dataset):
        count = sum(len(names) - 1 for names in spellings)
        found.append(
            f"{_count(count, 'label differs', 'labels differ')} from another only in case or spaces, such as "
            f"{shorten(spellings[0][0])} and {shorten(spellings[0][1])}. To merge: {FIX}."
        )
    if dataset.display_names and not dataset.display_names.keys() & dataset.label_index.keys():
        one, other = next(iter(dataset.display_names)), dataset.label_names[0] if dataset.label_names else ""
        found.append(
            f"None of the labels has a name: the names are for labels such as {shorten(one)}, and the labels are such "
            f"as {shorten(other)}. Are these the right label_names (--label-names)?"
        )
    if dataset.features is not None or not len(dataset):
        return found
    if empty := int(np.count_nonzero(_is_blank(dataset.texts))):
        found.append(f"{_count(empty, 'text is', 'texts are')} empty: nothing can be learned. To drop: {FIX}.")
    sample = dataset.texts.take(np.linspace(0, len(dataset) - 1, min(len(dataset), TEXTS_SAMPLED)).astype(int))
    ids = [text for text in sample if LOOKS_LIKE_ID.fullmatch(text.strip())]
    if len(ids) >= MIN_TEXTS_LIKE_IDS * len(sample):
        found.append(
            f"{100 * len(ids) / len(sample):.0f} % of the texts look like ids, such as {shorten(ids[0])}. "
            "Is this the right field? Choose another with text= (--text)."
        )
    repeated = _repeated_texts(dataset) if dataset.labels.counts.max() == 1 else 0
    if repeated >= max(MIN_REPEATED_TEXTS * len(dataset), 1):
        found.append(
            f"Every row has one label, and {_count(repeated, 'row repeats', 'rows repeat')} an earlier text. To get "
            f"one row per text, with all of its labels: {FIX}."
        )
    return found


def fix(dataset: Dataset) -> Fixed:
    """Split labels that contain a separator, merge spellings, drop empty texts, and merge identical texts.

    >>> fixed = fix(Dataset.from_lists(["red shoes", "", "red shoes"], [["Shoes"], ["hats"], ["shoes", "red"]]))
    >>> fixed.dataset.labels_of(0), fixed.done[-1]
    (['Shoes', 'red'], 'merged 1 row into an earlier one with the same text')
    """
    done = []
    dataset = replace(dataset, report=ReadReport(dataset.report.on_error))
    # Rows of label features belong to the labels as they are.
    if dataset.label_features is None:
        if separator := wrong_separator(dataset):
            count, _ = _labels_with(separator, dataset)
            done.append(f"split {_count(count, 'label', 'labels')} at {separator!r}")
            dataset = _rename(dataset, [_split(name, separator) for name in dataset.label_names])
        if spellings := _spellings(dataset):
            kept = {name: _most_frequent(names, dataset) for names in spellings for name in names}
            for names in spellings:
                others = ", ".join(shorten(name) for name in names if name != kept[name])
                done.append(f"merged {others} into {shorten(kept[names[0]])}")
            dataset = _rename(dataset, [[kept.get(name, name)] for name in dataset.label_names])
    if dataset.features is not None:
        return Fixed(dataset, done)
    is_blank = _is_blank(dataset.texts)
    if is_blank.any():
        done.append(f"dropped {_count(int(is_blank.sum()), 'empty text', 'empty texts')}")
        dataset = dataset.take(np.flatnonzero(~is_blank)).without_unused_labels()
    merged = merge_identical_texts(dataset)
    if len(merged) < len(dataset):
        rows = _count(len(dataset) - len(merged), "row into an earlier one", "rows into earlier ones")
        done.append(f"merged {rows} with the same text")
    return Fixed(merged, done)


def wrong_separator(dataset: Dataset) -> str | None:
    """A separator that is probably inside labels by mistake; None if there is none."""
    names = [dataset.label_names[label] for label in np.flatnonzero(dataset.label_frequencies)]
    for separator in SEPARATORS:
        with_separator = sum(len(_split(name, separator)) > 1 for name in names)
        if not names or with_separator < MIN_LABELS_WITH_SEPARATOR * len(names):
            continue
        # Lists of labels repeat their labels; names that contain a comma do not.
        labels = {label for name in names for label in _split(name, separator)}
        if separator not in NATURAL_SEPARATORS or len(labels) < len(names):
            return separator
    return None


def _labels_with(separator: str, dataset: Dataset) -> tuple[int, str]:
    """How many labels contain the separator, and the first of them."""
    names = [name for name in dataset.label_names if len(_split(name, separator)) > 1]
    return len(names), names[0]


def _split(name: str, separator: str) -> list[str]:
    return [part for part in map(str.strip, name.split(separator)) if part] or [name]


def _spellings(dataset: Dataset) -> list[list[str]]:
    """Groups of labels that differ only in case or spaces."""
    groups = defaultdict(list)
    for name in dataset.label_names:
        groups["".join(name.split()).casefold()].append(name)
    return [names for names in groups.values() if len(names) > 1]


def _most_frequent(names: list[str], dataset: Dataset) -> str:
    return max(names, key=lambda name: dataset.label_frequencies[dataset.label_index[name]])


def _rename(dataset: Dataset, new_names: list[list[str]]) -> Dataset:
    """Replace label i by all of `new_names[i]`. Of labels that are now repeated within a text, the first stays."""
    ids: dict[str, int] = {}
    values = [ids.setdefault(name, len(ids)) for names in new_names for name in names]
    replacements = Ragged(counts_to_indptr([len(names) for names in new_names]), np.asarray(values, np.int32))
    taken = replacements.take(dataset.labels.values)
    weights = dataset.labels.weights
    weights = None if weights is None else np.repeat(weights, taken.counts)
    labels = Ragged(taken.indptr[dataset.labels.indptr], taken.values, weights)
    pairs = dataset.filter_pairs
    if pairs is not None:
        filtered = replacements.take(pairs[:, 1])
        pairs = np.column_stack([np.repeat(pairs[:, 0], filtered.counts), filtered.values])
    old_names = zip(dataset.label_names, new_names, strict=True)
    display = {new[0]: dataset.display_names[old] for old, new in old_names if old in dataset.display_names}
    return replace(
        dataset,
        labels=drop_repeated_labels(labels, len(ids), dataset.report),
        label_names=list(ids),
        display_names={**display, **dataset.display_names},
        filter_pairs=pairs,
    )


def _is_blank(texts: Texts) -> np.ndarray:
    return np.fromiter((not text or text.isspace() for text in texts), bool, len(texts))


def _repeated_texts(dataset: Dataset) -> int:
    ids = StringTable().add(dataset.texts.buffer, dataset.texts.offsets)
    return len(ids) - len(np.unique(ids))


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
