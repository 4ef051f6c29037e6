"""Arrow in, Arrow out: predictions as two more columns of a table; and the same for pandas, Polars and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shortlist.data.arrow import ROWS_PER_BATCH, import_pyarrow
from shortlist.errors import DataError, ShortlistError
from shortlist.model.folder import load
from shortlist.model.model import Model


def predict_arrow(model: Model, table: Any, text: str | Sequence[str] = "text", **options: Any) -> Any:
    """The table as a `pyarrow.Table` with the columns `labels` and `scores`: lists, best first.

    table    anything with Arrow's C stream interface: pyarrow, Polars, pandas, a DuckDB relation
    text     the column of the texts; by default, those of the model if it has several text fields. A text that is null
             gets no labels
    options  those of `Model.rank`, such as k and min_score

    >>> predict_arrow(model, pyarrow.table({"text": ["red shoes"]}), k=1)["labels"]  # doctest: +SKIP
    [["shoes"]]
    """
    pyarrow = import_pyarrow("predicting tables")
    table = pyarrow.table(table)
    names = text_columns(model, text, table.column_names)
    fields = model.text_fields if len(names) > 1 else None
    for name in ("labels", "scores"):
        if name in table.column_names:
            raise DataError(f"the table already has a column {name!r}. Rename or drop it first.")
    all_labels, labels, scores = model.all_labels, [], []
    for batch in table.select(list(names)).to_batches(ROWS_PER_BATCH):
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        texts = [row[0] if fields is None else fields.join(row) or None for row in rows]
        ids, row_scores = model.rank(["" if one is None else one for one in texts], **options)
        found = (ids >= 0) & [[one is not None] for one in texts]
        labels += [[all_labels[i] for i in row[keep]] for row, keep in zip(ids, found, strict=True)]
        scores += [row[keep].tolist() for row, keep in zip(row_scores, found, strict=True)]
    table = table.append_column("labels", pyarrow.array(labels, pyarrow.list_(pyarrow.string())))
    return table.append_column("scores", pyarrow.array(scores, pyarrow.list_(pyarrow.float32())))


def text_columns(model: Model, text: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns of a table that have the text, or the text fields of the model."""
    fields = [] if model.text_fields is None else list(model.text_fields.names)
    if not isinstance(text, str) and list(text) != fields:
        raise DataError(f"text is {text!r:.80}; expected a column{f', or {fields}' if fields else ''}.")
    names = fields if fields and (text == "text" or not isinstance(text, str)) else [str(text)]
    for name in names:
        if name not in columns:
            hint = "The model reads these fields: " + ", ".join(fields) if fields else "Choose another with text="
            raise DataError(
                f"the table has no column {name!r}; the columns are {', '.join(map(repr, columns))}. {hint}."
            )
    return names


def predict_pandas(model: Model, frame: Any, text: str | Sequence[str] = "text", **options: Any) -> Any:
    """As `predict_arrow`, from a pandas frame to a new one with the same index."""
    names = text_columns(model, text, list(frame.columns))
    found = predict_arrow(model, frame[names].reset_index(drop=True), text, **options)
    return frame.assign(labels=found["labels"].to_pylist(), scores=found["scores"].to_pylist())


def predict_polars(model: Model, frame: Any, text: str | Sequence[str] = "text", **options: Any) -> Any:
    """As `predict_arrow`, from a Polars frame to a new one."""
    import polars

    return polars.from_arrow(predict_arrow(model, frame, text, **options))


def mlflow_model(text: str = "text", **options: Any) -> Any:
    """A model for `mlflow.pyfunc.log_model(python_model=…, artifacts={"model": FOLDER})`.

    It takes a pandas frame with a column of texts, and gives it back with the columns `labels` and `scores`.
    """
    try:
        from mlflow.pyfunc import PythonModel
    except ImportError:
        raise ShortlistError("mlflow_model needs MLflow: pip install mlflow") from None

    class ShortlistModel(PythonModel):
        def load_context(self, context: Any) -> None:
            self.model = load(Path(context.artifacts["model"]))

        def predict(self, context: Any, model_input: Any, params: dict[str, Any] | None = None) -> Any:
            return predict_pandas(self.model, model_input, text, **{**options, **(params or {})})

    return ShortlistModel()
