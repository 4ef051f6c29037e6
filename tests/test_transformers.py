"""Transformers as encoders: trained, frozen, saved, served and resumed; and folders that cannot be used."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from serving import SECONDS, serving
from shortlist.cli import shortlist as command_line
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.stages.encoders.transformer import read_transformer
from tiny_transformers import save_tokenizer, tiny_transformer, word_piece_tokenizer
from training_processes import exit_code, files_of, killed_at, start_command

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="needs the extra transformers")

pytestmark = pytest.mark.slow  # imports transformers

OPTIONS = {
    "n_epochs": 8,
    "batch_size": 16,
    "validation_fraction": 0.2,
    "max_words": 16,
    "n_clusters": 4,
    "n_clusters_searched": 2,
    "dropout": 0.1,
    "encoder_learning_rate": 0.003,
    "seed": 3,
    "threads": 1,
}
# Without torch, as on a machine that only predicts.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import shortlist
model = shortlist.load(sys.argv[1])
print(model.card["recipe"])
model.predict("t1w1")
"""


def topics(n_texts, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for topic in rng.integers(8, size=n_texts).tolist():
        words = [f"t{topic}w{i}" for i in rng.integers(4, size=3)] + [f"noise{i}" for i in rng.integers(20, size=2)]
        rows.append((" ".join(words), [f"label {topic}"]))
    return shortlist.read(rows)


@pytest.fixture(scope="module")
def data():
    return topics(300, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    return tiny_transformer(tmp_path_factory.mktemp("transformer"), data.texts)


@pytest.fixture(scope="module")
def model(data, folder):
    return shortlist.train(data, recipe="lightxml", transformer=str(folder), reranker=False, **OPTIONS)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    model.save(path)
    return path


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the transformer, to spoil."""
    return shutil.copytree(folder, tmp_path / "copy")


def train(data, folder, **options):
    return shortlist.train(data, recipe="lightxml", transformer=str(folder), **{**OPTIONS, **options})


def run(*command, cwd=None):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False, cwd=cwd)


class TestModel:
    def test_learns_end_to_end(self, model, folder):
        test = topics(100, seed=2)
        assert shortlist.evaluate(model.predict_dataset(test), test)["P@1"] >= 90
        from safetensors.numpy import load_file

        learnt, before = model.pipelines[0].encoder.arrays(), load_file(folder / "model.safetensors")
        name = "encoder.layer.0.attention.self.query.weight"
        assert np.abs(learnt[name] - before[name]).max() > 1e-3

    def test_is_plain_files(self, saved, folder):
        assert (saved / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
        assert json.loads((saved / "transformer.json").read_text())["model_type"] == "bert"
        facts = json.loads((saved / "config.json").read_text())
        assert {"tokenizer.json", "transformer.json", "encoder.safetensors"} <= facts["files"].keys()
        assert "files" not in facts["members"][0][1]["config"]

    def test_save_and_load_change_nothing(self, model, saved, tmp_path):
        texts = list(topics(20, seed=5).texts)
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        assert again.predict(texts, explain=True) == model.predict(texts, explain=True)
        shortlist.load(saved).save(tmp_path / "again")
        assert files_of(tmp_path / "again") == files_of(saved)

    def test_texts_without_pieces_and_long_texts(self, model):
        for text in ("", " ", "☃", "t1w1 " * 500):
            assert model.predict(text, k=1)

    def test_says_what_a_prediction_costs(self, model):
        short, long = (model.multiply_adds([text]) for text in ("t1w1", "t1w1 t1w2 t1w3 t1w1"))
        assert 0 < short < long

    def test_damaged_weights_are_refused(self, model):
        from shortlist.stages.encoders import TransformerEncoder

        encoder = model.pipelines[0].encoder
        config = {**encoder.config(), "files": encoder.files()}
        arrays = dict(encoder.arrays())
        del arrays["embeddings.LayerNorm.bias"]
        more = {**encoder.arrays(), "more": np.zeros(3, np.float32)}
        wrong = {**encoder.arrays(), "embeddings.LayerNorm.bias": np.zeros(3, np.float32)}
        facts = json.loads(encoder.files()["transformer.json"])
        deep = {**encoder.files(), "transformer.json": json.dumps({**facts, "num_hidden_layers": 10**9}).encode()}
        for bad, bad_config, message in (
            (arrays, config, "embeddings.LayerNorm.bias is missing"),
            (more, config, "'more' is not part of a transformer"),
            (wrong, config, "other shapes than in config.json"),
            (encoder.arrays(), {**config, "files": deep}, "more layers than there are weights"),
        ):
            with pytest.raises(ModelError, match=f"the transformer of the model is damaged: .*{message}"):
                TransformerEncoder.from_arrays(bad, bad_config).encode(encoder.read(["t1w1"], None))
        with pytest.raises(ModelError, match="must be float32"):
            TransformerEncoder.from_arrays({"a": np.zeros(3, np.int8)}, config)
        with pytest.raises(ModelError, match="pooling is 'max'; expected one of mean, cls, last"):
            TransformerEncoder.from_arrays(encoder.arrays(), {**config, "pooling": "max"})

    def test_without_torch_there_is_one_clear_message(self, saved):
        done = run("-c", WITHOUT_TORCH, saved)
        assert done.stdout == "lightxml\n"  # the card needs no torch
        message = 'encoding texts with a transformer needs an optional part: pip install "shortlist[transformers]"'
        assert done.stderr.splitlines()[-1].endswith(message)

    def test_predicts_in_a_new_process_and_is_served(self, model, saved):
        text = topics(1, seed=6).texts[0]
        best = shortlist.load(saved).predict(text, k=1)[0]
        assert json.loads(run("-m", "shortlist", "predict", saved, text, "-k", 1, "--json").stdout)["labels"] == [
            best.label
        ]
        with serving(saved) as server:
            status, answer = server.predict(texts=[text], k=1)
        assert status == 200
        assert answer["predictions"][0][0]["label"] == best.label


class TestFrozen:
    def test_encodes_each_text_once_and_leaves_the_weights(self, data, folder, monkeypatch):
        from safetensors.numpy import load_file

        from shortlist.stages.encoders import TransformerEncoder

        encode, counts = TransformerEncoder.encode, []
        monkeypatch.setattr(TransformerEncoder, "encode", lambda *a: (counts.append(len(a[1])), encode(*a))[1])
        model = train(data, folder, freeze_encoder=True)
        n_different = len({tuple(row) for row in map(str.split, [*data.texts, *data.label_names])})
        assert sum(counts) <= n_different  # texts with the same pieces are the same text
        encoder, weights = model.pipelines[0].encoder, load_file(folder / "model.safetensors")
        assert isinstance(encoder, TransformerEncoder)  # and does not remember texts
        assert all(np.array_equal(array, weights[name]) for name, array in encoder.arrays().items())

    def test_a_bottleneck_is_saved_with_the_rows(self, data, folder, tmp_path):
        from shortlist.stages.classifier import RowClassifier

        model = train(data, folder, freeze_encoder=True, reranker=False, bottleneck=5, n_epochs=1)
        classifier = model.pipelines[0].classifier
        assert classifier.layer.rows.shape == (8, 5) and classifier.n_features == 32
        model.save(tmp_path / "model", bits=32)
        texts = list(data.texts[:20])
        assert shortlist.load(tmp_path / "model").predict(texts) == model.predict(texts)
        with pytest.raises(ModelError, match="projection"):
            wrong = {**classifier.arrays(), "projection": np.zeros((4, 32), np.float32)}
            RowClassifier.from_arrays(wrong, {}, n_labels=8)

    @pytest.mark.parametrize("recipe", ["lightxml", "deepxml-transformer"])
    def test_what_follows_learns(self, data, folder, recipe, tmp_path):
        """A random transformer has features, too; a residual block and the rows make something of them."""
        options = {**OPTIONS, "n_epochs": 40, "learning_rate": 0.02, "dropout": 0.0}
        options |= {"block": "residual"}
        options = {name: o for name, o in options.items() if name in shortlist.get_recipe(recipe).option_names}
        more = {"freeze_encoder": True, "reranker": False, "transformer": str(folder)}
        model, test = shortlist.train(data, recipe=recipe, **more, **options), topics(100, seed=2)
        assert shortlist.evaluate(model.predict_dataset(test), test)["P@1"] >= 50
        model.save(tmp_path / "model", bits=32)
        assert shortlist.load(tmp_path / "model").predict(list(test.texts)) == model.predict(list(test.texts))


def test_all_recipes_of_a_comparison_are_those_that_need_no_folder():
    from shortlist.compare.plan import plan

    names = {entry.name for entry in plan("all", "none", str)}
    assert {"popular", "astec"} <= names and not names & {"lightxml", "deepxml-transformer"}


def test_is_evaluated_and_compared(data, folder, saved, tmp_path):
    data.write(tmp_path / "data" / "train.jsonl")
    topics(60, seed=2).write(tmp_path / "data" / "test.jsonl")
    done = CliRunner().invoke(command_line, ["evaluate", str(saved), str(tmp_path / "data" / "test.jsonl"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["values"]["P@1"] >= 90
    names = ("n_epochs", "batch_size", "max_words", "n_clusters", "n_clusters_searched", "encoder_learning_rate")
    settings = [f"{name}={OPTIONS[name]}" for name in names]
    entry = ":".join(["lightxml", f"transformer={folder}", "reranker=false", *settings])
    command = ["compare", "data", "--recipes", entry, "--peers", "none", "--out", "compared", "--latency-texts", "3"]
    done = run("-m", "shortlist", *command, "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lightxml" in (tmp_path / "compared" / "table.md").read_text()


def test_resumed_after_a_kill_it_ends_in_the_same_files(data, folder, tmp_path):
    data.write(tmp_path / "pairs.jsonl")
    options = {**OPTIONS, "n_epochs": 2, "transformer": str(folder)}
    shortlist.train(tmp_path / "pairs.jsonl", recipe="lightxml", **options).save(tmp_path / "whole")
    command = ["train", "pairs.jsonl", "--recipe", "lightxml", "--out", "model"]
    command += [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    messages = tmp_path / "messages.txt"
    often = ["--set", "checkpoint_minutes=0"]
    killed = start_command(tmp_path, [*command, *often], messages, killed_at("/state:2:before"))
    assert exit_code(killed, SECONDS) == -signal.SIGKILL, messages.read_text()
    assert not (tmp_path / "model").exists()
    assert exit_code(start_command(tmp_path, [*command, "--resume"], messages), SECONDS) == 0, messages.read_text()
    assert "resuming at epoch" in messages.read_text()
    assert files_of(tmp_path / "model") == files_of(tmp_path / "whole")


@pytest.fixture(scope="module")
def transformer(folder):
    from shortlist.stages.encoders.pooling import transformer_of_folder

    return transformer_of_folder(str(folder), json.loads((folder / "config.json").read_text())).eval()


class TestPooling:
    """Against the same outputs of the library, pooled by hand, one text at a time."""

    @pytest.mark.parametrize("n_layers", [1, 2])
    @pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
    def test_of_every_kind(self, transformer, pooling, n_layers):
        import torch

        from shortlist.stages.encoders.pooling import PooledTransformer

        rows = [[2, 7, 9, 8, 3], [2, 3], [2, 11, 3]]
        ids = torch.tensor([row + [-1] * (5 - len(row)) for row in rows])
        with torch.inference_mode():
            found = PooledTransformer(transformer, pooling, n_layers, scale=2.0)(ids)
            for row, features in zip(rows, found, strict=True):
                layers = transformer(torch.tensor([row]), output_hidden_states=True).hidden_states
                pool = {"mean": lambda x: x.mean(dim=0), "cls": lambda x: x[0], "last": lambda x: x[-1]}[pooling]
                expected = torch.cat([pool(layers[-1 - i][0]) for i in range(n_layers)])
                assert torch.allclose(features, 2 * expected, atol=1e-5)

    def test_of_no_pieces_is_finite(self, transformer):
        import torch

        from shortlist.stages.encoders.pooling import PooledTransformer

        features = PooledTransformer(transformer, "mean", 1)(torch.tensor([[-1, -1], [2, 3]]))
        assert features.isfinite().all()


class TestFolders:
    def test_without_a_file(self, copy, data):
        (copy / "model.safetensors").unlink()
        with pytest.raises(DataError, match=r"copy: there is no \*\.safetensors\. A transformer needs config\.json"):
            train(data, copy)
        (copy / "tokenizer.json").unlink()
        with pytest.raises(DataError, match=r"copy: there is no tokenizer\.json"):
            train(data, copy)

    def test_that_are_not_there(self, data):
        with pytest.raises(OptionError, match=r"'no/where': there is no such folder\. Models are not downloaded"):
            train(data, "no/where")
        with pytest.raises(OptionError, match="this recipe needs a transformer: set transformer=FOLDER"):
            train(data, "")

    def test_with_a_tokenizer_of_another_model(self, copy, data):
        save_tokenizer(copy, word_piece_tokenizer([f"quite{i} another{i}" for i in range(300)], n_pieces=900))
        with pytest.raises(DataError, match=r"pieces, the model has vectors for \d+: they do not belong together"):
            train(data, copy)

    def test_with_a_config_that_is_not_text(self, copy, data, put):
        for content, message in (
            ("{", "config.json or tokenizer.json cannot be read"),
            ('{"model_type": "vit"}', "config.json has model_type 'vit', which is no text model"),
            ("{}", "config.json has model_type 'None'"),
        ):
            put("copy/config.json", content)
            with pytest.raises(DataError, match=message):
                train(data, copy)

    def test_with_weights_of_another_model(self, copy, data):
        facts = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**facts, "num_hidden_layers": 3}))
        with pytest.raises(
            DataError, match=r"copy: the weights do not fit config\.json: encoder\.layer\.2\..* is missing"
        ):
            train(data, copy)

    def test_whose_code_is_not_run(self, copy, tmp_path):
        (copy / "evil.py").write_text(f"open({str(tmp_path / 'was_here')!r}, 'w')\nclass Evil: pass\n")
        facts = json.loads((copy / "config.json").read_text())
        evil = {
            "auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"},
            "attn_implementation": "evil/kernels",
        }
        (copy / "config.json").write_text(json.dumps({**facts, **evil}))
        from shortlist.stages.encoders.pooling import transformer_of_folder

        transformer_of_folder(str(copy), json.loads((copy / "config.json").read_text()))
        assert not (tmp_path / "was_here").exists()
        assert "evil" not in read_transformer(str(copy))["transformer.json"].decode()

    def test_that_cannot_do_what_is_asked(self, folder, data):
        with pytest.raises(OptionError, match=r"pooled_layers is 3; .* has 2 layers"):
            train(data, folder, pooled_layers=3)
        with pytest.raises(OptionError, match=r"cannot read texts of max_words=100 word pieces .* Lower max_words"):
            train(data, folder, max_words=100)

    def test_data_without_texts(self, folder):
        features = topics(4, seed=0).with_features(np.ones((4, 3)))
        with pytest.raises(OptionError, match="lightxml learns from texts; the data set has dense features"):
            train(features, folder)
