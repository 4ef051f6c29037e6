"""`recipe="auto"`: the default trains what is best for the data, and every recipe takes what all take."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import MissingExtraError, OptionError
from shortlist.recipes import auto
from shortlist.recipes.auto import FEW_TEXTS, TEXTS_PER_CORE_MINUTE, choose_recipe

SMALL = {"embedding_dim": 16, "n_surrogate_epochs": 1, "n_epochs": 1, "threads": 1}


def pairs(n_texts):
    return [(f"{'red' if i % 2 else 'blue'} thing{i}", ["a" if i % 2 else "b"]) for i in range(n_texts)]


class TestChoice:
    def test_by_the_number_of_texts(self):
        assert choose_recipe("texts", FEW_TEXTS - 1).name == "centroid"
        assert choose_recipe("texts", FEW_TEXTS).name == "astec"
        assert choose_recipe("sparse", 5_000_000).name == "astec"

    def test_by_the_minutes(self):
        assert choose_recipe("texts", 2 * TEXTS_PER_CORE_MINUTE, 1, n_cores=2).name == "astec"
        assert choose_recipe("texts", 2 * TEXTS_PER_CORE_MINUTE + 1, 1, n_cores=2).name == "centroid"
        assert choose_recipe("texts", 10**9, 0).name == "astec"

    def test_dense_features_without_torch(self, monkeypatch):
        assert choose_recipe("dense", 1000).name == "deepxml-features"
        monkeypatch.setattr(auto, "find_spec", lambda name: None)
        assert choose_recipe("dense", 1000).name == "slice"

    def test_one_that_has_the_options(self):
        assert choose_recipe("texts", 10, options=["n_epochs"]).name == "astec"
        assert choose_recipe("texts", 10, options=["max_words_per_label"]).name == "centroid"
        assert choose_recipe("texts", 10, needs_seeds=True).name == "astec"
        assert choose_recipe("texts", 10, published=True).name == "astec"


class TestTrain:
    def test_is_the_default(self):
        assert shortlist.train(pairs(20)).recipe == "centroid"
        assert shortlist.train(pairs(FEW_TEXTS), **SMALL).recipe == "astec"
        features = np.random.default_rng(0).random((10, 4))
        data = shortlist.read(pairs(10)).with_features(features)
        assert shortlist.train(data).recipe == "centroid"

    def test_texts_and_labels(self):
        texts, labels = zip(*pairs(20), strict=True)
        for given in (labels, [label for (label,) in labels], np.array([label for (label,) in labels])):
            assert shortlist.train(texts, given).predict("red")[0].label == "a"
        assert shortlist.train(texts, labels, "popular").recipe == "popular"
        with pytest.raises(shortlist.DataError, match="20 texts but 19"):
            shortlist.train(texts, labels[1:])

    @pytest.mark.parametrize("recipe", ["popular", "centroid"])
    def test_baselines_take_what_all_take(self, recipe, tmp_path):
        run = {"seed": 3, "device": "cuda", "threads": 1, "checkpoint_dir": str(tmp_path), "minutes": 1}
        assert shortlist.train(pairs(20), recipe, **run, resume=True).recipe == recipe

    def test_says_what_differs_from_the_defaults(self, caplog):
        with caplog.at_level("INFO", "shortlist"):
            shortlist.train(pairs(FEW_TEXTS), "astec", **SMALL, seed=0)
        first, table = [record.message for record in caplog.records][:2]
        assert first == f"training astec: {FEW_TEXTS} texts, 2 labels, 1 thread"
        assert table.split("\n")[0].split() == ["option", "value", "default"]
        assert [line.split() for line in table.split("\n")[1:]] == [
            ["embedding_dim", "16", "300"],
            ["n_surrogate_epochs", "1", "20"],
            ["n_epochs", "1", "6"],
        ]
        assert max(len(line) for record in caplog.records for line in record.message.split("\n")) <= 100


def test_the_command_says_what_auto_is(tmp_path):
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": a, "labels": b}) + "\n" for a, b in pairs(FEW_TEXTS))
    )
    assert "astec for most data" in CliRunner().invoke(command_line, ["recipes", "auto"]).stdout
    done = CliRunner().invoke(command_line, ["recipes", "auto", "--data", str(tmp_path / "in.jsonl")])
    assert done.stdout.startswith("astec\n")
    with pytest.raises(OptionError, match="name a recipe here"):
        shortlist.get_recipe("auto")


class TestEarlyErrors:
    """They come before the data is read."""

    @pytest.mark.parametrize("recipe", ["auto", "astec", "centroid", "inceptionxml"])
    def test_wrong_device(self, recipe):
        with pytest.raises(OptionError, match="device is 'gpu'; expected cpu, cuda"):
            shortlist.train("/nowhere", recipe=recipe, device="gpu")

    def test_device_that_is_not_there(self):
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        with pytest.raises(OptionError, match="device 'cuda' is not available"):
            shortlist.train("/nowhere", recipe="astec", device="cuda")

    def test_files_that_are_not_there(self):
        with pytest.raises(OptionError, match="vectors is 'no/where': there is no such file or folder"):
            shortlist.train("/nowhere", recipe="astec", vectors="no/where")
        with pytest.raises(OptionError, match=r"'no/where': there is no such folder\. Models are not downloaded"):
            shortlist.train("/nowhere", recipe="lightxml", transformer="no/where")

    def test_wrong_names(self):
        with pytest.raises(OptionError, match="no recipe 'astek'; did you mean 'astec'"):
            shortlist.train("/nowhere", recipe="astek")
        with pytest.raises(OptionError, match="no option 'epochs'; did you mean 'n_epochs'"):
            shortlist.train("/nowhere", epochs=3)

    def test_missing_torch(self, monkeypatch):
        monkeypatch.setattr("shortlist.training.train.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"training inceptionxml needs torch: .*--torch-backend=cpu"):
            shortlist.train("/nowhere", recipe="inceptionxml")
