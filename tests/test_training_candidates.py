"""A new candidate stage, as docs/contributing.md tells a contributor to write it, goes through the whole house."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

import shortlist
from shortlist.arrays import ArraySpec
from shortlist.errors import OptionError
from shortlist.stages.candidates import CANDIDATES, AllLabels, Candidates, CandidateStage
from shortlist.training.phases import PHASES
from shortlist.training.phases.candidates import find_candidates

DATA = [(f"{color} {thing} {i}", [color, thing]) for i in range(60) for color, thing in ("ab", "cd", "ef", "bd")]
OPTIONS = {"n_epochs": 2, "n_surrogate_epochs": 1, "embedding_dim": 16, "threads": 1, "n_candidates": 5}


class FrequentLabels(CandidateStage):
    """The most frequent labels, whatever the text."""

    kind, spec = "frequent", {"labels": ArraySpec("int32", ("n",), below="n_labels", unique=True)}

    def find(self, features, n_searched):
        return Candidates(np.tile(self.arrays()["labels"], (len(features), 1)))


def frequent(build):
    order = np.argsort(-build.data.label_frequencies, kind="stable")[: build.options.n_candidates]
    build.features = build.encoded_texts()
    build.candidates = FrequentLabels({"labels": order.astype(np.int32)})
    build.candidates_of = find_candidates(build.features, build.candidates)


@pytest.fixture
def recipe(monkeypatch):
    module = ModuleType("shortlist.training.phases.frequent")
    module.frequent = frequent
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(PHASES, "frequent", "frequent")
    monkeypatch.setitem(CANDIDATES, "frequent", FrequentLabels)
    monkeypatch.setattr("shortlist.recipes.recipe._registered", {})
    return replace(shortlist.get_recipe("astec"), name="frequent", phases=("surrogate", "frequent", "classifier"))


@pytest.mark.parametrize("more", [{}, {"reranker": "none", "blend": "none"}, {"finetune_encoder": True}])
def test_a_new_stage_trains_saves_and_predicts(recipe, more, tmp_path):
    model = shortlist.train(DATA, recipe=recipe, **OPTIONS, **more)
    model.save(tmp_path / "model")
    loaded = shortlist.load(tmp_path / "model")
    kept = {model.label_names[i] for i in model.pipelines[0].candidates.arrays()["labels"].tolist()}
    found = loaded.predict("a b", k=2, tail=0.3)
    assert len(kept) == 5 and {one.label for one in found} <= kept | set("ab")
    assert [one.label for one in loaded.predict("a b", allow=["c", "d"])]
    with pytest.raises(OptionError, match="stage of kind 'frequent' whose labels are fixed"):
        loaded.add_labels({"x": "y"})


def test_candidates_must_be_label_ids():
    with pytest.raises(OptionError, match="candidates of kind 'all' are no label ids"):
        find_candidates(np.ones((2, 3)), AllLabels())
