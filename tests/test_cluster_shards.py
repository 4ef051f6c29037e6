"""Models in shards: row files that are opened as one, and label shards whose answers are merged."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist as library
from shortlist.cli import shortlist
from shortlist.cluster import open_label_shards, save_label_shards
from shortlist.errors import ModelError, OptionError
from shortlist.model.folder import save_model
from tiny_models import model_over_features

TEXTS = [f"w{i} w{i + 1} w{(7 * i) % 40}" for i in range(40)]
PAIRS = [(text, [f"label {i % 23}", f"label {(3 * i) % 23}"]) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def model():
    """A model that scores all labels."""
    return library.train(PAIRS, "centroid")


def test_row_files_are_opened_as_one(tmp_path):
    model, queries = model_over_features()
    save_model(model, tmp_path / "whole")
    save_model(model, tmp_path / "shards", n_shards=3)
    names = {path.name for path in (tmp_path / "shards").iterdir()}
    assert {f"classifier.0000{i}-of-00003.safetensors" for i in range(3)} < names
    assert "classifier.safetensors" not in names
    whole, shards = (library.load(tmp_path / name) for name in ("whole", "shards"))
    for one, other in zip(whole.rank(queries), shards.rank(queries), strict=True):
        assert np.array_equal(one, other)


def arrays_in(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_merge_writes_the_files_of_one_machine(tmp_path):
    save_model(model_over_features()[0], tmp_path / "whole")
    save_model(model_over_features()[0], tmp_path / "shards", n_shards=3)
    arguments = ["merge", str(tmp_path / "shards"), "--out", str(tmp_path / "merged")]
    assert CliRunner().invoke(shortlist, arguments).exit_code == 0
    whole, merged = (arrays_in(tmp_path / name) for name in ("whole", "merged"))
    assert whole == merged


def test_a_missing_shard_is_an_error(tmp_path):
    save_model(model_over_features()[0], tmp_path / "shards", n_shards=3)
    (tmp_path / "shards" / "classifier.00001-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"classifier\.00001-of-00003\.safetensors is missing"):
        library.load(tmp_path / "shards")


@pytest.mark.parametrize("n_shards", [1, 2, 5])
def test_merged_answers_of_label_shards_are_those_of_the_model(model, tmp_path, n_shards):
    save_label_shards(model, tmp_path / "shards", n_shards)
    merged = open_label_shards(tmp_path / "shards")
    assert merged.label_names == model.label_names
    expected, found = (one.predict(TEXTS, k=7) for one in (model, merged))
    for one, other in zip(expected, found, strict=True):
        assert [label.score for label in one] == pytest.approx([label.score for label in other], abs=1e-6)
        ties = {round(label.score, 6) for label in one[6:]}  # which of equal ones come last is free
        kept = [{label.label for label in row if round(label.score, 6) not in ties} for row in (one, other)]
        assert kept[0] == kept[1]
    ids = np.tile(np.arange(model.n_labels, dtype=np.int32), (len(TEXTS), 1))
    assert merged.scores(TEXTS, ids) == pytest.approx(model.scores(TEXTS, ids), abs=1e-6)


def test_what_cannot_be_divided_is_refused(model, tmp_path):
    with pytest.raises(OptionError, match="n_shards is 24"):
        save_label_shards(model, tmp_path / "shards", 24)
    with pytest.raises(ModelError, match="not a folder of label shards"):
        open_label_shards(tmp_path)
    (tmp_path / "full").mkdir()
    with pytest.raises(OptionError, match="already exists"):
        save_label_shards(model, tmp_path / "full", 2)
