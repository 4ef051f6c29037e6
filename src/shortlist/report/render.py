"""Renders the templates of a report. Jinja2 is imported when the first report is rendered."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """Fill a template. HTML and SVG are escaped as such, Markdown by `escape_markdown`."""
    return _environment(is_markdown=template.endswith(".md")).get_template(template).render(**values)


@cache
def _environment(is_markdown: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("shortlist.report"),
        autoescape=not is_markdown,
        finalize=escape_markdown if is_markdown else _round_positions,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _round_positions(value: Any) -> Any:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def escape_markdown(value: Any) -> str:
    """Any value as one line of Markdown that shows it literally.

    >>> print(escape_markdown("a|b *c* <d>"))
    a\\|b \\*c\\* &lt;d>
    """
    line = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]+", " ", str(value))
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))
