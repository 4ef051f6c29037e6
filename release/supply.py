"""What Shortlist is built from: a software bill of materials, and the server's dependencies with hashes.

    python release/supply.py sbom > sbom.json                      # CycloneDX, of the environment of this Python
    python release/supply.py hashes > constraints-hashed.txt       # of shortlist[serve], for this platform

Only pip is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def main() -> None:
    if sys.argv[1:] == ["sbom"]:
        installed = json.loads(subprocess.check_output([*PIP, "inspect", "--local"]))["installed"]
        print(json.dumps(bill_of_materials([package["metadata"] for package in installed]), indent=2))
    elif sys.argv[1:] == ["hashes"]:
        print(hashed_requirements())
    else:
        sys.exit(__doc__)


def bill_of_materials(packages: list[dict[str, Any]]) -> dict[str, Any]:
    """Packages, as pip describes them, in the format of CycloneDX. The same packages give the same text."""
    components = [component(package) for package in packages if package["name"] != "shortlist"]
    own = [component(package) for package in packages if package["name"] == "shortlist"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own[0], "type": "application"}} if own else {},
        "components": sorted(components, key=lambda one: one["purl"]),
    }


def component(package: dict[str, Any]) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    url = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    entry: dict[str, Any] = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    if licence := package.get("license_expression"):
        entry["licenses"] = [{"expression": licence}]
    elif (licence := package.get("license")) and "\n" not in licence:
        entry["licenses"] = [{"license": {"name": licence}}]
    return entry


def hashed_requirements() -> str:
    """The server's dependencies in the versions of constraints.txt, each with the hash of its wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    options = ["--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", "-"]
    command = [*PIP, "install", *options, "-c", str(ROOT / "constraints.txt"), *wanted]
    report = json.loads(subprocess.check_output(command))
    lines = [
        f"{package['metadata']['name']}=={package['metadata']['version']} "
        f"--hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}"
        for package in report["install"]
    ]
    version = ".".join(map(str, sys.version_info[:2]))
    about = f"# shortlist[serve] with hashes, Python {version} on {sys.platform}; written by release/supply.py hashes"
    return "\n".join([about, *sorted(lines, key=str.lower)])


if __name__ == "__main__":
    main()
