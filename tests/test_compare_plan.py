"""The command line of comparisons, and ablations."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from comparing import settings_of, write_data
from shortlist.cli import shortlist
from shortlist.cli.train import option_value
from shortlist.compare import ablations, compare
from shortlist.compare.plan import plan
from shortlist.errors import OptionError
from shortlist.report import write_comparison

pytestmark = pytest.mark.slow  # starts processes

OWN_RECIPE = """
import numpy as np
import shortlist


def network(data, options, vectors):
    import torch

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n_features = vectors.shape[1]
            self.words = torch.nn.Embedding(data.n_words + 1, self.n_features, data.n_words, sparse=True)
            self.words.weight.data[:-1] = torch.from_numpy(vectors)

        def forward(self, word_ids):
            return self.words(word_ids).sum(dim=1)

        def arrays(self):
            return {"words": self.words.weight[:-1].detach().cpu().numpy()}

    return Sum()


def encode(arrays, word_ids):
    return word_ids.to_csr(len(arrays["words"])) @ arrays["words"]


ASTEC = shortlist.get_recipe("astec")
ENCODER = shortlist.CustomEncoder("sum", network, encode)
RECIPE = shortlist.Recipe("own", "sums of word vectors", "little", "in tests", ENCODER, ASTEC.phases, ASTEC.options)
"""


def test_the_command_line_splits_off_a_test_part(tmp_path):
    data = write_data(tmp_path / "data")
    out = tmp_path / "out"
    call = ["compare", str(data / "train.jsonl"), "--recipes", "popular", "--peers", "none", "--out", str(out)]
    done = CliRunner().invoke(shortlist, [*call, "--threads", "1", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "| popular |" in done.output
    facts = json.loads((out / "data.json").read_text())
    assert facts["test_part"] == "split off at random" and facts["train_texts"] + facts["test_texts"] <= 240
    assert not (out / "work").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--recipes", "nothing"], "no recipe 'nothing'"),
        (["--peers", "nothing"], "unknown peer 'nothing'"),
        (["--recipes", "none", "--peers", "none"], "nothing to compare"),
        (["--recipes", "centroid:n_epochs=3"], "has no option 'n_epochs'"),
        (["--recipes", "centroid:min_count"], "expected OPTION=VALUE"),
        (["--recipes", "centroid*2"], "would be equal"),
        (["--recipes", "astec*x"], "after the star"),
        (["--recipes", "popular,popular"], "listed twice"),
        (["--recipes", "astec:n_epochs=two"], "'astec:n_epochs=two': n_epochs is 'two'; expected a whole number"),
        (["--peers", "fasttext", "--peers-python", "/no/python"], "/no/python cannot run the other tools"),
        (["--recipes", "popular", "--rerun", "astec"], "cannot rerun 'astec'"),
    ],
)
def test_invalid_command_lines(tmp_path, arguments, message):
    data = write_data(tmp_path / "data")
    failed = CliRunner().invoke(shortlist, ["compare", str(data), "--out", str(tmp_path / "out"), *arguments])
    assert failed.exit_code == 2
    assert message in failed.output
    assert not (tmp_path / "out").exists()


def test_an_own_encoder_named_by_module(tmp_path, monkeypatch):
    (tmp_path / "own_recipe.py").write_text(OWN_RECIPE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)  # for the processes of the entries
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    own = "own_recipe:RECIPE:embedding_dim=16:n_surrogate_epochs=3:n_epochs=3"
    call = ["compare", str(data), "--recipes", f"popular,{own}", "--peers", "none", "--out", str(out), "--threads", "1"]
    done = CliRunner().invoke(shortlist, call)
    assert done.exit_code == 0, done.output
    popular, entry = json.loads((out / "summary.json").read_text())["entries"]
    assert entry["name"] == own and entry["status"] == "done", entry["note"]
    assert entry["title"] == "own_recipe:RECIPE (embedding_dim=16, n_surrogate_epochs=3, n_epochs=3)"
    assert entry["options"]["embedding_dim"] == 16
    assert entry["scores"]["P@1"] > popular["scores"]["P@1"] + 20
    assert entry["multiply_adds"] is None  # nobody knows what the function costs


def test_nothing_measured_is_an_error(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    call = ["compare", str(data), "--recipes", "none", "--peers", "pecos", "--out", str(out)]
    failed = CliRunner().invoke(shortlist, [*call, "--peers-python", sys.executable])
    assert failed.exit_code == 2 and "no entry could be measured" in failed.output


def test_a_comparison_is_not_overwritten_by_a_report(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    compare(settings_of(data, out, "popular", keep_models=True))
    call = ["report", str(out / "models" / "popular"), str(data), "--out", str(out)]
    refused = CliRunner().invoke(shortlist, call)
    assert refused.exit_code == 2 and "holds a comparison" in refused.output
    assert not (out / "report.html").exists()


def test_ablations(tmp_path, monkeypatch):
    fan_out, dimensions = ablations.ABLATIONS["fan-out"], ablations.ABLATIONS["dimensions"]
    monkeypatch.setitem(ablations.ABLATIONS, "fan-out", [replace(one, labels_per_cluster=3) for one in fan_out[:3:2]])
    monkeypatch.setitem(ablations.ABLATIONS, "dimensions", dimensions[1:2])
    small = "n_epochs=2:embedding_dim=64:channels=4:validation_fraction=0.2"
    entries = plan("popular", "none", option_value, ablations=f"fan-out:{small},dimensions:{small}")
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", entries)
    summary = compare(settings)
    write_comparison(summary, Path(settings.out))
    names = ["fan-out:8,synchronised", "fan-out:8,LightXML", "dimensions:permutation 1"]
    assert [(entry["name"], entry["status"]) for entry in summary["entries"][1:]] == [(name, "done") for name in names]
    entry = json.loads((Path(settings.out) / "entries" / "fan-out_8_LightXML.json").read_text())
    options = entry["options"]
    assert options["variant"] == "lightxml" and options["n_clusters"] == 5 and options["reranker"] == "none"
    assert all(name in (Path(settings.out) / "table.md").read_text() for name in names)


@pytest.mark.parametrize("name, message", [("fans", "unknown ablation"), ("fan-out:fans=2", "has no option")])
def test_unknown_ablations_are_refused(name, message):
    with pytest.raises(OptionError, match=message):
        plan("none", "none", option_value, ablations=name)


def test_options_of_peers():
    (entry,) = plan("none", "xr-transformer:weights=some/folder:num-train-epochs=2", option_value)
    assert entry.name == "xr-transformer"
    assert entry.options == {"weights": "some/folder", "num_train_epochs": 2}
    with pytest.raises(OptionError, match="pecos has no option 'weights'; it has none"):
        plan("none", "pecos:weights=x", option_value)
    with pytest.raises(OptionError, match="expected OPTION=VALUE"):
        plan("none", "xr-transformer:weights", option_value)
