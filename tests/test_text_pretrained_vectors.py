"""Loading word vectors: all formats, malformed files, and memory."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest

from shortlist.errors import DataError, OptionError
from shortlist.text.pretrained_vectors import load_vectors, random_vectors

GLOVE = "the 0.1 0.2 0.3\nof -1 2e-1 .5\ncat 1 2 3\n"
FIXED = np.array([[-0.0065004826, 0.19009492], [0.13690433, -0.10665959]], np.float32)
VECTORS = {"the": [0.1, 0.2, 0.3], "of": [-1, 0.2, 0.5], "cat": [1, 2, 3]}


def write(path, content):
    data = content.encode() if isinstance(content, str) else content
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    path.write_bytes(data)
    return path


def write_array(folder, array, words, vocabulary="vectors.vocab"):
    np.save(folder / "vectors.npy", array)
    (folder / vocabulary).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder / "vectors.npy"


def refused(path, words=("the", "of", "cat"), **options):
    with pytest.raises(DataError) as error:
        load_vectors(path, words, **options)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        "3 3\n" + GLOVE,
        "3 3\n" + GLOVE.replace("\n", " \n"),  # fastText ends its lines with a space
        GLOVE.rstrip("\n"),
        GLOVE.replace("\n", "\r\n"),
        GLOVE.replace(" ", "\t"),
        "\ufeff" + GLOVE,
        GLOVE + "\n\n",
    ],
    ids=["glove", "header", "fasttext", "no-last-line-end", "windows", "tabs", "byte-order-mark", "empty-lines"],
)
def test_text_formats(tmp_path, content, suffix):
    path = write(tmp_path / f"vectors.txt{suffix}", content)
    vectors, found = load_vectors(path, ["cat", "dog", "the", "of"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, 3)
    assert found.dtype == bool
    assert found.tolist() == [True, False, True, True]
    for row, word in ((0, "cat"), (2, "the"), (3, "of")):
        np.testing.assert_array_equal(vectors[row], np.array(VECTORS[word], np.float32))
    assert (np.abs(vectors[1]) <= 0.25).all()


@pytest.mark.parametrize("vocabulary", ["vectors.vocab", "vectors.txt"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_array_with_a_vocabulary_file_beside_it(tmp_path, vocabulary, dtype):
    array = np.arange(12, dtype=dtype).reshape(4, 3)
    path = write_array(tmp_path, array, ["the", "of", "the", "größe"], vocabulary)
    vectors, found = load_vectors(str(path), ["größe", "dog", "the"])
    assert found.tolist() == [True, False, True]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[[0, 2]], array[[3, 0]])


def test_array_with_vocabulary_path(tmp_path):
    path = write_array(tmp_path, np.eye(2), ["a", "b"], "words.lst")
    vectors, found = load_vectors(path, ["b"], vocabulary_path=tmp_path / "words.lst")
    assert found.all()
    assert vectors.tolist() == [[0, 1]]


def test_the_first_of_several_vectors_is_used(tmp_path):
    path = write(tmp_path / "v.txt", "a 1 2\nb 3 4\na 5 6\nc 7 8\n")
    vectors, _ = load_vectors(path, ["a", "c", "a"])
    assert vectors.tolist() == [[1, 2], [7, 8], [1, 2]]


def test_an_exact_match_wins_over_lower_case(tmp_path):
    path = write(tmp_path / "v.txt", "paris 1 1\nParis 2 2\nrome 3 3\n")
    vectors, found = load_vectors(path, ["Paris", "PARIS", "paris", "Rome", "rome"])
    assert found.all()
    assert vectors[:, 0].tolist() == [2, 1, 1, 3, 3]
    array = write_array(tmp_path, np.array([[1], [2], [3]]), ["paris", "Paris", "rome"])
    assert load_vectors(array, ["Paris", "PARIS", "paris", "Rome", "rome"])[0][:, 0].tolist() == [2, 1, 1, 3, 3]


def test_a_lower_case_word_does_not_match_upper_case_in_the_file(tmp_path):
    path = write(tmp_path / "v.txt", "Paris 2 2\n")
    assert not load_vectors(path, ["paris"])[1].any()


def test_words_with_spaces(tmp_path):
    """GloVe 840B has lines like "at name@domain.com 0.1 …"; they are not the vector of "at"."""
    path = write(tmp_path / "v.txt", "the 1 2\nat name@domain.com 3 4\n. . . 5 6\nat 7 8\niphone 5 9 10\n")
    vectors, found = load_vectors(path, ["at", ". . .", "at name@domain.com", "iphone 5"])
    assert found.all()
    assert vectors.tolist() == [[7, 8], [5, 6], [3, 4], [9, 10]]


def test_words_of_digits_and_unicode_spaces(tmp_path):
    path = write(tmp_path / "v.txt", "7 1 2\nno\u00a0break 3 4\n\u0085 5 6\n")
    vectors, found = load_vectors(path, ["7", "no\u00a0break", "\u0085"])
    assert found.all()
    assert vectors.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_random_vectors_depend_only_on_word_and_seed(tmp_path):
    path = write(tmp_path / "v.txt", GLOVE)
    one, _ = load_vectors(path, ["x", "the", "y"], seed=3)
    other, _ = load_vectors(path, ["y", "z", "x"], seed=3)
    np.testing.assert_array_equal(one[[0, 2]], other[[2, 0]])
    assert (one[0] != one[2]).all()
    assert (load_vectors(path, ["x"], seed=4)[0] != one[0]).all()


def test_random_vectors_are_uniform_and_never_change():
    vectors = random_vectors([f"word{i}" for i in range(2000)], 50, seed=1)
    assert np.abs(vectors).max() <= 0.25
    assert abs(vectors.mean()) < 0.002
    assert abs(vectors.std() - 0.25 / 3**0.5) < 0.002
    assert np.abs(np.corrcoef(vectors.T) - np.eye(50)).max() < 0.15
    # Saved models rely on these values: they must never change.
    np.testing.assert_array_equal(random_vectors(["word", "\ud800"], 2), FIXED)


def test_no_words(tmp_path):
    vectors, found = load_vectors(write(tmp_path / "v.txt", GLOVE), [])
    assert vectors.shape == (0, 3)
    assert found.shape == (0,)


def test_a_warning_if_no_word_is_found(tmp_path, caplog):
    load_vectors(write(tmp_path / "v.txt", GLOVE), ["кошка"])
    assert "none of the 1 words" in caplog.text


@pytest.mark.parametrize(
    ("content", "line", "parts"),
    [
        ("the 1 2 3\nof 1 2\n", "line 2", ["expected 3", "found 2", "of 1 2"]),
        ("the 1 2 3\nof 1 2 3 4\n", "line 2", ["expected 3", "found 4"]),
        ("the 1 2 3\nof\n", "line 2", ["expected 3", "found 0"]),
        ("2 3\nthe 1 2 3\nof 1 2\n", "line 3", ["expected 3", "found 2"]),
        ("the 1 2 3\nof 1 x 3\n", "line 2", ['"x"', "number", '"of"']),
        ("the 1 2 3\nof 1 nan 3\n", "line 2", ["NaN or infinity"]),
        ("{\n", "line 1", ["word followed by numbers"]),
        ("3 0\n", "line 1", ["no dimensions"]),
        ("", "", ["empty"]),
        ("5 3\nthe 1 2 3\n", "line 1", ["promises 5", "there are 1", "truncated"]),
        ("5 3\n", "line 1", ["promises 5", "there are 0"]),
        ("2 2147483648\n\n\n", "line 1", ["promises 2,147,483,648 dimensions", "no vector follows"]),
        ("2 2147483648\nred 1 2\nhat 3 4\n", "line 2", ["promises 2,147,483,648 dimensions", "red 1 2"]),
        (f"2 {'9' * 17}\nred 1\n", "line 2", ["dimensions"]),
        (f"2 {'9' * 5000}\nthe 1 2\n", "line 2", ["expected 1 numbers, found 2"]),
    ],
)
def test_malformed_text(tmp_path, content, line, parts):
    message = refused(write(tmp_path / "v.txt", content))
    for part in (line, *parts):
        assert part in message


def test_binary_files(tmp_path):
    numbers = np.random.default_rng(0).standard_normal(300).astype(np.float32).tobytes()
    word2vec = write(tmp_path / "word2vec.bin", b"2 300\nthe " + numbers + b"\nof " + numbers + b"\n")
    assert "binary" in refused(word2vec)
    np.save(tmp_path / "array.npy", np.eye(3))
    renamed = (tmp_path / "array.npy").rename(tmp_path / "array.txt")
    assert "binary" in refused(renamed)


def test_a_very_long_line_is_refused(tmp_path):
    assert "line of more than" in refused(write(tmp_path / "v.txt", b"the " + b"1 " * (1 << 24)))


def test_missing_and_damaged_files(tmp_path):
    assert "no such file" in refused(tmp_path / "nowhere.txt")
    assert "no such file" in refused(write_array(tmp_path, np.eye(1), ["a"]).with_name("vectors.txt"))
    path = write(tmp_path / "v.txt.gz", GLOVE * 100)
    path.write_bytes(path.read_bytes()[:-10])
    assert "gzip" in refused(path, ["dog"])


def test_malformed_arrays(tmp_path):
    words = ["the", "of"]
    assert "3 rows" in refused(write_array(tmp_path, np.eye(3), words))
    assert "shape (2,)" in refused(write_array(tmp_path, np.zeros(2), words))
    assert "complex" in refused(write_array(tmp_path, np.zeros((2, 2), complex), words))
    assert "NaN or infinity" in refused(write_array(tmp_path, np.array([[1, 2], [3, np.inf]]), words))
    assert "cannot be read" in refused(write_array(tmp_path, np.array([[{}]]), words))
    path = write_array(tmp_path, np.eye(2), words)
    assert "no such file" in refused(tmp_path / "other.npy", vocabulary_path=tmp_path / "vectors.vocab")
    (tmp_path / "vectors.vocab").unlink()
    assert "vectors.vocab or vectors.txt" in refused(path)
    path.write_bytes(path.read_bytes()[:-8])
    assert "cannot be read" in refused(path, vocabulary_path=write(tmp_path / "w", "the\nof\n"))
    path.write_bytes(b"")
    assert "cannot be read" in refused(path, vocabulary_path=tmp_path / "w")


def test_vocabulary_path_with_a_text_file_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"\.npy"):
        load_vectors(write(tmp_path / "v.txt", GLOVE), ["the"], vocabulary_path=tmp_path / "x")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_file_is_not_held_in_memory(tmp_path, suffix):
    numbers = " ".join(f"{x:.6f}" for x in np.random.default_rng(0).standard_normal(100))
    content = "".join(f"word{i} {numbers}\n" for i in range(22_000))
    assert len(content) > 20e6
    path = write(tmp_path / f"v.txt{suffix}", content)
    del content
    words = [f"word{i}" for i in range(0, 22_000, 220)]
    tracemalloc.start()
    try:
        _, found = load_vectors(path, [*words, "not there"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.sum() == len(words)
    assert peak < 10e6


def test_only_wanted_rows_of_an_array_are_read(tmp_path):
    path = write_array(tmp_path, np.ones((10_000, 500), np.float32), [f"w{i}" for i in range(10_000)])
    tracemalloc.start()
    try:
        vectors, _ = load_vectors(path, ["w7", "w9999"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (vectors == 1).all()
    assert peak < 10e6
