"""Reports for people: a comparison of systems, or one model in depth, as one HTML file and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shortlist.reporting.comparison import comparison_page, write_comparison
from shortlist.reporting.html import Page

if TYPE_CHECKING:
    from shortlist.data import Dataset
    from shortlist.model.base import Model

__all__ = ["Page", "comparison_page", "report", "write_comparison"]


def report(model: Model, test: Dataset, train: Dataset | None = None, **options: Any) -> Page:
    """Measure a model on a test part, and put into words and plots how good it is and where it goes wrong.

    The options are those of `measure_model`: `name`, `unseen`, `seed`, `threads`.

    >>> shortlist.report(model, test, train=train).write("report.html", "report.md")  # doctest: +SKIP
    """
    from shortlist.reporting.measuring import measure_model
    from shortlist.reporting.single import model_page

    return model_page(measure_model(model, test, train, **options))
