"""Reports for people: several systems side by side, or one model in depth, as one HTML file and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shortlist.report.comparison import comparison_page, write_comparison
from shortlist.report.render import Page

if TYPE_CHECKING:
    from shortlist.data import Dataset
    from shortlist.model.model import Model

__all__ = ["Page", "comparison_page", "model_report", "write_comparison"]


def model_report(model: Model, test: Dataset, train: Dataset | None = None, **options: Any) -> Page:
    """Measure a model on the test part and report how good it is and where it goes wrong.

    The options are those of `measure_model`: `name`, `unseen`, `drop_leaks`, `seed` and `threads`.

    >>> import shortlist, tempfile
    >>> data = shortlist.read([("red shoes", ["shoes"]), ("blue hat", ["hats"])] * 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model_report(shortlist.train(data), data, train=data).write(f"{folder}/report.html")
    """
    from shortlist.report.measure import measure_model
    from shortlist.report.model import model_page

    return model_page(measure_model(model, test, train, **options))
