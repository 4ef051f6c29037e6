"""Whole comparisons on a small data set: rows, limits, going on, what is written."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist as library
from comparing import BAD, fake_rows, is_alive, settings_of, write_data
from shortlist.cli import shortlist
from shortlist.cli.models import option_value
from shortlist.compare import ablations, compare, comparison, runner
from shortlist.compare.ablations import plan_ablations
from shortlist.compare.measure import METRICS, Convention
from shortlist.compare.plan import plan
from shortlist.compare.results import Row
from shortlist.errors import DataError, OptionError, Stopped

pytestmark = pytest.mark.slow  # each starts processes


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished comparison of two recipes and a peer, with disturbed texts: its folder, data and settings."""
    folder = tmp_path_factory.mktemp("done")
    data, out = write_data(folder / "data"), folder / "out"
    rows = plan("popular,centroid:min_count=2", "none", option_value) + fake_rows(folder / "peers", "works")
    settings = settings_of(data, out, rows, robustness=True, keep_models=True)
    compare(settings)
    return settings


def summary_of(settings):
    return json.loads((Path(settings.out) / "summary.json").read_text())


def runs_of(settings):
    """The names of peers that were run, one after the other."""
    script = next(row.peer.script for row in settings.rows if row.peer)
    return [line.split()[0] for line in (script.parent / "runs").read_text().splitlines()]


def test_the_summary_has_what_the_report_needs(done):
    summary = summary_of(done)
    assert [row["name"] for row in summary["rows"]] == ["popular", "centroid:min_count=2", "works"]
    assert [row["status"] for row in summary["rows"]] == ["done"] * 3
    popular, centroid, works = summary["rows"]
    assert centroid["title"] == "centroid (min_count=2)" and centroid["kind"] == "recipe"
    assert centroid["options"]["min_count"] == 2 and works["options"] == {"fake": True}
    for row in summary["rows"]:
        assert set(row["scores"]) == set(row["intervals"]) == set(METRICS)
        assert row["train_seconds"] >= 0
        assert set(row["robustness"]) == {"shuffled", "dropped", "misspelt"}
        assert sum(one["labels"] for one in row["by_quantile"]) == summary["data"]["labels"]
        assert sum(one["P@5"] for one in row["by_quantile"]) == pytest.approx(row["scores"]["P@5"])
    assert centroid["peak_memory_bytes"] > 1e7 and centroid["model_bytes"] > 1000
    assert centroid["ms_p50"] <= centroid["ms_p99"] and centroid["bulk_texts_per_second"] > 0
    assert popular["flops"] == 0 and centroid["flops"] > 0
    # Bags of words do not see an order.
    assert centroid["robustness"]["shuffled"]["P@1"] == centroid["scores"]["P@1"]
    # The peer ranks as `popular` does.
    assert works["scores"] == popular["scores"]
    assert summary["best"]["P@1"] == "centroid:min_count=2"
    assert centroid["difference_to_best"] == {}
    behind = works["difference_to_best"]["P@1"]
    assert behind["difference"] == pytest.approx(works["scores"]["P@1"] - centroid["scores"]["P@1"])
    assert behind["low"] <= behind["difference"] <= behind["high"] < 0 and behind["p"] < 0.05
    words = summary["words_per_text"]
    assert sum(bucket["count"] for bucket in words["histogram"]) == summary["data"]["train_texts"]
    assert words["mean"] == words["median"] == 5 and words["texts"] == "training"
    assert summary["machine"]["cores"] >= 1 and summary["machine"]["threads"] == 1
    for example in summary["examples"]:
        for label, name, score, right in example["predictions"]["centroid:min_count=2"]:
            assert right == (label in example["labels"]) and name == label and 0 <= score <= 1


def test_scores_are_those_of_evaluate(done):
    train, test = (library.read(done.source, part) for part in ("train", "test"))
    model = library.load(Path(done.out) / "models" / "centroid_min_count=2")
    found = library.evaluate(model.predict_dataset(test, 10), test, train=train, unseen="ignore")
    row = summary_of(done)["rows"][1]
    assert row["scores"] == pytest.approx({name: found[name] for name in METRICS})
    data = summary_of(done)["data"]
    assert data["unseen_in_training"] == {"labels": 1, "pairs": 1, "texts": 1}
    assert data["test_texts_that_count"] == found.texts == 59


def test_the_table_is_for_people(done):
    table = (Path(done.out) / "table.md").read_text()
    assert "| centroid (min_count=2) | **" in table
    assert "shuffled" in table and "240 training and 59 test texts" in table


def test_what_is_there_is_not_run_again(done, caplog):
    before = runs_of(done)
    with caplog.at_level("INFO", "shortlist"):
        compare(done)
    assert runs_of(done) == before
    assert caplog.text.count("is there already") == 3
    before_scores = {row["name"]: row["scores"] for row in summary_of(done)["rows"]}
    other = settings_of(Path(done.source), Path(done.out), done.rows, convention=Convention(a=0.5))
    compare(other)  # another measure needs no training
    assert runs_of(done) == before
    for row in summary_of(done)["rows"]:
        assert row["scores"]["P@1"] == before_scores[row["name"]]["P@1"]
        assert row["scores"]["PSP@1"] != before_scores[row["name"]]["PSP@1"]
    compare(done)
    assert {row["name"]: row["scores"] for row in summary_of(done)["rows"]} == before_scores


def test_again_runs_again(done):
    before = runs_of(done)
    peer = [row for row in done.rows if row.peer]
    compare(settings_of(Path(done.source), Path(done.out), peer, again=("works",), robustness=True))
    assert runs_of(done) == [*before, "works"]
    assert len(summary_of(done)["rows"]) == 3  # rows that are not asked for stay
    with pytest.raises(OptionError, match="nobody"):
        compare(settings_of(Path(done.source), Path(done.out), peer, again=("nobody",)))


def test_a_damaged_row_is_run_again(done):
    before, peer = runs_of(done), [row for row in done.rows if row.peer]
    (Path(done.out) / "rows" / "works.predictions.npz").write_bytes(b"damaged")
    compare(settings_of(Path(done.source), Path(done.out), peer, robustness=True))
    assert runs_of(done) == [*before, "works"]


def test_other_data_is_refused(done, tmp_path):
    with pytest.raises(DataError, match="other data"):
        compare(settings_of(write_data(tmp_path / "data", seed=5), Path(done.out), "popular"))


def test_peers_that_go_wrong_cost_their_rows_alone(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    rows = fake_rows(tmp_path / "peers", *BAD, "cannot", "works")
    settings = settings_of(data, out, rows)
    summary = compare(settings)
    status = {row["name"]: (row["status"], row["note"]) for row in summary["rows"]}
    assert status.pop("works")[0] == "done"
    assert status.pop("cannot") == ("skipped", "not on this data")
    assert {state for state, _ in status.values()} == {"failed"}
    assert status["dies"][1] == "something is wrong"
    assert "SIGABRT" in status["crashes"][1]
    assert "without a result" in status["leaves-nothing"][1]
    for name in ("other-labels", "not-numbers", "too-few", "no-json"):
        assert "makes no sense" in status[name][1] or "make no sense" in status[name][1], name
    assert "- dies, failed: something is wrong" in (out / "table.md").read_text()
    assert (out / "rows" / "dies.log").read_text() == "this is dies\nsomething is wrong\n"
    before = runs_of(settings)
    compare(settings)  # failed ones are not run again, but one that was skipped may be possible now
    assert runs_of(settings) == [*before, "cannot"]
    compare(settings_of(data, out, rows[:1], minutes=50))  # other limits
    assert runs_of(settings) == [*before, "cannot", "dies"]


def test_peers_that_hang_or_eat_are_ended(tmp_path):
    rows = fake_rows(tmp_path / "peers", "hangs", "eats")
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", rows, minutes=0.04, memory_gb=0.2)
    hangs, eats = compare(settings)["rows"]
    assert (hangs["status"], hangs["note"]) == ("failed", "took more than 0.04 minutes")
    assert eats["status"] == "failed" and "more memory" in eats["note"]
    pids = [int(line.split()[1]) for line in (tmp_path / "peers" / "runs").read_text().splitlines()]
    assert len(pids) == 3 and not any(map(is_alive, pids))


def test_ctrl_c_leaves_what_is_done(tmp_path, monkeypatch):
    data, rows = write_data(tmp_path / "data"), fake_rows(tmp_path / "peers", "works", "hangs")

    def interrupt(leader):
        if (tmp_path / "peers" / "runs").exists() and "hangs" in (tmp_path / "peers" / "runs").read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(runner, "resident_memory", interrupt)
    with pytest.raises(Stopped, match="1 rows are in"):
        compare(settings_of(data, tmp_path / "out", rows))
    assert [row["name"] for row in json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]] == ["works"]
    pid = int((tmp_path / "peers" / "runs").read_text().split()[-1])
    assert not is_alive(pid)


def test_a_recipe_goes_on_from_its_checkpoint(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    settings = settings_of(data, out, "astec")
    store, parts = comparison.Store(out), comparison.Parts.read(str(data), 0)
    work, planned = store.work / "astec", settings.rows[0]
    one = comparison._Comparison(settings, settings.rows, {}, parts, store, lambda summary: None)
    assert one._make_ready(planned, work, "print") == 0
    assert not json.loads((work / "job.json").read_text())["resume"]
    (work / "checkpoints").mkdir()
    (work / "spent").write_text("12.5")
    assert one._make_ready(planned, work, "print") == 12.5
    assert json.loads((work / "job.json").read_text())["resume"]
    assert one._make_ready(planned, work, "another") == 0
    assert not (work / "checkpoints").exists()


def test_peers_that_are_not_there_are_skipped(tmp_path):
    data = write_data(tmp_path / "data")
    rows = plan("none", "all", option_value)
    absent = compare(settings_of(data, tmp_path / "one", rows, peers_python=None))
    assert {row["status"] for row in absent["rows"]} == {"skipped"}
    assert all("make peers" in row["note"] for row in absent["rows"])
    rows = plan("none", "pecos", option_value)
    pecos = compare(settings_of(data, tmp_path / "two", rows, peers_python=sys.executable))
    assert pecos["rows"][0]["note"] == f"libpecos is not installed for {sys.executable}"


def test_one_versus_rest_is_not_tried_on_too_much(tmp_path):
    rows = fake_rows(tmp_path / "peers", "works")
    row = replace(rows[0], peer=replace(rows[0].peer, most_pairs=1000))
    found = compare(settings_of(write_data(tmp_path / "data"), tmp_path / "out", [row]))["rows"][0]
    assert found["status"] == "skipped" and "too many" in found["note"]


def test_two_at_once_in_one_folder_are_refused(tmp_path):
    data = write_data(tmp_path / "data")
    with comparison._alone(comparison.Store(tmp_path / "out")), pytest.raises(OptionError, match="at work"):
        compare(settings_of(data, tmp_path / "out", fake_rows(tmp_path / "peers", "works")))


def test_rows_are_read_as_they_were_written(tmp_path):
    store = comparison.Store(tmp_path)
    row = Row("astec*3", "recipe", "astec × 3", "done", scores={"P@1": 50.0}, intervals={"P@1": (40.0, 60.0)})
    store.save("astecx3", row)
    assert store.load("astecx3") == row
    (tmp_path / "rows" / "astecx3.json").write_text('{"name": 3}')
    assert store.load("astecx3") is None and store.all() == {}


def test_the_command_line_cuts_a_test_part(tmp_path):
    data = write_data(tmp_path / "data")
    out = tmp_path / "out"
    call = ["compare", str(data / "train.jsonl"), "--recipes", "popular", "--peers", "none", "--out", str(out)]
    done = CliRunner().invoke(shortlist, [*call, "--threads", "1", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "| popular |" in done.output
    facts = json.loads((out / "data.json").read_text())
    assert facts["test_part"].startswith("cut") and facts["train_texts"] + facts["test_texts"] <= 240
    assert not (out / "work").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--recipes", "nothing"], "no recipe 'nothing'"),
        (["--peers", "nothing"], "no peer 'nothing'"),
        (["--recipes", "none", "--peers", "none"], "nothing to compare"),
        (["--recipes", "centroid:epochs=3"], "'epochs=3' is no option"),
        (["--recipes", "centroid*2"], "has no seed"),
        (["--recipes", "astec*x"], "after the star"),
        (["--recipes", "popular,popular"], "stands twice"),
        (["--recipes", "astec:epochs=two"], "'astec:epochs=two': epochs is 'two'; expected a whole number"),
        (["--peers", "fasttext", "--peers-python", "/no/python"], "/no/python cannot run the other tools"),
        (["--recipes", "popular", "--again", "astec"], "'astec' is to be run again"),
    ],
)
def test_the_command_line_says_what_is_wrong(tmp_path, arguments, message):
    data = write_data(tmp_path / "data")
    failed = CliRunner().invoke(shortlist, ["compare", str(data), "--out", str(tmp_path / "out"), *arguments])
    assert failed.exit_code == 2
    assert message in failed.output
    assert not (tmp_path / "out").exists()


def test_nothing_measured_is_an_error(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    call = ["compare", str(data), "--recipes", "none", "--peers", "pecos", "--out", str(out)]
    failed = CliRunner().invoke(shortlist, [*call, "--peers-python", sys.executable])
    assert failed.exit_code == 2 and "nothing could be measured" in failed.output


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    data, mine = write_data(tmp_path / "data"), tmp_path / "mine"
    (mine / "work").mkdir(parents=True)
    (mine / "work" / "thesis.txt").write_text("years of it")
    with pytest.raises(OptionError, match="is not empty and holds no comparison"):
        compare(settings_of(data, mine, "popular"))
    assert [path.name for path in mine.rglob("*")] == ["work", "thesis.txt"]
    with pytest.raises(OptionError, match="is a file"):
        compare(settings_of(data, mine / "work" / "thesis.txt", "popular"))


def test_a_comparison_is_not_overwritten_by_a_report(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    compare(settings_of(data, out, "popular", keep_models=True))
    call = ["report", str(out / "models" / "popular"), str(data), "--out", str(out)]
    refused = CliRunner().invoke(shortlist, call)
    assert refused.exit_code == 2 and "holds a comparison" in refused.output
    assert not (out / "report.html").exists()


def test_rows_of_other_runs_say_so(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    compare(settings_of(data, out, "centroid"))
    summary = compare(settings_of(data, out, "popular", threads=2, seed=5))
    notes = {row["name"]: row["note"] for row in summary["rows"]}
    assert notes == {"popular": "", "centroid": "run with threads 1, seed 0"}
    assert "run with threads 1, seed 0" in (out / "table.md").read_text()


def test_scores_are_held_against_the_test_texts(done):
    parts = comparison.Parts.read(done.source, done.seed)
    for row in summary_of(done)["rows"]:
        if row["status"] != "done":
            continue
        arrays = comparison.Store(done.out).load_arrays(f"{row['files']}.predictions")
        pairs = [
            (score, label in parts.test.labels.row(text))
            for text in range(len(parts.test))
            for label, score in zip(arrays["ids"][text, :5], arrays["scores"][text, :5], strict=True)
            if label >= 0 and len(parts.test.labels.row(text))
        ]
        table = row["calibration"]["test"]
        assert sum(line["labels"] for line in table) == len(pairs)
        right = sum(line["labels"] * line["right"] for line in table)
        assert right == pytest.approx(sum(is_right for _, is_right in pairs), abs=0.5)


def test_true_labels_that_training_lacks_are_shown(tmp_path):
    data = write_data(tmp_path / "data", n_test=8)
    text = (data / "test.jsonl").read_text().replace('"labels": ["hat"', '"labels": ["bonnet", "hat"')
    (data / "test.jsonl").write_text(text)
    examples = compare(settings_of(data, tmp_path / "out", "popular"))["examples"]
    assert any("bonnet (not in training)" in one["labels"] for one in examples)


def test_data_without_labels_in_common_are_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "red hat", "labels": ["hat"]}\n')
    (tmp_path / "test.jsonl").write_text('{"text": "red shoe", "labels": ["shoe"]}\n')
    with pytest.raises(DataError, match="occurs in the train part"):
        comparison.Parts.read(str(tmp_path), 0)


def test_the_peers_get_the_same_words_as_we(tmp_path):
    from shortlist.compare.parts import write_peers_data
    from shortlist.compare.peers.run_peer import Data
    from shortlist.text import TfIdf, Vocabulary

    parts = comparison.Parts.read(str(write_data(tmp_path / "data")), 0)
    write_peers_data(tmp_path / "peers", parts, ("shuffled",), 5, seed=0)
    data = Data(tmp_path / "peers")
    vocabulary, ids = Vocabulary.build_and_encode(parts.train.texts)
    rows = TfIdf.fit(ids, len(vocabulary)).transform(ids)
    np.testing.assert_allclose(data.rows("train").toarray(), rows.toarray())
    assert data.lines("train")[3] == " ".join(vocabulary.tokenizer.words(parts.train.texts[3]))
    assert data.labels() == [sorted(parts.train.labels.row(i).tolist()) for i in range(len(parts.train))]
    assert [sorted(line.split()) for line in data.lines("test.shuffled")] == [
        sorted(line.split()) for line in data.lines("test")
    ]
    # The row that a peer's text has when it comes alone is the one it has in bulk.
    vectors = data.vectorizer().transform(data.texts())
    np.testing.assert_allclose(vectors.toarray(), data.rows("test")[:5].toarray(), rtol=1e-5)


def test_the_peers_get_labels_in_rising_order(tmp_path):
    from shortlist.compare.parts import write_peers_data
    from shortlist.compare.peers.run_peer import Data

    (tmp_path / "data").mkdir()
    lines = '{"text": "red hat", "labels": ["hat", "red"]}\n{"text": "red red hat", "labels": ["red", "hat"]}\n'
    for part in ("train", "test"):
        (tmp_path / "data" / f"{part}.jsonl").write_text(lines)
    parts = comparison.Parts.read(str(tmp_path / "data"), 0)
    assert parts.train.labels.row(1).tolist() == [1, 0]
    write_peers_data(tmp_path / "peers", parts, (), 1, seed=0)
    assert Data(tmp_path / "peers").labels() == [[0, 1], [0, 1]]


def test_ablations_have_tables_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ablations, "FAN_OUTS", (3,))
    monkeypatch.setattr(ablations, "PERMUTATIONS", 1)
    small = "epochs=2:dimensions=64:channels=4:validation=0.2"
    asked = plan_ablations(f"fan-out:{small},dimensions:{small}", option_value)
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", "popular", ablations=asked)
    summary = compare(settings)
    assert [row["name"] for row in summary["rows"]] == ["popular"] and set(summary["best"].values()) == {"popular"}
    fan_out, dimensions = summary["ablations"]
    assert fan_out["header"][:3] == ["labels a cluster", "form", "P@1"] and "meta recall" in fan_out["header"]
    forms = [[3, "synchronised"], [3, "not detached"], [3, "LightXML's"]]
    assert [row[:2] for row in fan_out["rows"]] == forms
    assert [row[0] for row in dimensions["rows"]] == ["as learnt", "order 1"]
    for table in summary["ablations"]:
        assert all(value is not None for row in table["rows"] for value in row) and not table["notes"]
    row = json.loads((Path(settings.out) / "rows" / "fan-out_3_LightXML_s.json").read_text())
    assert row["options"]["form"] == "lightxml" and row["options"]["clusters"] == 5 and not row["options"]["reranker"]
    assert "How many labels should a cluster have?" in (Path(settings.out) / "table.md").read_text()
    assert compare(settings)["ablations"] == summary["ablations"]  # from what is stored


@pytest.mark.parametrize("name, message", [("fans", "there is no ablation"), ("fan-out:fans=2", "is no option")])
def test_ablations_that_are_not_there_are_refused(name, message):
    with pytest.raises(OptionError, match=message):
        plan_ablations(name, option_value)


def test_data_of_features(tmp_path):
    """The Repository's sparse files have no texts: what needs none is compared, and nothing is disturbed."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 80), ("test", 20)):
        labels = rng.integers(4, size=count)
        rows = [f"{label} {label}:1.0 {4 + rng.integers(6)}:0.5" for label in labels]
        (tmp_path / f"{part}.txt").write_text(f"{count} 10 4\n" + "\n".join(rows) + "\n")
    rows = plan("centroid", "fasttext", option_value) + fake_rows(tmp_path / "peers", "works")
    rows[1] = replace(rows[1], peer=replace(rows[1].peer, package="numpy"))
    asked = plan_ablations("dimensions", option_value)
    summary = compare(settings_of(tmp_path, tmp_path / "out", rows, ablations=asked, robustness=True))
    assert set(summary["ablations"][0]["notes"].values()) == {"it reads texts, and the data has features instead"}
    centroid, fasttext, works = summary["rows"]
    assert centroid["scores"]["P@1"] == 100 and centroid["ms_p50"] > 0 and centroid["robustness"] == {}
    assert fasttext["status"] == "skipped" and "reads texts" in fasttext["note"]
    assert works["status"] == "done" and summary["words_per_text"] == {}
