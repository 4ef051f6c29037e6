"""The encoder of docs/own-encoder.md, run as a reader would: in Python, in a process without torch, and by commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shortlist
from serving import SECONDS, serving
from shortlist.errors import ModelError
from shortlist.recipes import recipe as registry
from training_processes import exit_code, files_of, killed_at, start_command

pytest.importorskip("torch")

PAGE = Path(__file__).parents[1] / "docs" / "own-encoder.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
OPTIONS = {
    "n_epochs": 4,
    "n_surrogate_epochs": 6,
    "embedding_dim": 16,
    "batch_size": 32,
    "dropout": 0.1,
    "n_clusters": 6,
    "threads": 1,
}
SETTINGS = [part for name, value in OPTIONS.items() for part in ("--set", f"{name}={value}")]


def topics(n_texts, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for topic in rng.integers(12, size=n_texts).tolist():
        words = [f"t{topic}w{i}" for i in rng.integers(6, size=3)] + [f"noise{i}" for i in rng.integers(30, size=2)]
        rows.append((" ".join(words), [f"label {topic}"]))
    return shortlist.read(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the file of the page, and pairs to train on."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_encoder.py").write_text(CODE[0])
    topics(400, seed=1).write(folder / "pairs.jsonl")
    return folder


@pytest.fixture(scope="module")
def my_encoder(folder):
    """The module, imported here; and forgotten in the end."""
    sys.path.insert(0, str(folder))
    import my_encoder

    yield my_encoder
    sys.path.remove(str(folder))
    del sys.modules["my_encoder"]
    registry._registered.pop("my-recipe", None)


@pytest.fixture(scope="module")
def model(folder, my_encoder):
    return shortlist.train(folder / "pairs.jsonl", recipe=my_encoder.RECIPE, **OPTIONS)


@pytest.fixture(scope="module")
def saved(model, folder):
    model.save(folder / "saved")
    return folder / "saved"


def run(folder, *command, code=0, **environment):
    """Run Python in the folder, as someone who has put it on PYTHONPATH; returns stdout and stderr."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_is_at_most_40_lines():
    assert len(CODE[0].splitlines()) <= 40
    assert "\nimport torch" not in CODE[0]


def test_the_page_compares_both_sides(my_encoder):
    exec(CODE[-1], {"__name__": "page"})


def test_the_page_names_what_exists():
    assert "shortlist.recipes" in PAGE.read_text()
    assert registry.GROUP in PAGE.read_text()
    assert registry.VARIABLE in PAGE.read_text()


@pytest.mark.slow
class TestInPython:
    def test_learns(self, model):
        test = topics(150, seed=2)
        assert shortlist.evaluate(model.predict_dataset(test), test)["P@1"] >= 90
        assert model.recipe == "my-recipe"
        assert model.predict("", k=1)  # no words at all

    def test_learns_together_with_the_rows_of_all_labels(self, my_encoder):
        xml_cnn = shortlist.get_recipe("xml-cnn")
        about = ("my-joint-recipe", "a test", "nothing", "never")
        recipe = shortlist.Recipe(*about, my_encoder.ENCODER, xml_cnn.phases, xml_cnn.options)
        options = {"n_epochs": 10, "embedding_dim": 16, "batch_size": 32, "learning_rate": 0.02, "threads": 1}
        model, test = shortlist.train(topics(400, seed=1), recipe, **options), topics(150, seed=2)
        assert shortlist.evaluate(model.predict_dataset(test), test)["P@1"] >= 90
        registry._registered.pop("my-joint-recipe")

    def test_save_and_load_change_nothing(self, model, saved, tmp_path):
        texts = list(topics(20, seed=3).texts)
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        assert again.predict(texts) == model.predict(texts)
        again.save(tmp_path / "again", bits=32)
        assert files_of(tmp_path / "again") == files_of(tmp_path / "model")
        assert shortlist.load(saved).predict(texts[0], k=1)[0].label == model.predict(texts[0], k=1)[0].label

    def test_an_unregistered_encoder_is_an_error_that_says_what_to_do(self, saved, my_encoder, monkeypatch):
        monkeypatch.setattr(registry, "_registered", {})
        message = r"saved: its encoder 'my-encoder' is not known here: recipe 'my-recipe'.* or set SHORTLIST_RECIPES="
        with pytest.raises(ModelError, match=message):
            shortlist.load(saved)

    def test_an_ensemble_of_two_processes(self, folder, my_encoder, tmp_path):
        options = {**OPTIONS, "n_epochs": 1, "n_surrogate_epochs": 1}
        data = shortlist.read(folder / "pairs.jsonl")
        one_by_one = shortlist.train(data, my_encoder.RECIPE, ensemble=2, **options)
        in_parallel = shortlist.train(data, my_encoder.RECIPE, ensemble=2, parallel=2, **options)
        one_by_one.save(tmp_path / "one by one")
        in_parallel.save(tmp_path / "in parallel")
        assert files_of(tmp_path / "one by one") == files_of(tmp_path / "in parallel")
        assert shortlist.load(tmp_path / "in parallel").title == "my-recipe × 2"


@pytest.mark.slow
class TestInOtherProcesses:
    LOAD = """
import sys
sys.modules["torch"] = None  # importing it fails from here on
import shortlist
{}
print(shortlist.load("saved").predict("t3w1 t3w2", k=1)[0].label)
"""

    @pytest.mark.parametrize(
        ("line", "environment"),
        [
            ("from my_encoder import RECIPE; shortlist.register(RECIPE)", {}),
            ('shortlist.get_recipe("my_encoder:RECIPE")', {}),
            ("", {"SHORTLIST_RECIPES": "my_encoder:RECIPE"}),
        ],
        ids=["register", "get_recipe", "environment"],
    )
    def test_prediction_needs_no_torch(self, folder, saved, model, line, environment):
        printed, _ = run(folder, "-c", self.LOAD.format(line), **environment)
        assert printed.strip() == model.predict("t3w1 t3w2", k=1)[0].label == "label 3"

    def test_an_installed_package(self, folder, saved, tmp_path):
        """An entry point is all that it takes: here in a folder that looks like site-packages."""
        about = tmp_path / "my_package-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[shortlist.recipes]\nmy-recipe = my_encoder:RECIPE\n")
        path = os.pathsep.join(filter(None, [str(folder), str(tmp_path), os.environ.get("PYTHONPATH")]))
        printed, _ = run(folder, "-c", self.LOAD.format(""), PYTHONPATH=path)
        assert printed.strip() == "label 3"

    def test_command_line(self, folder, saved):
        printed, _ = run(folder, "-m", "shortlist", "recipes", "my_encoder:RECIPE")
        assert printed.startswith("my-recipe\n")
        assert "embedding_dim = 300" in printed
        train = ["-m", "shortlist", "train", "pairs.jsonl", "--recipe", "my_encoder:RECIPE", "--out", "by-command"]
        printed, _ = run(folder, *train, *SETTINGS)
        assert "by-command: my-recipe" in printed
        assert files_of(folder / "by-command") == files_of(saved)

    def test_killed_and_resumed_it_leaves_the_same_model(self, folder, saved, tmp_path):
        """Killed in the second checkpoint of the encoder's own phase, and in that of the label rows."""
        out, messages = tmp_path / "model", tmp_path / "messages.txt"
        path = f"import sys; sys.path.insert(0, {str(folder)!r})"
        train = ["train", "pairs.jsonl", "--recipe", "my_encoder:RECIPE", "--out", str(out), *SETTINGS]
        train += ["--set", "checkpoint_minutes=0"]
        for place, resume in (("surrogate/state", []), ("classifier/state", ["--resume"])):
            process = start_command(folder, [*train, *resume], messages, path + killed_at(f"{place}:2:before"))
            assert exit_code(process, SECONDS) == -signal.SIGKILL, messages.read_text()
        process = start_command(folder, [*train, "--resume"], messages, path)
        assert exit_code(process, SECONDS) == 0, messages.read_text()
        assert files_of(out) == files_of(saved)
        assert not (tmp_path / "model.checkpoints").exists()

    def test_resume_in_python(self, folder, my_encoder, model, tmp_path, monkeypatch):
        from shortlist.training.learner import Learner

        step, taken = Learner.step, []

        def step_or_fail(learner, *arguments, **options):
            taken.append(1)
            if len(taken) == 20:
                raise RuntimeError("killed")
            return step(learner, *arguments, **options)

        options = {**OPTIONS, "checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_minutes": 0.0}
        monkeypatch.setattr(Learner, "step", step_or_fail)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(folder / "pairs.jsonl", my_encoder.RECIPE, **options)
        resumed = shortlist.train(folder / "pairs.jsonl", my_encoder.RECIPE, **options, resume=True)
        text = json.loads((folder / "pairs.jsonl").read_text().splitlines()[0])["text"]
        assert resumed.predict(text) == model.predict(text)

    def test_is_served(self, saved, folder, model, monkeypatch):
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("SHORTLIST_RECIPES", "my_encoder:RECIPE")
        with serving(saved) as server:
            status, answer = server.predict(texts=["t3w1 t3w2"], k=1)
        assert status == 200
        assert answer["predictions"][0][0]["label"] == model.predict("t3w1 t3w2", k=1)[0].label
