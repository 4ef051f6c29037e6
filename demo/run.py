"""The demo: real data, from nothing to a report, with public names only.

    python demo/run.py demo-output

Builds the ICD-10-CM data set, describes it, clusters its labels, trains the recipes, evaluates them on the
test part, predicts a few texts, and writes what it did to `report.md`, and the best model in depth to `report.html`.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import icd10
import shortlist
from shortlist import tables
from shortlist.labels.centroids import label_centroids
from shortlist.text import TfIdf, Vocabulary

# The texts are the labels' names already.
RECIPES = {"popular": {}, "centroid": {}, "astec": {"label_texts": "never"}}
EXAMPLES = ("heart attack", "sugar diabetes with kidney trouble", "broken wrist", "bee sting", "wisdom tooth pain")
CLUSTERS_SHOWN = 6
LABELS_SHOWN = 4  # of the eight or so of a cluster


def main(folder: Path) -> None:
    logging.basicConfig(format="   %(message)s", level=logging.INFO, stream=sys.stderr)
    started = time.perf_counter()
    sections = ["# Shortlist on ICD-10-CM", _introduction()]
    say(f"1. building the data set in {folder}/icd10")
    icd10.build(folder / "icd10")
    train, test = (shortlist.read(folder / "icd10", part) for part in ("train", "test"))
    sections += ["## The data", shortlist.describe(train, test=test).to_markdown()]

    say("2. clustering the labels")
    sections += ["## Labels that belong together", cluster_section(train)]

    say("3. training and evaluating")
    rows, models = [], {}
    for recipe, options in RECIPES.items():
        start = time.perf_counter()
        model = shortlist.train(train, recipe=recipe, **options)
        train_seconds = time.perf_counter() - start
        model.save(folder / "models" / recipe)
        models[recipe] = shortlist.load(folder / "models" / recipe)
        models[recipe].predict(EXAMPLES[0])  # compiles what is not compiled yet, so that only predicting is timed
        start = time.perf_counter()
        predictions = models[recipe].predict_dataset(test)
        predict_seconds = time.perf_counter() - start
        rows.append((recipe, shortlist.evaluate(predictions, test, train=train), train_seconds, predict_seconds))
    sections += ["## Scores on the test part", score_section(rows)]
    best, best_result, *_ = max(rows, key=lambda row: row[1]["P@1"])
    sections += [f"### {best}, in full", best_result.to_markdown()]

    say(f"4. predicting some diagnoses with {best}")
    show_predictions(models[best])
    sections += ["## Predictions", prediction_section(models[best])]

    say(f"5. looking where {best} is good and where it is not")
    page = folder / "report.html"
    shortlist.model_report(models[best], test, train=train, name=best).write(page)
    sections.append(f"[{best} in depth]({page.name}), with plots.")
    sections.append(f"The demo took {time.perf_counter() - started:.0f} seconds.")
    report = folder / "report.md"
    report.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    say(f"done in {time.perf_counter() - started:.0f} s. The reports: {report}, {page}")
    # The same environment, however this was called.
    program = Path(sys.executable).parent / "shortlist"
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    say(f"Try it yourself: {shown} serve {folder / 'models' / best}, and open the address that it tells.")


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _introduction() -> str:
    return (
        "Short medical wordings in, codes of the International Classification of Diseases out. The texts are the "
        "official descriptions and inclusion terms; the labels of a text are its code and all codes above it. "
        "Test texts are wordings that do not occur in training. Written by `make demo`."
    )


def cluster_section(train: shortlist.Dataset) -> str:
    vocabulary, word_ids = Vocabulary.build_and_encode(train.texts)
    features = TfIdf.fit(word_ids, len(vocabulary)).transform(word_ids)
    centroids = label_centroids(features, train.labels, train.n_labels)
    start = time.perf_counter()
    tree = shortlist.LabelTree.build(centroids, cluster_size=8)
    seconds = time.perf_counter() - start
    similarity = tree.within_cluster_similarity(centroids)
    lines = [
        f"{train.n_labels:,} labels in {tree.n_clusters:,} clusters in {seconds:.1f} s (balanced 2-means over the "
        f"labels' words). The average cosine of a label to its cluster is {similarity:.2f}. Some clusters:",
        "",
    ]
    for cluster in range(0, tree.n_clusters, tree.n_clusters // CLUSTERS_SHOWN):
        names = [train.label_names[label] for label in tree.labels_of(cluster)]
        lines.append("- " + "; ".join(f"{name} {train.display_name(name)}" for name in names[:LABELS_SHOWN]) + "; …")
    return "\n".join(lines)


def score_section(rows: list[tuple[str, shortlist.evaluation.Evaluation, float, float]]) -> str:
    metrics = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5", "R@5")
    cells = []
    for recipe, result, train, predict in rows:
        scores = [f"{result[metric]:.2f}" for metric in metrics]
        cells.append([f"`{recipe}`", *scores, f"{train:.1f}", f"{1000 * predict / result.texts:.3f}"])
    return tables.markdown(["recipe", *metrics, "training, s", "predicting, ms a text"], cells)


def show_predictions(model: shortlist.model.Model) -> None:
    for text in EXAMPLES:
        start = time.perf_counter()
        best = model.predict(text, k=2)
        milliseconds = 1000 * (time.perf_counter() - start)
        found = "; ".join(f"{p.score:.2f} {p.label} {p.name}" for p in best)
        say(f"   {text} ({milliseconds:.1f} ms): {found}")


def prediction_section(model: shortlist.model.Model) -> str:
    lines = ["| text | labels, best first |", "|---|---|"]
    for text, predictions in zip(EXAMPLES, model.predict(list(EXAMPLES), k=3), strict=True):
        lines.append(f"| {text} | " + "<br>".join(f"{p.score:.2f} `{p.label}` {p.name}" for p in predictions) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
