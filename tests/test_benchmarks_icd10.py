"""The ICD-10 data of a benchmark, built from the real package: what the split guarantees, what `build` refuses."""

from __future__ import annotations

import json
import re

import pytest

from scripts import import_script
from shortlist.data import read
from shortlist.data.describe import describe
from shortlist.errors import DataError, OptionError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def icd():
    """The package, imported when a test runs: it reads all codes, which takes seconds."""
    return pytest.importorskip("simple_icd_10_cm")


@pytest.fixture(scope="module")
def build(icd):
    return import_script("benchmarks/icd10.py").build


FILES = ["about.json", "label_names.json", "test.jsonl.gz", "train.jsonl.gz"]


def normalize(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, build):
    path = tmp_path_factory.mktemp("icd10") / "new" / "data"
    path.parent.mkdir()
    build(path, seed=3)
    return path


@pytest.fixture(scope="module")
def train(folder):
    return read(folder, "train")


@pytest.fixture(scope="module")
def test(folder):
    return read(folder, "test")


@pytest.fixture(scope="module")
def codes_of(icd):
    """The codes of each text, from the package itself."""
    codes: dict[str, set[str]] = {}
    for code in icd.get_all_codes():
        texts = [icd.get_description(code, True), icd.get_description(code)]
        for text in [*texts, *icd.get_inclusion_term(code, True), *icd.get_inclusion_term(code)]:
            codes.setdefault(normalize(text), set()).add(code)
    return codes


def test_about_says_what_was_built(folder, train, test):
    about = json.loads((folder / "about.json").read_text())
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (about["train_texts"], about["test_texts"], about["labels"]) == (len(train), len(test), train.n_labels)
    assert (about["seed"], about["test_fraction"]) == (3, 0.2)
    assert about["source"].startswith("simple-icd-10-cm ")


def test_every_code_is_a_label_with_a_name(train, icd):
    codes = {f"chapter {code}" if icd.is_chapter(code) else code for code in icd.get_all_codes()}
    assert set(train.label_names) == codes
    assert set(train.display_names) == codes
    assert train.display_names["A00"] == "Cholera"
    assert train.display_names["chapter 1"].startswith("Certain infectious and parasitic diseases")


def test_no_test_text_was_seen_in_training(train, test):
    seen = {normalize(text) for text in train.texts}
    assert len(seen) == len(train)
    assert not any(normalize(text) in seen for text in test.texts)
    against = describe(train, test).parts["test"]["against_train"]
    assert (against["texts_in_train"], against["word_sequences_in_train"], against["labels_not_in_train"]) == (0, 0, 0)


def test_all_descriptions_are_in_training_and_test_texts_are_inclusion_terms(train, test, icd):
    seen = {normalize(text) for text in train.texts}
    for code in icd.get_all_codes():
        if not icd.is_chapter_or_block(code):
            assert normalize(icd.get_description(code)) in seen
    terms = {normalize(term) for code in icd.get_all_codes() for term in icd.get_inclusion_term(code)}
    assert all(normalize(text) in terms for text in test.texts)
    assert len(test) == pytest.approx(0.2 * len(terms), rel=0.1)


def test_labels_are_the_codes_and_their_ancestors(test, codes_of, icd):
    for row, text in enumerate(test.texts):
        codes = codes_of[normalize(text)]
        ancestors = {ancestor for code in codes for ancestor in icd.get_ancestors(code)}
        expected = {f"chapter {code}" if code.isdigit() else code for code in codes | ancestors}
        assert set(test.labels_of(row)) == expected
        assert test.labels_of(row)[0] in codes


def test_merged_texts_have_the_labels_of_all_their_codes(train):
    """A08.39 has the description of its parent A08.3; a category alone in its block has that of the block."""
    rows = {text: row for row, text in enumerate(train.texts)}
    assert train.labels_of(rows["Other viral enteritis"]) == ["A08.3", "A08", "A00-A09", "chapter 1", "A08.39"]
    hiv = train.labels_of(rows["Human immunodeficiency virus [HIV] disease"])
    assert hiv == ["B20", "chapter 1"]


def test_block_and_chapter_texts_do_not_contain_code_ranges(train):
    assert not [text for text in train.texts if re.search(r"\([A-Z]\d\w(-[A-Z]\d\w)?\)$", text)]
    assert "Intestinal infectious diseases" in set(train.texts)
    assert "Heparin induced thrombocytopenia (HIT)" in set(train.texts)


@pytest.fixture
def one_chapter(monkeypatch, icd):
    """The infectious diseases alone, which build quickly."""
    codes = ["1", *icd.get_descendants("1")]
    monkeypatch.setattr(icd, "get_all_codes", lambda: codes)


def test_same_seed_gives_same_bytes_and_rebuilding_replaces_the_folder(tmp_path, one_chapter, build):
    build(tmp_path / "one", seed=5)
    first = {name: (tmp_path / "one" / name).read_bytes() for name in FILES}
    build(tmp_path / "one", seed=6)
    assert (tmp_path / "one" / "test.jsonl.gz").read_bytes() != first["test.jsonl.gz"]
    build(tmp_path / "one", seed=5)
    assert {name: (tmp_path / "one" / name).read_bytes() for name in FILES} == first
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_seed_and_fraction_decide_what_is_held_out(tmp_path, one_chapter, build):
    (tmp_path / "b").mkdir()  # an empty folder is accepted
    few, many = build(tmp_path / "a", seed=1), build(tmp_path / "b", seed=2, test_fraction=0.4)
    assert many.test_texts == pytest.approx(2 * few.test_texts, abs=1)
    assert few.train_texts + few.test_texts == many.train_texts + many.test_texts
    assert few.labels == many.labels
    common = set(read(tmp_path / "a", "test").texts) & set(read(tmp_path / "b", "test").texts)
    assert 0.2 < len(common) / few.test_texts < 0.6


@pytest.mark.parametrize("names", [["notes.txt"], ["train.jsonl.gz"], FILES, [*FILES, "notes.txt"]])
def test_a_folder_with_other_content_is_not_touched(tmp_path, names, build):
    """Even if the files have our names: they may be the user's own data."""
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(DataError, match="not empty"):
        build(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "mine")


def test_files_added_to_a_built_folder_are_not_lost(tmp_path, folder, build):
    for name in FILES:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="not empty"):
        build(tmp_path)


def test_target_is_a_file(tmp_path, build):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(DataError, match="is a file"):
        build(tmp_path / "out")


@pytest.mark.parametrize("fraction", [0, 1, -0.2, 1.5, float("nan")])
def test_invalid_fraction(tmp_path, fraction, build):
    with pytest.raises(OptionError, match="test_fraction"):
        build(tmp_path, test_fraction=fraction)
