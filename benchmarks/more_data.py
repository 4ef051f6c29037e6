"""Make data sets of other kinds than the usual benchmarks, from what installs without a download by hand.

    python benchmarks/more_data.py OUT [--only deb-tags go …]

| set | text → labels | from |
|---|---|---|
| deb-tags, deb-section, deb-depends | a package's one-line description → tags; section; dependencies | `apt-cache` |
| deb-named | "name: description" → dependencies | `apt-cache` |
| wordnet | the gloss of a noun → its hypernyms | Debian's wordnet-base |
| go | the name or a synonym of a Gene Ontology term → its parents | Debian's r-bioc-go.db |
| icd | descriptions and inclusion terms → ICD-10-CM codes, without their ancestors | PyPI's simple-icd-10-cm |

Each becomes OUT/SET/train.jsonl, test.jsonl and, where labels have names, label_names.json. The test part is plainly
random, grouped so that texts of one source package, or with the same words, are on one side. Debian packages are
fetched with `apt-get download` and unpacked as data; nothing of them is installed. One more set of this kind, the Human
Phenotype Ontology, is that of the demo: `python demo/hpo.py OUT/hpo`.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import shortlist
from common import make_parser, print_json, show

TEST_SHARE = 8  # one group in this many is for testing


class Example(NamedTuple):
    text: str
    labels: list[str]
    group: str  # texts of one group are on the same side of the split


class DataFrom(NamedTuple):
    examples: list[Example]
    names: dict[str, str] = {}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("out", type=Path, help="folder for the data sets")
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=list(SETS))
    arguments = parser.parse_args()
    results = []
    for name in arguments.only:
        found = SETS[name]()
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        groups = sorted({example.group for example in found.examples})
        held_out = set(random.Random(7).sample(groups, len(groups) // TEST_SHARE))
        for part in ("train", "test"):
            merged: dict[str, list[str]] = defaultdict(list)
            for example in found.examples:
                if (example.group in held_out) == (part == "test"):
                    merged[example.text] += example.labels
            data = shortlist.read([(text, sorted(set(labels))) for text, labels in merged.items() if text and labels])
            data.write(folder / f"{part}.jsonl")
            results.append({"": name, "part": part, "texts": len(data), "labels": data.n_labels})
        if found.names:
            (folder / "label_names.json").write_text(json.dumps(found.names, ensure_ascii=False))
    show(results)
    print_json("more_data", results=results)


def words_of(text: str) -> str:
    """A group for texts that differ in case, punctuation or word order only."""
    return " ".join(sorted(re.findall(r"\w+", text.lower())))


def debian(labels: Callable[[dict[str, str]], list[str]], named: bool = False) -> DataFrom:
    examples = []
    for package in read_packages():
        text = f"{package['Package']}: {package['Description']}" if named else package["Description"]
        source = package.get("Source", package["Package"]).split()[0]
        examples.append(Example(text, labels(package), source))
    return DataFrom(examples)


def read_packages() -> Iterator[dict[str, str]]:
    """The fields of each package that has a description."""
    lists = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for block in lists.split("\n\n"):
        package: dict[str, str] = {}
        field = ""
        for line in block.splitlines():
            if line.startswith((" ", "\t")):
                package[field] += " " + line.strip()
            else:
                field, _, value = line.partition(":")
                package[field] = value.strip()
        if package.get("Description"):
            yield package


def split_list(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def tags(package: dict[str, str]) -> list[str]:
    return split_list(package.get("Tag", ""))


def section(package: dict[str, str]) -> list[str]:
    return split_list(package.get("Section", ""))


def dependencies(package: dict[str, str]) -> list[str]:
    return sorted({name.split()[0].split(":")[0] for name in split_list(package.get("Depends", ""))})


def debian_file(package: str, path: str) -> Path:
    """A file of a Debian package, which is unpacked into a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="shortlist-"))
    subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["dpkg", "-x", next(folder.glob("*.deb")), folder], check=True)
    return folder / path


def wordnet() -> DataFrom:
    examples, names, glosses = [], {}, []
    for line in debian_file("wordnet-base", "usr/share/wordnet/data.noun").read_text().splitlines():
        if line.startswith(" "):
            continue
        facts, _, gloss = line.partition("|")
        fields = facts.split()
        names[fields[0]] = fields[4].replace("_", " ")
        pointers = fields[4 + 2 * int(fields[3], 16) + 1 :]
        above = [pointers[i + 1] for i in range(0, len(pointers) - 1, 4) if pointers[i] in ("@", "@i")]
        glosses.append((gloss.split('; "')[0].strip(), above))
    for gloss, above in glosses:
        examples.append(Example(gloss, above, words_of(gloss)))
    used = {label for example in examples for label in example.labels}
    return DataFrom(examples, {label: names[label] for label in used})


def gene_ontology() -> DataFrom:
    path = debian_file("r-bioc-go.db", "usr/lib/R/site-library/GO.db/extdata/GO.sqlite")
    database = sqlite3.connect(path)
    names = {str(key): name for key, name in database.execute("select _id, term from go_term")}
    above = defaultdict(list)
    for kind in ("bp", "mf", "cc"):
        for term, parent in database.execute(
            f"select _id, _parent_id from go_{kind}_parents where relationship_type='isa'"
        ):
            above[str(term)].append(str(parent))
    texts = [(str(key), name) for key, name in database.execute("select _id, term from go_term")]
    texts += [
        (str(key), name) for key, name in database.execute("select _id, synonym from go_synonym") if ":" not in name
    ]
    examples = [Example(text, above[term], words_of(text)) for term, text in texts if above[term]]
    return DataFrom(examples, {term: names[term] for term in {label for e in examples for label in e.labels}})


def icd_codes() -> DataFrom:
    import simple_icd_10_cm as icd

    examples, names = [], {}
    for code in icd.get_all_codes():
        if not icd.is_leaf(code):
            continue
        names[code] = icd.get_description(code)
        examples += [Example(text, [code], words_of(text)) for text in [names[code], *icd.get_inclusion_term(code)]]
    return DataFrom(examples, names)


SETS: dict[str, Callable[[], DataFrom]] = {
    "deb-tags": lambda: debian(tags),
    "deb-section": lambda: debian(section),
    "deb-depends": lambda: debian(dependencies),
    "deb-named": lambda: debian(dependencies, named=True),
    "wordnet": wordnet,
    "go": gene_ontology,
    "icd": icd_codes,
}


if __name__ == "__main__":
    main()
