"""Whole comparisons on a small data set: entries, limits, resuming, and the files that are written."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import shortlist as library
from comparing import BAD, fake_entries, is_alive, settings_of, write_data
from shortlist.cli.train import option_value
from shortlist.compare import compare, comparison, runner
from shortlist.compare.measure import METRICS, Convention, measure
from shortlist.compare.plan import plan
from shortlist.compare.results import Entry
from shortlist.compare.splits import Splits
from shortlist.errors import DataError, OptionError, Stopped
from shortlist.files import lock_folder
from shortlist.report import write_comparison

pytestmark = pytest.mark.slow  # each starts processes


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished comparison of two recipes and a peer, with perturbed texts; returns its settings."""
    folder = tmp_path_factory.mktemp("done")
    data, out = write_data(folder / "data"), folder / "out"
    entries = plan("popular,centroid:min_count=2", "none", option_value) + fake_entries(folder / "peers", "works")
    settings = settings_of(data, out, entries, robustness=True, keep_models=True)
    compare(settings, on_summary=lambda summary: write_comparison(summary, out))
    return settings


def summary_of(settings):
    return json.loads((Path(settings.out) / "summary.json").read_text())


def runs_of(settings):
    """The names of the fake peers that were run, in order."""
    script = next(entry.peer.script for entry in settings.entries if entry.peer)
    return [line.split()[0] for line in (script.parent / "runs").read_text().splitlines()]


def test_summary(done):
    summary = summary_of(done)
    assert [entry["name"] for entry in summary["entries"]] == ["popular", "centroid:min_count=2", "works"]
    assert [entry["status"] for entry in summary["entries"]] == ["done"] * 3
    popular, centroid, works = summary["entries"]
    assert centroid["title"] == "centroid (min_count=2)" and centroid["kind"] == "recipe"
    assert centroid["options"]["min_count"] == 2 and works["options"] == {"fake": True}
    for entry in summary["entries"]:
        assert set(entry["scores"]) == set(entry["intervals"]) == set(METRICS)
        assert entry["train_seconds"] >= 0
        assert set(entry["robustness"]) == {"shuffled", "dropped", "misspelt"}
        assert sum(one["labels"] for one in entry["by_quantile"]) == summary["data"]["labels"] + 1  # unseen
        assert sum(one["P@5"] for one in entry["by_quantile"]) == pytest.approx(entry["scores"]["P@5"])
    assert centroid["peak_memory_bytes"] > 1e7 and centroid["model_bytes"] > 1000
    assert centroid["ms_p50"] <= centroid["ms_p99"] and centroid["bulk_texts_per_second"] > 0
    assert popular["multiply_adds"] == 0 and centroid["multiply_adds"] > 0
    # A bag of words does not depend on the order.
    assert centroid["robustness"]["shuffled"]["P@1"] == centroid["scores"]["P@1"]
    # The fake peer ranks as `popular` does.
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
    found = library.evaluate(model.predict_dataset(test, 10), test, train=train)
    entry = summary_of(done)["entries"][1]
    assert entry["scores"] == pytest.approx({name: found[name] for name in METRICS})
    ignored = library.evaluate(model.predict_dataset(test, 10), test, train=train, unseen="ignore")
    splits, again = Splits.read(done.source, done.seed), Entry(name="again")
    arrays = comparison.Store(done.out).load_arrays(f"{entry['files']}.predictions")
    measure(again, arrays, splits, Convention("ignore"))
    assert again.scores == pytest.approx({name: ignored[name] for name in METRICS}) != entry["scores"]
    assert splits.facts("ignore")["test_texts_that_count"] == ignored.texts == 59
    assert "They do not count" in splits.facts("ignore")["notes"][0]
    data = summary_of(done)["data"]
    assert (data["overlap"]["unseen_labels"], data["overlap"]["unseen_pairs"]) == (1, 1)
    assert data["test_texts_that_count"] == found.texts == 60
    assert "They count" in data["notes"][0]


def test_table(done):
    table = (Path(done.out) / "table.md").read_text()
    assert "| centroid:min_count=2 | **" in table
    assert "words shuffled" in table and "240 training texts, 60 test texts" in table
    assert "| at most |" in table and "Unseen labels: 1 of " in table and "leaks: " in table.lower()


def test_stored_entries_do_not_run_again(done, caplog):
    before = runs_of(done)
    with caplog.at_level("INFO", "shortlist"):
        compare(done)
    assert runs_of(done) == before
    assert caplog.text.count("already stored") == 3
    before_scores = {entry["name"]: entry["scores"] for entry in summary_of(done)["entries"]}
    other = settings_of(Path(done.source), Path(done.out), done.entries, convention=Convention(a=0.5))
    compare(other)  # measuring again does not need training
    assert runs_of(done) == before
    for entry in summary_of(done)["entries"]:
        assert entry["scores"]["P@1"] == before_scores[entry["name"]]["P@1"]
        assert entry["scores"]["PSP@1"] != before_scores[entry["name"]]["PSP@1"]
    compare(done)
    assert {entry["name"]: entry["scores"] for entry in summary_of(done)["entries"]} == before_scores


def test_rerun(done):
    before = runs_of(done)
    peer = [entry for entry in done.entries if entry.peer]
    compare(settings_of(Path(done.source), Path(done.out), peer, rerun=("works",), robustness=True))
    assert runs_of(done) == [*before, "works"]
    assert len(summary_of(done)["entries"]) == 3  # other stored entries stay
    with pytest.raises(OptionError, match="nobody"):
        compare(settings_of(Path(done.source), Path(done.out), peer, rerun=("nobody",)))


def test_damaged_entries_run_again(done):
    before, peer = runs_of(done), [entry for entry in done.entries if entry.peer]
    (Path(done.out) / "entries" / "works.predictions.npz").write_bytes(b"damaged")
    compare(settings_of(Path(done.source), Path(done.out), peer, robustness=True))
    assert runs_of(done) == [*before, "works"]


def test_other_data_is_refused(done, tmp_path):
    with pytest.raises(DataError, match="other data"):
        compare(settings_of(write_data(tmp_path / "data", seed=5), Path(done.out), "popular"))


def test_failing_peers_affect_only_their_entries(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    entries = fake_entries(tmp_path / "peers", *BAD, "cannot", "works")
    settings = settings_of(data, out, entries)
    summary = compare(settings, on_summary=lambda summary: write_comparison(summary, out))
    status = {entry["name"]: (entry["status"], entry["note"]) for entry in summary["entries"]}
    assert status.pop("works")[0] == "done"
    assert status.pop("cannot") == ("skipped", "not on this data")
    assert {state for state, _ in status.values()} == {"failed"}
    assert status["dies"][1] == "something is wrong"
    assert "SIGABRT" in status["crashes"][1]
    assert "without a result" in status["no-result"][1]
    assert "label ids from 0 to" in status["unknown-labels"][1] and "NaN" in status["nan-scores"][1]
    assert "for 60 texts" in status["missing-texts"][1] and "is not a valid .npz file" in status["invalid-npz"][1]
    assert "measured.json is invalid" in status["invalid-json"][1]
    assert "- dies, failed: something is wrong" in (out / "table.md").read_text()
    assert (out / "entries" / "dies.log").read_text() == "this is dies\nsomething is wrong\n"
    before = runs_of(settings)
    compare(settings)  # failed entries do not run again; a skipped one may be possible now
    assert runs_of(settings) == [*before, "cannot"]
    compare(settings_of(data, out, entries[:1], minutes=50))  # other limits
    assert runs_of(settings) == [*before, "cannot", "dies"]


def test_limits_of_time_and_memory(tmp_path):
    entries = fake_entries(tmp_path / "peers", "hangs", "eats-memory")
    settings = settings_of(write_data(tmp_path / "data"), tmp_path / "out", entries, minutes=0.04, memory_gb=0.2)
    hangs, eats = compare(settings)["entries"]
    assert (hangs["status"], hangs["note"]) == ("failed", "exceeded the time limit of 0.04 minutes")
    assert eats["status"] == "failed" and "exceeded the memory limit" in eats["note"]
    pids = [int(line.split()[1]) for line in (tmp_path / "peers" / "runs").read_text().splitlines()]
    assert len(pids) == 3 and not any(map(is_alive, pids))


def test_ctrl_c_keeps_finished_entries(tmp_path, monkeypatch):
    data, entries = write_data(tmp_path / "data"), fake_entries(tmp_path / "peers", "works", "hangs")

    def interrupt(leader):
        if (tmp_path / "peers" / "runs").exists() and "hangs" in (tmp_path / "peers" / "runs").read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(runner, "resident_memory", interrupt)
    with pytest.raises(Stopped, match="has 1 finished entries"):
        compare(settings_of(data, tmp_path / "out", entries))
    assert [entry["name"] for entry in json.loads((tmp_path / "out" / "summary.json").read_text())["entries"]] == [
        "works"
    ]
    pid = int((tmp_path / "peers" / "runs").read_text().split()[-1])
    assert not is_alive(pid)


def test_a_recipe_resumes_from_its_checkpoint(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    settings = settings_of(data, out, "astec")
    store, splits = comparison.Store(out), Splits.read(str(data), 0)
    work, planned = store.work / "astec", settings.entries[0]
    one = comparison._Comparison(settings, {}, splits, store, lambda summary: None)
    assert one._write_job(planned, work, "print") == 0
    assert not json.loads((work / "job.json").read_text())["resume"]
    (work / "checkpoints").mkdir()
    (work / "seconds").write_text("12.5")
    assert one._write_job(planned, work, "print") == 12.5
    assert json.loads((work / "job.json").read_text())["resume"]
    assert one._write_job(planned, work, "another") == 0
    assert not (work / "checkpoints").exists()


def test_peers_that_are_not_installed_are_skipped(tmp_path):
    data = write_data(tmp_path / "data")
    entries = plan("none", "all", option_value)
    absent = compare(settings_of(data, tmp_path / "one", entries, peers_python=None))
    assert {entry["status"] for entry in absent["entries"]} == {"skipped"}
    assert all("make peers" in entry["note"] for entry in absent["entries"])
    entries = plan("none", "pecos", option_value)
    pecos = compare(settings_of(data, tmp_path / "two", entries, peers_python=sys.executable))
    assert pecos["entries"][0]["note"] == f"libpecos is not installed for {sys.executable}"


def test_a_peer_without_the_option_it_needs_is_skipped(tmp_path):
    data, planned = write_data(tmp_path / "data"), fake_entries(tmp_path / "peers", "works")[0]
    planned = replace(planned, peer=replace(planned.peer, needs="weights", options=("weights",)))
    skipped = compare(settings_of(data, tmp_path / "one", [planned]))["entries"][0]
    assert skipped["note"] == "it needs an option: --peers works:weights=..."
    given = compare(settings_of(data, tmp_path / "two", [replace(planned, options={"weights": "here"})]))["entries"][0]
    assert given["status"] == "done"


def test_one_vs_rest_is_skipped_on_large_data(tmp_path):
    planned = fake_entries(tmp_path / "peers", "works")[0]
    planned = replace(planned, peer=replace(planned.peer, max_pairs=1000))
    found = compare(settings_of(write_data(tmp_path / "data"), tmp_path / "out", [planned]))["entries"][0]
    assert found["status"] == "skipped" and "too large" in found["note"]


def test_two_comparisons_in_one_folder_are_refused(tmp_path):
    data = write_data(tmp_path / "data")
    folder = comparison.Store(tmp_path / "out").folder
    with lock_folder(folder), pytest.raises(DataError, match="another process is writing there"):
        compare(settings_of(data, tmp_path / "out", fake_entries(tmp_path / "peers", "works")))


def test_entries_are_read_as_written(tmp_path):
    store = comparison.Store(tmp_path)
    entry = Entry(name="astec*3", kind="recipe", title="astec × 3", status="done", intervals={"P@1": (40.0, 60.0)})
    store.save("astecx3", entry)
    assert store.load("astecx3") == entry
    (tmp_path / "entries" / "astecx3.json").write_text('{"name": 3}')
    assert store.load("astecx3") is None and store.load_all() == {}


def test_a_folder_with_other_files_is_refused(tmp_path):
    data, mine = write_data(tmp_path / "data"), tmp_path / "mine"
    (mine / "work").mkdir(parents=True)
    (mine / "work" / "thesis.txt").write_text("years of it")
    with pytest.raises(OptionError, match="is not empty and does not hold a comparison"):
        compare(settings_of(data, mine, "popular"))
    assert [path.name for path in mine.rglob("*")] == ["work", "thesis.txt"]
    with pytest.raises(OptionError, match="is a file"):
        compare(settings_of(data, mine / "work" / "thesis.txt", "popular"))


def test_entries_of_other_runs_have_a_note(tmp_path):
    data, out = write_data(tmp_path / "data"), tmp_path / "out"
    compare(settings_of(data, out, "centroid"))
    summary = compare(settings_of(data, out, "popular", threads=2, seed=5))
    write_comparison(summary, out)
    notes = {entry["name"]: entry["note"] for entry in summary["entries"]}
    assert notes == {"popular": "", "centroid": "run with threads 1, seed 0"}
    assert "run with threads 1, seed 0" in (out / "table.md").read_text()


def test_calibration_on_the_test_texts(done):
    splits = Splits.read(done.source, done.seed)
    for entry in summary_of(done)["entries"]:
        if entry["status"] != "done":
            continue
        arrays = comparison.Store(done.out).load_arrays(f"{entry['files']}.predictions")
        pairs = [
            (score, label in splits.truth.labels.row(text))
            for text in range(len(splits.truth))
            for label, score in zip(arrays["ids"][text, :5], arrays["scores"][text, :5], strict=True)
            if label >= 0 and len(splits.truth.labels.row(text))
        ]
        table = entry["calibration"]["test"]
        assert sum(line["labels"] for line in table) == len(pairs)
        right = sum(line["labels"] * line["right"] for line in table)
        assert right == pytest.approx(sum(is_right for _, is_right in pairs), abs=0.5)


def test_examples_mark_labels_that_are_not_in_training(tmp_path):
    data = write_data(tmp_path / "data", n_test=8)
    text = (data / "test.jsonl").read_text().replace('"labels": ["hat"', '"labels": ["bonnet", "hat"')
    (data / "test.jsonl").write_text(text)
    examples = compare(settings_of(data, tmp_path / "out", "popular"))["examples"]
    assert any("bonnet (not in training)" in one["labels"] for one in examples)
