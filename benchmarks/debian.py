"""Three data sets of another kind than those that choices were made on, from the package lists of a Debian machine.

    python benchmarks/debian.py OUT

The text is a package's one-line description. Labels are its tags (OUT/deb-tags), its section (OUT/deb-section), or
the packages it depends on (OUT/deb-depends). An eighth of the source packages is the test part, so that no package
has a sister on the other side. Needs `apt-cache`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import shortlist

Package = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    packages = list(read_packages())
    sources = sorted({source_of(package) for package in packages})
    held_out = set(random.Random(7).sample(sources, len(sources) // 8))
    labels_of: dict[str, Callable[[Package], list[str]]] = {
        "deb-tags": lambda package: names(package.get("Tag", "")),
        "deb-section": lambda package: names(package.get("Section", "")),
        "deb-depends": lambda package: sorted(
            {name.split()[0].split(":")[0] for name in names(package.get("Depends", ""))}
        ),
    }
    for folder, labels in labels_of.items():
        rows = {(package["Description"], tuple(labels(package))): package for package in reversed(packages)}
        for part in ("train", "test"):
            some = [
                (text, list(own))
                for (text, own), package in reversed(rows.items())
                if text and own and (source_of(package) in held_out) == (part == "test")
            ]
            data = shortlist.read(some)
            (out / folder).mkdir(parents=True, exist_ok=True)
            data.write(out / folder / f"{part}.jsonl")
            print(folder, part, data)


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


def names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def source_of(package: Package) -> str:
    return package.get("Source", package["Package"]).split()[0]


if __name__ == "__main__":
    main()
