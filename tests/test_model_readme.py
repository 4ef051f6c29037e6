"""The model card for people, in every model folder."""

from __future__ import annotations

import numpy as np
import yaml

import shortlist
from tiny_models import colours


def test_readme_has_front_matter_and_facts(tmp_path):
    model = shortlist.train(colours(), "centroid")
    model.save(tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "shortlist",
        "pipeline_tag": "text-classification",
        "tags": ["extreme-multi-label-classification", "centroid"],
    }
    assert "# centroid, 4 labels" in body and f"| P@1 | {model.card['scores']['P@1']:.2f} |" in body
    assert "| bits per weight | 8 |" in body and 'model.predict("a short text", k=5)' in body
    assert "rot zeug" not in text  # no text of the user


def test_readme_may_be_edited_or_missing(tmp_path):
    shortlist.train([("red shoes", ["shoes"])], "centroid").save(tmp_path)
    (tmp_path / "README.md").write_text("my own words")
    assert shortlist.load(tmp_path).predict("shoes", k=1)[0].label == "shoes"
    (tmp_path / "README.md").unlink()
    shortlist.load(tmp_path).save(tmp_path)
    assert (tmp_path / "README.md").exists()


def test_readme_of_features(tmp_path):
    data = shortlist.read([("", ["a"]), ("", ["b"])]).with_features(np.eye(2, 3))
    shortlist.train(data, "centroid").save(tmp_path)
    assert "a matrix with 3 columns" in (tmp_path / "README.md").read_text()
