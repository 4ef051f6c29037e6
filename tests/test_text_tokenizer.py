"""The tokenizer, in many languages, against a slow version that reads one character at a time."""

from __future__ import annotations

import itertools
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data import Texts
from shortlist.errors import OptionError
from shortlist.kernels.words import ALONE
from shortlist.text import Tokenizer, Vocabulary
from shortlist.text.tokenizer import ENGLISH_STOP_WORDS, _general_categories, character_kinds

# Prefixes of the Unicode names of characters in scripts written without spaces.
ALONE_NAMES = (
    "CJK UNIFIED",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA",
    "KATAKANA",
    "HENTAIGANA",
    "HALFWIDTH KATAKANA",
    "IDEOGRAPHIC ITERATION",
    "IDEOGRAPHIC CLOSING",
    "IDEOGRAPHIC NUMBER",
    "VERTICAL IDEOGRAPHIC",
    "VERTICAL KANA",
    "MASU",
    "HANGZHOU NUMERAL TEN",  # these three are among the kana marks
    "HANGZHOU NUMERAL TWENTY",
    "HANGZHOU NUMERAL THIRTY",
)
FORMATTING = "\u00ad\u200c\u200d\u2060\ufeff"


def is_word_by_itself(character):
    return unicodedata.category(character)[0] in "LN" and unicodedata.name(character, "").startswith(ALONE_NAMES)


def slow_words(text, split="words"):
    words, word = [], ""
    for character in unicodedata.normalize("NFKC", text).replace("İ", "i").lower():
        kind = unicodedata.category(character)[0]
        letter = kind in "LN" or (character == "_" and split == "words")
        if character in FORMATTING:
            continue
        if kind == "M":
            word += character if word else ""
        elif letter and (split == "whitespace" or not is_word_by_itself(character)):
            word += character
        elif split == "whitespace" and kind not in "ZC":
            continue
        else:
            words += [word] if word else []
            word = ""
            words += [character] if letter else []
    return words + ([word] if word else [])


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
likely = st.text(
    "aAbZ09 _-.,'’\t\n\0éÉßẞüÜİıøŒ́̈हिन्दी中文々カｶかー日本語العربيةעברית한국어ไทยﬁ①½²™€😀❤️‍👍🏽👍­\u200b´¨",
    max_size=30,
)


splits = st.sampled_from(["words", "whitespace"])


@given(st.lists(anything | likely, max_size=6), splits)
def test_words_equal_the_slow_version(texts, split):
    tokenizer = Tokenizer(split)
    expected = [slow_words(text, split) for text in texts]
    assert [tokenizer.words(text) for text in texts] == expected
    # All texts at once, as a slice of a larger set.
    packed = Texts.from_strings(["before é", *texts, "after"])[1:-1]
    words, ends, counts = tokenizer.split_texts(packed)
    bounds = [0, *ends.tolist()]
    assert [words[a:b].tobytes().decode() for a, b in itertools.pairwise(bounds)] == list(itertools.chain(*expected))
    assert counts.tolist() == [len(words) for words in expected]


@pytest.mark.slow
def test_characters_of_scripts_without_spaces_are_words():
    kinds = character_kinds("words")
    assert len(kinds) == sys.maxunicode + 1
    wrong = [chr(code) for code in range(sys.maxunicode + 1) if (kinds[code] == ALONE) != is_word_by_itself(chr(code))]
    assert wrong == []


@pytest.mark.slow
def test_general_categories_are_those_of_unicode():
    """The planes that are skipped have no characters."""
    expected = [unicodedata.category(chr(code))[0] for code in range(sys.maxunicode + 1)]
    assert _general_categories().astype(str).tolist() == expected


class TestSpans:
    @given(st.text(st.characters(max_codepoint=127), max_size=40))
    def test_ascii_spans_are_the_words(self, text):
        assert [text[start:end].lower() for start, end in Tokenizer().spans(text)] == Tokenizer().words(text)

    @given(anything | likely, splits)
    def test_spans_are_the_words_of_normalised_texts(self, text, split):
        text, tokenizer = unicodedata.normalize("NFKC", text), Tokenizer(split)
        spans = tokenizer.spans(text)
        assert [word for start, end in spans for word in tokenizer.words(text[start:end])] == tokenizer.words(text)
        # In order, not empty, within the text.
        flat = [position for span in spans for position in span]
        assert flat == sorted(flat)
        assert all(start < end <= len(text) for start, end in spans)

    @pytest.mark.parametrize(
        "text",
        [
            "ﬁne Ｆｕｌｌ ⅷ ① ½ ﾃﾚﾋﾞ",
            "20 ℃ 5㎏ Sony™ 日本㈱",
        ],
    )
    def test_cutting_out_all_spans_leaves_no_word(self, text):
        """`explain` cuts out one word at a time."""
        left = text
        for start, end in reversed(Tokenizer().spans(text)):
            left = f"{left[:start]} {left[end:]}"
        assert Tokenizer().words(left) == []

    @pytest.mark.parametrize(
        ("text", "spans"),
        [
            ("JBL wireless-headphones", ["JBL", "wireless", "headphones"]),
            ("ﬁne Ｆｕｌｌ", ["ﬁne", "Ｆｕｌｌ"]),
            ("½ cup", ["½", "cup"]),
            ("cafe\u0301 CAFÉ", ["cafe\u0301", "CAFÉ"]),
            ("\u0301a", ["a"]),
            ("中文 and", ["中", "文", "and"]),
            ("ab中c", ["ab", "中", "c"]),
            ("हिन्दी में", ["हिन्दी", "में"]),
            ("co\u00adoperate", ["co\u00adoperate"]),
            ("I ❤️ NY 👍🏽", ["I", "NY"]),
            ("𝒳𝒴 z", ["𝒳𝒴", "z"]),
            ("Straße, Ü!", ["Straße", "Ü"]),
            ("", []),
            (" \u3000.,! ", []),
        ],
    )
    def test_positions_count_characters_and_not_bytes(self, text, spans):
        assert [text[start:end] for start, end in Tokenizer().spans(text)] == spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("JBL wireless-headphones, 2021!", "jbl wireless headphones 2021"),
        ("Straße GRÖSSE Fußgängerübergänge", "straße grösse fußgängerübergänge"),
        ("हिन्दी में लिखा", "हिन्दी में लिखा"),
        ("中文分词 and English", "中 文 分 词 and english"),
        ("人々の Café", "人 々 の café"),
        ("ﾃﾚﾋﾞ テレビ", "テ レ ビ テ レ ビ"),
        ("مَرْحَبًا بالعالم", "مَرْحَبًا بالعالم"),
        ("שָׁלוֹם עולם", unicodedata.normalize("NFKC", "שָׁלוֹם") + " עולם"),
        ("İstanbul ISPARTA ılık", "istanbul isparta ılık"),
        ("cafe\u0301 CAFÉ", "café café"),
        ("ΟΔΥΣΣΕΥΣ Σίσυφος", "οδυσσευς σίσυφος"),
        ("ﬁne Ｆｕｌｌ ⅷ ①", "fine full viii 1"),
        ("한국어 처리", "한국어 처리"),
        ("می‌خواهم co\u00adoperate", "میخواهم cooperate"),
        ("I ❤️ NY 👍🏽 don´t", "i ny don t"),
        ("snake_case C++ C# 3.5€ a.b@c.de", "snake_case c c 3 5 a b c de"),
        ("naïve—coöperate…really", "naïve coöperate really"),
        ("a\0b\tc\u200bd\u2028e", "a b c d e"),
        ("", ""),
        (" \u3000.,! ", ""),
    ],
)
def test_languages(text, words):
    assert Tokenizer().words(text) == words.split()


def test_split_by_whitespace():
    text = "C++ isn't  C#, it's ❤️_x"
    assert Tokenizer(split="whitespace").words(text) == ["c", "isnt", "c", "its", "x"]
    assert [text[start:end] for start, end in Tokenizer("whitespace").spans(text)] == [
        "C++",
        "isn't",
        "C#,",
        "it's",
        "x",
    ]


def test_stop_words():
    assert Tokenizer().words("the cat and the hat") == ["the", "cat", "and", "the", "hat"]
    assert Tokenizer(stop_words="english").words("The cat AND the hat") == ["cat", "hat"]
    assert Tokenizer(stop_words=["Der", "CAFE\u0301"]).words("der Hund im Café") == ["hund", "im"]
    assert {"the", "and", "not"} < ENGLISH_STOP_WORDS
    assert Tokenizer(stop_words={"b", "a"}) == Tokenizer(stop_words=("a", "b"))


def test_config_survives_json():
    for tokenizer in (
        Tokenizer(),
        Tokenizer("whitespace", "english"),
        Tokenizer(stop_words=["x", "ü"]),
        Tokenizer(prefix_lengths=(4, 6), bigram_prefix_length=4),
    ):
        assert Tokenizer(**json.loads(json.dumps(tokenizer.to_config()))) == tokenizer


@pytest.mark.parametrize("wrong", [{"split": "letters"}, {"stop_words": "german"}, {"stop_words": [1]}], ids=str)
def test_wrong_options(wrong):
    with pytest.raises(OptionError, match="it can be"):
        Tokenizer(**wrong)


class TestPrefixes:
    @given(
        st.lists(anything | likely, max_size=6),
        st.lists(st.integers(1, 7), min_size=1, max_size=3, unique=True),
    )
    def test_words_cut_by_python(self, texts, lengths):
        tokenizer = Tokenizer(prefix_lengths=lengths)
        expected = [[word[:n] for word in slow_words(text) for n in lengths if len(word) > n] for text in texts]
        assert [tokenizer.words(text) for text in texts] == expected
        words, ends, counts = tokenizer.split_texts(Texts.from_strings(["before é", *texts, "after"])[1:-1])
        bounds = [0, *ends.tolist()]
        found = [words[a:b].tobytes().decode() for a, b in itertools.pairwise(bounds)]
        assert found == list(itertools.chain(*expected))
        assert counts.tolist() == [len(words) for words in expected]

    @pytest.mark.parametrize(
        ("text", "prefixes"),
        [
            ("houses HOUSING house hous hou", "hous house hous housi hous"),
            ("Übergänge über", "über überg"),
            ("Straßenbahn", "stra straß"),
            ("हिन्दी", "हिन् हिन्द"),
            ("обработка", "обра обраб"),
            ("𝒳𝒴 𐐨𐐩𐐪𐐫𐐬𐐭", "𐐨𐐩𐐪𐐫 𐐨𐐩𐐪𐐫𐐬"),
            ("日本語処理 a bc", ""),
        ],
    )
    def test_lengths_count_characters_and_not_bytes(self, text, prefixes):
        assert Tokenizer(prefix_lengths=(4, 5)).words(text) == prefixes.split()

    @pytest.mark.parametrize("lengths", [(0,), (4, 0), (-1,), (101,), (4, 4), ("4",)], ids=str)
    def test_wrong_lengths_are_refused(self, lengths):
        with pytest.raises(OptionError, match=r"expected numbers of characters, such as \(4, 6\)"):
            Tokenizer(prefix_lengths=lengths)

    def test_vocabulary_of_prefixes(self, tmp_path):
        texts = ["houses übergang", "housing übergangen häuser", "", "a bc"]
        vocabulary, encoded = Vocabulary.build_and_encode(texts, Tokenizer(prefix_lengths=(4, 6)), min_count=2)
        assert vocabulary.words == ["hous", "über", "überga"]
        assert vocabulary.counts.tolist() == [2, 2, 2]
        vocabulary.save(tmp_path / "prefixes.txt")
        again = Vocabulary.load(tmp_path / "prefixes.txt", json.loads(json.dumps(vocabulary.to_config())))
        assert again.tokenizer == vocabulary.tokenizer
        for known in (vocabulary, again):
            ids = known.encode(texts)
            assert (ids.indptr.tolist(), ids.values.tolist()) == (encoded.indptr.tolist(), encoded.values.tolist())
            unknown = known.encode(["Householders überall", "hou über hous"])
            assert [known.words[i] for i in unknown.values] == ["hous", "über"]
            assert unknown.counts.tolist() == [2, 0]


class TestBigrams:
    @given(
        st.lists(anything | likely, max_size=6),
        st.integers(1, 7),
        st.lists(st.integers(1, 7), max_size=2, unique=True),
    )
    def test_pairs_made_by_python(self, texts, length, prefix_lengths):
        tokenizer = Tokenizer(prefix_lengths=prefix_lengths, bigram_prefix_length=length)
        expected = []
        for text in texts:
            ngrams, previous = [], None
            for word in slow_words(text):
                ngrams += [word[:n] for n in prefix_lengths if len(word) > n]
                ngrams += [] if previous is None else [f"{previous[:length]} {word[:length]}"]
                previous = word
            expected.append(ngrams)
        assert [tokenizer.words(text) for text in texts] == expected
        _, _, counts = tokenizer.split_texts(Texts.from_strings(texts))
        assert counts.tolist() == [len(ngrams) for ngrams in expected]

    def test_vocabulary_of_bigrams(self, tmp_path):
        texts = ["New York pizza", "a new YORKER, new york"]
        vocabulary, encoded = Vocabulary.build_and_encode(texts, Tokenizer(bigram_prefix_length=4), min_count=2)
        assert vocabulary.words == ["new york"] and encoded.counts.tolist() == [1, 2]
        vocabulary.save(tmp_path / "bigrams.txt")
        again = Vocabulary.load(tmp_path / "bigrams.txt", json.loads(json.dumps(vocabulary.to_config())))
        assert again.encode(["york new york", "new", ""]).counts.tolist() == [1, 0, 0]

    @pytest.mark.parametrize("length", [-1, 101, "4", None, 2.0], ids=str)
    def test_wrong_lengths_are_refused(self, length):
        with pytest.raises(OptionError, match="expected a number of characters, such as 4"):
            Tokenizer(bigram_prefix_length=length)


def test_texts_without_words():
    words, ends, counts = Tokenizer().split_texts(Texts.from_strings([]))
    assert (len(words), len(ends), len(counts)) == (0, 0, 0)
    words, ends, counts = Tokenizer().split_texts(Texts.from_strings(["", "é", ""]))
    assert (words.tobytes().decode(), ends.tolist()) == ("é", [2])
    assert counts.tolist() == [0, 1, 0]
