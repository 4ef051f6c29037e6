"""The contract of every recipe, on one tiny learnable data set; and the safety of model folders."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save
from scipy import sparse

import shortlist
from contract import Contract
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.kernels.candidates import top_labels
from shortlist.model.format import escaped, unescaped
from tiny_transformers import tiny_transformer

N_TOPICS = 20
# Small and quick; what is chosen from the data otherwise is tested with the recipe.
SMALL = {"n_epochs": 10, "embedding_dim": 64, "batch_size": 32, "dropout": 0.25, "threads": 1}
PLAIN = {"reranker": False}
TRANSFORMER = {"max_words": 24, "encoder_learning_rate": 0.003, "dropout": 0.1, "threads": 1, **PLAIN}
OPTIONS = {
    "inceptionxml": {**SMALL, "n_epochs": 4, "channels": 8},
    "inceptionxml+": {**SMALL, "n_epochs": 4, "channels": 8, "n_clusters": 7, "n_clusters_searched": 3},
    "astec": {**SMALL, "n_epochs": 5, "n_clusters": 7, "n_surrogate_epochs": 5},
    # These must reach the bar without the re-ranker.
    "inceptionxml-deepxml": {**SMALL, "n_epochs": 3, "n_surrogate_epochs": 3, "channels": 8} | PLAIN,
    "xml-cnn": {**SMALL, "n_epochs": 5, "channels": 16, "hidden_size": 64} | PLAIN,
    "deepxml-cnn": {
        **SMALL,
        "n_epochs": 3,
        "n_surrogate_epochs": 5,
        "channels": 16,
        "hidden_size": 64,
        "reranker": False,
    },
    "attentionxml": {**SMALL, "n_epochs": 6, "hidden_size": 64, "linear_sizes": "64", "learning_rate": 0.01} | PLAIN,
    "mach": {**SMALL, "n_epochs": 5, "n_repetitions": 3, "n_buckets": 12, "n_word_buckets": 100} | PLAIN,
    "deepxml-mlp": {**SMALL, "n_epochs": 5, "n_surrogate_epochs": 5, "n_word_buckets": 200} | PLAIN,
    "slice": SMALL,
    "lightxml": {**TRANSFORMER, "n_epochs": 6, "n_clusters": 7, "n_clusters_searched": 3},
    "deepxml-transformer": {**TRANSFORMER, "n_epochs": 5, "n_surrogate_epochs": 6},
}


def topics(n_texts: int, seed: int) -> shortlist.Dataset:
    """Texts of three words of a topic and two of noise; the topic is the label, and one label is everywhere."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_texts):
        topic = int(rng.integers(N_TOPICS))
        words = [f"topic{topic}word{i}" for i in rng.integers(6, size=3)] + [
            f"noise{i}" for i in rng.integers(50, size=2)
        ]
        rows.append((" ".join(rng.permutation(words)), [f"label {topic}"]))
    return shortlist.read(rows)


@pytest.fixture(scope="module")
def train_part():
    part = topics(1000, seed=1)
    part.display_names = {"label 3": "the third topic"}
    return part


@pytest.fixture(scope="module")
def test_part():
    return topics(300, seed=2)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in OPTIONS and name != "astec" else ())
        for name, known in sorted(shortlist.list_recipes().items())
        if "texts" in known.takes
    ],
)
def recipe(request):
    return request.param


@pytest.fixture(scope="module")
def options(recipe, train_part, tmp_path_factory):
    options = OPTIONS.get(recipe, {})
    if "transformer" in shortlist.get_recipe(recipe).option_names:
        folder = tiny_transformer(tmp_path_factory.mktemp("transformer"), train_part.texts)
        return {**options, "transformer": str(folder)}
    return options


@pytest.fixture(scope="module")
def model(recipe, options, train_part):
    if options:
        pytest.importorskip("torch")
    return shortlist.train(train_part, recipe=recipe, **options)


def decisive(text, prediction, wanted):
    """What the words of the predicted topic did, or the words of noise."""
    topic = prediction.label.removeprefix("label ")
    prefix = f"topic{topic}word" if wanted else "noise"
    return [share for share in prediction.words if text[share.start : share.end].startswith(prefix)]


class TestEveryRecipe(Contract):
    def test_one_text_is_a_list_of_one(self, model, test_part):
        text = test_part.texts[0]
        assert [p.label for p in model.predict(text)][:1] == [p.label for p in model.predict([text])[0]][:1]

    def test_empty_and_unknown_texts_give_a_list(self, model):
        for text in ("", "  ", "zzz qqq", "\n", "日本"):
            assert isinstance(model.predict(text), list)
        assert model.predict([]) == []

    def test_bad_requests(self, model):
        with pytest.raises(OptionError, match="text 1 is of type int"):
            model.predict(["x", 3])
        with pytest.raises(OptionError, match="threads"):
            shortlist.train([("a", ["b"])], recipe="centroid", threads=0)

    def test_says_which_words_moved_a_score(self, model, recipe, test_part):
        texts = [*test_part.texts[:15], "", "zzz qqq"]
        plain, explained = model.predict(texts, k=2), model.predict(texts, k=2, explain=True)
        for text, before, after in zip(texts, plain, explained, strict=True):
            assert [prediction._replace(words=()) for prediction in after] == [p._replace(words=()) for p in before]
            assert all(prediction.words == () for prediction in before)
            for prediction in after if recipe != "popular" else []:
                assert [text[start:end] for start, end, _ in prediction.words] == text.split()
                assert np.isfinite([share.moved for share in prediction.words]).all()
        if recipe == "popular":  # it reads no texts, so no word does anything
            assert explained == plain
            return
        # The words of the topic speak for its label, and more than noise does.
        of_topic = [s.moved for t, r in zip(texts[:15], explained, strict=False) for s in decisive(t, r[0], True)]
        of_noise = [s.moved for t, r in zip(texts[:15], explained, strict=False) for s in decisive(t, r[0], False)]
        assert np.mean(of_topic) > max(0, np.mean(of_noise))

    def test_explains_words_beyond_ascii_where_they_stand(self, model, recipe):
        text = "Übergänge 日本 topic3word1 — cafe\u0301"
        for prediction in model.predict(text, k=1, explain=True) if recipe != "popular" else []:
            words = [text[start:end] for start, end, _ in prediction.words]
            assert words == ["Übergänge", "日", "本", "topic3word1", "cafe\u0301"]

    def test_texts_in_any_container(self, model, test_part):
        texts = list(test_part.texts[:5])
        expected = model.predict(texts)
        for same in (tuple(texts), np.array(texts), np.array(texts, object), iter(texts)):
            assert model.predict(same) == expected
        assert model.predict(texts, k=np.int64(5)) == expected

    def test_texts_of_a_pandas_column(self, model, test_part):
        pandas = pytest.importorskip("pandas")
        texts = list(test_part.texts[:5])
        assert model.predict(pandas.Series(texts, index=range(7, 12))) == model.predict(texts)

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            (None, "of type NoneType"),
            (3, "of type int"),
            (b"ab", "of type bytes"),
            (("x", None), "text 1 is of type NoneType"),
            (np.arange(2), "text 0 is of type int64"),
        ],
        ids=["None", "number", "bytes", "tuple", "numbers"],
    )
    def test_what_is_not_text_is_refused(self, model, texts, message):
        with pytest.raises(OptionError, match=message):
            model.predict(texts)

    def test_nothing_to_learn_from(self, recipe):
        with pytest.raises(DataError, match="nothing to learn"):
            shortlist.train([("a text", [])], recipe=recipe)


def test_unknown_recipe_and_option():
    with pytest.raises(OptionError, match="All recipes are auto, popular"):
        shortlist.train([("a", ["b"])], recipe="magic")
    with pytest.raises(OptionError, match="it has min_count"):
        shortlist.train([("a", ["b"])], recipe="centroid", zzz=1)
    with pytest.raises(OptionError, match="did you mean 'min_count'"):
        shortlist.train([("a", ["b"])], recipe="centroid", min_counts=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": "abc"}, "min_count is 'abc'; expected a whole number"),
        ({"min_count": 1.5}, "min_count is 1.5; expected a whole number"),
        ({"min_count": True}, "min_count is True; expected a whole number"),
        ({"min_count": None}, "min_count is None; expected a whole number"),
        ({"threads": "x"}, "threads is 'x'; expected a whole number"),
        ({"stop_words": 5}, "stop_words is 5; expected a string or a list of strings"),
        ({"stop_words": [5]}, "expected a string or a list of strings"),
        ({"min_count": 0}, "min_count is 0; it must be at least 1"),
        ({"max_words_per_label": 0}, "max_words_per_label is 0; it must be at least 1"),
    ],
)
def test_bad_values_of_options(options, message):
    with pytest.raises(OptionError, match=message):
        shortlist.train([("a", ["b"])], recipe="centroid", **options)


def test_no_word_is_frequent_enough():
    with pytest.raises(DataError, match="Lower min_count"):
        shortlist.train([("a", ["b"])], recipe="centroid", min_count=2)


def test_options_of_numpy_and_lists_are_saved(tmp_path):
    options = {"min_count": np.int64(1), "stop_words": ["red"], "threads": None}
    shortlist.train([("red hat", ["hats"])], recipe="centroid", **options).save(tmp_path / "m")
    again = shortlist.load(tmp_path / "m")
    assert again.options["min_count"] == 1
    assert again.vocabulary.words == ["hat"]


def test_labels_with_odd_characters_survive(tmp_path):
    names = ["tab\there", "line\nbreak", "back\\slash", "back\\nslash", "\\", "\\\\n", "ü", " "]
    dataset = shortlist.read([(f"word{i}", [name]) for i, name in enumerate(names[:-1])])
    shortlist.train(dataset, recipe="popular").save(tmp_path / "m")
    assert shortlist.load(tmp_path / "m").label_names == names[:-1]
    for name in names:
        assert unescaped(escaped(name)) == name
        assert "\n" not in escaped(name)


def put_file(folder, name, content):
    """Other content in a file of a model folder, with a checksum that says all is well."""
    (folder / name).write_bytes(content)
    config = json.loads((folder / "config.json").read_text())
    config["files"][name] = {"bytes": len(content), "xxh3": xxhash.xxh3_128(content).hexdigest()}
    config.pop("xxh3", None)  # of the config itself: without one, it is not compared
    (folder / "config.json").write_text(json.dumps(config))


def change_arrays(folder, change, name="classifier.safetensors"):
    """Other arrays in a model folder, with checksums that say all is well."""
    put_file(folder, name, save({**load_file(folder / name), **change}))


class TestModelFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        shortlist.train([("red shoes", ["shoes"])], recipe="centroid").save(tmp_path / "model")
        return tmp_path / "model"

    def test_holds_plain_files_only(self, folder):
        names = {path.name for path in folder.iterdir()}
        stages = {"encoder.safetensors", "classifier.safetensors", "tail.safetensors"}
        assert names == {"README.md", "config.json", "card.json", "labels.txt", "vocabulary.txt", *stages}
        assert (folder / "vocabulary.txt").read_text() == "shoes\t2\nred\t1\n"  # once in the name of the label
        assert [path.name for path in folder.parent.iterdir()] == ["model"]

    @pytest.mark.parametrize("name", ["labels.txt", "vocabulary.txt", "classifier.safetensors", "card.json"])
    def test_a_changed_byte_is_noticed(self, folder, name):
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)
        with pytest.raises(ModelError, match=f"{name} is not the file that was saved"):
            shortlist.load(folder)

    def test_a_missing_file_is_noticed(self, folder):
        (folder / "labels.txt").unlink()
        with pytest.raises(ModelError, match=r"labels\.txt is missing"):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format_version": 99}, "format 99"),
            ({"format_version": 1}, "has format 1, this release reads format 6. .*train the model again"),
            ({"format": "other"}, "another kind"),
            ({"files": {"../evil": {"bytes": 1, "xxh3": ""}}}, "outside the folder"),
            ({"files": 3}, "damaged"),
            ({"files": {"labels.txt": 5}}, "damaged"),
            ({"options": None}, "damaged"),
            ({"members": 1}, "damaged"),
            ({"members": []}, "no stages"),
            ({"members": [[]]}, "damaged"),
            ({"members": [[{"stage": "encoder", "kind": "from the future", "config": {}}]]}, "damaged"),
            ({"calibration": {"stage": "calibration", "kind": "curves", "config": {}}}, "'weights' is missing"),
            ({"recipe": []}, "damaged"),
            ({"files": {}}, r"no file labels\.txt"),
            ({"n_labels": 2}, "does not have 2 labels"),
        ],
    )
    def test_a_strange_config_is_refused(self, folder, change, message):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ModelError, match=message):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        "field",
        ["format", "format_version", "shortlist_version", "recipe", "options", "n_labels", "members", "files"],
    )
    def test_a_missing_field_is_noticed(self, folder, field):
        config = json.loads((folder / "config.json").read_text())
        del config[field]
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="damaged"):
            shortlist.load(folder)

    @pytest.mark.parametrize("content", ["", "[]", "3", '{"format', "[" * 100_000])
    def test_a_config_that_is_no_object_is_refused(self, folder, content):
        model = shortlist.load(folder)
        (folder / "config.json").write_text(content)
        with pytest.raises(ModelError, match="damaged"):
            shortlist.load(folder)
        with pytest.raises(ModelError, match="nothing was written"):
            model.save(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"labels": np.array([0, 1_000_000_000], np.int32)}, "'labels' has a value of 1000000000"),
            ({"labels": np.array([-1, 0], np.int32)}, "'labels' has a value of -1"),
            ({"labels": np.array([0], np.int32)}, "has shape"),
            ({"labels": np.array([0, 0], np.float32)}, "'labels' is float32; expected int32"),
            ({"indptr": np.array([0, 5, 2], np.int64)}, "must start at 0, never decrease"),
            ({"indptr": np.array([1, 1, 2], np.int64)}, "must start at 0, never decrease"),
            ({"indptr": np.array([0, 1, 9], np.int64)}, "must start at 0, never decrease"),
            ({"indptr": np.array([0, 2], np.int64)}, "the encoder gives 2 features, the classifier takes 1"),
            ({"indptr": np.array([], np.int64)}, "must start at 0, never decrease"),
            ({"surplus": np.ones(1, np.float32)}, "'surplus' is not part of this stage"),
        ],
    )
    def test_bad_arrays_are_refused(self, folder, change, message):
        change_arrays(folder, change)
        with pytest.raises(ModelError, match=f"is damaged; train or fetch it again .*{message}"):
            shortlist.load(folder)

    def test_an_encoder_of_another_vocabulary_is_refused(self, folder):
        change_arrays(folder, {"idf": np.ones(1, np.float32)}, "encoder.safetensors")
        with pytest.raises(ModelError, match="expected 2 where it has 1"):
            shortlist.load(folder)

    def test_frequencies_of_other_labels_are_refused(self, tmp_path):
        shortlist.train([("red shoes", ["shoes"])], recipe="popular").save(tmp_path / "model")
        change_arrays(tmp_path / "model", {"frequencies": np.ones(2, np.float32)})
        with pytest.raises(ModelError, match="expected 1 where it has 2"):
            shortlist.load(tmp_path / "model")

    def test_not_a_model(self, tmp_path):
        with pytest.raises(ModelError, match="no such model folder"):
            shortlist.load(tmp_path / "nowhere")
        with pytest.raises(ModelError, match=r"no config\.json"):
            shortlist.load(tmp_path)

    def test_never_overwrites_what_is_not_a_model(self, folder, tmp_path):
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter1.txt").write_text("precious")
        model = shortlist.load(folder)
        with pytest.raises(ModelError, match="nothing was written"):
            model.save(tmp_path / "thesis")
        assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "precious"

    def test_replaces_an_older_model(self, folder):
        shortlist.train([("blue hat", ["hats"])], recipe="popular").save(folder)
        assert shortlist.load(folder).label_names == ["hats"]
        assert not (folder / "vocabulary.txt").exists()

    def test_never_deletes_files_beside_an_older_model(self, folder):
        (folder / "notes.txt").write_text("precious")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        model = shortlist.load(folder)
        with pytest.raises(ModelError, match=r"notes\.txt.*nothing was written"):
            model.save(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_never_replaces_a_model_it_cannot_read(self, folder):
        model = shortlist.load(folder)
        (folder / "config.json").write_text('{"format": "shortlist-model"}')
        with pytest.raises(ModelError, match="Nothing was written"):
            model.save(folder)
        assert (folder / "labels.txt").exists()

    def test_a_failed_save_leaves_the_old_model(self, folder, monkeypatch):
        model = shortlist.load(folder)

        def fail(*arguments):
            raise RuntimeError("disk full")

        monkeypatch.setattr("shortlist.model.folder.write_safetensors", fail)
        with pytest.raises(RuntimeError):
            model.save(folder)
        assert shortlist.load(folder).predict("shoes")[0].label == "shoes"
        assert len(list(folder.parent.iterdir())) == 1


small_numbers = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, -0.5])


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 7), st.integers(1, 4), st.data())
def test_top_labels_equals_a_dense_product(n_texts, n_words, n_labels, k, data):
    texts = data.draw(hnp.arrays(np.float32, (n_texts, n_words), elements=small_numbers))
    weights = data.draw(hnp.arrays(np.float32, (n_words, n_labels), elements=small_numbers))
    sparse_texts, sparse_weights = sparse.csr_array(texts), sparse.csr_array(weights)
    ids, scores = np.empty((n_texts, k), np.int32), np.empty((n_texts, k), np.float32)
    top_labels(
        sparse_texts.indptr.astype(np.int64),
        sparse_texts.indices.astype(np.int32),
        sparse_texts.data,
        sparse_weights.indptr.astype(np.int64),
        sparse_weights.indices.astype(np.int32),
        sparse_weights.data,
        n_labels,
        ids,
        scores,
    )
    products = texts @ weights
    shares_a_word = (texts != 0).astype(int) @ (weights != 0).astype(int) > 0
    for row in range(n_texts):
        expected = [int(i) for i in np.argsort(-products[row], kind="stable") if shares_a_word[row, i]][:k]
        assert ids[row].tolist() == expected + [-1] * (k - len(expected))
        assert scores[row, : len(expected)].tolist() == products[row, expected].tolist()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_saved_files_have_normal_permissions(tmp_path, umask):
    """A service that runs as another user must be able to read a model, if the umask allows it."""
    model = shortlist.train([("red shoes", ["shoes"])], recipe="centroid")
    before = os.umask(umask)
    try:
        model.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o666 & ~umask}
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~umask


def test_held_out_texts_are_stored_on_request(train_part):
    pytest.importorskip("torch")
    options = {**OPTIONS["astec"], "n_epochs": 1, "n_surrogate_epochs": 1} | PLAIN
    model = shortlist.train(train_part, "astec", **options, store_examples=True)
    assert set(model.card["examples"]) <= set(train_part.texts)
