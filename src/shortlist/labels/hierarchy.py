"""`Hierarchy`: which label is a kind of which. A label may have several parents, as in GND, YSO and HPO.

Hierarchies are read from files: two columns (child, parent), JSON lines, or SKOS and OWL in any format of RDF.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, import_extra
from shortlist.streams import column_rows, decode_utf8, read_whole

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
MAX_BYTES = 1 << 30
# An entity of XML that is more than a name for some characters: it may be elsewhere, or made of others, so that a few
# bytes become gigabytes. "&#38;" is "&" when the entity is read, and can refer to others, too.
_VALUE = rb"(?:[^&%%%b]|&#(?!0*38;|x0*26;)x?[0-9A-Fa-f]+;)*"
ENTITY = re.compile(rb"<!ENTITY(?!\s+[^\s%%\"'>]+\s+(?:\"%b\"|'%b')\s*>)" % (_VALUE % b'"', _VALUE % b"'"))
# The share of parents that texts have as labels, too, if they have all of them but for some mistakes.
MIN_INCLUSIVE = 0.9

# Where a pair was found, for messages; child; parent.
Place = tuple[str, str, str]


class Hierarchy:
    """Labels and their parents, without cycles.

    labels     all labels of the hierarchy, whether or not a model has them
    parents    the positions of each label's parents
    names      display names, {label: name}, as far as the source has any
    inclusive  whether texts that have a label also have its parents as labels

    >>> hierarchy = Hierarchy([("", "J45.0", "J45"), ("", "J45", "J00-J99")])
    >>> [hierarchy.labels[i] for i in hierarchy.ancestors.row(0)]
    ['J45.0', 'J45', 'J00-J99']
    """

    def __init__(
        self,
        places: Iterable[Place],
        names: Mapping[str, str] | None = None,
        labels: Iterable[str] = (),
        inclusive: bool = False,
    ) -> None:
        """`labels` are numbered first, in this order, whether or not they have parents or children."""
        ids = {label: i for i, label in enumerate(labels)}
        wheres: dict[tuple[int, int], str] = {}
        for where, child, parent in places:
            if child == parent:
                raise DataError(f"{where}: {child!r:.80} is its own parent. Remove the line.")
            pair = ids.setdefault(child, len(ids)), ids.setdefault(parent, len(ids))
            wheres.setdefault(pair, where)
        parents: list[list[int]] = [[] for _ in ids]
        for one, other in wheres:
            parents[one].append(other)
        self.labels, self.inclusive = list(ids), inclusive
        self.parents = Ragged.from_lists(parents)
        self.names = {label: name for label, name in (names or {}).items() if label in ids and name}
        self._parents_first = _parents_first(parents)
        if len(self._parents_first) < len(ids):
            cycle = _cycle(parents, self._parents_first)
            path = " → ".join(repr(self.labels[i])[:80] for i in cycle)
            raise DataError(
                f"{wheres[cycle[0], cycle[1]]}: the hierarchy has a cycle, {path}. Remove one of its lines."
            )

    def __repr__(self) -> str:
        return f"Hierarchy({len(self.labels):,} labels, {len(self.parents.values):,} parents)"

    @cached_property
    def ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def ancestors(self) -> Ragged:
        """The positions of each label itself, which comes first, and of all its ancestors, each once."""
        found: list[list[int]] = [[] for _ in self.labels]
        for i in self._parents_first:
            above = dict.fromkeys(other for parent in self.parents.row(i).tolist() for other in found[parent])
            found[i] = [i, *above]
        return Ragged.from_lists(found)

    @cached_property
    def is_leaf(self) -> np.ndarray:
        """Which labels have no children."""
        return np.bincount(self.parents.values, minlength=len(self.labels)) == 0

    @cached_property
    def root(self) -> int | None:
        """The one label above all others; None if there are several without a parent."""
        roots = np.flatnonzero(self.parents.counts == 0)
        return int(roots[0]) if len(roots) == 1 else None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each child with each of its parents."""
        rows = zip(self.parents.row_ids.tolist(), self.parents.values.tolist(), strict=True)
        return [(self.labels[child], self.labels[parent]) for child, parent in rows]

    def numbered(self, labels: Iterable[str]) -> Hierarchy:
        """The same hierarchy with these labels first, so that their positions are the ids of a model."""
        return Hierarchy((("the hierarchy", *pair) for pair in self.pairs), self.names, labels, self.inclusive)

    def is_inclusive(self, rows: Ragged, labels: Sequence[str]) -> bool:
        """Whether texts with these labels (positions in `labels`) nearly always have the parents among them, too."""
        above = self.numbered(labels)
        own = above.parents.take(rows.values)
        is_label = own.values < len(labels)
        texts = np.repeat(rows.row_ids, own.counts)[is_label]
        wanted = texts * len(labels) + own.values[is_label]
        has = np.isin(wanted, rows.row_ids * len(labels) + rows.values)
        return len(has) > 0 and float(has.mean()) >= MIN_INCLUSIVE


def hierarchy_of_pairs(pairs: Iterable[Sequence[str]] | Mapping[str, str | Iterable[str]]) -> Hierarchy:
    """A hierarchy from (child, parent) pairs, or from {child: parent} or {child: [parents]}."""
    places = []
    for number, pair in enumerate(_pairs_of(pairs) if isinstance(pairs, Mapping) else pairs, 1):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(one, str) and one.strip() for one in pair):
            raise DataError(f"pair {number} of the hierarchy is {pair!r:.80}; expected (child, parent), two labels.")
        places.append((f"pair {number} of the hierarchy", pair[0].strip(), pair[1].strip()))
    if not places:
        raise DataError("the hierarchy is empty; expected (child, parent) pairs.")
    return Hierarchy(places)


def _pairs_of(parents: Mapping[str, str | Iterable[str]]) -> list[tuple[str, str]]:
    return [(child, p) for child, own in parents.items() for p in ([own] if isinstance(own, str) else own)]


def _parents_first(parents: list[list[int]]) -> list[int]:
    """All labels so that parents come before their children; those in or below a cycle are left out."""
    children: list[list[int]] = [[] for _ in parents]
    for child, own in enumerate(parents):
        for parent in own:
            children[parent].append(child)
    missing = [len(own) for own in parents]
    order = [i for i, n in enumerate(missing) if n == 0]
    for parent in order:  # which grows
        for child in children[parent]:
            missing[child] -= 1
            if missing[child] == 0:
                order.append(child)
    return order


def _cycle(parents: list[list[int]], in_order: list[int]) -> list[int]:
    """A cycle among the labels that are not in order; each of them has a parent that is not, either."""
    rest = set(range(len(parents))).difference(in_order)
    path = [min(rest)]
    while len(set(path)) == len(path):
        path.append(next(parent for parent in parents[path[-1]] if parent in rest))
    return path[path.index(path[-1]) :]


HierarchySource = str | Path | Hierarchy | Iterable[Sequence[str]] | Mapping[str, str | Iterable[str]]


def read_hierarchy(source: HierarchySource, labels: Collection[str] = ()) -> Hierarchy:
    """A hierarchy from a file, from (child, parent) pairs, or from {child: parent}.

    labels  those that it is for. A concept of SKOS goes by its URI, the last part of the URI, its short form
            ("yso:p8753", "HP:0000118"), its notation or its preferred name: by what most of these labels are

    >>> read_hierarchy({"J45.0": "J45"}).labels
    ['J45.0', 'J45']
    """
    if isinstance(source, Hierarchy):
        return source
    if not isinstance(source, str | Path):
        return hierarchy_of_pairs(source)
    suffixes = set(Path(source).suffixes)
    content = read_whole(source, MAX_BYTES)
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
    if format == "json-ld":
        _check_contexts(content, source)
    elif format == "xml" and (b"\0" in content or ENTITY.search(content)):
        raise DataError(f"{source}: has entities that refer to files or to each other, or is UTF-16. Convert it.")
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
    parts = {concept: re.split(r"[/#]", concept) for concept in concepts}
    identifiers = (
        {concept: [str(concept)] for concept in concepts},
        {concept: [own[-1]] for concept, own in parts.items()},
        {concept: [":".join(own[-2:])] for concept, own in parts.items()},  # …/yso/p8753: yso:p8753
        {concept: [own[-1].replace("_", ":", 1)] for concept, own in parts.items()},  # …/obo/HP_0000118: HP:0000118
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


def _check_contexts(content: bytes, source: str | Path) -> None:
    """Refuse contexts that are elsewhere: the parser would download them, or read any file of this machine."""
    try:
        waiting = [msgspec.json.decode(content)]
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"{source}: not valid JSON-LD ({error}).") from None
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            contexts = [value.get("@context"), value.get("@import")]
            while contexts:
                context = contexts.pop()
                if isinstance(context, str):
                    raise DataError(
                        f"{source}: its context is elsewhere, at {context!r:.80}; nothing is downloaded. Put the "
                        "context into the file."
                    )
                contexts += context if isinstance(context, list) else []  # also of lists
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


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
