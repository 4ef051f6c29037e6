"""Make three data sets from the package lists of a Debian machine, of another kind than the usual benchmarks.

    python benchmarks/debian.py OUT

The text is a package's one-line description. Labels are its tags (OUT/deb-tags), its section (OUT/deb-section), or the
packages that it depends on (OUT/deb-depends). The test part consists of one eighth of the source packages, so that no
two packages of one source are on different sides. Requires `apt-cache`.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import shortlist
from common import make_parser, print_json, show

Package = dict[str, str]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("out", type=Path, help="folder for the data sets")
    out = parser.parse_args().out
    packages = list(read_packages())
    sources = sorted({source_of(package) for package in packages})
    held_out = set(random.Random(7).sample(sources, len(sources) // 8))
    labels_of = {
        "deb-tags": lambda package: split_list(package.get("Tag", "")),
        "deb-section": lambda package: split_list(package.get("Section", "")),
        "deb-depends": lambda package: sorted(
            {name.split()[0].split(":")[0] for name in split_list(package.get("Depends", ""))}
        ),
    }
    results = []
    for folder, labels in labels_of.items():
        (out / folder).mkdir(parents=True, exist_ok=True)
        examples = {(package["Description"], tuple(labels(package))): package for package in reversed(packages)}
        for part in ("train", "test"):
            pairs = [
                (text, list(own))
                for (text, own), package in reversed(examples.items())
                if text and own and (source_of(package) in held_out) == (part == "test")
            ]
            data = shortlist.read(pairs)
            data.write(out / folder / f"{part}.jsonl")
            results.append({"": folder, "part": part, "texts": len(data), "labels": data.n_labels})
    show(results)
    print_json("debian", results=results)


def read_packages() -> Iterator[Package]:
    """The fields of each package that has a description."""
    lists = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for block in lists.split("\n\n"):
        package: Package = {}
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


def source_of(package: Package) -> str:
    return package.get("Source", package["Package"]).split()[0]


if __name__ == "__main__":
    main()
