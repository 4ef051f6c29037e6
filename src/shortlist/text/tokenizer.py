"""The tokenizer: words in lower case, after Unicode normalisation (NFKC makes "ﬁ" and "fi" equal), without punctuation.

One table says for every character whether it belongs to a word, ends one, is a word by itself, or is dropped. A
compiled loop does the rest. Only texts with non-ASCII characters need Python's Unicode functions.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.errors import OptionError
from shortlist.kernels.strings import unpack
from shortlist.kernels.words import ALONE, MARK, NOTHING, SPACE, WORD, ascii_rows, cut_pieces, split_words
from shortlist.text.texts import Texts

Split = Literal["words", "whitespace"]

ENGLISH_STOP_WORDS = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers herself him himself his how i if in into is it its itself just me more most my myself no nor not
    now of off on once only or other our ours ourselves out over own same she should so some such than that the
    their theirs them themselves then there these they this those through to too under until up very was we were
    what when where which while who whom why will with would you your yours yourself yourselves
    """.split()
)
# Scripts written without spaces (kana and Chinese characters): each character is a word.
SCRIPTS_WITHOUT_SPACES = (
    (0x3005, 0x3007), (0x3031, 0x303C), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip
MAX_PREFIX_LENGTH = 100  # bounds memory: each prefix length makes a copy of every text

# Texts that are ranked together are split once, for all stages.
MAX_REMEMBERED = 512


@dataclass(frozen=True)
class Tokenizer:
    """Splits texts into words, in lower case and without punctuation.

    split                 "words": runs of letters, digits, marks and "_", in any language; characters of scripts
                          written without spaces are words by themselves. "whitespace": split at spaces only
    stop_words            words to leave out: "english", or a list of words
    prefix_lengths        instead of every word, its prefixes of these lengths, if it is longer: a stemmer for
                          languages with inflectional endings
    bigram_prefix_length  instead of the words, all adjacent word pairs, each word cut to a prefix of this length.
                          0: no pairs. With `prefix_lengths`, both prefixes and pairs

    >>> Tokenizer().words("JBL wireless-headphones, 2021!")
    ['jbl', 'wireless', 'headphones', '2021']
    >>> Tokenizer(prefix_lengths=(4,), bigram_prefix_length=4).words("wireless headphones")
    ['wire', 'head', 'wire head']
    """

    split: Split = "words"
    stop_words: str | Sequence[str] = ()
    prefix_lengths: Sequence[int] = ()
    bigram_prefix_length: int = 0

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise OptionError(f"split is {self.split!r:.60}; it can be {' or '.join(get_args(Split))}")
        named = isinstance(self.stop_words, str)
        if self.stop_words != "english" and (named or not all(isinstance(word, str) for word in self.stop_words)):
            raise OptionError(f'stop_words is {self.stop_words!r:.60}; it can be "english" or a list of words')
        lengths = self.prefix_lengths
        if not all(_is_length(length) and length for length in lengths) or len(set(lengths)) != len(lengths):
            raise OptionError(f"prefix_lengths is {lengths}; expected numbers of characters, such as (4, 6)")
        if not _is_length(self.bigram_prefix_length):
            raise OptionError(
                f"bigram_prefix_length is {self.bigram_prefix_length!r:.60}; expected a number of characters, "
                "such as 4, or 0 for no pairs"
            )
        object.__setattr__(self, "prefix_lengths", tuple(lengths))
        if not named:  # sorted, so that a set is always saved in the same order
            object.__setattr__(self, "stop_words", tuple(sorted(self.stop_words)))

    def words(self, text: str) -> list[str]:
        """Return the words of one text without stop words."""
        stop_words = self.stop_word_set
        words, ends, _ = self.split_texts(Texts.from_strings([text]))
        return [word for word in unpack(words, np.concatenate([[0], ends])) if word not in stop_words]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the position of every word, so that `text[start:end]` is the word as written.

        >>> Tokenizer().spans("JBL wireless-headphones")
        [(0, 3), (4, 12), (13, 23)]
        """
        kinds = character_kinds(self.split)
        spans: list[tuple[int, int]] = []
        inside = False
        for position, character in enumerate(text):
            kind = kinds[ord(character)]
            if kind == SPACE and not character.isascii():  # such as ℃ or ™, which are normalised to letters
                normalised = [kinds[ord(letter)] for letter in _normalise(character)]
                kind = next((letter for letter in normalised if letter in (WORD, ALONE)), SPACE)
            if kind == ALONE:
                spans.append((position, position + 1))
            elif inside and kind != SPACE:
                spans[-1] = spans[-1][0], position + 1
            elif kind == WORD:
                spans.append((position, position + 1))
            inside = kind == WORD or (inside and kind in (MARK, NOTHING))
        return spans

    @property
    def stop_word_set(self) -> frozenset[str]:
        """The stop words, normalised like the words of a text."""
        return ENGLISH_STOP_WORDS if self.stop_words == "english" else frozenset(map(_normalise, self.stop_words))

    def split_texts(self, texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all words end to end as bytes, the end of each word, and the number of words of each text.

        Stop words are included: the vocabulary leaves them out.
        """
        if self.split not in texts.split:
            found = self._split_texts(_normalise_texts(texts))
            if len(texts) <= MAX_REMEMBERED:
                texts.split[self.split] = found
        else:
            found = texts.split[self.split]
        words, ends, counts = found
        if self.prefix_lengths or self.bigram_prefix_length:
            return self._cut(words, ends, counts)
        return words, ends, counts

    def _cut(
        self, words: np.ndarray, ends: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lengths = np.asarray(self.prefix_lengths, np.int64)
        pieces = np.empty(len(words) * (len(lengths) + 2) + len(ends), np.uint8)
        piece_ends, piece_counts = np.empty(len(ends) * (len(lengths) + 1), np.int64), np.empty(len(counts), np.int64)
        pair_size = self.bigram_prefix_length
        n = cut_pieces(words, ends, counts, lengths, pair_size, pieces, piece_ends, piece_counts)
        return pieces[: piece_ends[n - 1] if n else 0], piece_ends[:n], piece_counts

    def _split_texts(self, texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = int(texts.offsets[-1] - texts.offsets[0])
        words, ends = np.empty(size, np.uint8), np.empty(size, np.int64)
        counts = np.empty(len(texts), np.int64)
        n_words = split_words(texts.buffer, texts.offsets, character_kinds(self.split), words, ends, counts)
        return words[: ends[n_words - 1] if n_words else 0], ends[:n_words], counts

    def to_config(self) -> dict[str, Any]:
        """Return the options as plain values: `Tokenizer(**config)` gives the same tokenizer."""
        return asdict(self)


def _normalise_texts(texts: Texts) -> Texts:
    """Normalise and lowercase the texts with non-ASCII characters; the kernel lowercases ASCII."""
    is_ascii = np.empty(len(texts), np.bool_)
    ascii_rows(texts.buffer, texts.offsets, is_ascii)
    if is_ascii.all():
        return texts
    pieces: list[bytes] = []
    sizes = texts.sizes
    copied_to = int(texts.offsets[0])
    for row in np.flatnonzero(~is_ascii):
        normalised = _normalise(texts[int(row)]).encode()
        sizes[row] = len(normalised)
        pieces += [texts.buffer[copied_to : texts.offsets[row]].tobytes(), normalised]
        copied_to = int(texts.offsets[row + 1])
    pieces.append(texts.buffer[copied_to : texts.offsets[-1]].tobytes())
    return Texts(np.frombuffer(b"".join(pieces), np.uint8), counts_to_indptr(sizes))


def _normalise(text: str) -> str:
    # str.lower() turns İ into i and a combining dot, so that İstanbul would differ from istanbul.
    return unicodedata.normalize("NFKC", text).replace("İ", "i").lower()


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_PREFIX_LENGTH


@lru_cache(maxsize=2)
def character_kinds(split: Split) -> np.ndarray:
    """Return the kind of every Unicode code point: SPACE, WORD, ALONE, NOTHING or MARK."""
    categories = _general_categories()
    is_letter = np.isin(categories, [b"L", b"N"])
    kinds = np.full(len(categories), SPACE, np.uint8)
    if split == "whitespace":
        kinds[~np.isin(categories, [b"Z", b"C"])] = NOTHING
    kinds[is_letter] = WORD
    # A mark belongs to the letter before it. Without one (an emoji's variation selector, or NFKC's form of the accent
    # in "don´t") it is dropped.
    kinds[categories == b"M"] = MARK
    if split == "words":
        kinds[ord("_")] = WORD
        for first, last in SCRIPTS_WITHOUT_SPACES:
            kinds[first : last + 1][is_letter[first : last + 1]] = ALONE
    # Soft hyphen, joiners and the byte order mark are formatting, not separators.
    kinds[[0x00AD, 0x200C, 0x200D, 0x2060, 0xFEFF]] = NOTHING
    return kinds


@lru_cache(maxsize=1)
def _general_categories() -> np.ndarray:
    """Return the first letter of every code point's Unicode category: L letter, M mark, N number, P, S, Z, C."""
    categories = np.full(sys.maxunicode + 1, b"C", "S1")
    for codes in (range(0x40000), range(0xE0000, 0xE1000)):  # the other planes are unassigned
        of_codes = "".join(map(unicodedata.category, map(chr, codes)))  # two letters each
        categories[codes.start : codes.stop] = np.frombuffer(of_codes.encode(), "S1")[::2]
    return categories
