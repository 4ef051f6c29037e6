"""Recipes on real data sets, measured as in the published tables.

    python benchmarks/accuracy.py DATA/cooking-se DATA/tibkat-sid
    python benchmarks/accuracy.py DATA/tibkat-sid --recipes inceptionxml,inceptionxml+ --set dropout=0.3 --threads 2

Labels unseen in training are ignored, and so are texts that have no others. The last columns are the change of P@5 when
the words of each test text are shuffled (mean of 5 permutations), the training time, the peak memory of the process so
far, and the time per text when all texts are predicted at once.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, peak_gb, print_json, read_splits, show, timed
from shortlist.text.texts import Texts

METRICS = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")
N_PERMUTATIONS = 5
BASELINES = ("popular", "centroid")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="data sets, each a folder with train and test")
    parser.add_argument("--recipes", default="popular,centroid", help="recipes, separated by commas")
    add_recipe_options(parser, "an option for all recipes except the baselines")
    parser.add_argument("--threads", type=int, help="threads for training (default: all cores)")
    parser.add_argument("--save", type=Path, help="keep the models in this folder")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    options = parse_recipe_options(arguments.options)
    results = []
    for folder in arguments.folders:
        train, test = read_splits(folder)
        print(f"\n{folder.name}: {len(train):,} / {len(test):,} texts, {train.n_labels:,} labels", flush=True)
        of_folder = []
        for recipe in arguments.recipes.split(","):
            given = {} if recipe in BASELINES else dict(options)
            if arguments.threads is not None and recipe != "popular":
                given["threads"] = arguments.threads
            of_folder.append({"recipe": recipe, **measure(recipe, train, test, given, arguments.save)})
            print(of_folder[-1], file=sys.stderr, flush=True)
        show(of_folder)
        results += [{"data": folder.name, **result} for result in of_folder]
    print_json("accuracy", options=options, results=results)


def measure(recipe, train, test, options, save):
    """Train a recipe and measure it on the test part."""
    train_seconds, model = timed(lambda: shortlist.train(train, recipe=recipe, **options))
    if save is not None:
        model.save(save / recipe)
    seconds, predictions = timed(lambda: model.predict_dataset(test))
    found = shortlist.evaluate(predictions, test, train=train, unseen="ignore")
    change = None if recipe in BASELINES else 100 * (shuffled_p5(model, train, test) / found["P@5"] - 1)
    return {
        **{name: round(found[name], 2) for name in METRICS},
        "P@5 shuffled, %": None if change is None else round(change, 2),
        "train s": round(train_seconds, 1),
        "peak GB": round(peak_gb(), 2),
        "ms/text": 1e3 * seconds / len(test),
    }


def shuffled_p5(model, train, test):
    """The mean P@5 when the words of each text are shuffled."""
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(N_PERMUTATIONS):
        texts = [" ".join(rng.permutation(text.split())) if text.strip() else text for text in test.texts]
        other = shortlist.Dataset(Texts.from_strings(texts), test.labels, test.label_names, test.display_names)
        scores.append(shortlist.evaluate(model.predict_dataset(other), other, train=train, unseen="ignore")["P@5"])
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
