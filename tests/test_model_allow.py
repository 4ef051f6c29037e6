"""`allow` and `deny`: which labels may answer."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command_line
from shortlist.errors import ModelError, OptionError
from shortlist.model.label_lookup import MAX_CACHED, MAX_COMPARED, LabelLookup
from shortlist.stages import allowed as allowed_module
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.candidates import AllLabels
from tiny_models import colours, model_over_features


def brute_force(model, inputs, ids, k):
    """The k best of these labels by the scores of all labels."""
    every = np.tile(np.arange(model.n_labels, dtype=np.int32), (len(inputs), 1))
    scores = model._raw_scores(inputs, every)[:, ids]
    return np.asarray(ids)[np.argsort(-scores, axis=1, kind="stable")[:, :k]]


@pytest.fixture(scope="module")
def over_features():
    return model_over_features()


@pytest.fixture(scope="module")
def codes():
    """A model with codes, names and a re-ranker."""
    rng = np.random.default_rng(0)
    things = ["asthma", "cough", "fever", "fracture", "wrist", "ankle", "burn", "rash"]
    rows = []
    for _ in range(240):
        number = int(rng.integers(len(things)))
        rows.append((f"{things[number]} w{rng.integers(9)} w{rng.integers(9)}", [f"{'JS'[number > 3]}4{number}"]))
    data = shortlist.read(rows)
    data.display_names = {f"{'JS'[i > 3]}4{i}": thing.title() for i, thing in enumerate(things)}
    return shortlist.train(data, recipe="centroid")


def label_ids(model, predictions):
    return [[model.label_names.index(p.label) for p in row] for row in predictions]


@pytest.mark.parametrize("n_allowed", [1, 3, 30, 129, 700, 2048, 2049, 2700, 2999])
def test_allow_is_exact(over_features, n_allowed):
    model, queries = over_features
    ids = np.sort(np.random.default_rng(n_allowed).permutation(model.n_labels)[:n_allowed])
    effort = model.pipelines[0].candidates.max_searched  # every cell, as brute force does
    got, _ = model.rank(queries, 5, search_effort=effort, allow=[model.label_names[i] for i in ids])
    assert np.array_equal(got, brute_force(model, queries, ids, 5))


def test_a_list_has_an_index_of_its_own(over_features):
    model, _ = over_features
    stage, rng = model.pipelines[0].candidates, np.random.default_rng(0)
    for n_allowed, has_one in ((100, True), (750, True), (751, False)):
        flags = np.zeros(model.n_labels, bool)
        flags[rng.permutation(model.n_labels)[:n_allowed]] = True
        allowed = AllowedLabels(flags)
        narrowed = allowed.narrowed(stage)
        assert (narrowed is not None) == has_one
        assert allowed.narrowed(stage) is narrowed  # made once
        assert allowed.are_few([stage]) == (n_allowed == 100 or not has_one)
    assert allowed.are_few([AllLabels()]) and not AllowedLabels(np.ones(3000, bool)).are_few([AllLabels()])


def test_deny_is_exact(over_features):
    model, queries = over_features
    first, _ = model.rank(queries, 1)
    denied = np.unique(first)
    got, _ = model.rank(queries, 5, search_effort=100, deny=[model.label_names[i] for i in denied])
    assert np.array_equal(got, brute_force(model, queries, np.setdiff1d(np.arange(model.n_labels), denied), 5))


def test_texts_with_too_few_candidates_are_scored_in_full(over_features):
    model, queries = over_features
    nearest = np.unique(model.rank(queries[:1], 1000)[0])
    far = np.setdiff1d(np.arange(model.n_labels), nearest)
    allow = [model.label_names[i] for i in far]
    got, _ = model.rank(queries[:3], 20, search_effort=1e-9, allow=allow)
    assert (got >= 0).all() and not np.isin(got, nearest).any()


@pytest.mark.parametrize("recipe", ["centroid", "popular"])
@pytest.mark.parametrize("few", [True, False])
def test_other_classifiers(recipe, few, monkeypatch):
    data = colours(200)
    model = shortlist.train(data, recipe=recipe)
    if not few:
        monkeypatch.setattr(allowed_module, "SCORE_ALL_UP_TO", 0)
        monkeypatch.setattr(allowed_module, "WITHOUT_INDEX", 0)
    denied = model.predict(data.texts[0], k=1)[0].label
    predicted = model.predict(list(data.texts[:20]), deny=denied)
    plain = model.predict(list(data.texts[:20]))
    for row, before in zip(predicted, plain, strict=True):
        assert [p.label for p in row] == [p.label for p in before if p.label != denied]


@pytest.mark.slow
def test_with_a_reranker(monkeypatch):
    data = colours(400)
    model = shortlist.train(data, recipe="astec", embedding_dim=16, n_epochs=2, n_surrogate_epochs=1, seed=1)
    texts, ids = list(data.texts[:30]), np.array([0, 2, 3])
    allow = [model.label_names[i] for i in ids]
    exact = brute_force(model, texts, ids, 2)
    assert np.array_equal(model.rank(texts, 2, allow=allow)[0], exact)
    monkeypatch.setattr(allowed_module, "SCORE_ALL_UP_TO", 0)
    assert np.array_equal(model.rank(texts, 2, allow=allow)[0], exact)
    monkeypatch.setattr(allowed_module, "INDEX_SHARE", 1.0)  # three of four labels get an index of their own
    assert np.array_equal(model.rank(texts, 2, allow=allow)[0], exact)


def test_what_labels_can_be_called(codes):
    found = {p.label for p in codes.predict("asthma fracture w1", k=8, allow="J*")}
    assert found and all(label.startswith("J") for label in found)
    assert {p.label for p in codes.predict("asthma fracture w1", k=8, allow=["asthma", "S44"])} == {"J40", "S44"}
    assert codes.predict("fracture asthma", allow="Ast*") == codes.predict("fracture asthma", allow="J40")
    assert "J40" not in {p.label for p in codes.predict("asthma w1", allow="J4*", deny="asthma")}
    predicted = codes.predict_dataset(shortlist.read([("asthma", ["J40"])]), allow="S*")
    assert all(codes.label_names[i].startswith("S") for i in predicted.labels.values)


def test_labels_that_are_not_there(codes):
    with pytest.raises(OptionError, match=r"allow: this model has no label or name 'asthna'. Did you mean 'Asthma'"):
        codes.predict("asthma", allow=["J40", "asthna"])
    with pytest.raises(OptionError, match=r"deny: this model has no label that starts with 'X9\*'"):
        codes.predict("asthma", deny="X9*")
    with pytest.raises(OptionError, match=r"no label or list '@stock'\. Its lists: none"):
        codes.predict("asthma", allow="@stock")
    with pytest.raises(OptionError, match="allow is empty"):
        codes.predict("asthma", allow=[])
    with pytest.raises(OptionError, match="leave no label"):
        codes.predict("asthma", allow="J40", deny="J*")
    with pytest.raises(OptionError, match="expected labels, names"):
        codes.predict("asthma", allow=[40])


def test_lists_are_stored(codes, tmp_path):
    with pytest.raises(OptionError, match="name of a list"):  # also where there is no list yet
        codes.store_list("", "J40")
    codes.store_list("lungs", ["J*"])
    try:
        codes.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.card["lists"] == {"lungs": 4}
        assert again.predict("asthma", allow="@lungs") == again.predict("asthma", allow="J4*")
        codes.store_list("lungs", "J40")  # not what was remembered
        assert [p.label for p in codes.predict("asthma", allow="@lungs")] == ["J40"]
        with pytest.raises(OptionError, match="name of a list"):
            codes.store_list(" ", "J40")
        damaged = tmp_path / "model" / "lists.json"
        damaged.write_text(damaged.read_text().replace("J40", "J99"))
        with pytest.raises(ModelError):
            shortlist.load(tmp_path / "model")
    finally:
        codes.store_list("lungs", None)
    assert not codes.lists


def test_command_line(codes, tmp_path):
    codes.save(tmp_path / "model")
    run = CliRunner().invoke(
        command_line, ["predict", str(tmp_path / "model"), "asthma fever", "--json", "--allow", "J*", "--deny", "J40"]
    )
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout.splitlines()[0])["labels"] == ["J42"]
    run = CliRunner().invoke(command_line, ["predict", str(tmp_path / "model"), "asthma", "--allow", "J4"])
    assert run.exit_code == 2
    assert "Did you mean" in run.output


def test_names_of_other_labels_do_not_matter():
    names = {"s": "Shoes", "h": "Hats", "x": "Nobody"}
    model = shortlist.train(shortlist.read([("red", ["s"]), ("blue", ["h"])], label_names=names), recipe="centroid")
    assert [p.label for p in model.predict("red blue", allow="Shoes")] == ["s"]
    with pytest.raises(OptionError, match="no label or name 'Nobody'"):
        model.predict("red", allow="Nobody")


def test_many_entries_do_not_look_at_all_labels_each(monkeypatch):
    """A request of 1 MB has 200,000 prefixes: with 100,000 labels, looking at each took more than an hour."""
    read = []

    class Counting(list):
        def __getitem__(self, key):
            found = super().__getitem__(key)
            read.append(len(found) if isinstance(key, slice) else 1)
            return found

        def __iter__(self):
            read.append(len(self))
            return super().__iter__()

    labels = [f"{i:05}" for i in range(20_000)]
    lookup = LabelLookup(labels, {label: f"name of {label}" for label in labels[:10_000]}, {})
    for table in (lookup._by_label, lookup._by_name):
        table.strings, table.ids = Counting(table.strings), Counting(table.ids)
    entries = [f"{i:04}*" for i in range(1000)] * 2
    cases = ["NAME OF*", "name of*", "Name of*", "nAme Of 0000*"]
    assert lookup.find(entries + cases, "allow") == list(range(10_000))
    assert sum(read) < 1000 * 100 + 3 * 10_000


def test_many_threads_with_lists_of_their_own():
    """More lists than are kept: threads make room at the same time."""
    labels = [f"label {i}" for i in range(200)]
    lookup, before = LabelLookup(labels, {}, {}), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda i: lookup.allowed([labels[i % 200]], None), range(6000)))
    finally:
        sys.setswitchinterval(before)
    assert [one.ids.tolist() for one in found] == [[i % 200] for i in range(6000)]
    assert len(lookup._allowed) <= MAX_CACHED + 6


def test_an_unknown_label_is_compared_with_few_others(monkeypatch):
    """Clients of a server may name unknown labels: each was compared with the beginning of all labels."""
    compared = []
    monkeypatch.setattr("difflib.get_close_matches", lambda entry, some, *_: compared.append((entry, some)) or some[:1])
    labels = [f"http://example.org/{i}" for i in range(3000)] + ["Fever", "fewer", "x"]
    lookup = LabelLookup(labels, {"x": "fever"}, {})
    for entry, close in (("feverish", "Fever"), ("http://example.org/z" * 10_000, "http://example.org/0")):
        with pytest.raises(OptionError, match=f"Did you mean '{close}'"):
            lookup.find([entry], "allow")
    assert compared[0] == ("feverish", ["Fever", "fever", "fewer"])
    assert max(len(entry) for entry, _ in compared) <= MAX_COMPARED >= max(len(some) for _, some in compared)
