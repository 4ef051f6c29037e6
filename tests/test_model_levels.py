"""Predictions on the levels of a hierarchy: leaves, roll-up, back-off."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.labels.hierarchy import read_hierarchy
from shortlist.model.levels import LabelLevels
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.thresholds import Thresholds

# "warm" is a parent and a label; "rot" has two parents; "bunt" and "alles" are no labels.
PARENTS = {"rot": ["warm", "alt"], "gelb": "warm", "grün": "kalt", "blau": "kalt", "warm": "bunt", "kalt": "bunt",
           "bunt": "alles", "alt": "alles"}  # fmt: skip
NAMES = {"kalt": "Kalte Farben", "bunt": "Bunte Farben"}


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(300):
        label = ["rot", "gelb", "grün", "blau", "warm"][rng.integers(5)]
        rows.append((f"ding{rng.integers(9)} {label} zeug{rng.integers(9)}", [label]))
    trained = shortlist.train(shortlist.read(rows), recipe="centroid")
    trained.set_hierarchy(PARENTS, NAMES)
    return trained


def slow_levels(levels, ids, scores, k, threshold, allowed, most_specific):
    """The same, label by label."""
    hierarchy = levels.hierarchy
    above = [set(hierarchy.ancestors.row(i).tolist()) for i in range(len(hierarchy.labels))]
    answers = []
    for row, row_scores in zip(ids.tolist(), scores.tolist(), strict=True):
        rolled = {}
        for node in range(len(above)):
            below = [s for i, s in zip(row, row_scores, strict=True) if i >= 0 and node in above[i]]
            total = sum(s for i, s in zip(row, row_scores, strict=True) if i >= 0)
            share = 0 if hierarchy.is_leaf[node] else sum(below) / max(total, 1e-9)
            if below:
                rolled[node] = max(below) if hierarchy.inclusive else 1 - np.prod([1 - s for s in below]) * (1 - share)
        passing = {n: s for n, s in rolled.items() if s >= threshold and (allowed is None or allowed[n])}
        if most_specific:
            passing = {n: s for n, s in passing.items() if not any(n in above[o] and o != n for o in passing)}
        answers.append(sorted(passing.items(), key=lambda pair: (-pair[1], -len(above[pair[0]])))[:k])
    return answers


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most_specific", [True, False])
def test_levels_agree_with_a_slow_twin(seed, most_specific):
    rng = np.random.default_rng(seed)
    pairs = {(str(child), str(child + 1 + rng.integers(8))) for child in rng.integers(30, size=40)}
    labels = [str(i) for i in range(20)]
    hierarchy = read_hierarchy(sorted(pairs)).numbered(labels)
    hierarchy.inclusive = seed > 5
    levels = LabelLevels(hierarchy, 20, {}, {})
    ids = np.stack([rng.permutation(20)[:6] for _ in range(5)]).astype(np.int32)
    scores = np.sort(rng.random((5, 6)))[:, ::-1].astype(np.float32)
    ids[0, 4:] = -1
    ids[1] = -1
    allowed = None if seed % 2 else rng.random(len(levels.hierarchy.labels)) < 0.7
    chosen = None if allowed is None else AllowedLabels(allowed)
    got, got_scores = levels.best(ids, scores, 4, Thresholds.of(0.3), chosen, most_specific)
    expected = slow_levels(levels, ids, scores, 4, 0.3, allowed, most_specific)
    for row, row_scores, wanted in zip(got, got_scores, expected, strict=True):
        found = row >= 0
        np.testing.assert_allclose(row_scores[found], [score for _, score in wanted], rtol=1e-6)
        # Of equal scores and depths, any order will do.
        assert sorted(row[found].tolist()) == sorted(label for label, _ in wanted)


def test_a_parent_never_scores_below_its_child(model):
    texts = [f"{one} {other}" for one in ("rot", "blau", "warm") for other in ("gelb", "grün", "ding1")]
    for row in model.predict(texts, k=20, levels="roll-up", min_score=0):
        scores = {p.label: p.score for p in row}
        for child, parents in PARENTS.items():
            for parent in [parents] if isinstance(parents, str) else parents:
                if child in scores:
                    assert scores[parent] >= scores[child]


def test_leaves_only(model):
    assert model.predict("warm ding1", k=1)[0].label == "warm"
    found = model.predict("warm ding1", k=9, levels="leaves")
    assert {p.label for p in found} == {"rot", "gelb", "grün", "blau"}
    assert {p.label for p in model.predict("warm ding1", k=9, levels="leaves", allow=["rot", "warm"])} == {"rot"}
    with pytest.raises(OptionError, match="none of the labels is a leaf"):
        model.predict("warm", levels="leaves", allow="warm")


def test_roll_up_answers_with_parents_that_are_no_labels(model):
    found = {p.label: p for p in model.predict("rot ding1", k=20, levels="roll-up")}
    assert found["bunt"].name == "Bunte Farben" and found["warm"].name == "warm"
    assert found["alles"].score >= found["bunt"].score >= found["kalt"].score > 0


def test_allow_and_deny_choose_among_all_levels(model):
    found = model.predict("rot ding1", levels="roll-up", allow=["Kalte Farben", "warm"])
    assert [p.label for p in found] == ["warm", "kalt"]
    assert "bunt" not in {p.label for p in model.predict("rot ding1", k=20, levels="roll-up", deny="bu*")}
    with pytest.raises(OptionError, match="no label or name 'bunt'"):
        model.predict("rot", allow="bunt")  # without levels, it is no label


def test_back_off_to_the_most_specific_sure_label(model):
    rolled = {p.label: p.score for p in model.predict("rot gelb", k=20, levels="roll-up", min_score=0)}
    between = (max(rolled["rot"], rolled["gelb"]) + rolled["warm"]) / 2
    found = model.predict("rot gelb", levels="back-off", min_score=between)
    assert "warm" in {p.label for p in found} and not {"rot", "gelb", "bunt", "alles"} & {p.label for p in found}
    denied = model.predict("rot gelb", levels="back-off", min_score=between, deny="warm")
    assert "bunt" in {p.label for p in denied}


def test_back_off_with_thresholds_per_label(model):
    model.thresholds = Thresholds.of(0.01, np.full(model.n_labels, 1.0))
    found = {p.label for p in model.predict("rot ding1", k=9, levels="back-off")}
    assert found == {"alt", "kalt", "bunt"} - ({"bunt"} if "kalt" in found else set())


def test_no_words_no_answer(model):
    assert model.predict("", levels="roll-up") == model.predict("", levels="back-off", min_score=0.5) == []
    assert model.predict([], levels="roll-up") == []


def test_arguments_that_do_not_go_together(model):
    with pytest.raises(OptionError, match="levels is 'up'; expected 'leaves', 'roll-up', 'back-off'"):
        model.predict("rot", levels="up")
    with pytest.raises(OptionError, match="needs a threshold"):
        model.predict("rot", levels="back-off")
    with pytest.raises(OptionError, match="does not go with a tail"):
        model.predict("rot", levels="roll-up", tail=0.5)
    with pytest.raises(OptionError, match="explain is for labels of the model"):
        model.predict("rot", levels="roll-up", explain=True)
    model.set_hierarchy(None)
    for levels in ("leaves", "roll-up", "back-off"):
        with pytest.raises(OptionError, match="this model has no hierarchy"):
            model.predict("rot", levels=levels, min_score=0.5)


def test_a_hierarchy_of_other_labels_is_refused(model):
    with pytest.raises(OptionError, match="none of the labels of the model: it has 'boots' and others, the model"):
        model.set_hierarchy({"boots": "shoes"})
    assert model.hierarchy is not None and "warm" in model.hierarchy.labels  # as it was


def test_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = shortlist.load(tmp_path / "model")
    assert loaded.card["hierarchy"] == 9
    assert loaded.predict("rot", levels="roll-up") == shortlist.load(tmp_path / "model").predict(
        "rot", levels="roll-up"
    )
    assert {p.name for p in loaded.predict("rot ding1", k=9, levels="roll-up")} >= {"Bunte Farben", "Kalte Farben"}


def test_warm_up_prepares_the_levels(model):
    assert "levels" not in vars(model)
    model.warm_up()
    assert "levels" in vars(model)


def test_a_damaged_hierarchy_is_noticed(model, tmp_path):
    from model_files import put_file

    model.save(tmp_path / "model")
    put_file(tmp_path / "model", "hierarchy.json", b'{"pairs": [["a", "a"]], "names": {}, "inclusive": false}')
    with pytest.raises(ModelError, match=r"damaged.*own parent"):
        shortlist.load(tmp_path / "model")


def test_labels_that_come_and_go_keep_the_hierarchy(model):
    smaller = model.remove_labels(["warm"])
    assert "warm" in {p.label for p in smaller.predict("rot", k=9, levels="roll-up")}
    larger = model.add_labels({"bunt": "bunt"})
    assert larger.levels.hierarchy.labels[: larger.n_labels] == larger.label_names


def test_command_line(model, tmp_path):
    def run(*arguments, exit_code=0):
        result = CliRunner().invoke(command_line, list(map(str, arguments)))
        assert result.exit_code == exit_code, result.output
        return result.output

    model.set_hierarchy(None)
    folder, file = tmp_path / "model", tmp_path / "broader.tsv"
    model.save(folder)
    file.write_text("rot\twarm\nwarm\trot\n")
    assert "line 1: the hierarchy has a cycle" in run("labels", "hierarchy", folder, file, "--out", folder, exit_code=2)
    assert shortlist.load(folder).hierarchy is None
    file.write_text("rot\twarm\ngelb\twarm\nwarm\tbunt\n")
    (tmp_path / "names.tsv").write_text("bunt\tBunte Farben\n")
    names = ("--label-names", tmp_path / "names.tsv")
    assert "4 labels, 3 of them in the model" in run("labels", "hierarchy", folder, file, *names, "--out", folder)
    assert "Bunte Farben" in run("predict", folder, "rot", "--levels", "roll-up", "-k", 9)
    (tmp_path / "in.jsonl").write_text('{"text": "rot gelb"}\n{"text": "blau"}\n')
    run("predict", folder, tmp_path / "in.jsonl", "--levels", "roll-up", "-k", 9, "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert "bunt" in rows[0]["labels"] and "Bunte Farben" in rows[0]["names"]
    (tmp_path / "test.jsonl").write_text('{"text": "rot", "labels": ["rot"]}\n')
    values = json.loads(run("evaluate", folder, tmp_path / "test.jsonl", "--json"))["values"]
    assert values["hP@1"] == 100 and values["hF1@1"] == 100
    run("labels", "hierarchy", folder, "--out", folder)
    assert shortlist.load(folder).hierarchy is None


def test_train_stores_a_hierarchy(tmp_path):
    rows = [{"text": f"{label} ding{i}", "labels": [label]} for i in range(20) for label in ("rot", "blau")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "label_names.json").write_text('{"rot": "Rot", "blau": "Blau", "bunt": "Bunt"}')
    (tmp_path / "broader.csv").write_text("rot,bunt\nblau,bunt\n")
    (tmp_path / "wrong.csv").write_text("boots,shoes\n")
    train = ["train", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "model"), "--hierarchy"]
    wrong = CliRunner().invoke(command_line, [*train, str(tmp_path / "wrong.csv")])
    assert wrong.exit_code == 2 and "none of the labels" in wrong.output and not (tmp_path / "model").exists()
    result = CliRunner().invoke(command_line, [*train, str(tmp_path / "broader.csv")])
    assert result.exit_code == 0, result.output
    model = shortlist.load(tmp_path / "model")
    assert {p.name for p in model.predict("rot ding1", levels="roll-up")} == {"Rot", "Blau", "Bunt"}


def test_tables(model):
    pyarrow = pytest.importorskip("pyarrow")
    from shortlist.batch.arrow import predict_arrow

    found = predict_arrow(model, pyarrow.table({"text": ["rot"]}), k=9, levels="roll-up")
    assert "bunt" in found["labels"].to_pylist()[0]


def test_a_data_set_of_predictions_has_the_labels_of_all_levels(model):
    data = shortlist.read([("rot", ["rot"])])
    assert "alles" in model.predict_dataset(data, k=20, levels="roll-up").labels_of(0)
    assert model.predict_dataset(data).label_names == model.label_names


def test_a_cycle_in_the_file_stores_nothing(model, tmp_path):
    (tmp_path / "h.csv").write_text("rot,warm\nwarm,rot\n")
    before = model.hierarchy
    with pytest.raises(DataError, match="cycle"):
        model.set_hierarchy(tmp_path / "h.csv")
    assert model.hierarchy is before
