"""Labels that come and go: added by name, removed, renamed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import OptionError
from tiny_models import colours, model_over_features

THINGS = ["asthma", "cough", "fever", "fracture", "wrist", "ankle", "burn", "rash"]


def codes(n_texts=240):
    """Texts about one thing each; its name is that thing."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n_texts):
        number = i % len(THINGS)
        rows.append((f"{THINGS[number]} w{rng.integers(9)} w{rng.integers(9)} sneezing", [f"J4{number}"]))
    data = shortlist.read(rows)
    data.display_names = {f"J4{i}": thing.title() for i, thing in enumerate(THINGS)}
    return data


@pytest.fixture(scope="module")
def centroid():
    return shortlist.train(codes(), recipe="centroid")


@pytest.fixture(scope="module")
def astec():
    return shortlist.train(codes(), recipe="astec", embedding_dim=16, n_epochs=3, n_surrogate_epochs=2)


def arrays_of(model):
    pipeline = model.pipelines[0]
    stages = (pipeline.candidates, pipeline.classifier, pipeline.reranker)
    return [stage.arrays() for stage in stages if stage is not None]


def assert_same_arrays(one, other):
    for mine, theirs in zip(arrays_of(one), arrays_of(other), strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name]), name


def test_other_labels_stay_as_they_are_without_some():
    model, queries = model_over_features()
    rng = np.random.default_rng(0)
    removed = rng.permutation(model.n_labels)[:500]
    smaller = model.remove_labels([model.label_names[i] for i in removed])
    assert smaller.n_labels == 2500 and model.n_labels == 3000
    ids, scores = model.rank(queries, 5, search_effort=1e6, deny=[model.label_names[i] for i in removed])
    new_ids, new_scores = smaller.rank(queries, 5, search_effort=1e6)
    assert [[model.label_names[i] for i in row] for row in ids] == [
        [smaller.label_names[i] for i in row] for row in new_ids
    ]
    assert np.allclose(scores, new_scores, atol=1e-6)


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.slow
def test_what_is_added_and_removed_leaves_no_trace(astec, bits, tmp_path):
    astec.save(tmp_path / "model", bits=bits)
    model = shortlist.load(tmp_path / "model")
    more = model.add_labels({"X1": "sneezing", "X2": "unheard of"})
    assert more.label_names[-2:] == ["X1", "X2"] and more.display_names["X1"] == "sneezing"
    more.save(tmp_path / "more", bits=32)
    again = shortlist.load(tmp_path / "more")  # which checks all arrays
    assert again.predict("cough w1") == more.predict("cough w1")
    back = more.remove_labels("X*")
    hashes = [a.pop("taught.hashes", None) for m in (model, back) for a in [dict(arrays_of(m)[-1])]]
    assert np.isin(hashes[0], hashes[1]).all()
    assert [*back.vocabulary.words] == [*model.vocabulary.words, "unheard", "of"]  # words stay
    words = {"idf", "subword_idf", "starts", "words", "names.indptr"}
    for mine, theirs in zip(arrays_of(model), arrays_of(back), strict=True):
        for name in mine.keys() - {"taught.hashes", "taught.indptr"} - (words if "words" in mine else set()):
            assert mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name]), name


@pytest.mark.parametrize("kind", ["centroid", pytest.param("astec", marks=pytest.mark.slow)])
def test_a_new_label_is_predicted_by_its_name(kind, request):
    model = request.getfixturevalue(kind)
    assert "X1" not in {p.label for p in model.predict("sneezing", k=9)}
    more = model.add_labels({"X1": "Sneezing"})
    assert more.predict("sneezing")[0].label == "X1"
    assert more.predict("sneezing")[0].name == "Sneezing"
    for number, thing in enumerate(THINGS):  # and it does not get in the way of the others
        assert more.predict(f"{thing} w1 w2")[0].label == f"J4{number}"
    assert more.remove_labels("X1").predict("fever w3")[0].label == "J42"
    assert model.n_labels == 8


def test_names_lists_thresholds_and_tails_follow(centroid, tmp_path):
    model = shortlist.train(codes(), recipe="centroid")
    model.store_list("some", ["J41", "J42"])
    model.choose_threshold(codes(), precision=0.5, per_label=True)
    changed = model.add_labels(["sneezing"]).remove_labels("J41").rename_labels({"J42": "Hot"})
    assert changed.label_names == ["J40", "J42", "J43", "J44", "J45", "J46", "J47", "sneezing"]
    assert changed.lists == {"some": ["J42"]} and changed.predict("fever", k=1)[0].name == "Hot"
    changed.save(tmp_path / "model")
    again = shortlist.load(tmp_path / "model")
    assert again.predict("rash sneezing", tail=0.5) == changed.predict("rash sneezing", tail=0.5)
    assert again.predict("sneezing", min_score=0)[0].label == "sneezing"


def test_bad_labels_are_refused(centroid):
    with pytest.raises(OptionError, match="has the label 'J40' already"):
        centroid.add_labels({"J40": "asthma"})
    with pytest.raises(OptionError, match="not a label and its name"):
        centroid.add_labels({"": "asthma"})
    with pytest.raises(OptionError, match="Did you mean 'Asthma'"):
        centroid.remove_labels("asthna")
    with pytest.raises(OptionError, match="at least one label"):
        centroid.remove_labels("J*")
    with pytest.raises(OptionError, match="Did you mean"):
        centroid.rename_labels({"J4": "x"})
    with pytest.raises(OptionError, match="is not a label of this model"):
        centroid.rename_labels({"asthma": "x"})
    with pytest.raises(OptionError, match="expected a text"):
        centroid.rename_labels({"J40": " "})
    with pytest.raises(OptionError, match="reads no words"):
        model_over_features()[0].add_labels({"x": "y"})


@pytest.mark.slow
def test_models_with_shared_rows_are_refused():
    model = shortlist.train(colours(), recipe="mach", n_epochs=1)
    with pytest.raises(OptionError, match="labels are fixed when it is trained"):
        model.remove_labels(model.label_names[0])


def run(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


def test_command_line(centroid, tmp_path):
    model, names = tmp_path / "model", tmp_path / "names.tsv"
    centroid.save(model)
    names.write_text("X1\tSneezing\n")
    done = run("labels", "add", model, names, "--name", "X2", "Ice", "--out", tmp_path / "two")
    assert done.exit_code == 0 and "8 labels before, 10 now" in done.output
    assert run("labels", "list", tmp_path / "two").stdout.splitlines()[-2:] == ["X1\tSneezing", "X2\tIce"]
    done = run("labels", "remove", tmp_path / "two", "J*", "--out", tmp_path / "two")
    assert done.exit_code == 0
    done = run("labels", "rename", tmp_path / "two", "--name", "X2", "Snow", "--out", tmp_path / "two")
    lines = run("labels", "list", tmp_path / "two", "--json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["Sneezing", "Snow"]
    done = run("labels", "store-list", model, "some", "J40", "J41", "--out", model)
    assert done.exit_code == 0 and shortlist.load(model).lists == {"some": ["J40", "J41"]}
    done = run("labels", "remove", model, "J99", "--out", tmp_path / "three")
    assert done.exit_code == 2 and "no label or name 'J99'" in done.output and not (tmp_path / "three").exists()
    assert run("labels", "add", model, "--out", tmp_path / "three").exit_code == 2


@pytest.mark.slow
def test_every_name_of_a_label_answers():
    data = codes()
    data.more_names = {"J43": ["broken bone", "a bone that is cracked"]}
    model = shortlist.train(data, recipe="astec", embedding_dim=16, n_epochs=3, n_surrogate_epochs=2)
    for text in ("Broken bone", "fracture", "cracked is a bone that"):
        assert model.predict(text)[0].label == "J43", text
    names = model.pipelines[0].reranker.gather(["bone"], model.vocabulary.encode(["bone"]), np.array([[3, 2]])).names
    assert names[0, 0] > 0 == names[0, 1]


@pytest.mark.slow
class TestNamesOfNewLabels:
    """What names say, to a model that has none of their words."""

    def test_parts_of_words_find_a_label(self, astec, tmp_path):
        more = astec.add_labels({"S62": "Handgelenksfraktur", "H10": "Bindehautreizung"})
        for text, label in (("Gelenksfrakturen w1", "S62"), ("eine Hautreizung", "H10")):
            assert label in [found.label for found in more.predict(text, k=3, min_score=0)]
        more.save(tmp_path / "more")
        again = shortlist.load(tmp_path / "more")
        assert "S62" in [found.label for found in again.predict("Gelenksfrakturen", k=3, min_score=0)]
        without = again.remove_labels("S62")
        assert [found.label for found in without.predict("Hautreizung", k=2, min_score=0)].count("H10") == 1

    def test_all_names_count(self, astec):
        names = {"name": "Kidney stone", "alt_names": ["Nephrolithiasis"], "description": "pain in the flank"}
        more = astec.add_labels({"N20": names})
        assert more.display_names["N20"] == "Kidney stone"
        for text in ("Kidney stone", "nephrolithiasis", "pain in the flank"):
            assert more.predict(text)[0].label == "N20", text

    def test_other_labels_stay_first_for_their_texts(self, astec):
        """The names of the new labels are words of all texts."""
        texts, right = codes().texts, codes().labels.values
        more = astec.add_labels({"X1": "sneezing w1", "X2": "w2 sneezing", "X3": "w3 w4 sneezing"})
        before, after = (np.mean(m.rank(texts, 1)[0][:, 0] == right) for m in (astec, more))
        assert after >= before - 0.01

    def test_command_line_reads_all_names(self, astec, tmp_path):
        astec.save(tmp_path / "model")
        names = {"N20": {"name": "Kidney stone", "alt_names": ["Nephrolithiasis"]}, "N21": "Bladder"}
        (tmp_path / "names.json").write_text(json.dumps(names))
        call = ["labels", "add", str(tmp_path / "model"), str(tmp_path / "names.json"), "--out", str(tmp_path / "new")]
        result = CliRunner().invoke(command_line, call)
        assert result.exit_code == 0, result.output
        assert shortlist.load(tmp_path / "new").predict("nephrolithiasis")[0].name == "Kidney stone"


class TestAllNames:
    def data(self):
        data = codes()
        data.display_names = {**data.display_names, "N20": "Kidney stone", "N21": "Bladder"}
        data.more_names = {"N20": ["nephrolithiasis"]}
        return data

    def test_labels_without_texts_answer_if_asked_for(self):
        assert shortlist.train(self.data(), recipe="popular").n_labels == 8
        model = shortlist.train(self.data(), recipe="centroid", all_names=True)
        assert model.label_names[8:] == ["N20", "N21"] and model.display_names["N21"] == "Bladder"

    @pytest.mark.slow
    def test_by_all_of_their_names(self):
        options = {"embedding_dim": 16, "n_epochs": 3, "n_surrogate_epochs": 2}
        model = shortlist.train(self.data(), recipe="astec", all_names=True, **options)
        assert model.predict("nephrolithiasis")[0].label == model.predict("kidney stone")[0].label == "N20"

    def test_models_that_cannot_are_kept_as_they_are(self, caplog):
        model = shortlist.train(self.data(), recipe="mach", all_names=True, n_epochs=1)
        assert model.n_labels == 8 and "2 labels without texts are left out" in caplog.text

    def test_command_line(self, tmp_path):
        rows = [{"text": text, "labels": [f"J4{i % 8}"]} for i, text in enumerate(codes().texts)]
        (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / "names.json").write_text(json.dumps({"J40": "Asthma", "N20": "Kidney stone"}))
        call = ["train", str(tmp_path / "pairs.jsonl"), "--recipe", "centroid", "--out", str(tmp_path / "model")]
        result = CliRunner().invoke(command_line, [*call, "--label-names", str(tmp_path / "names.json"), "--all-names"])
        assert result.exit_code == 0, result.output
        assert shortlist.load(tmp_path / "model").label_names[-1] == "N20"


def test_a_blank_name_is_no_name(centroid):
    model = centroid.add_labels({"boots": " ", "mittens": " warm mittens "})
    assert "boots" not in model.display_names and model.display_names["mittens"] == "warm mittens"
