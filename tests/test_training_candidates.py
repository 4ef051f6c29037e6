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
from shortlist.kernels.threads import use_threads
from shortlist.stages.candidates import CANDIDATES, AllLabels, Candidates, CandidateStage, NearestLabels
from shortlist.stages.classifier import RowClassifier
from shortlist.training import blending
from shortlist.training.phases import PHASES, candidates
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


@pytest.mark.parametrize("n_texts", [0, 1, 7, 8, 30])
def test_threads_and_blocks_do_not_change_what_is_found(monkeypatch, n_texts):
    rng = np.random.default_rng(0)
    centres, features = rng.standard_normal((40, 6)), rng.standard_normal((n_texts, 6)).astype(np.float32)
    stage = NearestLabels.build(centres, np.arange(40, dtype=np.int32), 40, n_candidates=9)
    rows = {"weights": rng.standard_normal((40, 6)).astype(np.float32), "biases": np.zeros(40, np.float32)}
    classifier, results = RowClassifier(rows, {"blend": {}}), []
    for texts_per_block, n_threads in ((100, 1), (4, 1), (4, 2)):
        for module in (candidates, blending):
            monkeypatch.setattr(module, "TEXTS_PER_BLOCK", texts_per_block)
        with use_threads(n_threads):
            ids, evidence = candidates.find_candidates(features, stage)
            results.append((ids, evidence, blending.hard_negatives(classifier, features, ids, evidence, 3)))
    assert [array.shape for array in results[0]] == [(n_texts, 9), (2, n_texts, 9), (n_texts, 3)]
    for arrays in results[1:]:
        for found, expected in zip(arrays, results[0], strict=True):
            assert np.array_equal(found, expected)
