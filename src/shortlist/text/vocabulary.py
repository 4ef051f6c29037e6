"""`Vocabulary`: the words that a model knows, and their ids.

Ids are ordered by descending frequency. Rare and unknown words can be replaced by their subwords (character n-grams),
so that misspelt and new words still contribute; or all words can be accompanied by theirs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.background import in_background
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically
from shortlist.kernels.strings import StringTable
from shortlist.kernels.words import look_up
from shortlist.streams import read_blocks
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer

TEXTS_PER_BLOCK = 16_384
MAX_SUBWORD_LENGTH = 32  # bounds memory: encoding reserves one id per character for each subword length
# Lines of a word, a tab and its count; those of subwords follow after an empty line. Possessive: it never backtracks.
# Python 3.10 has no possessive patterns; there, the same match takes more memory.
_NO_BACK = rb"+" if sys.version_info >= (3, 11) else rb""
_LINES = rb"((?:[^\t\n]+%b\t[0-9]{1,18}%b\n)*%b)" % (_NO_BACK, _NO_BACK, _NO_BACK)
VOCABULARY_FILE = re.compile(_LINES + rb"(?:\n" + _LINES + rb")?" + _NO_BACK)


class Vocabulary:
    """Words, subwords and their ids; the ids of subwords follow those of the words.

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
        subwords: Sequence[str] = (),
        subword_counts: np.ndarray | Sequence[int] = (),
        subword_lengths: tuple[int, int] | None = None,
        subwords_of_all: bool = False,
        n_added: int = 0,
    ) -> None:
        """
        n_added  how many of the last words were added after training: no encoder has learnt them
        """
        self.words = words if isinstance(words, Texts) else list(words)
        self.counts = np.asarray(counts, np.int64)
        self.tokenizer = tokenizer or Tokenizer()
        self.subwords = list(subwords)
        self.subword_counts = np.asarray(subword_counts, np.int64)
        self.subword_lengths, self.subwords_of_all = subword_lengths, subwords_of_all
        self.n_added = n_added

    def __len__(self) -> int:
        """The number of ids: words and subwords."""
        return len(self.words) + len(self.subwords)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words):,} words, {len(self.subwords):,} subwords)"

    @cached_property
    def _tables(self) -> tuple[StringTable, StringTable]:
        """The ids of the words (and after them the stop words), and of the subwords."""
        words, subwords = (
            StringTable.of_distinct(texts.buffer, texts.offsets)
            for texts in map(Texts.from_strings, (self.words, self.subwords))
        )
        if words is None or subwords is None:
            raise DataError("a word occurs twice in the vocabulary; every word must have one id.")
        words.add_strings(sorted(self.tokenizer.stop_word_set))  # keeps the id of a stop word that is also a word
        return words, subwords

    @staticmethod
    def build(texts: Sequence[str], tokenizer: Tokenizer | None = None, **options: Any) -> Vocabulary:
        """Build a vocabulary from texts; the options are those of `build_and_encode`."""
        return Vocabulary.build_and_encode(texts, tokenizer, **options)[0]

    @staticmethod
    def build_and_encode(
        texts: Sequence[str],
        tokenizer: Tokenizer | None = None,
        *,
        min_count: int = 1,
        max_words: int | None = None,
        subword_lengths: tuple[int, int] | None = None,
        subwords_of_all: bool = False,
    ) -> tuple[Vocabulary, Ragged]:
        """Build a vocabulary from texts and return it with their word ids, in one pass over the texts.

        tokenizer        splits the texts into words; the default tokenizer if None
        min_count        leave out words (and subwords) that occur less often
        max_words        keep only this many of the most frequent words
        subword_lengths  shortest and longest subword, such as (3, 5): words that are left out are replaced by their
                         subwords
        subwords_of_all  the subwords of all words follow them, not only those of words that are left out

        >>> vocabulary, word_ids = Vocabulary.build_and_encode(["red shoes", "red hat"], min_count=2)
        >>> vocabulary.words, word_ids.values.tolist()
        (['red'], [0, 0])
        """
        tokenizer = tokenizer or Tokenizer()
        if max_words is not None and max_words < 0:
            raise OptionError(f"max_words is {max_words}; expected the number of words to keep, or None for all")
        if subword_lengths is not None:
            _check_subword_lengths(subword_lengths)
            if min_count < 2 and max_words is None and not subwords_of_all:
                raise OptionError(
                    "subwords are learnt from words that are left out of the vocabulary, and none are: "
                    "set min_count to 2 or more, or max_words; or let the subwords of all words follow them"
                )
        table = StringTable()
        word_ids = number_words(Texts.from_strings(texts), tokenizer, table)
        names, counts = table.strings(), np.bincount(word_ids.values, minlength=len(table))
        is_stop_word = np.isin(np.arange(len(names)), table.find_strings(sorted(tokenizer.stop_word_set)))
        by_frequency = np.argsort(-counts, kind="stable")  # ties keep the order of first occurrence
        kept = by_frequency[((counts >= min_count) & ~is_stop_word)[by_frequency]][:max_words]
        subwords: Counter[str] = Counter()
        if subword_lengths:
            is_divided = ~is_stop_word
            is_divided[kept] &= subwords_of_all
            subwords = _count_subwords({names[i]: int(counts[i]) for i in np.flatnonzero(is_divided)}, subword_lengths)
        frequent = {subword: count for subword, count in subwords.most_common() if count >= min_count}
        vocabulary = Vocabulary(
            [names[i] for i in kept],
            counts[kept],
            tokenizer,
            [*frequent],
            [*frequent.values()],
            subword_lengths,
            subwords_of_all,
        )
        if frequent:
            return vocabulary, vocabulary.encode(texts)
        new_id = np.full(len(names) + 1, -1, np.int32)
        new_id[kept] = np.arange(len(kept))
        encoded = Ragged(word_ids.indptr, new_id[word_ids.values])
        return vocabulary, encoded.keep(encoded.values >= 0)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the word ids of each text in the order of its words.

        Unknown words are replaced by their known subwords if the vocabulary has any, and left out otherwise. With
        `subwords_of_all`, known words are followed by theirs.
        """
        blocks = [self._encode_block(block) for block in _blocks(Texts.from_strings(texts))]
        return blocks[0] if len(blocks) == 1 else Ragged.concatenate(blocks)

    def _encode_block(self, texts: Texts) -> Ragged:
        words, ends, words_per_text = self.tokenizer.split_texts(texts)
        shortest, longest = self.subword_lengths or (0, 0)
        # Subwords of each length start at every character of a word and of its two boundary marks.
        n_lengths = longest - shortest + 1 if longest else 0
        ids = np.empty(len(ends) + (len(words) + 2 * len(ends)) * n_lengths, np.int32)
        ids_per_text = np.empty(len(texts), np.int64)
        word_table, subword_table = (table.arrays for table in self._tables)
        n_ids = look_up(
            word_table, len(self.words), subword_table, shortest, longest, self.subwords_of_all,
            words, ends, words_per_text, ids, ids_per_text,
        )  # fmt: skip
        return Ragged(counts_to_indptr(ids_per_text), ids[:n_ids].copy())

    @property
    def n_learnt(self) -> int:
        """The number of ids that encoders have learnt: those before the added words."""
        return len(self) - self.n_added

    def is_known(self, words: list[str]) -> np.ndarray:
        """Whether each of these words has an id, or is a stop word."""
        return self._tables[0].find_strings(words) >= 0

    def learnt(self, ids: Ragged) -> Ragged:
        """These word ids without those of added words."""
        return ids.keep(ids.values < self.n_learnt) if self.n_added else ids

    def with_words(self, words: Sequence[str], counts: np.ndarray) -> Vocabulary:
        """A vocabulary with further words behind its own; there must be no subwords, whose ids follow."""
        assert not self.subword_lengths
        both = Texts.concatenate([Texts.from_strings(self.words), Texts.from_strings(words)])
        return Vocabulary(both, np.append(self.counts, counts), self.tokenizer, n_added=self.n_added + len(words))

    def known_share(self, texts: Sequence[str], seen: np.ndarray | None = None) -> np.ndarray:
        """Return the share of each text's words that have an id; 0 for a text without words.

        With `seen`, which has a truth value for each id, only words that are seen count. Stop words are always known.

        >>> Vocabulary.build(["red shoes"]).known_share(["red hat", ""]).tolist()
        [0.5, 0.0]
        """
        words, ends, words_per_text = self.tokenizer.split_texts(Texts.from_strings(texts))
        ids = self._tables[0].find(words, np.concatenate([np.zeros(1, np.int64), ends]))
        is_known = ids >= 0
        if seen is not None:
            has_id = is_known & (ids < len(self.words))
            is_known[has_id] = seen[ids[has_id]]
        if len(words_per_text) == 1:  # a single text must be quick
            return np.array([is_known.mean() if len(is_known) else 0.0])
        n_known = np.diff(counts_to_indptr(is_known)[counts_to_indptr(words_per_text)])
        return n_known / np.maximum(words_per_text, 1)

    def save(self, path: str | Path) -> None:
        """Write a text file: one word, a tab and its count per line; subwords follow after an empty line."""
        with write_atomically(path) as file:
            for word, count in zip(self.words, self.counts.tolist(), strict=True):
                file.write(f"{word}\t{count}\n".encode())
            if self.subword_lengths:
                file.write(b"\n")
            for subword, count in zip(self.subwords, self.subword_counts.tolist(), strict=True):
                file.write(f"{subword}\t{count}\n".encode())

    @staticmethod
    def load(path: str | Path, config: dict[str, Any]) -> Vocabulary:
        """Read the file that `save` wrote; `config` is the result of `to_config`."""
        return Vocabulary.from_bytes(b"".join(read_blocks(path)), path, config)

    @staticmethod
    def from_bytes(content: bytes, path: str | Path, config: dict[str, Any]) -> Vocabulary:
        """Like `load`, from the content of the file; `path` is named in error messages."""
        lines = VOCABULARY_FILE.match(content)
        assert lines is not None  # it may be empty
        end = lines.end()
        try:
            content.decode()
        except UnicodeDecodeError as error:
            end = min(end, error.start)
        if end < len(content):
            bad_line = content.count(b"\n", 0, end) + 1
            raise DataError(f"{path}, line {bad_line}: expected a word, a tab and its count.")
        (words, counts), (subwords, subword_counts) = _parse_counts(lines[1]), _parse_counts(lines[2] or b"")
        lengths = config.get("subword_lengths")
        if lengths is not None:
            _check_subword_lengths(lengths)
        vocabulary = Vocabulary(
            words,
            counts,
            Tokenizer(**config["tokenizer"]),
            subwords,
            subword_counts,
            tuple(lengths) if lengths else None,
            bool(config.get("subwords_of_all")),
            config.get("n_added", 0),
        )
        if not isinstance(vocabulary.n_added, int) or not 0 <= vocabulary.n_added <= len(words):
            raise DataError(f"{path}: n_added is {vocabulary.n_added!r:.60}; expected at most {len(words):,} words")
        _ = vocabulary._tables  # refuses duplicates now, not with the first prediction
        return vocabulary

    def to_config(self) -> dict[str, Any]:
        """Return what `load` needs beside the file, as plain values."""
        subwords = {"subword_lengths": self.subword_lengths, "subwords_of_all": self.subwords_of_all}
        added = {"n_added": self.n_added} if self.n_added else {}
        return {"tokenizer": self.tokenizer.to_config(), **subwords, **added}


def _parse_counts(lines: bytes) -> tuple[Texts, np.ndarray]:
    """The words and counts of lines that match `_LINES`, without a Python object for each: this is most of loading."""
    content = np.frombuffer(lines, np.uint8)
    tabs, ends = np.flatnonzero(content == ord("\t")), np.flatnonzero(content == ord("\n"))
    starts = np.append(0, ends + 1)[:-1]
    counts, n_digits = np.zeros(len(ends), np.int64), ends - tabs - 1
    for place in range(n_digits.max(initial=0)):
        counts += np.where(place < n_digits, 10**place * (content[ends - 1 - place].astype(np.int64) - ord("0")), 0)
    lengths = np.column_stack([tabs - starts, n_digits + 2]).ravel()  # of words, and of what follows them
    is_word = np.repeat(np.tile([True, False], len(ends)), lengths)
    return Texts(content[is_word], counts_to_indptr(tabs - starts)), counts


def _check_subword_lengths(lengths: Any) -> None:
    """Refuse lengths that `look_up` has no room for: a compiled loop checks nothing."""
    are_two = len(lengths) == 2 and all(isinstance(length, int) for length in lengths)
    if not are_two or not 1 <= lengths[0] <= lengths[1] <= MAX_SUBWORD_LENGTH:
        raise OptionError(
            f"subword_lengths is {lengths!r:.60}; expected the shortest and the longest length, such as (3, 5), "
            f"at most {MAX_SUBWORD_LENGTH}"
        )


def number_words(texts: Texts, tokenizer: Tokenizer, table: StringTable) -> Ragged:
    """Return the words of each text, numbered by the table; new words are added to it."""
    ids, words_per_text = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for words, ends, counts in in_background(tokenizer.split_texts(block) for block in _blocks(texts)):
        ids.append(table.add(words, np.concatenate([np.zeros(1, np.int64), ends])))
        words_per_text.append(counts)
    return Ragged(counts_to_indptr(np.concatenate(words_per_text)), np.concatenate(ids))


def _count_subwords(word_counts: dict[str, int], lengths: tuple[int, int]) -> Counter[str]:
    subwords: Counter[str] = Counter()
    for word, count in word_counts.items():
        marked = f"<{word}>"
        for start in range(len(marked)):
            for end in range(start + lengths[0], min(start + lengths[1], len(marked)) + 1):
                subwords[marked[start:end]] += count
    return subwords


def _blocks(texts: Texts) -> Iterator[Texts]:
    if len(texts) <= TEXTS_PER_BLOCK:
        yield texts  # it may remember its words
        return
    for start in range(0, len(texts), TEXTS_PER_BLOCK):
        yield texts[start : start + TEXTS_PER_BLOCK]
