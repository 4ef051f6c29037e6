"""Hierarchies: reading them, their ancestors against a slow twin, and what is refused."""

from __future__ import annotations

import gzip
import json
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import DataError
from shortlist.labels import hierarchy
from shortlist.labels.hierarchy import Hierarchy, read_hierarchy

SKOS = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix c: <http://example.org/c/> .
c:1 skos:prefLabel "boots"@en, "Stiefel"@de ; skos:notation "B" ; skos:broader c:2 .
c:2 skos:prefLabel "shoes"@en, "Schuhe"@de ; skos:notation "S" .
c:3 skos:prefLabel "clothes"@en, "Kleidung"@de ; skos:notation "C" ; skos:narrower c:2 .
"""


def slow_ancestors(pairs, label):
    """All labels above one, step by step."""
    found = {label}
    while True:
        more = found | {parent for child, parent in pairs if child in found}
        if more == found:
            return found
        found = more


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=1, max_size=40))
def test_ancestors_agree_with_a_slow_twin(steps):
    """A parent has a larger number than its child, so there are no cycles, but labels with several parents."""
    pairs = [(str(child), str(child + step)) for child, step in steps]
    hierarchy = read_hierarchy(pairs)
    for i, label in enumerate(hierarchy.labels):
        above = [hierarchy.labels[j] for j in hierarchy.ancestors.row(i)]
        assert above[0] == label and len(set(above)) == len(above)
        assert set(above) == slow_ancestors(pairs, label)
        assert hierarchy.is_leaf[i] == (label not in {parent for _, parent in pairs})
    assert set(hierarchy.pairs) == set(pairs)


def test_labels_of_a_model_are_numbered_first():
    hierarchy = read_hierarchy({"a": ["b", "c"]}).numbered(["c", "x", "a"])
    assert hierarchy.labels == ["c", "x", "a", "b"]
    assert [sorted(hierarchy.ancestors.row(i).tolist()) for i in range(4)] == [[0], [1], [0, 2, 3], [3]]


def test_the_root_is_the_only_label_without_a_parent():
    one = read_hierarchy({"a": "b", "b": "all", "c": "all"})
    assert one.root is not None and one.labels[one.root] == "all"
    assert read_hierarchy({"a": "b", "c": "d"}).root is None


def test_inclusive_if_texts_have_the_parents_of_their_labels():
    hierarchy, labels = read_hierarchy({"boots": "shoes", "shoes": "clothes"}), ["boots", "shoes", "hats"]
    assert hierarchy.is_inclusive(Ragged.from_lists([[0, 1], [1], [2]]), labels)
    assert not hierarchy.is_inclusive(Ragged.from_lists([[0, 1], [0], [1]]), labels)
    assert not hierarchy.is_inclusive(Ragged.from_lists([[2], []]), labels)  # nothing tells


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.csv", "child,parent\nboots,shoes\nshoes,clothes\n"),
        ("h.tsv", "boots\tshoes\n\nshoes\tclothes\n"),
        ("h.txt", '\ufeffboots,shoes\r\n"shoes",clothes\r\n'),
        ("h.jsonl", '{"child": "boots", "parent": "shoes"}\n{"child": "shoes", "parent": ["clothes"]}\n'),
    ],
)
def test_files(put, name, content):
    assert read_hierarchy(put(name, content)).pairs == [("boots", "shoes"), ("shoes", "clothes")]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["boots"], [("boots", "shoes"), ("shoes", "clothes")]),
        (["Stiefel", "Schuhe", "Kleidung"], [("Stiefel", "Schuhe"), ("Schuhe", "Kleidung")]),
        (["B", "C"], [("B", "S"), ("S", "C")]),
        (["1", "2"], [("1", "2"), ("2", "3")]),
        ([], [(f"http://example.org/c/{i}", f"http://example.org/c/{i + 1}") for i in (1, 2)]),
    ],
)
def test_skos_concepts_go_by_what_labels_are(put, labels, expected):
    pytest.importorskip("rdflib")
    hierarchy = read_hierarchy(put("c.ttl", SKOS), labels)
    assert sorted(hierarchy.pairs) == sorted(expected)
    assert hierarchy.names[expected[0][1]] == "shoes"


def test_owl_classes(put):
    pytest.importorskip("rdflib")
    owl = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n<urn:x/a> rdfs:subClassOf <urn:x/b>, [] ."
    assert read_hierarchy(put("o.ttl", owl), ["a"]).pairs == [("a", "b")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("h.csv", "a,b\nb,c\nc,a\n", r"h.csv, line \d: the hierarchy has a cycle, 'a' → 'b' → 'c' → 'a'. Remove one"),
        ("h.csv", "x,a\na,b\nb,a\n", r"h.csv, line 2: the hierarchy has a cycle, 'a' → 'b' → 'a'"),
        ("h.csv", "a,b\nc,c\n", "h.csv, line 2: 'c' is its own parent"),
        ("h.csv", "", "the hierarchy is empty"),
        ("h.csv", "child,parent\n", "the hierarchy is empty"),
        ("h.csv", "a,b\nc\n", "line 2: 1 columns; expected two"),
        ("h.csv", "a,b\nc, \n", "line 2: the parent is ' '; expected a label"),
        ("h.csv", b"a,\xff\n", "byte 3 is not valid UTF-8"),
        ("h.jsonl", '{"child": "a", "parent": "b"}\n["a", "b"]\n', "line 2: .*expected one object per line"),
        ("h.jsonl", '{"child": "a", "parent": 3}', "line 1: the parent is 3; expected a label"),
        ("h.jsonl", "{", "line 1: not valid JSON"),
    ],
)
def test_bad_files(put, name, content, message):
    with pytest.raises(DataError, match=message):
        read_hierarchy(put(name, content))


@pytest.mark.parametrize(
    ("base", "child", "parent"),
    [
        ("http://www.yso.fi/onto/yso/", ("p8753", "yso:p8753"), ("p1", "yso:p1")),
        ("https://d-nb.info/gnd/", ("4004927-9", "gnd:4004927-9"), ("4-7", "gnd:4-7")),
        ("http://purl.obolibrary.org/obo/", ("HP_0000118", "HP:0000118"), ("HP_0000001", "HP:0000001")),
    ],
)
def test_concepts_go_by_their_short_forms(put, base, child, parent):
    pytest.importorskip("rdflib")
    skos = (
        f"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n<{base}{child[0]}> skos:broader <{base}{parent[0]}> ."
    )
    assert read_hierarchy(put("c.ttl", skos), [child[1]]).pairs == [(child[1], parent[1])]


def test_bad_rdf(put):
    pytest.importorskip("rdflib")
    with pytest.raises(DataError, match="not valid RDF as turtle"):
        read_hierarchy(put("h.ttl", "not turtle"))
    with pytest.raises(DataError, match="expected skos:broader"):
        read_hierarchy(put("h.ttl", '<urn:a> <urn:b> "c" .'))


@pytest.mark.parametrize("where", ["URL", "file:///etc/hostname"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda url: {"@context": url},
        lambda url: {"@context": [{}, url]},
        lambda url: {"@context": [[[url]]]},
        lambda url: {"@context": {"@import": url}},
        lambda url: {"@graph": [{"@context": {"x": {"@id": "urn:x", "@context": url}}}]},
    ],
)
def test_nothing_is_downloaded(put, wrap, where):
    """Contexts of JSON-LD may be URLs, also of files."""
    pytest.importorskip("rdflib")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        where = where.replace("URL", f"http://127.0.0.1:{server.getsockname()[1]}/")
        with pytest.raises(DataError, match=r"h\.jsonld: its context is elsewhere, at"):
            read_hierarchy(put("h.jsonld", json.dumps(wrap(where) | {"@id": "urn:a", "broader": {"@id": "urn:b"}})))
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
    broader = {"@id": "http://www.w3.org/2004/02/skos/core#broader", "@type": "@id"}
    own = {"@context": {"broader": broader}, "@id": "urn:a", "broader": "urn:b"}
    assert read_hierarchy(put("h.jsonld", json.dumps(own))).pairs == [("urn:a", "urn:b")]


RDF = """<?xml version="1.0"?><!DOCTYPE rdf:RDF [<!ENTITY owl "http://www.w3.org/2002/07/owl&#35;"> ENTITIES]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<rdf:Description rdf:about="urn:a"><skos:broader rdf:resource="urn:b"/>
<skos:prefLabel>&b;</skos:prefLabel></rdf:Description></rdf:RDF>"""


def test_entities(put):
    """Those of most OWL files are short for a URL; others would be files, or make gigabytes of a few bytes."""
    pytest.importorskip("rdflib")
    assert read_hierarchy(put("h.owl", RDF.replace("ENTITIES", '<!ENTITY b "name">'))).names == {"urn:a": "name"}
    hostile_ones = [
        '<!ENTITY b "&owl;&owl;">',
        """<!ENTITY b '>"&owl;&owl;'>""",
        '<!ENTITY b "&#38;owl;&#x26;owl;">',
        '<!ENTITY b SYSTEM "file:///etc/hostname">',
        '<!ENTITY % b SYSTEM "file:///etc/hostname"> %b;',
    ]
    for hostile in hostile_ones:
        with pytest.raises(DataError, match="has entities that refer to files or to each other"):
            read_hierarchy(put("h.owl", RDF.replace("ENTITIES", hostile)))
    with pytest.raises(DataError, match="UTF-16"):
        read_hierarchy(put("h.owl", RDF.replace("ENTITIES", "").encode("utf-16")))


def test_bombs(put, monkeypatch):
    monkeypatch.setattr(hierarchy, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match="more than"):
        read_hierarchy(put("h.tsv", gzip.compress(b"a\tb\n" * 1000)))


def test_bad_pairs():
    with pytest.raises(DataError, match=r"pair 2 of the hierarchy is \('a',\)"):
        read_hierarchy([("a", "b"), ("a",)])
    with pytest.raises(DataError, match="the hierarchy is empty"):
        read_hierarchy([])
    with pytest.raises(DataError, match="pair 1 of the hierarchy: 'a' is its own parent"):
        read_hierarchy({"a": "a"})


def test_deep_and_wide_hierarchies_need_no_recursion():
    hierarchy = Hierarchy(("", str(i), str(i + 1)) for i in range(3000))
    assert np.array_equal(np.sort(hierarchy.ancestors.counts), np.arange(1, 3002))
