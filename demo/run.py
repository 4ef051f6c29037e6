"""The demo: from nothing to a model that answers people's own questions.

    python demo/run.py demo-output

Builds the data set (`hpo.py`), trains the default recipe, compares it with a linear model on texts that neither has
seen, asks it the questions of `queries.json`, and writes `report.html`.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import hpo
import queries
import shortlist
from shortlist import tables

METRICS = ("P@1", "P@3", "P@5")
EXAMPLES = (
    "heart attack",
    "kidney stones",
    "ringing in the ears",
    "throwing up",
    "racing heart",
    "cystic fibrosis",
)


def main(folder: Path) -> None:
    started = time.perf_counter()
    logging.getLogger("shortlist").setLevel(logging.WARNING)  # the bars of training, but not a line per epoch
    say("Shortlist on the Human Phenotype Ontology")
    say("Words for symptoms and names of diseases in, the ontology's terms out.\n")

    data = folder / "data"
    hpo.build(data)
    train, test = (shortlist.read(data, part) for part in ("train", "test"))
    say(f"1. The data: {len(train):,} texts, {train.n_labels:,} labels; {len(test):,} more texts for testing.")
    for row in (train.texts.index("Heart attack"), train.texts.index("Marfan syndrome")):
        names = [train.display_name(label) for label in train.labels_of(row)]
        say(fit(f"   {train.texts[row]} -> {', '.join(names)}"))

    say("\n2. Training, a minute or two on two idle cores.")
    model, seconds = timed(shortlist.train, train)
    model.save(folder / "model")
    rows = [["Shortlist", *scores(model.predict_dataset(test), test, train), f"{seconds:.0f} s"]]
    if importlib.util.find_spec("omikuji"):
        import linear

        say("   And Omikuji, a good linear model, which learns from the same texts only.")
        found, seconds = timed(linear.train_and_predict, train, test)
        rows.append(["Omikuji", *scores(found, test, train), f"{seconds:.0f} s"])
    baseline, seconds = timed(shortlist.train, train, recipe="centroid")
    rows.append(["centroid baseline", *scores(baseline.predict_dataset(test), test, train), f"{seconds:.0f} s"])

    say(f"\n3. The share of right labels among the first 1, 3 and 5, on {len(test):,} new texts:\n")
    say(tables.plain(["", *METRICS, "training"], rows))

    say("\n4. What people ask. Of all labels with a score of 0.80, about 80 % are right.\n")
    for text in EXAMPLES:
        answers = model.predict(text, k=2)
        say(fit(f"   {text:<21}" + "; ".join(f"{answer.score:.2f} {answer.name}" for answer in answers)))
    say(f"\n{queries.summary(queries.ask(model, train))}")

    page = folder / "report.html"
    shortlist.model_report(model, test, train=train, name="Human Phenotype Ontology").write(page)
    say(f"\nDone in {time.perf_counter() - started:.0f} s. Where it is right and where not: {page}")
    # The same environment, however this was called.
    program = Path(sys.executable).parent / "shortlist"
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    say(f"Ask your own questions on a web page, http://127.0.0.1:8000\n\n    {shown} serve {folder / 'model'}")


def timed(function: Any, *arguments: Any, **options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - start


def scores(predictions: Any, test: shortlist.Dataset, train: shortlist.Dataset) -> list[str]:
    measured = shortlist.evaluate(predictions, test, train=train)
    return [f"{measured[metric]:.1f}" for metric in METRICS]


def fit(line: str) -> str:
    """The line, cut to fit into the terminal: 80 columns where there is none."""
    width = shutil.get_terminal_size().columns - 1
    return line if len(line) <= width else f"{line[: width - 1]}…"


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
