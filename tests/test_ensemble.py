"""Ensembles of any recipe: the mean of the members, one folder, processes, and trainings that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from shortlist.model.baselines import PopularModel
from shortlist.model.ensemble_training import train_ensemble
from shortlist.model.registry import list_recipes

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, ModelError, OptionError, ShortlistError
from shortlist.model.ensemble import EnsembleModel, best_of_means

SECONDS = 180
OPTIONS = {"epochs": 2, "surrogate_epochs": 2, "dimensions": 16, "batch_size": 32, "dropout": 0.25, "clusters": 7}
OPTIONS |= {"threads": 1, "seed": 5}


def noisy_topics(n_texts: int, seed: int) -> shortlist.Dataset:
    """Texts with one word of their topic among words of any; one label in five is wrong."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_texts):
        topic, other = rng.integers(20, size=2)
        words = [
            f"t{topic}w{rng.integers(4)}",
            f"t{other}w{rng.integers(4)}",
            *(f"n{i}" for i in rng.integers(40, size=2)),
        ]
        label = topic if rng.random() < 0.8 else rng.integers(20)
        rows.append((" ".join(words), [f"label {label}", f"group {label % 4}"]))
    dataset = shortlist.read(rows)
    dataset.display_names = {"label 3": "the third topic"}
    return dataset


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def data():
    return noisy_topics(300, seed=1)


@pytest.fixture(scope="module")
def ensemble(data):
    pytest.importorskip("torch")
    return shortlist.train(data, "astec", ensemble=3, **OPTIONS)


@pytest.fixture(scope="module")
def saved(ensemble, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "model"
    ensemble.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def means_by_hand(rankings, k):
    """The slow twin of `best_of_means`, for one text."""
    sums = {}
    for ids, scores in rankings:
        for label, score in zip(ids, scores, strict=True):
            if label >= 0:
                sums[label] = sums.get(label, 0.0) + float(score)
    means = {label: np.float32(total / len(rankings)) for label, total in sums.items()}
    return sorted(means.items(), key=lambda item: (-item[1], item[0]))[:k]


@st.composite
def rankings_of_texts(draw):
    n_texts, widths = draw(st.integers(0, 3)), draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    n_labels = draw(st.integers(5, 12))
    members = []
    for width in widths:
        ids = np.array([rng.permutation(n_labels)[:width] for _ in range(n_texts)], np.int32).reshape(n_texts, width)
        scores = (rng.integers(4, size=ids.shape) / 4).astype(np.float32)  # many of them equal
        members.append((np.where(rng.random(ids.shape) < 0.2, -1, ids).astype(np.int32), scores))
    return members


@pytest.mark.slow
class TestMeans:
    @given(rankings_of_texts(), st.integers(1, 8))
    def test_equal_the_means_by_hand(self, members, k):
        ids, scores = (np.concatenate(parts, axis=1) for parts in zip(*members, strict=True))
        best, means = best_of_means(ids, scores, len(members), k)
        assert best.shape == means.shape == (len(ids), min(k, ids.shape[1]))
        for row in range(len(ids)):
            expected = means_by_hand([(ids[row], scores[row]) for ids, scores in members], k)
            there = best[row] >= 0
            assert list(zip(best[row][there].tolist(), means[row][there], strict=True)) == expected
            assert not there[len(expected) :].any()

    def test_of_real_members(self, ensemble, data):
        texts = data.texts[:30]
        ids, scores = ensemble._rank(texts, 5, None, 1.0)
        ranked = [member._rank(texts, 50, None, 1.0) for member in ensemble.members]
        for row in range(len(texts)):
            expected = means_by_hand([(ids[row], scores[row]) for ids, scores in ranked], 5)
            assert list(zip(ids[row].tolist(), scores[row], strict=True)) == expected

    def test_of_more_texts_than_a_block(self, ensemble, data, monkeypatch):
        before = ensemble.rank(data.texts, 5)
        monkeypatch.setattr("shortlist.model.ensemble.TEXTS_PER_BLOCK", 7)
        after = ensemble.rank(data.texts, 5)
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
class TestModel:
    def test_its_members_are_plain_models_seed_after_seed(self, ensemble, data, tmp_path):
        assert [member.options["seed"] for member in ensemble.members] == [5, 6, 7]
        shortlist.train(data, "astec", **{**OPTIONS, "seed": 6}).save(tmp_path / "alone", bits=32)
        alone = shortlist.load(tmp_path / "alone")
        texts = list(data.texts[:20])
        assert ensemble.members[1].predict(texts) == alone.predict(texts)
        assert ensemble.members[0].predict(texts) != alone.predict(texts)

    def test_says_what_it_is(self, ensemble):
        assert (ensemble.recipe, ensemble.title) == ("astec", "astec × 3")
        assert repr(ensemble) == "EnsembleModel(astec × 3, 24 labels)"
        assert "ensemble" not in list_recipes()

    def test_its_options_train_it_again(self, ensemble, saved, data, tmp_path):
        shortlist.train(data, ensemble.recipe, **ensemble.options, threads=1).save(tmp_path / "again")
        assert files_of(tmp_path / "again") == files_of(saved)

    def test_is_no_worse_than_its_worst_member(self, ensemble):
        test = noisy_topics(3000, seed=2)
        alone = [shortlist.evaluate(member.predict_dataset(test), test)["P@1"] for member in ensemble.members]
        assert shortlist.evaluate(ensemble.predict_dataset(test), test)["P@1"] >= min(alone)

    def test_save_and_load_change_nothing(self, ensemble, data, tmp_path):
        ensemble.save(tmp_path / "as learnt", bits=32)
        again, texts = shortlist.load(tmp_path / "as learnt"), list(data.texts[:50])
        assert isinstance(again, EnsembleModel)
        assert again.predict(texts) == ensemble.predict(texts)
        assert (again.title, again.options) == (ensemble.title, ensemble.options)
        assert [member.options for member in again.members] == [member.options for member in ensemble.members]
        assert "the third topic" in {p.name for row in again.predict(texts, k=24) for p in row}

    def test_odd_texts_and_large_k(self, ensemble):
        assert ensemble.predict([]) == []
        assert isinstance(ensemble.predict(""), list)
        assert 1 <= len(ensemble.predict("t3w1", k=10_000)) <= 24

    def test_predicts_without_torch(self, saved):
        code = "import sys; sys.modules['torch'] = None; import shortlist; shortlist.load(sys.argv[1]).predict('t3w1')"
        done = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_one_member_is_the_plain_model(self, data, tmp_path):
        pytest.importorskip("torch")
        shortlist.train(data, "astec", **OPTIONS).save(tmp_path / "plain")
        shortlist.train(data, "astec", ensemble=1, parallel=4, **OPTIONS).save(tmp_path / "one")
        assert files_of(tmp_path / "one") == files_of(tmp_path / "plain")


class TestFolder:
    def test_has_every_members_files_and_the_labels_once(self, saved):
        names = sorted(path.name for path in saved.iterdir() if path.name[0] not in "12")
        shared = {"config.json", "card.json", "labels.txt", "display_names.txt"}
        assert shared <= set(names)
        assert all(name.startswith("0.") for name in set(names) - shared)
        for number in "12":
            its = sorted(path.name[2:] for path in saved.iterdir() if path.name.startswith(f"{number}."))
            assert its == sorted(name[2:] for name in set(names) - shared)
        assert json.loads((saved / "config.json").read_text())["recipe"] == "astec"

    def test_damage_to_a_member_is_noticed(self, folder):
        content = bytearray((folder / "1.arrays.safetensors").read_bytes())
        content[-1] ^= 1
        (folder / "1.arrays.safetensors").write_bytes(content)
        with pytest.raises(ModelError, match=r"1\.arrays\.safetensors is not the file that was saved"):
            shortlist.load(folder)
        (folder / "1.arrays.safetensors").unlink()
        with pytest.raises(ModelError, match=r"1\.arrays\.safetensors is missing"):
            shortlist.load(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda config: config["files"].pop("2.arrays.safetensors"), r"no file 2\.arrays\.safetensors"),
            (lambda config: config["files"].pop("2.vocabulary.txt"), r"no file 2\.vocabulary\.txt"),
            (lambda config: config["options"].update(ensemble=2), "3 members, and 2 by its options"),
            (lambda config: config["options"].update(ensemble="x"), "3 members, and x by its options"),
            (lambda config: config["extra"].clear(), "about the members: .*`members`"),
            (lambda config: config["extra"].update(members=[{}]), "about the members: .*`options`"),
            (lambda config: config["extra"]["members"][1]["extra"].clear(), "is damaged.*vocabulary"),
            (lambda config: config["extra"]["members"][1]["options"].clear(), "is damaged.*max_words"),
            (lambda config: config.update(recipe="from the future"), "not known to this release"),
        ],
    )
    def test_a_strange_config_is_refused(self, folder, change, message):
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match=message):
            shortlist.load(folder)

    def test_takes_the_place_of_a_model_and_gives_it_up(self, ensemble, folder):
        shortlist.train([("blue hat", ["hats"])], recipe="popular").save(folder)
        assert "1.arrays.safetensors" not in files_of(folder)
        ensemble.save(folder)
        assert "arrays.safetensors" not in files_of(folder)


class TestErrors:
    @pytest.mark.parametrize("recipe", ["popular", "centroid"])
    def test_a_recipe_without_chance(self, recipe):
        with pytest.raises(OptionError, match=f"{recipe}' has no seed: an ensemble of it would be 3 times the same"):
            shortlist.train([("a", ["b"])], recipe, ensemble=3)

    @pytest.mark.parametrize("name", ["ensemble", "parallel"])
    def test_senseless_numbers(self, name):
        for value in (0, -1):
            with pytest.raises(OptionError, match=f"{name} is {value}; it must be at least 1"):
                shortlist.train([("a", ["b"])], "astec", **{name: value})
        for value in (1.5, True, "3", None):
            with pytest.raises(OptionError, match=f"{name} is {value!r}; expected a whole number"):
                shortlist.train([("a", ["b"])], "astec", **{name: value})


@dataclass(frozen=True)
class PretenceOptions:
    """How training ends."""

    seed: int = 0
    threads: int | None = None
    end: str = ""


class Pretence(PopularModel):
    """Learns by throwing dice."""

    recipe = "pretence"
    Options = PretenceOptions

    @staticmethod
    def train(dataset, options):
        if options.seed and options.end:
            {"refused": refuse, "bug": fail, "killed": kill}[options.end]()
        shares = np.random.default_rng(options.seed).random(dataset.n_labels, np.float32)
        kept = {"seed": options.seed, "threads": options.threads}
        return Pretence(shares, label_names=dataset.label_names, display_names={}, options=kept)


def refuse():
    raise OptionError("the dice are loaded; take others")


def fail():
    raise ZeroDivisionError("dice without sides")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
class TestProcesses:
    def test_leave_the_same_model(self, data, tmp_path, monkeypatch):
        monkeypatch.setattr("shortlist.model.ensemble_training.n_cores", lambda: 6)
        for parallel, threads in ((1, None), (2, 3), (8, 2)):
            model = train_ensemble(Pretence, data, PretenceOptions(), 3, parallel)
            assert [member.options for member in model.members] == [{"seed": i, "threads": threads} for i in range(3)]
            assert model.members[2].shares.tolist() == np.random.default_rng(2).random(24, np.float32).tolist()
        given = train_ensemble(Pretence, data, PretenceOptions(threads=5), 2, 2)
        assert [member.options["threads"] for member in given.members] == [5, 5]

    def test_of_a_real_recipe_leave_the_same_files(self, saved, data, tmp_path):
        shortlist.train(data, "astec", ensemble=3, parallel=2, **OPTIONS).save(tmp_path / "model")
        assert files_of(tmp_path / "model") == files_of(saved)

    @pytest.mark.parametrize(
        ("end", "kind", "message"),
        [
            ("refused", OptionError, "^the dice are loaded; take others$"),
            ("bug", RuntimeError, "in fail\n.*\nZeroDivisionError: dice without sides"),
            ("killed", ShortlistError, "the process of member-1 was ended by SIGKILL.*fewer at once"),
        ],
    )
    def test_that_fail_say_why(self, data, end, kind, message):
        with pytest.raises(kind, match=message) as caught:
            train_ensemble(Pretence, data, PretenceOptions(end=end), 3, 2)
        assert caught.value.__cause__ is None
        assert "multiprocessing" not in str(caught.value)


@pytest.mark.slow
class TestCommandLine:
    def test_trains_and_predicts(self, ensemble, saved, data, tmp_path):
        data.write(tmp_path / "pairs.jsonl")
        (tmp_path / "label_names.json").write_text(json.dumps(data.display_names))  # they are learnt from
        options = [part for name, value in OPTIONS.items() for part in ("--set", f"{name}={value}")]
        arguments = ["train", tmp_path / "pairs.jsonl", "--out", tmp_path / "model", "--recipe", "astec", *options]
        done = CliRunner().invoke(command_line, [*map(str, arguments), "--ensemble", "2"])
        assert done.exit_code == 0, done.output
        assert "model: astec × 2, Dataset(300 texts" in done.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["label_names.json", "model", "pairs.jsonl"]
        assert files_of(tmp_path / "model")["1.arrays.safetensors"] == files_of(saved)["1.arrays.safetensors"]
        done = CliRunner().invoke(command_line, ["predict", str(tmp_path / "model"), "t3w1", "-k", "1"])
        assert len(done.stdout.splitlines()) == 2

    def test_errors(self, data, tmp_path):
        data.write(tmp_path / "pairs.jsonl")
        start = ["train", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "model")]
        for more, message in (
            (["--ensemble", "3"], "recipe 'centroid' has no seed"),
            (["--recipe", "astec", "--ensemble", "0"], "ensemble is 0; it must be at least 1"),
        ):
            done = CliRunner().invoke(command_line, [*start, *more])
            assert (done.exit_code, message in done.stderr) == (2, True), done.output
        assert not (tmp_path / "model").exists()


@pytest.mark.slow
class TestResume:
    """What was trained already is not trained again, and nothing else is taken for it."""

    @pytest.fixture
    def options(self, tmp_path):
        return {**OPTIONS, "checkpoints": str(tmp_path / "checkpoints")}

    @pytest.fixture
    def two(self, data, options):
        pytest.importorskip("torch")
        return shortlist.train(data, "astec", ensemble=2, **options)

    def test_finished_members_are_loaded(self, two, data, options, saved, tmp_path, monkeypatch):
        member_class = type(two.members[0])
        trained, train = [], member_class.train
        monkeypatch.setattr(member_class, "train", lambda data, opts: trained.append(opts.seed) or train(data, opts))
        shortlist.train(data, "astec", ensemble=3, resume=True, **options).save(tmp_path / "model")
        assert trained == [7]
        assert files_of(tmp_path / "model") == files_of(saved)

    def test_of_finished_members_only_models_and_curves_are_kept(self, two, tmp_path):
        kept = {path.name for path in (tmp_path / "checkpoints" / "member-0").rglob("*")}
        assert "best" not in kept
        assert [path.parent.name for path in tmp_path.rglob("state")] == ["finished", "finished"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"resume": False}, "member-0/finished holds an unfinished training"),
            ({"epochs": 3}, "had epochs = 2, this one has 3"),
            ({"rate": 0.001}, "had rate = None, this one has 0.001"),
            ({"seed": 6}, "had seed = 5, this one has 6"),
            ({"recipe": "inceptionxml"}, "had recipe = 'astec', this one has 'inceptionxml'"),
            ({"data": noisy_topics(300, seed=9)}, "had data = "),
            ({"ensemble": 1}, "holds an unfinished training of an ensemble, and this is one of one model"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_only_by_the_same_training(self, two, data, options, change, message):
        if "recipe" in change:
            options = {"checkpoints": options["checkpoints"], "seed": 5}
        arguments = {"dataset": data, "recipe": "astec", "ensemble": 2, "resume": True, **options}
        if "data" in change:
            change = {"dataset": change["data"]}
        with pytest.raises(DataError, match=message):
            shortlist.train(**{**arguments, **change})

    @pytest.mark.parametrize("resume", [False, True])
    def test_not_over_the_checkpoints_of_one_model(self, data, options, resume):
        pytest.importorskip("torch")
        shortlist.train(data, "astec", **options)
        with pytest.raises(
            DataError, match="holds an unfinished training of one model, and this is one of an ensemble"
        ):
            shortlist.train(data, "astec", ensemble=2, resume=resume, **options)


# Killed on the spot when a checkpoint, a model or the mark of a finished member comes into its place, the n-th time;
# or just after that.
KILLED_AT_A_RENAME = """
import os, pathlib, signal, sys
place, number, when = sys.argv.pop(1).split(":")
rename, seen = pathlib.Path.rename, []
def counted(path, target):
    seen.append(str(target).endswith(place))
    now = seen[-1] and sum(seen) == int(number)
    if now and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = rename(path, target)
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
pathlib.Path.rename = counted
from shortlist.cli import main
main()
"""


@pytest.mark.slow
class TestKilled:
    """Trainings that are really killed end in the same files when they go on."""

    @pytest.fixture
    def start(self, data, tmp_path):
        """Starts a training with a checkpoint after every step; its output ends when its last process does."""
        pytest.importorskip("torch")
        data.write(tmp_path / "pairs.jsonl")

        def start(settings, *more, program=("-m", "shortlist")):
            command = [*program, "train", "pairs.jsonl", "--recipe", "astec", "--ensemble", "2", "--out", "model"]
            settings = {**settings, "minutes_between_checkpoints": 0.0}
            options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            with (tmp_path / "messages.txt").open("w") as messages:
                return subprocess.Popen(
                    [sys.executable, *command, *options, *more], cwd=tmp_path, stdout=subprocess.PIPE, stderr=messages
                )

        return start

    @staticmethod
    def finished(process, folder):
        """Exit code and messages."""
        process.communicate(timeout=SECONDS)
        return process.returncode, (folder / "messages.txt").read_text()

    @staticmethod
    def assert_as_unbroken(folder, settings):
        data = shortlist.read(folder / "pairs.jsonl")
        shortlist.train(data, "astec", ensemble=2, **settings).save(folder / "expected")
        assert files_of(folder / "model") == files_of(folder / "expected")
        assert not (folder / "model.checkpoints").exists()

    def test_within_members_and_between_them(self, start, tmp_path):
        moments = [
            "member-0/extreme/state:5:before",
            "member-0/finished/model:1:after",
            "member-0/finished/state:1:after",
            "member-1/surrogate/state:2:after",
        ]
        for number, moment in enumerate(moments):
            resume = ["--resume"] if number else []
            process = start(OPTIONS, *resume, program=("-c", KILLED_AT_A_RENAME, moment))
            code, messages = self.finished(process, tmp_path)
            assert code == -signal.SIGKILL, f"{moment}: {messages}"
            assert ("member-0 is trained already" in messages) == (number > 2)
        code, messages = self.finished(start(OPTIONS, "--resume"), tmp_path)
        assert code == 0, messages
        self.assert_as_unbroken(tmp_path, OPTIONS)

    def test_with_processes_by_ctrl_c_and_by_a_kill(self, start, tmp_path):
        settings = {**OPTIONS, "surrogate_epochs": 25}
        checkpoints = tmp_path / "model.checkpoints"
        for end, code, resume in ((signal.SIGINT, 130, []), (signal.SIGKILL, -signal.SIGKILL, ["--resume"])):
            process = start(settings, "--parallel", "2", *resume)
            self.wait_until_both_train(process, tmp_path, "going on at" if resume else "epoch 1/25")
            process.send_signal(end)
            ended, messages = self.finished(process, tmp_path)  # its processes are gone, or this would not end
            assert ended == code, messages
            assert "Traceback" not in messages
            if end == signal.SIGINT:
                assert f"stopped; the checkpoints are in {checkpoints}. To go on: --resume" in messages
        code, messages = self.finished(start(settings, "--resume", "--parallel", "2"), tmp_path)
        assert code == 0, messages
        assert "member-0: going on at epoch" in messages
        assert "member-1: going on at epoch" in messages
        self.assert_as_unbroken(tmp_path, settings)

    @staticmethod
    def wait_until_both_train(process, folder, sign):
        last = time.monotonic() + SECONDS
        while not all(f"member-{i}: {sign}" in (folder / "messages.txt").read_text() for i in (0, 1)):
            assert process.poll() is None
            assert time.monotonic() < last
            time.sleep(0.01)
