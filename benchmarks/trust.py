"""Whether the numbers that we print on a user's data are those that they see on fresh data.

    python benchmarks/trust.py DATA/tibkat-sid DATA/commit-files --texts 3000 10000 --draws 3 [--set n_epochs=5]

For each draw, some texts of the train part are taken at random, as a user would have them: split as documented,
trained, evaluated with intervals. Then the same model is measured on fresh texts that nobody has seen:

inside    whether P@1 and P@5 on the fresh texts lie in the printed intervals
ece       expected calibration error of the best five labels on the fresh texts, in points
bin       the largest gap of score and hit rate in a tenth of the scores with at least 200 predictions, in points
sure      share of the fresh texts whose best label is wrong with a score above 0.9, in per cent
ece shift, sure shift  the same for the fresh texts with misspelt and shuffled words
taught    share of training texts with one label whose best label it is, in per cent (texts that occur with different
          labels left out)
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, print_json, show, timed
from shortlist.evaluation.calibration import calibration_error, is_relevant, reliability
from shortlist.stages.evidence import hashes_of
from shortlist.text.perturb import perturb
from shortlist.text.texts import Texts

MIN_IN_BIN = 200
N_TAUGHT = 4000


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="data sets: folders with a train part")
    parser.add_argument("--texts", type=int, nargs="+", default=[3000, 10_000, 30_000], help="texts that a user has")
    parser.add_argument("--draws", type=int, default=3, help="draws of texts (default: 3)")
    parser.add_argument("--fresh", type=int, default=10_000, help="fresh texts, at most (default: 10,000)")
    parser.add_argument("--recipe", default="astec")
    parser.add_argument("--threads", type=int, default=1)
    add_recipe_options(parser, "an option of the recipe")
    arguments = parser.parse_args()
    options = {**parse_recipe_options(arguments.options), "threads": arguments.threads}
    results = []
    for folder in arguments.folders:
        whole = shortlist.read(folder, "train")
        for n_texts in arguments.texts:
            if n_texts > len(whole) // 2:
                continue
            for draw in range(arguments.draws):
                result = measure(whole, n_texts, draw, arguments.recipe, options, arguments.fresh)
                results.append({"data": folder.name, "texts": n_texts, "draw": draw, **result})
                print(results[-1], file=sys.stderr, flush=True)
    show(results)
    inside = [result[name] for result in results for name in ("inside P@1", "inside P@5")]
    print(f"{sum(inside)} of {len(inside)} values on fresh texts lie in the printed interval")
    print_json("trust", options=options, results=results)


def measure(whole: shortlist.Dataset, n_texts: int, draw: int, recipe: str, options: dict, n_fresh: int) -> dict:
    order = np.random.default_rng(draw).permutation(len(whole))
    own = whole.take(np.sort(order[:n_texts])).without_unused_labels()
    fresh = whole.take(np.sort(order[n_texts : n_texts + n_fresh]))
    parts = shortlist.split(own, test=0.2, seed=draw)
    seconds, model = timed(lambda: shortlist.train(parts.train, recipe=recipe, seed=draw, **options))
    printed = shortlist.evaluate(model.predict_dataset(parts.test), parts.test, train=parts.train, intervals=True)
    found = shortlist.evaluate(model.predict_dataset(fresh), fresh, train=parts.train)
    inside = {}
    for name in ("P@1", "P@5"):
        low, high = printed.intervals[name]
        inside |= {name: f"{printed[name]:.1f} → {found[name]:.1f}", f"inside {name}": low <= found[name] <= high}
    ece, largest, sure = honesty(model, fresh, fresh.texts)
    shifted = perturb(perturb(fresh.texts, "misspelt", seed=draw), "shuffled", seed=draw)
    ece_shift, _, sure_shift = honesty(model, fresh, shifted)
    return {
        **inside,
        "ece": ece,
        "bin": largest,
        "sure": sure,
        "ece shift": ece_shift,
        "sure shift": sure_shift,
        "taught": taught(model, parts.train, draw),
        "train s": round(seconds, 1),
    }


def honesty(model: shortlist.Model, fresh: shortlist.Dataset, texts: Texts) -> tuple[float, float, float]:
    """Calibration error, its largest bin, and the share of wrong answers that the model is sure of."""
    ids, scores = model.rank(texts, 5, min_score=0)
    truth = fresh.relabelled(model.label_names)
    hits = is_relevant(ids, truth.labels, truth.n_labels)
    bins = [row for row in reliability(scores.ravel(), hits.ravel()) if row["labels"] >= MIN_IN_BIN]
    largest = max((abs(row["mean_score"] - row["right"]) for row in bins), default=0.0)
    sure = float(((scores[:, 0] > 0.9) & ~hits[:, 0]).mean())
    return 100 * calibration_error(scores.ravel(), hits.ravel()), 100 * largest, 100 * sure


def taught(model: shortlist.Model, train: shortlist.Dataset, seed: int) -> float:
    labels_of = defaultdict(set)
    hashes = hashes_of(train.texts, model.tokenizer).tolist()
    for row, words in enumerate(hashes):
        labels_of[words].add(tuple(sorted(train.labels.row(row).tolist())))
    of_one_label = np.random.default_rng(seed).permutation(np.flatnonzero(train.labels.counts == 1))
    rows = [row for row in of_one_label if len(labels_of[hashes[row]]) == 1][:N_TAUGHT]
    ids, _ = model.rank(train.texts.take(np.asarray(rows)), 1, min_score=0)
    return 100 * float((ids[:, 0] == [train.labels.row(row)[0] for row in rows]).mean())


if __name__ == "__main__":
    main()
