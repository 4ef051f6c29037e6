"""From a text to its words: Unicode normalisation, case, punctuation, stop words.

The rules come down to one table that says for every character whether it is part of a word, ends one,
stands alone, or does not count; a compiled loop does the rest. Only texts with characters beyond ASCII need
Python's Unicode functions first.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.data.texts import Texts
from shortlist.errors import OptionError
from shortlist.kernels.strings import unpack
from shortlist.kernels.words import ALONE, MARK, NOTHING, SPACE, WORD, ascii_rows, cut_pieces, split_words
from shortlist.text.stop_words import ENGLISH_STOP_WORDS

Split = Literal["words", "whitespace"]
Normalisation = Literal["NFKC", "NFC", "none"]

# Scripts written without spaces, where a character is the best simple unit: kana and Chinese characters.
_WRITTEN_WITHOUT_SPACES = (
    (0x3005, 0x3007),
    (0x3031, 0x303C),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)


# Nothing that deserves the name is longer, and for each there is a copy of every text.
LONGEST_BEGINNING = 100


@dataclass(frozen=True)
class Tokenizer:
    """How texts become words.

    split             "words": runs of letters, digits, marks and "_" (Unicode: any language; characters of
                      scripts written without spaces stand alone). "whitespace": whatever spaces separate
    lowercase         whether case is dropped
    normalisation     NFKC makes compatibility forms equal ("ﬁ" and "fi", full width and plain)
    keep_punctuation  with "words", punctuation marks become words of their own; with "whitespace", they stay
                      inside the words. Otherwise they vanish
    stop_words        words to leave out: "english", a list, or none (the default: what is noise in one
                      language carries meaning in another)
    beginnings        instead of each word, its first so many characters, for each of these numbers that it is longer
                      than: a stemmer for any language that bends its words at the end
    pairs             instead of the words, each with the word before it, both by their first so many characters:
                      "ice cream" is more than ice and cream. With beginnings: these and the pairs. 0 for none

    >>> Tokenizer().words("JBL wireless-headphones, 2021!")
    ['jbl', 'wireless', 'headphones', '2021']
    """

    split: Split = "words"
    lowercase: bool = True
    normalisation: Normalisation = "NFKC"
    keep_punctuation: bool = False
    stop_words: str | tuple[str, ...] = ()
    beginnings: tuple[int, ...] = ()
    pairs: int = 0

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise OptionError(f"split is {self.split!r}; it can be {' or '.join(get_args(Split))}")
        if self.normalisation not in get_args(Normalisation):
            raise OptionError(f"normalisation is {self.normalisation!r}; it can be NFKC, NFC or none")
        if isinstance(self.stop_words, str) and self.stop_words != "english":
            raise OptionError(f'stop_words is {self.stop_words!r}; it can be "english" or a list of words')
        for name in ("lowercase", "keep_punctuation"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r:.60}; it can be true or false")
        if not isinstance(self.stop_words, str) and not all(isinstance(word, str) for word in self.stop_words):
            raise OptionError(f'stop_words is {self.stop_words!r:.60}; it can be "english" or a list of words')
        known = {size for size in self.beginnings if isinstance(size, int) and 1 <= size <= LONGEST_BEGINNING}
        if len(known) != len(self.beginnings):
            raise OptionError(f"beginnings is {self.beginnings}; expected numbers of characters, such as (4, 6)")
        if not isinstance(self.pairs, int) or not 0 <= self.pairs <= LONGEST_BEGINNING:
            raise OptionError(f"pairs is {self.pairs!r:.60}; expected a number of characters, such as 4, or 0 for none")
        if not isinstance(self.stop_words, str):
            # Sorted: a set would come in another order, and be saved in another, each time.
            object.__setattr__(self, "stop_words", tuple(sorted(self.stop_words)))

    def words(self, text: str) -> list[str]:
        """The words of one text, stop words left out."""
        stop = self.stop_word_set
        words, ends, _ = self.split_texts(Texts.from_strings([text]))
        bounds = np.concatenate([[0], ends])
        return [word for word in unpack(words, bounds) if word not in stop]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the words of a text stand in it: `text[start:end]`.

        >>> Tokenizer().spans("JBL wireless-headphones")
        [(0, 3), (4, 12), (13, 23)]
        """
        kinds = character_kinds(self.split, self.keep_punctuation)
        spans: list[tuple[int, int]] = []
        inside = False
        for place, character in enumerate(text):
            kind = kinds[ord(character)]
            if kind == SPACE and not character.isascii():  # ℃ or ™, which become letters
                parts = [kinds[ord(part)] for part in self._clean(character)]
                kind = next((part for part in parts if part in (WORD, ALONE)), SPACE)
            if kind == ALONE:
                spans.append((place, place + 1))
            elif inside and kind != SPACE:
                spans[-1] = spans[-1][0], place + 1
            elif kind == WORD:
                spans.append((place, place + 1))
            inside = kind == WORD or (inside and kind in (MARK, NOTHING))
        return spans

    @property
    def stop_word_set(self) -> frozenset[str]:
        """The words to leave out, in the form that words of a text have."""
        return ENGLISH_STOP_WORDS if self.stop_words == "english" else frozenset(map(self._clean, self.stop_words))

    def split_texts(self, texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All words end to end in one byte array, the end of each, and how many each text has.

        Stop words are still there: whoever numbers the words leaves them out.
        """
        texts = self._normalised(texts)
        size = int(texts.offsets[-1] - texts.offsets[0])
        words, ends = np.empty(size, np.uint8), np.empty(size, np.int64)
        counts = np.empty(len(texts), np.int64)
        kinds = character_kinds(self.split, self.keep_punctuation)
        count = split_words(texts.buffer, texts.offsets, kinds, self.lowercase, words, ends, counts)
        words, ends = words[: ends[count - 1] if count else 0], ends[:count]
        if self.beginnings or self.pairs:
            return cut_pieces(words, ends, counts, np.asarray(self.beginnings, np.int64), self.pairs)
        return words, ends, counts

    def _normalised(self, texts: Texts) -> Texts:
        """Texts beyond ASCII normalised and lower-cased; the others as they are."""
        plain = ascii_rows(texts.buffer, texts.offsets)
        if plain.all():
            return texts
        pieces: list[bytes] = []
        sizes = texts.sizes
        done = int(texts.offsets[0])
        for row in np.flatnonzero(~plain):
            start, end = int(texts.offsets[row]), int(texts.offsets[row + 1])
            cleaned = self._clean(texts[int(row)]).encode()
            sizes[row] = len(cleaned)
            pieces += [texts.buffer[done:start].tobytes(), cleaned]
            done = end
        pieces.append(texts.buffer[done : texts.offsets[-1]].tobytes())
        return Texts(np.frombuffer(b"".join(pieces), np.uint8), counts_to_indptr(sizes))

    def _clean(self, text: str) -> str:
        if self.normalisation != "none":
            text = unicodedata.normalize(self.normalisation, text)
        # Python keeps the dot of the Turkish İ as a mark of its own, and İstanbul would not be istanbul.
        return text.replace("İ", "i").lower() if self.lowercase else text

    def to_config(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_config(config: dict[str, Any]) -> Tokenizer:
        stop_words = config.get("stop_words", ())
        lists = {
            "stop_words": stop_words if isinstance(stop_words, str) else tuple(stop_words),
            "beginnings": tuple(config.get("beginnings", ())),
        }
        return Tokenizer(**{**config, **lists})


@lru_cache(maxsize=4)
def character_kinds(split: Split, keep_punctuation: bool) -> np.ndarray:
    """For every Unicode code point, what it is to the tokenizer."""
    categories = _general_categories()
    letters = np.isin(categories, [b"L", b"N"])
    marks = categories == b"M"
    spaces = np.isin(categories, [b"Z", b"C"])
    punctuation = ~letters & ~marks & ~spaces
    kinds = np.full(len(categories), WORD, np.uint8)
    kinds[spaces] = SPACE
    # A mark belongs to the letter before it. Where there is none (an emoji's selector, or what NFKC makes of
    # the accent in "don´t"), it is no word.
    kinds[marks] = MARK
    if split == "words":
        kinds[punctuation] = ALONE if keep_punctuation else SPACE
        kinds[ord("_")] = WORD
        for first, last in _WRITTEN_WITHOUT_SPACES:
            kinds[first : last + 1][letters[first : last + 1]] = ALONE
    elif not keep_punctuation:
        kinds[punctuation] = NOTHING
    # Joiners inside words and soft hyphens are formatting, not separators.
    for joiner in (0x00AD, 0x200C, 0x200D, 0x2060, 0xFEFF):
        kinds[joiner] = NOTHING
    return kinds


@lru_cache(maxsize=1)
def _general_categories() -> np.ndarray:
    """The first letter of every code point's Unicode category: L letter, M mark, N number, P, S, Z, C."""
    categories = np.full(sys.maxunicode + 1, b"C", "S1")
    # Nothing else stands on the planes between: to ask for each of a million code points would take a while.
    for codes in (range(0x40000), range(0xE0000, 0xE1000)):
        categories[codes.start : codes.stop] = [unicodedata.category(chr(code))[0] for code in codes]
    return categories
