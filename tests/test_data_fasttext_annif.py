"""Files of fastText and Annif: read as these tools read them, written as they expect them."""

from __future__ import annotations

import gzip

import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command
from shortlist.errors import DataError, OptionError

FASTTEXT = """__label__shoes __label__red Red  running shoes
blue hat __label__hats\r

__label__lonely
no labels here, not even x__label__this
"""
ANNIF = 'Red running shoes\t<http://e.org/shoes> <http://e.org/red>\n\nblue "hat"\t<http://e.org/hats>\r\nnothing\t\n'


def rows_of(dataset):
    return [(dataset.texts[i], dataset.labels_of(i)) for i in range(len(dataset))]


@pytest.mark.parametrize("name", ["pairs.fasttext", "pairs.train", "pairs.txt", "pairs"])
def test_fasttext(put, name):
    assert rows_of(shortlist.read(put(name, FASTTEXT))) == [
        ("Red  running shoes", ["shoes", "red"]),
        ("blue hat", ["hats"]),
        ("", ["lonely"]),
        ("no labels here, not even x__label__this", []),
    ]


def test_annif_corpus_with_the_name_of_a_table(put):
    expected = [
        ("Red running shoes", ["http://e.org/shoes", "http://e.org/red"]),
        ('blue "hat"', ["http://e.org/hats"]),
        ("nothing", []),
    ]
    assert rows_of(shortlist.read(put("corpus.tsv", ANNIF))) == expected
    assert rows_of(shortlist.read(put("corpus.tsv.gz", gzip.compress(ANNIF.encode())))) == expected
    table = put("table.tsv", "text\tlabels\nRed shoes\t<x>\n")
    assert rows_of(shortlist.read(table)) == [("Red shoes", ["<x>"])]


def test_annif_uris_without_brackets_need_the_format(put):
    path = put("corpus.tsv", "red shoes\thttp://e.org/shoes\n")
    assert rows_of(shortlist.read(path, format="annif")) == [("red shoes", ["http://e.org/shoes"])]
    with pytest.raises(DataError, match="there is no column 'text'"):
        shortlist.read(path)


def test_bad_lines(put):
    corpus = put("corpus.tsv", "a\t<u>\nno tab\nb\t<v>\n")
    with pytest.raises(DataError, match=r"corpus.tsv, line 2: no tab in 'no tab'; expected a text, a tab, and URIs"):
        shortlist.read(corpus)
    assert rows_of(shortlist.read(corpus, on_error="skip")) == [("a", ["u"]), ("b", ["v"])]
    latin = put("latin.fasttext", "__label__a x\n__label__b caf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.fasttext, line 2"):
        shortlist.read(latin)
    assert shortlist.read(latin, encoding="latin-1").texts[1] == "café"
    with pytest.raises(OptionError, match="choose one of jsonl, csv, tsv, parquet, fasttext, annif"):
        shortlist.read(corpus, format="annif-vocabulary")


@pytest.mark.parametrize("format", ["fasttext", "annif"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_round_trip(tmp_path, format, packed):
    rows = [("red shoes", ["shoes", "Straße"]), ("no labels", []), ("", ["x"]), ("two words", ["日本"])]
    path = tmp_path / f"pairs.{'tsv' if format == 'annif' else format}{packed}"
    shortlist.read(rows).write(path, format=format)
    assert rows_of(shortlist.read(path)) == rows
    shortlist.read([("a\tb\nc", ["x"])]).write(path, format=format)
    assert shortlist.read(path).texts[0].split() == ["a", "b", "c"]


def test_what_the_formats_cannot_express(tmp_path):
    spaced = shortlist.read([("x", ["two words"])])
    for format in ("fasttext", "annif", "annif-vocabulary"):
        with pytest.raises(DataError, match="the label 'two words'"):
            spaced.write(tmp_path / "out", format=format)
    with pytest.raises(DataError, match="text 2 contains a word that starts with __label__"):
        shortlist.read([("x", ["a"]), ("say __label__b", ["a"])]).write(tmp_path / "out.fasttext")
    assert not list(tmp_path.iterdir())


def test_annif_vocabulary(put, tmp_path):
    vocabulary = put("vocabulary.tsv", '<http://e.org/shoes>\tShoes "for feet"\tS1\r\n<http://e.org/hats>\tHats\n')
    data = shortlist.read([("x", ["http://e.org/shoes"]), ("y", ["bare"])], label_names=vocabulary)
    assert data.display_names == {"http://e.org/shoes": 'Shoes "for feet"', "http://e.org/hats": "Hats"}
    data.write(tmp_path / "again.tsv", format="annif-vocabulary")
    assert (tmp_path / "again.tsv").read_text() == '<http://e.org/shoes>\tShoes "for feet"\n<bare>\tbare\n'
    with pytest.raises(DataError, match=r"vocabulary.tsv, line 2: found 'no uri\\there'; expected a URI"):
        shortlist.read([("x", ["a"])], label_names=put("vocabulary.tsv", "<a>\tA\nno uri\there\n"))


@pytest.mark.slow
def test_command_line(put, tmp_path):
    def run(*arguments):
        done = CliRunner().invoke(command, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
        return done

    source = put("pairs.train", "__label__shoes red shoes\n__label__hats blue hat\n" * 5)
    run("data", "convert", source, tmp_path / "corpus.tsv", "--to", "annif")
    assert (tmp_path / "corpus.tsv").read_text().startswith("red shoes\t<shoes>\nblue hat\t<hats>\n")
    run("data", "split", tmp_path / "corpus.tsv", tmp_path / "parts", "--test", "0.5", "--to", "annif")
    run("data", "convert", tmp_path / "parts", tmp_path / "again", "--to", "fasttext")
    assert {path.name for path in (tmp_path / "again").iterdir()} == {"train.fasttext", "test.fasttext"}
    assert rows_of(shortlist.read(tmp_path / "again", "test")) == rows_of(shortlist.read(tmp_path / "parts", "test"))
    run("data", "convert", tmp_path / "parts", tmp_path / "v.tsv", "--to", "annif-vocabulary", "--part", "train")
    refused = CliRunner().invoke(
        command, ["data", "convert", str(tmp_path / "parts"), str(tmp_path / "w.tsv"), "--to", "annif-vocabulary"]
    )
    assert refused.exit_code == 2 and "choose one with --part" in refused.output
    run("train", source, "--out", tmp_path / "model")
    done = run("predict", tmp_path / "model", "--in", source, "--from", "fasttext", "-k", 1)
    assert '"text":"red shoes","labels":["shoes"]' in done.output
