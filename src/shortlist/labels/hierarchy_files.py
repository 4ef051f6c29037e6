"""Hierarchies from files: two columns (child, parent), JSON lines, or SKOS and OWL in any format of RDF."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shortlist.errors import DataError, import_extra
from shortlist.labels.hierarchy import Hierarchy, Place, hierarchy_of_pairs
from shortlist.streams import column_rows, decode_utf8, read_blocks

RDF_FORMATS = {
    ".ttl": "turtle",
    ".n3": "n3",
    ".nt": "nt",
    ".rdf": "xml",
    ".owl": "xml",
    ".xml": "xml",
    ".jsonld": "json-ld",
}
JSON_SUFFIXES = {".jsonl", ".ndjson", ".json"}
HEADER = ("child", "parent")

HierarchySource = str | Path | Hierarchy | Iterable[Sequence[str]] | Mapping[str, str | Iterable[str]]


def read_hierarchy(source: HierarchySource, labels: Collection[str] = ()) -> Hierarchy:
    """A hierarchy from a file, from (child, parent) pairs, or from {child: parent}.

    labels  those that it is for. A concept of SKOS goes by its URI, the last part of the URI, its notation or its
            preferred name: by what most of these labels are

    >>> read_hierarchy({"J45.0": "J45"}).labels
    ['J45.0', 'J45']
    """
    if isinstance(source, Hierarchy):
        return source
    if not isinstance(source, str | Path):
        return hierarchy_of_pairs(source)
    suffixes = set(Path(source).suffixes)
    content = b"".join(read_blocks(source))
    format = next((format for suffix, format in RDF_FORMATS.items() if suffix in suffixes), None)
    if format is not None:
        return _read_rdf(content, format, source, labels)
    text = decode_utf8(content, source, "a hierarchy")
    is_json = suffixes & JSON_SUFFIXES or text.lstrip().startswith(("{", "["))
    places = list(_json_places(text, source) if is_json else _column_places(text, source))
    if not places:
        raise DataError(f"{source}: the hierarchy is empty; expected a child and its parent per line.")
    return Hierarchy(places)


def _column_places(text: str, source: str | Path) -> Iterator[Place]:
    for i, (number, row) in enumerate(column_rows(text, source)):
        where = f"{source}, line {number}"
        if len(row) != 2:
            raise DataError(f"{where}: {len(row)} columns; expected two, a child and its parent.")
        if i > 0 or tuple(one.strip().lower() for one in row) != HEADER:
            yield _place(where, *row)


def _json_places(text: str, source: str | Path) -> Iterator[Place]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{source}, line {number}"
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise DataError(f"{where}: not valid JSON ({error}); {_EXPECTED}") from None
            if not isinstance(row, dict) or not row.keys() >= set(HEADER):
                raise DataError(f"{where}: {line.strip()!r:.60}; {_EXPECTED}")
            parents = row["parent"] if isinstance(row["parent"], list) else [row["parent"]]
            for parent in parents:
                yield _place(where, row["child"], parent)


_EXPECTED = 'expected one object per line, {"child": "…", "parent": "…"}.'


def _place(where: str, child: Any, parent: Any) -> Place:
    for what, label in (("child", child), ("parent", parent)):
        if not isinstance(label, str) or not label.strip():
            raise DataError(f"{where}: the {what} is {label!r:.60}; expected a label.")
    return where, child.strip(), parent.strip()


def _read_rdf(content: bytes, format: str, source: str | Path, labels: Collection[str]) -> Hierarchy:
    """The concepts of a vocabulary: skos:broader and skos:narrower, or rdfs:subClassOf."""
    rdflib = import_extra("rdflib", "reading SKOS and OWL", "rdf")
    graph = rdflib.Graph()
    try:
        graph.parse(data=content, format=format)
    except Exception as error:  # noqa: BLE001 - each of rdflib's parsers has errors of its own
        what = " ".join(str(error).split())
        raise DataError(f"{source}: not valid RDF as {format} ({what:.200}).") from None
    skos, subclass = rdflib.namespace.SKOS, rdflib.namespace.RDFS.subClassOf
    pairs = [*graph.subject_objects(skos.broader), *graph.subject_objects(subclass)]
    pairs += [(child, parent) for parent, child in graph.subject_objects(skos.narrower)]
    pairs = [pair for pair in pairs if all(isinstance(one, rdflib.URIRef) for one in pair)]  # no nameless classes
    if not pairs:
        raise DataError(f"{source}: the hierarchy is empty; expected skos:broader, skos:narrower or rdfs:subClassOf.")
    concepts = sorted({one for pair in pairs for one in pair})
    names = _texts_of(graph, concepts, skos.prefLabel) or _texts_of(graph, concepts, rdflib.namespace.RDFS.label)
    identifiers = (
        {concept: [str(concept)] for concept in concepts},
        {concept: [re.split(r"[/#]", concept)[-1]] for concept in concepts},
        _texts_of(graph, concepts, skos.notation),
        names,
    )
    wanted = set(labels)
    labels_of: dict[Any, str] = {}
    for known in identifiers:  # the first with the most labels
        found = {concept: next((one for one in own if one in wanted), own[0]) for concept, own in known.items()}
        if not labels_of or _n_known(found, wanted) > _n_known(labels_of, wanted):
            labels_of = found
    shown = {labels_of.get(concept, str(concept)): own[0] for concept, own in names.items()}
    places = [(str(source), labels_of.get(a, str(a)), labels_of.get(b, str(b))) for a, b in sorted(pairs)]
    return Hierarchy(places, shown)


def _texts_of(graph: Any, concepts: list[Any], predicate: Any) -> dict[Any, list[str]]:
    """The texts that a predicate gives to concepts, the English ones and those without a language first."""
    found = {}
    for concept in concepts:
        texts = sorted(graph.objects(concept, predicate), key=lambda text: ((text.language or "en") != "en", str(text)))
        if texts:
            found[concept] = [str(text) for text in texts]
    return found


def _n_known(labels_of: Mapping[Any, str], wanted: set[str]) -> int:
    return len(wanted.intersection(labels_of.values()))
