"""The contract of every recipe that takes features instead of texts, on sparse and on dense ones; and bad features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import shortlist
from contract import Contract, inputs_of
from shortlist.errors import DataError, OptionError
from test_models import OPTIONS, topics

N_DENSE = 96
MODELS = [
    (name, kind) for name, known in sorted(shortlist.list_recipes().items()) for kind in known.takes if kind != "texts"
]
NO_TORCH = ("centroid", "popular")
DENSE_OPTIONS = {
    "n_epochs": 8,
    "n_surrogate_epochs": 8,
    "hidden_size": 64,
    "batch_size": 32,
    "dropout": 0.25,
    "threads": 1,
}


def with_features(data: shortlist.Dataset, kind: str) -> shortlist.Dataset:
    """The same labels, and features in place of texts: the counts of words, or a random projection of them."""
    words = [f"topic{topic}word{i}" for topic in range(20) for i in range(6)] + [f"noise{i}" for i in range(50)]
    column = {word: i for i, word in enumerate(np.random.default_rng(0).permutation(words).tolist())}
    counts = np.zeros((len(data), len(column)), np.float32)
    for row, text in enumerate(data.texts):
        np.add.at(counts[row], [column[word] for word in text.split()], 1)
    dense = counts @ np.random.default_rng(1).standard_normal((len(column), N_DENSE)).astype(np.float32)
    features = sparse.csr_array(counts) if kind == "sparse" else dense
    return data.with_features(features)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(model, id=" on ".join(model), marks=() if model[0] in NO_TORCH else pytest.mark.slow)
        for model in MODELS
    ],
)
def recipe_and_kind(request):
    return request.param


@pytest.fixture(scope="module")
def recipe(recipe_and_kind):
    return recipe_and_kind[0]


@pytest.fixture(scope="module")
def kind(recipe_and_kind):
    return recipe_and_kind[1]


@pytest.fixture(scope="module")
def options(recipe):
    return DENSE_OPTIONS if recipe == "deepxml-features" else OPTIONS.get(recipe, {})


@pytest.fixture(scope="module")
def train_part(kind):
    part = with_features(topics(1000, seed=1), kind)
    part.display_names = {"label 3": "the third topic"}
    return part


@pytest.fixture(scope="module")
def test_part(kind):
    return with_features(topics(300, seed=2), kind)


@pytest.fixture(scope="module")
def model(recipe, options, train_part):
    if recipe not in NO_TORCH:
        pytest.importorskip("torch")
    return shortlist.train(train_part, recipe=recipe, **options)


class TestEveryRecipeOnFeatures(Contract):
    def test_says_what_it_takes(self, model, recipe, kind, train_part):
        if recipe == "popular":
            assert model.card["inputs"] == "anything"
            return
        assert (model.card["inputs"], model.card["n_columns"]) == (f"{kind} features", train_part.features.shape[1])
        assert (model.vocabulary, model.tokenizer, model.card["n_words"]) == (None, None, None)

    def test_a_matrix_of_any_format(self, model, recipe, test_part):
        matrix = sparse.csr_array(inputs_of(test_part, 20))
        expected = model.predict(matrix)
        for same in (matrix.toarray(), matrix.tocsc(), matrix.tocoo(), sparse.csr_matrix(matrix)):
            assert model.predict(same) == expected

    def test_has_no_words_to_explain(self, model, test_part):
        inputs = inputs_of(test_part, 3)
        assert model.predict(inputs, explain=True) == model.predict(inputs)

    def test_empty_rows_give_a_list(self, model, train_part):
        assert len(model.predict(np.zeros((2, train_part.features.shape[1])))) == 2

    def test_texts_and_other_columns_are_refused(self, model, recipe, test_part):
        if recipe == "popular":
            pytest.skip("it takes anything")
        n_columns = test_part.features.shape[1]
        for texts in ("a text", ["a text", "another"], []):
            with pytest.raises(OptionError, match=f"trained on features; give it a matrix of {n_columns} columns"):
                model.predict(texts)
        with pytest.raises(OptionError, match=f"takes {n_columns} features; the matrix has {n_columns + 1}"):
            model.predict(sparse.csr_array((2, n_columns + 1)))
        with pytest.raises(OptionError, match="text 1 is of type ndarray among texts; predict takes"):
            model.predict(["a text", np.zeros(n_columns)])
        bad = np.zeros((3, n_columns))
        bad[1, 0] = np.nan
        for matrix in (bad, sparse.csr_array(bad)):
            with pytest.raises(DataError, match=r"row 1 of the features contains NaN or infinity\. Replace"):
                model.predict(matrix)
        bad[0, 0] = np.nan
        with pytest.raises(DataError, match="row 0 of the features contains NaN or infinity; rows like this: 2"):
            model.predict(bad)


SPARSE, DENSE = (with_features(topics(60, seed=3), kind) for kind in ("sparse", "dense"))
OTHERS = {"sparse": SPARSE, "dense": DENSE, "texts": topics(60, seed=3)}


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [(name, kind) for name, known in shortlist.list_recipes().items() for kind in OTHERS if kind not in known.takes],
)
def test_other_inputs_are_refused_with_the_recipes_that_take_them(recipe, kind):
    message = rf"{recipe} learns from .*; the data set has {kind}.* Use popular, centroid, .*\."
    with pytest.raises(OptionError, match=message.replace("+", r"\+")):
        shortlist.train(OTHERS[kind], recipe=recipe)


class TestBadFeatures:
    def train(self, features, recipe="centroid", **options):
        return shortlist.train(replace(SPARSE, features=features), recipe=recipe, **options)

    def test_nan(self):
        features = SPARSE.features.toarray()
        features[5, 2] = np.nan
        for matrix in (features, sparse.csr_array(features)):
            with pytest.raises(DataError, match=r"row 5 of the features contains NaN or infinity\. Replace"):
                self.train(matrix)

    @pytest.mark.parametrize("shape", [(60, 0), (60, 2, 2), (60,)])
    def test_no_matrix(self, shape):
        with pytest.raises(DataError, match=r"the features have shape \(60,.*; expected a matrix with 60 rows"):
            self.train(np.zeros(shape))

    def test_texts_and_features(self):
        both = replace(SPARSE, texts=OTHERS["texts"].texts)
        with pytest.raises(DataError, match="has texts and features, and a model learns from one of them"):
            shortlist.train(both, recipe="centroid")

    def test_a_model_of_texts_refuses_features(self):
        model = shortlist.train(OTHERS["texts"], recipe="centroid")
        with pytest.raises(OptionError, match=r"trained on texts; it got a matrix of features. Give it texts\."):
            model.predict(SPARSE.features)
        with pytest.raises(OptionError, match="trained on texts"):
            model.predict_dataset(DENSE)


def test_a_sparse_matrix_that_is_mostly_not_zero_is_dense():
    assert replace(DENSE, features=sparse.csr_array(DENSE.features)).input_kind == "dense"
    assert (SPARSE.input_kind, SPARSE.longest_row) == ("sparse", 5)
    assert (DENSE.longest_row, OTHERS["texts"].input_kind) == (0, "texts")


@pytest.mark.slow
class TestVectorsOfColumns:
    """`vectors` of features: row i of a .npy file is the vector of column i."""

    def train(self, path, data=SPARSE, **options):
        pytest.importorskip("torch")
        small = {"n_epochs": 1, "embedding_dim": 4, "threads": 1, "surrogate": "none", "reranker": False}
        return shortlist.train(data, recipe="astec", vectors=str(path), **{**small, **options})

    def test_are_where_the_encoder_starts(self, tmp_path):
        vectors = np.random.default_rng(0).standard_normal((170, 4)).astype(np.float32)
        np.save(tmp_path / "v.npy", vectors)
        learnt = self.train(tmp_path / "v.npy").pipelines[0].encoder.arrays()["words"]
        ratios = learnt / vectors
        np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-5)

    def test_that_do_not_fit_are_refused(self, tmp_path, put):
        np.save(tmp_path / "v.npy", np.zeros((169, 4)))
        with pytest.raises(DataError, match="169 rows; expected 170, one per column of the features"):
            self.train(tmp_path / "v.npy")
        np.save(tmp_path / "v.npy", np.full((170, 4), np.nan))
        with pytest.raises(DataError, match=r"row 0 \(from 0\): contains NaN"):
            self.train(tmp_path / "v.npy")
        with pytest.raises(OptionError, match=r"give their vectors as a \.npy file"):
            self.train(put("v.txt", "red 1 2\n"))
        with pytest.raises(OptionError, match="reranker=words and vectors are for words"):
            shortlist.train(DENSE, recipe="slice", vectors=str(tmp_path / "v.npy"))
        with pytest.raises(OptionError, match="reranker=words and vectors are for words"):
            shortlist.train(DENSE, recipe="slice", reranker=True)


def test_features_are_not_stored_as_texts():
    with pytest.raises(OptionError, match="keep_texts stores texts, and the data set has features"):
        shortlist.train(SPARSE, recipe="astec", keep_texts=5)


@pytest.mark.slow
def test_max_words_of_features_is_the_longest_row_and_keeps_the_largest_weights():
    pytest.importorskip("torch")
    small = {"n_epochs": 1, "embedding_dim": 4, "threads": 1, "surrogate": "none", "reranker": False}
    assert shortlist.train(SPARSE, recipe="astec", **small).options["max_words"] == 5
    model = shortlist.train(SPARSE, recipe="astec", max_words=1, **small)
    rows = np.zeros((2, 170), np.float32)
    rows[0, [3, 90]] = [1, 2]
    rows[1, 90] = 1
    one, other = model.predict(rows)
    assert one == other
