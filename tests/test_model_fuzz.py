"""Damaged model folders, by accident or on purpose: a clear error or sound predictions, and no code is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

import model_damage
import shortlist
from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import ModelError
from shortlist.text.texts import Texts

SMALL = {"n_epochs": 1, "embedding_dim": 64, "batch_size": 64, "threads": 1, "n_reranked": 20}
QUICK = {**SMALL, "n_surrogate_epochs": 1, "n_clusters": 5, "n_candidates": 12}
MODELS = {
    "popular": {},
    "centroid": {},
    "inceptionxml": {**SMALL, "channels": 4},
    "inceptionxml+": {**SMALL, "channels": 4, "n_clusters": 5, "n_clusters_searched": 3},
    "astec": {**QUICK, "subwords": "3-4", "min_count": 2, "relu": True},
    "astec texts": {**QUICK, "vote_weight": 0.5, "n_neighbours": 9},
    "astec ensemble": {**QUICK, "ensemble": 2},
    "mach": {**SMALL, "n_repetitions": 2, "n_buckets": 6, "n_word_buckets": 50},
    "xml-cnn": {**SMALL, "channels": 4, "hidden_size": 16},
    "attentionxml": {**SMALL, "hidden_size": 4, "linear_sizes": "6,5"},
    "attentionxml tree": {**SMALL, "hidden_size": 4, "linear_sizes": "6", "n_clusters": 5, "n_clusters_searched": 3},
    "slice features": {**QUICK, "validation_fraction": 0.0},
}
BOTH_SIZES = ("inceptionxml+", "astec")
N_TOPICS = 12


def topics(n_texts: int = 150) -> Dataset:
    """Texts of words of a topic, which is the label, and of noise; some readable names."""
    rng = np.random.default_rng(0)
    rows = []
    for topic in rng.integers(N_TOPICS, size=n_texts).tolist():
        words = [f"topic{topic}word{i}" for i in rng.integers(5, size=3)] + [f"noise{rng.integers(30)}"]
        rows.append((" ".join(words), [f"label {topic}"]))
    dataset = shortlist.read(rows)
    dataset.display_names = {"label 3": "the third topic"}
    return dataset


def points(n_points: int = 100) -> Dataset:
    rng = np.random.default_rng(0)
    labels = Ragged.from_lists([[int(label)] for label in rng.integers(N_TOPICS, size=n_points)])
    names = [f"place {place}" for place in range(N_TOPICS)]
    features = rng.normal(size=(n_points, 8)).astype(np.float32)
    return Dataset(Texts.from_strings([""] * n_points), labels, names, features=features)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A folder of models of every family, as they are saved."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("models")
    for name, options in MODELS.items():
        recipe, _, rest = name.partition(" ")
        model = shortlist.train(points() if rest == "features" else topics(), recipe=recipe, **options)
        model.save(folder / name)
        if name in BOTH_SIZES:
            model.save(folder / f"{name} in 32 bits", bits=32)
    return folder


FOLDERS = sorted([*MODELS, *(f"{name} in 32 bits" for name in BOTH_SIZES)])
# Of each kind and model; SHORTLIST_FUZZ=all tries all there are, which takes minutes.
CASES = os.environ.get("SHORTLIST_FUZZ", "15")
MOST_DEATHS = 20


@pytest.fixture(scope="module")
def outcomes(models, tmp_path_factory) -> dict[str, list[tuple[str, str]]]:
    """By model, the cases that were tried and what came of each."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in FOLDERS}
    first = 0
    for _ in range(MOST_DEATHS):
        arguments = [str(models), str(tmp_path_factory.mktemp("work")), CASES, str(first)]
        command = [sys.executable, model_damage.__file__, *arguments]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        number = -1
        for line in run.stdout.splitlines():
            number, folder, kind, case, outcome = [*line.split("\t"), f"WRONG died: {run.stderr[-500:]}"][:5]
            found[folder].append((f"{kind}: {case}", outcome or f"WRONG died: {run.stderr[-500:]}"))
        if run.returncode == 0:
            return found
        assert run.stdout, f"no case could be tried: {run.stderr[-1000:]}"
        first = int(number) + 1  # go on behind the case that killed it
    return found


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_damage_gets_through(outcomes, folder):
    wrong = [f"{case} → {outcome}" for case, outcome in outcomes[folder] if "WRONG" in outcome]
    assert not wrong, "\n".join(wrong)
    assert len(outcomes[folder]) >= 80
    assert {"'refused'", "'predicted'"} == {outcome for _, outcome in outcomes[folder]}


@pytest.fixture(scope="module")
def centroid(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quick") / "centroid"
    shortlist.train(topics(), recipe="centroid").save(folder)
    return folder


def test_some_damage_of_each_kind(centroid, tmp_path, monkeypatch):
    """What the slow test does, with few cases; those that could kill this process are left to it."""
    marker, work = tmp_path / "marker", tmp_path / "work"
    monkeypatch.setenv("SHORTLIST_MARKER", str(marker))
    before = model_damage.predictions(shortlist.load(centroid))
    for case in model_damage.cases_of(centroid, 6):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(centroid, work)
        case.damage(work)
        outcome = model_damage.attempt(work, before, case.refused)
        assert outcome in ("refused", "predicted"), case
    assert not marker.exists()


def test_a_config_that_was_changed_is_noticed(centroid, tmp_path):
    config = json.loads((centroid / "config.json").read_text())
    config["members"][0][0]["config"]["tokenizer"]["bigram_prefix_length"] = 4
    shutil.copytree(centroid, tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"config\.json is not the file that was saved"):
        shortlist.load(tmp_path / "model")
    # Formatting does not matter, and a config without a checksum is not compared.
    config["members"][0][0]["config"]["tokenizer"]["bigram_prefix_length"] = 0
    (tmp_path / "model" / "config.json").write_text(json.dumps(config, sort_keys=True))
    assert shortlist.load(tmp_path / "model").n_labels == N_TOPICS
    del config["xxh3"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert shortlist.load(tmp_path / "model").n_labels == N_TOPICS


def test_files_may_be_links_to_the_right_content(centroid, tmp_path):
    """As in the caches of model hubs."""
    (tmp_path / "model").mkdir()
    for path in centroid.iterdir():
        (tmp_path / "model" / path.name).symlink_to(path)
    assert shortlist.load(tmp_path / "model").predict("topic3word1") == shortlist.load(centroid).predict("topic3word1")


def test_weights_that_are_no_numbers_rank_nothing(centroid, tmp_path):
    shutil.copytree(centroid, tmp_path / "model")
    arrays = load_file(centroid / "classifier.safetensors")
    arrays["weights"][arrays["labels"] == 3] = np.nan
    model_damage.put_sealed("classifier.safetensors", save(arrays), tmp_path / "model")
    model = shortlist.load(tmp_path / "model")
    ids, scores = model.rank(["topic3word1 topic5word1 noise1 noise2 noise3"], N_TOPICS)
    assert model.label_names[3] not in [model.label_names[i] for i in ids[0] if i >= 0]
    assert (ids[0] >= 0).any() and np.isfinite(scores).all()
    assert (np.diff((ids[0] < 0).astype(int)) >= 0).all()  # those that are left out come last


SAVING = """
import sys, shortlist
folder = sys.argv[1]
models = [
    shortlist.train([(f"word{i}", [f"{name} {(i + shift) % 50}"]) for i in range(50)], recipe="centroid")
    for name, shift in (("old", 0), ("new", 1))
]
models[0].save(folder)
print("saved", flush=True)
while True:
    for model in models[::-1]:
        model.save(folder)
"""


@pytest.mark.slow
def test_a_folder_that_is_replaced_is_the_old_model_or_the_new_one(tmp_path):
    folder = tmp_path / "model"
    with subprocess.Popen([sys.executable, "-c", SAVING, str(folder)], stdout=subprocess.PIPE) as saving:
        try:
            assert saving.stdout.readline() == b"saved\n"
            seen = {"old": 0, "new": 0, "refused": 0}
            while min(seen["old"], seen["new"]) < 20 and sum(seen.values()) < 20_000:
                try:
                    model = shortlist.load(folder)
                except ModelError as error:
                    assert str(folder) in str(error)
                    seen["refused"] += 1
                    continue
                # In a mixture, the names of one would stand with the numbers of the other.
                best = {model.predict(f"word{i}", k=1)[0].label for i in (3, 17)}
                assert best in ({"old 3", "old 17"}, {"new 4", "new 18"})
                seen[min(best).split()[0]] += 1
        finally:
            saving.kill()
    assert min(seen["old"], seen["new"]) >= 20, seen


SHARED = """
import json, sys, shortlist
from pathlib import Path
model = shortlist.load(sys.argv[1])
model.predict(["topic1word1 noise1", "topic2word2"], explain=True)
print("ready", flush=True)
sys.stdin.readline()
sizes, inside = {}, False
for line in Path("/proc/self/smaps").read_text().splitlines():
    words = line.split()
    if not words[0].endswith(":"):
        inside = line.endswith(".safetensors")
    elif inside and words[-1] == "kB":
        sizes[words[0][:-1]] = sizes.get(words[0][:-1], 0) + int(words[1])
print(json.dumps(sizes), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_processes_with_the_same_model_share_its_memory(models):
    def start() -> subprocess.Popen:
        command = [sys.executable, "-c", SHARED, str(models / "inceptionxml+")]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with start() as one, start() as two:  # each stays until its input ends
        try:
            assert one.stdout.readline() == two.stdout.readline() == b"ready\n"
            two.stdin.write(b"both are ready\n")
            two.stdin.flush()
            sizes = json.loads(two.stdout.readline())
        finally:
            one.stdin.close()
            two.stdin.close()
    assert sizes["Rss"] >= 100
    assert sizes["Private_Dirty"] == 0
    assert sizes["Shared_Clean"] + sizes["Shared_Dirty"] == sizes["Rss"]
