"""The model card for people: `README.md` in the model folder, with the front matter that model hubs read."""

from __future__ import annotations

from typing import Any


def readme(card: dict[str, Any]) -> str:
    """The model card (`Model.card`) as Markdown. The same model gives the same text."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("shortlist.model"), trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    return environment.get_template("README.md.j2").render(card)
