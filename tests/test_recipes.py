"""Recipes as data: the registry, which is open to other packages, and options, which are resolved before any work."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import shortlist
from shortlist import CustomEncoder, Option
from shortlist.errors import DataError, OptionError, ShortlistError
from shortlist.recipes import recipe as registry
from shortlist.recipes.options import Options, choice, count, fraction, rate, resolve, with_defaults

MINE = replace(shortlist.get_recipe("popular"), name="mine")
MODULE = """
import shortlist
from dataclasses import replace

MINE = replace(shortlist.get_recipe("popular"), name="mine")
OTHER = replace(MINE, name="other")
TAKEN = replace(MINE, name="astec")
NOT_A_RECIPE = 3
"""


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch):
    """No recipes of other packages, before or after a test."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    monkeypatch.delenv("SHORTLIST_RECIPES", raising=False)
    registry._plugged_in.cache_clear()
    yield
    registry._plugged_in.cache_clear()


@pytest.fixture
def module(put, tmp_path, monkeypatch):
    """The name of a module with recipes, in a folder on the path."""
    put("their_recipes.py", MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "their_recipes"
    sys.modules.pop("their_recipes", None)


class TestRegistry:
    def test_built_in_recipes_are_complete(self):
        recipes = shortlist.list_recipes()
        assert set(recipes) == {
            *("popular", "centroid", "astec", "slice", "xml-cnn", "deepxml-cnn", "mach", "deepxml-mlp"),
            *("inceptionxml", "inceptionxml+", "inceptionxml-deepxml", "attentionxml", "deepxml-features"),
            *("lightxml", "deepxml-transformer"),
        }
        for name, recipe in recipes.items():
            assert recipe.name == name
            assert recipe.summary and recipe.cost and recipe.choose_when
            assert len(recipe.option_names) == len(recipe.options)  # no name twice
            assert all(option.help and option.range for option in recipe.options)
            assert all(option.rule for option in recipe.options if callable(option.default))

    def test_a_registered_recipe_is_listed_and_trains(self):
        shortlist.register(MINE)
        assert shortlist.list_recipes()["mine"] is shortlist.get_recipe("mine") is MINE
        model = shortlist.train([("a", ["b"])], recipe="mine")
        assert model.recipe == "mine"

    def test_registering_again_replaces(self):
        """A cell of a notebook can be run again."""
        shortlist.register(MINE)
        changed = replace(MINE, summary="changed")
        shortlist.register(changed)
        assert shortlist.get_recipe("mine") is changed

    def test_names_of_built_in_and_installed_recipes_are_taken(self, module, monkeypatch):
        with pytest.raises(OptionError, match="there is another recipe 'astec'; choose another name"):
            shortlist.register(replace(MINE, name="astec"))
        shortlist.register(shortlist.get_recipe("astec"))  # the same one is fine
        monkeypatch.setenv("SHORTLIST_RECIPES", f"{module}:MINE")
        with pytest.raises(OptionError, match="another recipe 'mine'"):
            shortlist.register(replace(MINE, summary="another"))

    def test_register_takes_recipes_only(self):
        with pytest.raises(OptionError, match="register takes a Recipe, not dict"):
            shortlist.register({})

    def test_unknown_names_are_answered_with_the_known_ones(self):
        shortlist.register(MINE)
        with pytest.raises(OptionError, match=r"there is no recipe 'gpt'; the recipes are auto, popular, .*mine\."):
            shortlist.get_recipe("gpt")

    def test_train_registers_a_recipe_that_it_is_given(self, tmp_path):
        model = shortlist.train([("a", ["b"])], recipe=MINE)
        assert shortlist.get_recipe("mine") is MINE
        model.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").recipe == "mine"
        with pytest.raises(OptionError, match="another recipe 'astec'"):
            shortlist.train([("a", ["b"])], recipe=replace(MINE, name="astec"))

    def test_unknown_phases_and_encoders_are_refused(self):
        with pytest.raises(OptionError, match="there is no phase 'magic'; the phases are frequencies, "):
            shortlist.train([("a", ["b"])], recipe=replace(MINE, phases=("magic",)))
        strange = replace(shortlist.get_recipe("astec"), name="strange", encoder="crystal ball")
        with pytest.raises(OptionError, match="'strange': there is no encoder 'crystal ball' that learns; use bag, "):
            shortlist.train([("a b", ["b"])], recipe=strange)

    def test_encoders_have_names_of_their_own(self):
        with pytest.raises(OptionError, match="encoder 'bag' has the name of a built-in one"):
            CustomEncoder("bag", print, print)


class TestPublished:
    def test_is_the_recipe_with_the_defaults_of_its_paper(self):
        ours, published = shortlist.get_recipe("astec"), shortlist.get_recipe("astec@published")
        assert published.name == "astec@published"
        assert published.phases == ours.phases and published.option_names == ours.option_names
        values = resolve(published.name, published.options, {}, 50_000, 9000)
        assert values.relu and not resolve(ours.name, ours.options, {}).relu
        assert resolve(published.name, published.options, {"relu": False}).relu is False  # each part can still be set
        assert all(option.source for option in published.options if option.name in ours.published)
        assert published.as_published() is published  # `shortlist recipes astec@published --published`
        assert published.summary == "astec with the defaults of its paper"

    @pytest.mark.parametrize("name", [n for n, r in shortlist.list_recipes().items() if r.published])
    def test_every_published_default_is_valid_and_has_a_place(self, name):
        recipe = shortlist.get_recipe(name).as_published()
        for size in ((100, 7), (12_000, 700), (500_000, 670_000), (1_700_000, 2_800_000)):
            resolve(recipe.name, recipe.options, {}, *size)
        assert all(option.rule for option in recipe.options if callable(option.default))

    def test_recipes_without_a_paper_have_none(self):
        with pytest.raises(OptionError, match="recipe 'popular' has no published form"):
            shortlist.get_recipe("popular@published")
        with pytest.raises(OptionError, match="'popular' has no published form"):
            shortlist.train([("a", ["b"])], recipe="popular", published=True)

    def test_unknown_options_are_refused(self):
        wrong = replace(shortlist.get_recipe("astec"), published={"magic": shortlist.Published(1, "§ 1")})
        with pytest.raises(OptionError, match="no option magic to give a default to"):
            wrong.as_published()

    def test_a_model_says_that_it_is_the_published_form(self, tmp_path):
        recipe = replace(MINE, options=(count("n", 1, "a number"),), published={"n": shortlist.Published(7, "§ 1")})
        shortlist.register(recipe)
        model = shortlist.train([("a", ["b"])], recipe="mine", published=True)
        assert model.title == "mine@published" and model.options == {"n": 7}
        model.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").recipe == "mine@published"


class TestByModule:
    def test_is_imported_and_registered(self, module):
        recipe = shortlist.get_recipe(f"{module}:MINE")
        assert recipe.name == "mine"
        assert shortlist.get_recipe("mine") is recipe
        assert shortlist.train([("a", ["b"])], recipe=f"{module}:MINE").recipe == "mine"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("no_such_module:MINE", "cannot be imported .*on PYTHONPATH"),
            ("their_recipes:NONE", "cannot be imported .*'NONE'"),
            (":MINE", "cannot be imported"),
            ("their_recipes:NOT_A_RECIPE", "their_recipes:NOT_A_RECIPE is of type int; expected a shortlist.Recipe"),
            ("their_recipes:TAKEN", "has the name of a built-in recipe, 'astec'"),
        ],
    )
    def test_what_is_not_a_recipe_is_refused(self, module, name, message):
        with pytest.raises(OptionError, match=message):
            shortlist.get_recipe(name)


class TestPlugins:
    def test_entry_points_of_installed_packages(self, module, monkeypatch, caplog):
        entries = [
            EntryPoint(name, f"{module}:{name}", "shortlist.recipes")
            for name in ("MINE", "MISSING", "NOT_A_RECIPE", "TAKEN", "OTHER")
        ]
        asked = []
        monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or entries)
        assert {"mine", "other"} <= set(shortlist.list_recipes())
        assert shortlist.get_recipe("astec").phases == ("surrogate", "candidates", "classifier")
        assert asked == ["shortlist.recipes"]  # once per process
        # A broken package costs its own recipes only.
        for name in ("MISSING", "NOT_A_RECIPE", "TAKEN"):
            assert any(f"recipe {name} of {module}:{name} cannot be used" in line for line in caplog.messages)
        assert len(caplog.messages) == 3

    def test_environment_variable(self, module, monkeypatch):
        monkeypatch.setenv("SHORTLIST_RECIPES", f"{module}:MINE, {module}:OTHER,")
        assert list(shortlist.list_recipes())[-2:] == ["mine", "other"]
        monkeypatch.setenv("SHORTLIST_RECIPES", "no_such_module:MINE")
        with pytest.raises(OptionError, match="'no_such_module:MINE' cannot be imported"):
            shortlist.list_recipes()

    def test_a_module_may_register_itself_too(self, put, module, monkeypatch):
        put("their_recipes.py", MODULE + "shortlist.register(MINE)\n")
        monkeypatch.setenv("SHORTLIST_RECIPES", f"{module}:MINE")
        assert "mine" in shortlist.list_recipes()


OPTIONS = (
    count("n_epochs", lambda size: 100 // size.n_labels, "passes", "100 / labels"),
    rate("learning_rate", 0.1, "peak"),
    fraction("dropout", lambda size: 1 / size.options["n_epochs"], "share", "1 / n_epochs"),
    choice("variant", "plain", "what", ("plain", "fancy")),
    Option("stop_words", (str, list), "", "words"),
    Option("subwords", (str,), "", "lengths of character n-grams", pattern=r"(\d+-\d+)?"),
    Option("reranker", (bool,), True, "re-rank"),
    Option("checkpoint_dir", (str,), "", "folder"),
    Option("resume", (bool,), False, "continue"),
)


def resolved(n_texts=1000, n_labels=20, **given):
    return resolve("r", OPTIONS, given, n_texts, n_labels)


class TestResolve:
    def test_defaults_follow_from_the_data_and_from_each_other(self):
        assert resolved().to_dict() == {
            "n_epochs": 5,
            "learning_rate": 0.1,
            "dropout": 0.2,
            "variant": "plain",
            "stop_words": "",
            "subwords": "",
            "reranker": True,
            "checkpoint_dir": "",
            "resume": False,
        }
        assert resolved(n_epochs=2).dropout == 0.5

    def test_none_asks_for_a_default_that_depends_on_the_data(self):
        assert resolved(n_epochs=None).n_epochs == 5
        with pytest.raises(OptionError, match="learning_rate is None; expected a number"):
            resolved(learning_rate=None)

    def test_values_become_plain_python(self):
        options = resolved(n_epochs=np.int64(3), learning_rate=np.float32(0.5), dropout=0)
        assert [type(options.to_dict()[name]) for name in ("n_epochs", "learning_rate", "dropout")] == [
            int,
            float,
            float,
        ]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"n_epoch": 3}, "recipe 'r' has no option 'n_epoch'; did you mean 'n_epochs'? (shortlist recipes r)"),
            ({"xyz": 3}, "has no option 'xyz'; it has n_epochs, learning_rate, dropout"),
            ({"n_epochs": 2.5}, "n_epochs is 2.5; expected a whole number"),
            ({"n_epochs": True}, "n_epochs is True; expected a whole number"),
            ({"n_epochs": "3"}, "n_epochs is '3'; expected a whole number"),
            ({"n_epochs": 0}, "n_epochs is 0; it must be at least 1"),
            ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0 and below 1"),
            ({"learning_rate": 1}, "learning_rate is 1; it must be above 0 and below 1"),
            ({"learning_rate": float("nan")}, "learning_rate is nan; it must be above 0"),
            ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
            ({"variant": "odd"}, "variant is 'odd'; it can be plain, fancy"),
            ({"stop_words": [1]}, "stop_words is [1]; expected a string or a list of strings"),
            ({"subwords": "few"}, "subwords is 'few'; expected lengths of character n-grams"),
            ({"reranker": 1}, "reranker is 1; expected true or false"),
            ({"resume": True}, "resume needs checkpoint_dir"),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_wrong_options_are_refused(self, given, message):
        with pytest.raises(OptionError) as caught:
            resolved(**given)
        assert message in str(caught.value)

    def test_a_recipe_without_options_says_so(self):
        with pytest.raises(OptionError, match="recipe 'popular' has no option 'n_epochs'; it has seed"):
            shortlist.train([("a", ["b"])], recipe="popular", n_epochs=3)

    def test_options_are_checked_before_the_data_is_read(self):
        with pytest.raises(OptionError, match="did you mean 'n_epochs'"):
            shortlist.train("no such file", recipe="astec", epochs=3)

    def test_run_options_are_not_saved_with_the_model(self):
        options = resolved(checkpoint_dir="c", resume=True)
        assert not {"checkpoint_dir", "resume"} & set(options.model_options())
        assert options.resume

    def test_ranges_in_words(self):
        ranges = {option.name: option.range for option in OPTIONS}
        assert ranges["n_epochs"] == "at least 1"
        assert ranges["learning_rate"] == "above 0 and below 1"
        assert ranges["variant"] == "plain | fancy"
        assert ranges["reranker"] == "true | false"
        assert ranges["stop_words"] == "a string or a list of strings"

    def test_with_defaults(self):
        changed = with_defaults(OPTIONS, n_epochs=9)
        assert resolve("r", changed, {}).n_epochs == 9
        assert changed[0].rule == ""
        with pytest.raises(OptionError, match="no option speed to give a default to"):
            with_defaults(OPTIONS, speed=3)

    def test_missing_options_are_attribute_errors(self):
        options = Options({"seed": 3})
        assert (options.seed, options.get("dropout", 0.5), "seed" in options) == (3, 0.5, True)
        with pytest.raises(AttributeError, match="this recipe has no option 'dropout'"):
            _ = options.dropout


TEXTS = [(f"red thing{i % 5}", [f"code {i % 7}"]) for i in range(20)]


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("astec", {"surrogate": "magic"}, "surrogate is 'magic'; it can be clusters"),
        ("astec", {"negative_sampling": "magic"}, "negative_sampling is 'magic'; it can be neighbours"),
        ("astec", {"vote_weight": 1.5}, "vote_weight is 1.5"),
        ("astec", {"n_candidates": 0}, "n_candidates is 0; it must be at least 1"),
        ("astec", {"n_random_negatives": -1}, "n_random_negatives is -1"),
        ("astec", {"learning_rate": 2.0}, "learning_rate is 2.0"),
        ("astec", {"subwords": "few", "min_count": 2}, "subwords is 'few'; expected lengths of character n-grams"),
        ("astec", {"subwords": "3-4"}, "min_count"),
        ("astec", {"resume": True}, "resume needs checkpoint_dir"),
        ("inceptionxml+", {"n_epochs": 0}, "n_epochs is 0; it must be at least 1"),
        ("inceptionxml+", {"detach_fraction": -0.1}, "detach_fraction is -0.1"),
        ("inceptionxml+", {"variant": "round"}, "it can be syncxml, lightxml"),
        ("inceptionxml+", {"device": "abacus"}, "device is 'abacus'; expected cpu, cuda"),
        ("inceptionxml+", {"embedding_dim": 20}, "embedding_dim is 20; InceptionXML needs at least 64"),
        ("inceptionxml+", {"vectors": "/nowhere/glove.txt"}, "/nowhere/glove.txt"),
        ("inceptionxml-deepxml", {"embedding_dim": 20}, "embedding_dim is 20; InceptionXML needs at least 64"),
        ("inceptionxml-deepxml", {"channels": 0}, "channels is 0"),
        ("xml-cnn", {"n_chunks": 0}, "n_chunks is 0"),
        ("xml-cnn", {"attention": True}, "has no option 'attention'"),
        ("deepxml-cnn", {"hidden_size": 0}, "hidden_size is 0"),
        ("deepxml-mlp", {"n_word_buckets": 0}, "n_word_buckets is 0"),
        ("attentionxml", {"linear_sizes": "64,32,16"}, "linear_sizes is '64,32,16'; expected sizes of one or two"),
        ("attentionxml", {"hidden_size": 0}, "hidden_size is 0"),
        ("mach", {"n_repetitions": 0}, "n_repetitions is 0"),
        ("mach", {"n_buckets": -1}, "n_buckets is -1"),
        ("slice", {"surrogate": "magic"}, "surrogate is 'magic'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_options_of_built_in_recipes(recipe, options, message):
    pytest.importorskip("torch")
    small = {"embedding_dim": 64, "threads": 1, "n_epochs": 1}
    with pytest.raises(ShortlistError) as caught:
        shortlist.train(TEXTS, recipe=recipe, **{**small, **options})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "recipe",
    [
        "inceptionxml+",
        "astec",
        "inceptionxml-deepxml",
        "xml-cnn",
        "deepxml-cnn",
        "mach",
        "deepxml-mlp",
        "slice",
        "attentionxml",
    ],
)
def test_too_little_memory_is_refused_with_numbers_before_the_work(recipe, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("shortlist.training.memory.free_memory", lambda: 1_000)
    monkeypatch.setattr("shortlist.training.data.learn_vectors", None)
    with pytest.raises(OptionError, match=r"training needs about 0\.\d+ GB.* and 0\.0 GB are free\. A smaller emb"):
        shortlist.train(TEXTS, recipe=recipe)


def test_data_without_labels_is_refused():
    with pytest.raises(DataError, match="there is nothing to learn from"):
        shortlist.train([("a text", [])], recipe="popular")
