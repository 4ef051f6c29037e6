"""Training of ensembles: members in processes of their own, and trainings that are killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, OptionError, ShortlistError
from shortlist.recipes.options import Options
from shortlist.training import ensemble as ensemble_training
from shortlist.training.ensemble import train_ensemble
from training_processes import OPTIONS, default_sigint, exit_code, files_of, killed_at, noisy_topics, start_command

pytest.importorskip("torch")

SECONDS = 180


@pytest.fixture(scope="module")
def data():
    return noisy_topics(300, seed=1)


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    """An ensemble of three, trained one after the other."""
    folder = tmp_path_factory.mktemp("ensemble") / "model"
    shortlist.train(data, "astec", ensemble=3, **OPTIONS).save(folder)
    return folder


@pytest.fixture(scope="module")
def two(data, tmp_path_factory):
    """The checkpoints of an ensemble of two."""
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    shortlist.train(data, "astec", ensemble=2, **OPTIONS, checkpoint_dir=str(folder))
    return folder


class TestErrors:
    @pytest.mark.parametrize("recipe", ["popular", "centroid"])
    def test_a_recipe_without_a_seed(self, recipe):
        with pytest.raises(OptionError, match=f"{recipe}' is random: an ensemble of it would be 3 times the same"):
            shortlist.train([("a", ["b"])], recipe, ensemble=3)

    @pytest.mark.parametrize("name", ["ensemble", "parallel"])
    def test_wrong_numbers(self, name):
        for value in (0, -1):
            with pytest.raises(OptionError, match=f"{name} is {value}; it must be at least 1"):
                shortlist.train([("a", ["b"])], "astec", **{name: value})
        for value in (1.5, True, "3", None):
            with pytest.raises(OptionError, match=f"{name} is {value!r}; expected a whole number"):
                shortlist.train([("a", ["b"])], "astec", **{name: value})


def refuse(data, options, vectors):
    wait_if_first(options)
    raise OptionError("the dice are loaded; take others")


def fail(data, options, vectors):
    wait_if_first(options)
    raise ZeroDivisionError("dice without sides")


def kill(data, options, vectors):
    wait_if_first(options)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_if_first(options):
    """Member 0 goes on until it is stopped."""
    if options.seed == 0:
        time.sleep(SECONDS)


def failing_recipe(network):
    encoder = shortlist.CustomEncoder("failing", network, print)
    return replace(shortlist.get_recipe("astec"), name="failing", encoder=encoder)


@pytest.mark.slow
class TestProcesses:
    @pytest.mark.parametrize(("parallel", "threads"), [(1, 6), (2, 3), (8, 2)])
    def test_share_the_threads(self, data, monkeypatch, parallel, threads):
        """Of 6 threads, each of the members that are trained at the same time gets an equal share."""
        seen = []
        monkeypatch.setattr(
            ensemble_training, "_train_at_once", lambda members, *_: seen.extend(m.options.threads for m in members)
        )
        monkeypatch.setattr(ensemble_training._Member, "train", lambda m, _: seen.append(m.options.threads))
        monkeypatch.setattr(ensemble_training._Member, "load", lambda m: None)
        monkeypatch.setattr(ensemble_training, "combine", lambda models: None)
        options = Options({**OPTIONS, "threads": 6, "checkpoint_dir": ""})
        train_ensemble(shortlist.get_recipe("astec"), data, options, 3, parallel)
        assert seen == [threads] * 3

    def test_leave_the_same_files(self, saved, data, tmp_path):
        options = {**OPTIONS, "threads": 2}  # one for each process
        shortlist.train(data, "astec", ensemble=3, parallel=2, **options).save(tmp_path / "model")
        assert files_of(tmp_path / "model") == files_of(saved)

    @pytest.mark.parametrize(
        ("network", "kind", "message"),
        [
            (refuse, OptionError, "^the dice are loaded; take others$"),
            (fail, RuntimeError, "in fail\n.*\n.*ZeroDivisionError: dice without sides"),
            (kill, ShortlistError, "the process of member-1 was killed by SIGKILL.*train fewer"),
        ],
        ids=["refused", "bug", "killed"],
    )
    def test_that_fail_say_why_and_stop_the_others(self, data, network, kind, message):
        started = time.monotonic()
        with pytest.raises(kind, match=message) as caught:
            shortlist.train(data, failing_recipe(network), ensemble=3, parallel=2, **{**OPTIONS, "seed": 0})
        assert caught.value.__cause__ is None
        assert "multiprocessing" not in str(caught.value)
        assert time.monotonic() - started < SECONDS

    def test_need_encoders_that_can_be_sent(self, data):
        with pytest.raises(OptionError, match=r"'failing' cannot be sent to another process .*top level of a mod"):
            shortlist.train(data, failing_recipe(lambda *_: None), ensemble=2, parallel=2, **OPTIONS)


@pytest.mark.slow
class TestCommandLine:
    def test_trains(self, data, saved, tmp_path):
        data.write(tmp_path / "pairs.jsonl")
        (tmp_path / "label_names.json").write_text('{"label 3": "the third topic"}')  # the model learns from them
        settings = [part for name, value in OPTIONS.items() for part in ("--set", f"{name}={value}")]
        arguments = ["train", tmp_path / "pairs.jsonl", "--out", tmp_path / "model", "--recipe", "astec", *settings]
        done = CliRunner().invoke(command_line, [*map(str, arguments), "--ensemble", "2"])
        assert done.exit_code == 0, done.output
        assert "model: astec × 2, Dataset(300 texts" in done.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["label_names.json", "model", "pairs.jsonl"]
        found, expected = files_of(tmp_path / "model"), files_of(saved)
        members = {name for name in found if name.startswith("1.")}
        assert members
        assert all(found[name] == expected[name] for name in members)

    def test_errors(self, data, tmp_path):
        data.write(tmp_path / "pairs.jsonl")
        start = ["train", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "model")]
        for more, message in (
            (["--recipe", "centroid", "--ensemble", "3"], "recipe 'centroid' is random"),
            (["--recipe", "astec", "--ensemble", "0"], "ensemble is 0; it must be at least 1"),
        ):
            done = CliRunner().invoke(command_line, [*start, *more])
            assert (done.exit_code, message in done.stderr) == (2, True), done.output
        assert not (tmp_path / "model").exists()


@pytest.mark.slow
class TestResume:
    """Trained members are not trained again, and nothing else is mistaken for them."""

    def test_finished_members_are_loaded(self, two, data, saved, tmp_path, monkeypatch):
        trained, train_one = [], ensemble_training.train_one
        monkeypatch.setattr(ensemble_training, "train_one", lambda *a: trained.append(a[2].seed) or train_one(*a))
        options = {**OPTIONS, "checkpoint_dir": str(two)}
        shortlist.train(data, "astec", ensemble=3, resume=True, **options).save(tmp_path / "model")
        assert trained == [7]
        assert files_of(tmp_path / "model") == files_of(saved)

    def test_of_finished_members_only_models_and_curves_are_kept(self, two):
        kept = {path.name for path in (two / "member-0").rglob("*")}
        assert "best" not in kept
        assert "metrics.jsonl" in kept
        assert {path.parent.name for path in two.rglob("state")} == {"finished"}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"resume": False}, "member-0/finished holds an interrupted training"),
            ({"n_epochs": 3}, "had n_epochs = 2, this one has 3"),
            ({"learning_rate": 0.001}, "had learning_rate = 0.002, this one has 0.001"),
            ({"seed": 6}, "had seed = 5, this one has 6"),
            ({"recipe": "deepxml-mlp"}, "had recipe = 'astec', this one has 'deepxml-mlp'"),
            ({"data": noisy_topics(300, seed=9)}, "had data = "),
            ({"ensemble": 1}, "holds an interrupted training of an ensemble, and this is one of a single model"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_another_training_is_refused(self, two, data, change, message):
        options = {**OPTIONS, "checkpoint_dir": str(two)}
        arguments = {"data": data, "recipe": "astec", "ensemble": 2, "resume": True, **options}
        with pytest.raises(DataError, match=message):
            shortlist.train(**{**arguments, **change})

    def test_checkpoints_of_a_single_model_are_refused(self, data, tmp_path):
        options = {**OPTIONS, "checkpoint_dir": str(tmp_path / "checkpoints")}
        shortlist.train(data, "astec", **options)
        for resume in (False, True):
            message = "holds an interrupted training of a single model, and this is one of an ensemble"
            with pytest.raises(DataError, match=message):
                shortlist.train(data, "astec", ensemble=2, resume=resume, **options)


@pytest.mark.slow
class TestKilled:
    """Trainings that are really killed end in the same files when they are resumed."""

    @pytest.fixture
    def arguments(self, data, tmp_path):
        """The command that trains with a checkpoint after every step."""
        data.write(tmp_path / "pairs.jsonl")

        def arguments(options):
            command = ["train", "pairs.jsonl", "--recipe", "astec", "--ensemble", "2", "--out", "model"]
            options = {"checkpoint_minutes": 0.0, **options}
            return [*command, *(part for name, value in options.items() for part in ("--set", f"{name}={value}"))]

        return arguments

    @pytest.fixture
    def start(self, arguments, tmp_path):
        def start(options, *more, before=""):
            return start_command(tmp_path, [*arguments(options), *more], tmp_path / "messages.txt", before)

        return start

    @pytest.fixture
    def start_parallel(self, arguments, tmp_path):
        """A process that starts others. Its output ends when the last of them does."""

        def start(options, *more):
            command = [sys.executable, "-m", "shortlist", *arguments(options), "--parallel", "2", *more]
            with (tmp_path / "messages.txt").open("w") as messages:
                return subprocess.Popen(
                    command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=messages, preexec_fn=default_sigint
                )

        return start

    @staticmethod
    def finished(process, folder):
        """Exit code and messages."""
        return exit_code(process, SECONDS), (folder / "messages.txt").read_text()

    @staticmethod
    def assert_like_uninterrupted(folder, options):
        data = shortlist.read(folder / "pairs.jsonl")
        shortlist.train(data, "astec", ensemble=2, **options).save(folder / "expected")
        assert files_of(folder / "model") == files_of(folder / "expected")
        assert not (folder / "model.checkpoints").exists()

    def test_within_members_and_between_them(self, start, tmp_path):
        moments = [
            "member-0/classifier/state:5:before",
            "member-0/finished/model:1:after",
            "member-0/finished/state:1:after",
            "member-1/surrogate/state:2:after",
        ]
        for number, moment in enumerate(moments):
            resume = ["--resume"] if number else []
            process = start(OPTIONS, *resume, before=killed_at(moment))
            code, messages = self.finished(process, tmp_path)
            assert code == -signal.SIGKILL, f"{moment}: {messages}"
            assert ("member-0 is trained already" in messages) == (number > 2)
        code, messages = self.finished(start(OPTIONS, "--resume"), tmp_path)
        assert code == 0, messages
        self.assert_like_uninterrupted(tmp_path, OPTIONS)

    def test_with_processes_by_ctrl_c_and_by_a_kill(self, start, start_parallel, tmp_path):
        options = {**OPTIONS, "n_surrogate_epochs": 25}
        checkpoints = tmp_path / "model.checkpoints"
        for end, code, resume in ((signal.SIGINT, 130, []), (signal.SIGKILL, -signal.SIGKILL, ["--resume"])):
            process = start_parallel(options, *resume)
            self.wait_until_both_train(process, tmp_path, "resuming at" if resume else "epoch 1/25")
            process.send_signal(end)
            process.communicate(timeout=SECONDS)
            messages = (tmp_path / "messages.txt").read_text()
            assert process.returncode == code, messages
            assert "Traceback" not in messages
            if end == signal.SIGINT:
                message = f"stopped; the checkpoints are in {checkpoints}. To continue, rerun with --resume"
                assert message in messages
        code, messages = self.finished(start({**options, "checkpoint_minutes": 1.0}, "--resume"), tmp_path)
        assert code == 0, messages
        assert messages.count("resuming at epoch") == 2
        self.assert_like_uninterrupted(tmp_path, options)

    @staticmethod
    def wait_until_both_train(process, folder, sign):
        last = time.monotonic() + SECONDS
        while not all(f"member-{i}: {sign}" in (folder / "messages.txt").read_text() for i in (0, 1)):
            assert process.poll() is None
            assert time.monotonic() < last
            time.sleep(0.01)
