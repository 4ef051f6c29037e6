"""`Vocabulary`: which words count, and their numbers.

Words are numbered from the most frequent down. Rare and unknown words can be replaced by their parts
(character n-grams): a misspelt or new word then still says something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.background import in_background
from shortlist.data.texts import Texts
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically
from shortlist.kernels.strings import StringTable
from shortlist.kernels.words import look_up, read_counts
from shortlist.streams import open_binary
from shortlist.text.tokenizer import Tokenizer

TEXTS_PER_BLOCK = 16_384
# For every size of parts there is room for as many as the texts have characters.
LONGEST_PART = 32


class Vocabulary:
    """Words and their ids; ids of parts of words follow after those of the words.

    >>> vocabulary = Vocabulary.build(["red shoes", "red hat"])
    >>> vocabulary.words
    ['red', 'shoes', 'hat']
    >>> vocabulary.encode(["a hat, red"]).values.tolist()
    [2, 0]
    """

    def __init__(
        self,
        words: Sequence[str],
        counts: np.ndarray,
        tokenizer: Tokenizer | None = None,
        parts: Sequence[str] = (),
        part_counts: np.ndarray | None = None,
        part_sizes: tuple[int, int] | None = None,
    ) -> None:
        self.words = words if isinstance(words, Texts) else list(words)
        self.counts = np.asarray(counts, np.int64)
        self.tokenizer = tokenizer or Tokenizer()
        self.parts = list(parts)
        self.part_counts = np.zeros(0, np.int64) if part_counts is None else np.asarray(part_counts, np.int64)
        self.part_sizes = part_sizes

    def __len__(self) -> int:
        """How many ids there are: words and parts."""
        return len(self.words) + len(self.parts)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words):,} words, {len(self.parts):,} parts)"

    @cached_property
    def _tables(self) -> tuple[StringTable, StringTable]:
        """Words (and after them the stop words), and parts."""
        words, parts = StringTable(), StringTable()
        known = Texts.from_strings(self.words)
        words.add(known.buffer, known.offsets)
        parts.add_strings(self.parts)
        if len(words) < len(self.words) or len(parts) < len(self.parts):
            raise DataError("a word stands twice in the vocabulary; its number would be in doubt.")
        words.add_strings(sorted(self.tokenizer.stop_word_set))  # those that are known are there already
        return words, parts

    @staticmethod
    def build(
        texts: Sequence[str],
        tokenizer: Tokenizer | None = None,
        *,
        min_count: int = 1,
        max_words: int | None = None,
        part_sizes: tuple[int, int] | None = None,
    ) -> Vocabulary:
        """The vocabulary of these texts: see `build_and_encode`."""
        return Vocabulary.build_and_encode(
            texts, tokenizer, min_count=min_count, max_words=max_words, part_sizes=part_sizes
        )[0]

    @staticmethod
    def build_and_encode(
        texts: Sequence[str],
        tokenizer: Tokenizer | None = None,
        *,
        min_count: int = 1,
        max_words: int | None = None,
        part_sizes: tuple[int, int] | None = None,
    ) -> tuple[Vocabulary, Ragged]:
        """The vocabulary of these texts and their word ids, in one pass over the texts.

        Words with fewer than `min_count` occurrences are left out, and of the rest all but the `max_words`
        most frequent. With `part_sizes`, say (3, 5), parts of so many characters of the words left out are
        counted and cut in the same way.
        """
        tokenizer = tokenizer or Tokenizer()
        if max_words is not None and max_words < 0:
            raise OptionError(f"max_words is {max_words}; expected how many words to keep at most, or None for all")
        _check_part_sizes(part_sizes, min_count, max_words)
        table, counts, ids, word_counts = _count_words(Texts.from_strings(texts), tokenizer)
        names = table.strings()
        allowed = counts >= min_count
        stop_words = tokenizer.stop_word_set
        for word in stop_words:
            if (known := int(table.find_strings([word])[0])) >= 0:
                allowed[known] = False
        # Stable: equally frequent words stay in the order in which they were met.
        by_frequency = np.argsort(-counts, kind="stable")
        kept = by_frequency[allowed[by_frequency]][:max_words]
        parts: list[str] = []
        part_counts = None
        if part_sizes:
            left_out = np.setdiff1d(np.arange(len(names)), kept)
            rare = {names[i]: int(counts[i]) for i in left_out if names[i] not in stop_words}
            parts, part_counts = _count_parts(rare, part_sizes, min_count)
        vocabulary = Vocabulary([names[i] for i in kept], counts[kept], tokenizer, parts, part_counts, part_sizes)
        if parts:
            return vocabulary, vocabulary.encode(texts)
        new_id = np.full(len(names) + 1, -1, np.int32)
        new_id[kept] = np.arange(len(kept))
        encoded = Ragged(counts_to_indptr(word_counts), new_id[ids])
        return vocabulary, encoded.keep(encoded.values >= 0)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The word ids of each text, in the order of its words; unknown words are left out, or taken apart."""
        blocks = [self._encode_block(block) for block in _blocks(Texts.from_strings(texts))]
        return Ragged.concatenate(blocks)

    def _encode_block(self, texts: Texts) -> Ragged:
        words, ends, word_counts = self.tokenizer.split_texts(texts)
        shortest, longest = self.part_sizes or (0, 0)
        # Parts start at every character of a word and its two marks, one for each size.
        most = len(ends) + (len(words) + 2 * len(ends)) * (longest - shortest + 1 if longest else 0)
        ids, id_counts = np.empty(most, np.int32), np.empty(len(texts), np.int64)
        filled = look_up(
            self._tables[0].arrays,
            len(self.words),
            self._tables[1].arrays,
            shortest,
            longest,
            words,
            ends,
            word_counts,
            ids,
            id_counts,
        )
        return Ragged(counts_to_indptr(id_counts), ids[:filled].copy())

    def save(self, path: str | Path) -> None:
        """As plain text: a word, a tab and its count a line; parts follow after an empty line."""
        with write_atomically(path) as file:
            for word, count in zip(self.words, self.counts.tolist(), strict=True):
                file.write(f"{word}\t{count}\n".encode())
            if self.part_sizes:
                file.write(b"\n")
            for part, count in zip(self.parts, self.part_counts.tolist(), strict=True):
                file.write(f"{part}\t{count}\n".encode())

    @staticmethod
    def load(path: str | Path, config: dict[str, Any]) -> Vocabulary:
        """Read what `save` wrote; `config` is what `to_config` gave."""
        with open_binary(path) as file:
            return Vocabulary.of_content(file.read(), path, config)

    @staticmethod
    def of_content(content: bytes, path: str | Path, config: dict[str, Any]) -> Vocabulary:
        """As `load`, where the content of the file is there already; `path` is for messages."""
        data = np.frombuffer(content, np.uint8)
        words, n_lines = np.empty(len(data), np.uint8), content.count(b"\n") + 1
        ends, counts = np.zeros(n_lines + 1, np.int64), np.empty(n_lines, np.int64)
        n_words, n_all, wrong = read_counts(data, words, ends[1:], counts)
        if not wrong:
            wrong = _line_beyond_utf8(content)
        if wrong:
            raise DataError(f"{path}, line {wrong}: expected a word, a tab and its count.")
        n_words = n_all if n_words < 0 else n_words
        sizes = config.get("part_sizes")
        if sizes is not None:
            _check_sizes(sizes)
        vocabulary = Vocabulary(
            Texts(words, ends[: n_words + 1]),
            counts[:n_words],
            Tokenizer.from_config(config["tokenizer"]),
            Texts(words, ends[n_words : n_all + 1]),
            counts[n_words:n_all],
            tuple(sizes) if sizes else None,
        )
        _ = vocabulary._tables  # now, and not with the first text: a word may stand twice
        return vocabulary

    def to_config(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer.to_config(), "part_sizes": self.part_sizes}


def _line_beyond_utf8(content: bytes) -> int:
    """The first line, from 1, that is not UTF-8; 0 for none."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    return 0


def _check_part_sizes(part_sizes: tuple[int, int] | None, min_count: int, max_words: int | None) -> None:
    if part_sizes is None:
        return
    _check_sizes(part_sizes)
    if min_count < 2 and max_words is None:
        raise OptionError(
            "parts are learnt from words that are left out, and none are: set min_count to 2 or more, or max_words"
        )


def _check_sizes(sizes: Any) -> None:
    """A compiled loop puts parts where these leave room for them."""
    whole = all(isinstance(size, int) for size in sizes) and len(sizes) == 2
    if not whole or not 1 <= sizes[0] <= sizes[1] <= LONGEST_PART:
        raise OptionError(
            f"part_sizes is {sizes!r:.60}; expected the shortest and the longest part, such as (3, 5), of "
            f"{LONGEST_PART} characters at most"
        )


def _count_words(texts: Texts, tokenizer: Tokenizer) -> tuple[StringTable, np.ndarray, np.ndarray, np.ndarray]:
    """Every distinct word, its count, and the texts in terms of them."""
    table = StringTable()
    ids, word_counts = [], []
    for words, ends, per_text in in_background(tokenizer.split_texts(block) for block in _blocks(texts)):
        ids.append(table.add(words, np.concatenate([np.zeros(1, np.int64), ends])))
        word_counts.append(per_text)
    all_ids = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    counts = np.bincount(all_ids, minlength=len(table)).astype(np.int64)
    return table, counts, all_ids, np.concatenate(word_counts) if word_counts else np.zeros(0, np.int64)


def _count_parts(words: dict[str, int], sizes: tuple[int, int], min_count: int) -> tuple[list[str], np.ndarray]:
    found: Counter[str] = Counter()
    for word, count in words.items():
        stem = f"<{word}>"
        for first in range(len(stem)):
            for last in range(first + sizes[0], min(first + sizes[1], len(stem)) + 1):
                found[stem[first:last]] += count
    kept = [(part, count) for part, count in found.most_common() if count >= min_count]
    return [part for part, _ in kept], np.asarray([count for _, count in kept], np.int64)


def _blocks(texts: Texts) -> Iterator[Texts]:
    for start in range(0, len(texts), TEXTS_PER_BLOCK):
        yield texts[start : start + TEXTS_PER_BLOCK]
