"""Static embeddings as word vectors: both layouts in use, weights, shared rows, and folders that do not fit."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from shortlist.errors import DataError, MissingExtraError, OptionError
from shortlist.text import load_vectors
from shortlist.text.pretrained_vectors import random_vectors
from tiny_transformers import save_tokenizer, word_piece_tokenizer

TEXTS = ["red shoes", "red hat", "blue shoes", "a bluish hat"]


@pytest.fixture(scope="module")
def tokenizer():
    return word_piece_tokenizer(TEXTS, n_pieces=40)


@pytest.fixture
def folder(tmp_path, tokenizer):
    save_tokenizer(tmp_path, tokenizer)
    return tmp_path


@pytest.fixture
def matrix(tokenizer):
    return np.random.default_rng(0).standard_normal((tokenizer.get_vocab_size(), 6), np.float32)


def mean_of_pieces(tokenizer, word, matrix):
    ids = tokenizer.encode(word, add_special_tokens=False).ids
    return sum(matrix[i] for i in ids) / len(ids)


@pytest.mark.parametrize("name", ["embeddings", "embedding.weight"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_a_word_is_the_mean_of_its_pieces(folder, tokenizer, matrix, name, dtype):
    save_file({name: matrix.astype(dtype)}, folder / "model.safetensors")
    words = ["red", "bluish", "hats", "shoeless"]
    assert len(tokenizer.encode("hats", add_special_tokens=False).ids) > 1
    vectors, found = load_vectors(folder, words)
    expected = [mean_of_pieces(tokenizer, word, matrix.astype(dtype).astype(np.float32)) for word in words]
    assert vectors.dtype == np.float32 and found.all()
    assert np.allclose(vectors, expected, atol=1e-6)


def test_unknown_words_are_random(folder, matrix):
    save_file({"embeddings": matrix}, folder / "model.safetensors")
    vectors, found = load_vectors(folder, ["red", "☃"], seed=3)
    assert found.tolist() == [True, False]
    assert np.array_equal(vectors[1:], random_vectors(["☃"], 6, seed=3))


def test_weights_and_shared_rows_of_model2vec(folder, tokenizer, matrix):
    weights = np.linspace(0.5, 2, len(matrix)).astype(np.float32)
    rows = np.arange(len(matrix)) % 7
    save_file({"embeddings": matrix[:7], "weights": weights, "mapping": rows}, folder / "model.safetensors")
    vectors, _ = load_vectors(folder, ["red", "hats"])
    expected = [mean_of_pieces(tokenizer, word, weights[:, None] * matrix[rows]) for word in ("red", "hats")]
    assert np.allclose(vectors, expected, atol=1e-6)


def test_bfloat16_and_the_embeddings_of_a_transformer(folder, tokenizer, matrix):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_tensors

    words = torch.from_numpy(matrix).bfloat16()
    arrays = {"embeddings.word_embeddings.weight": words, "layer.0.weight": torch.zeros(6, 6)}
    save_tensors(arrays, folder / "model.safetensors")
    vectors, _ = load_vectors(folder, ["hats"])
    assert np.allclose(vectors[0], mean_of_pieces(tokenizer, "hats", words.float().numpy()), atol=1e-6)


def test_no_words(folder, matrix):
    save_file({"embeddings": matrix}, folder / "model.safetensors")
    assert load_vectors(folder, [])[0].shape == (0, 6)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"embeddings": np.ones((3, 6), "f4")},
            r"for each of the tokenizer's \d+ pieces; found embeddings 3 × 6",
        ),
        ({"a": np.ones((99, 6), "f4"), "b": np.ones((99, 6), "f4")}, r"found a 99 × 6, b 99 × 6. Are both files from"),
        ({"biases": np.ones(6, "f4")}, "found none"),
        ({"embeddings": np.full((99, 6), np.nan, "f4")}, "'embeddings' contains NaN or infinity"),
        ({"embeddings": np.ones((99, 6), "f4"), "weights": np.ones(2, "f4")}, "'weights' does not have one value per"),
        (
            {"embeddings": np.ones((2, 6), "f4"), "mapping": np.full(99, 2)},
            r"row 2 is out of range \('embeddings'",
        ),
        ({"embeddings": np.ones((99, 6), bool)}, "cannot read an array of type BOOL"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(folder, arrays, message):
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(DataError, match=message):
        load_vectors(folder, ["red"])


def test_incomplete_folders_are_refused(tmp_path, folder, put):
    with pytest.raises(DataError, match=r"expected one \.safetensors file with the embeddings; found none"):
        load_vectors(folder, ["red"])
    put("model.safetensors", b"not at all")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        load_vectors(folder, ["red"])
    put("tokenizer.json", "{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: cannot be used as a tokenizer"):
        load_vectors(folder, ["red"])
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"there is no tokenizer\.json in this folder of embeddings"):
        load_vectors(folder, ["red"])
    with pytest.raises(OptionError, match=r"vocabulary_path is for \.npy files"):
        load_vectors(folder, ["red"], vocabulary_path="words.txt")


def test_without_tokenizers_the_message_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r'json needs an optional part: pip install "shortlist\[trans'):
        load_vectors(folder, ["red"])


def test_recipes_start_from_them(folder, matrix):
    pytest.importorskip("torch")
    import shortlist

    save_file({"embeddings": matrix}, folder / "model.safetensors")
    rows = [(text, [text.split()[-1]]) for text in TEXTS * 10]
    options = {"n_epochs": 1, "n_surrogate_epochs": 1, "threads": 1, "validation_fraction": 0.0}
    model = shortlist.train(rows, recipe="astec", vectors=str(folder), **options)
    assert model.pipelines[0].encoder.n_features == 6  # the dimensions of the folder, not embedding_dim
