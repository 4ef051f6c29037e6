"""Whether the numbers that we print on a user's data are those that they see on fresh data.

    python benchmarks/trust.py DATA/tibkat-sid DATA/commit-files --texts 3000 10000 --draws 3 [--set n_epochs=5]
    python benchmarks/trust.py DATA/tibkat-sid DATA/commit-files DATA/icd10 --texts 3000 --shift

For each draw, some texts of the train part are taken at random, as a user would have them: split as documented,
trained, evaluated with intervals. Then the same model is measured on fresh texts that nobody has seen:

inside    whether P@1 and P@5 on the fresh texts lie in the printed intervals. Texts with the words of one of the user's
          own are left out: a split keeps such texts together, so the printed values are for texts that are new
repeated  the share of these texts that are left out, in per cent
ece       expected calibration error of the best five labels on the fresh texts, in points
bin       the largest gap of score and hit rate in a tenth of the scores with at least 200 predictions, in points
sure      share of the fresh texts whose best label is wrong with a score above 0.9, in per cent
ece shift, sure shift  the same for the fresh texts with misspelt and shuffled words
taught    share of training texts with one label whose best label it is, in per cent (texts that occur with different
          labels left out)

With --shift, models meet texts of another kind. Where a data set has German and English texts, by their stop words,
they learn from German ones and meet English ones; where labels have a prefix before a colon, as files of repositories,
they learn from the three most frequent and meet the fourth, of which they know no label; and all meet the test part,
which for ICD-10 (benchmarks/icd10.py) is other ways of saying the same thing. "plain" is a calibration that looks at
the score alone (isotonic regression on the user's own test texts).
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, print_json, show, timed
from shortlist.evaluation.calibration import calibration_error, is_relevant, reliability
from shortlist.stages.evidence import hashes_of
from shortlist.text.perturb import perturb
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer

MIN_IN_BIN = 200
N_TAUGHT = 4000
STOP_WORDS = {
    "German": set(
        "der die das und des von für im zur zum mit auf den dem ein eine einer eines bei aus über als".split()
    ),
    "English": set("the of and on for a an to with from by at its as new how between".split()),
}
MIN_SHARE = 0.05  # of all texts, for a language or a prefix


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="data sets: folders with a train part")
    parser.add_argument("--texts", type=int, nargs="+", default=[3000, 10_000, 30_000], help="texts that a user has")
    parser.add_argument("--draws", type=int, default=3, help="draws of texts (default: 3)")
    parser.add_argument("--fresh", type=int, default=10_000, help="fresh texts, at most (default: 10,000)")
    parser.add_argument("--recipe", default="astec")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shift", action="store_true", help="texts of another kind instead of fresh ones")
    add_recipe_options(parser, "an option of the recipe")
    arguments = parser.parse_args()
    options = {**parse_recipe_options(arguments.options), "threads": arguments.threads}
    if arguments.shift:
        measure_shifts(arguments, options)
        return
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
    is_repeated = np.isin(hashes_of(fresh.texts, Tokenizer()), hashes_of(own.texts, Tokenizer()))
    fresh = fresh.take(np.flatnonzero(~is_repeated))
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
        "repeated": round(100 * float(is_repeated.mean()), 1),
        "ece": ece,
        "bin": largest,
        "sure": sure,
        "ece shift": ece_shift,
        "sure shift": sure_shift,
        "taught": taught(model, parts.train, draw),
        "train s": round(seconds, 1),
    }


def measure_shifts(arguments: Namespace, options: dict) -> None:
    results = []
    for folder in arguments.folders:
        for name, known, other in shifts(folder):
            for n_texts in arguments.texts:
                for draw in range(arguments.draws):
                    rng = np.random.default_rng(draw)
                    own = known.take(np.sort(rng.permutation(len(known))[:n_texts])).without_unused_labels()
                    shifted = other.take(np.sort(rng.permutation(len(other))[: arguments.fresh]))
                    parts = shortlist.split(own, test=0.2, seed=draw)
                    model = shortlist.train(parts.train, recipe=arguments.recipe, seed=draw, **options)
                    found = shortlist.evaluate(model.predict_dataset(shifted), shifted, train=parts.train)
                    ece, _, sure = honesty(model, shifted, shifted.texts)
                    ids, raw = model.raw_rank(shifted.texts, 5)
                    plain_ece, _, plain_sure = honesty_of(
                        ids, plain_calibration(model, parts.test)(raw), model, shifted
                    )
                    facts = {"data": folder.name, "shift": name, "texts": n_texts, "draw": draw, "P@1": found["P@1"]}
                    measured = {"ece": ece, "ece plain": plain_ece, "sure": sure, "sure plain": plain_sure}
                    results.append({**facts, **measured})
                    print(results[-1], file=sys.stderr, flush=True)
    show(results)
    print_json("trust-shift", options=options, results=results)


def shifts(folder: Path) -> Iterator[tuple[str, shortlist.Dataset, shortlist.Dataset]]:
    """What models learn from, and texts of another kind."""
    whole = shortlist.read(folder, "train")
    words = [set(text.lower().split()) for text in whole.texts]
    counts = {name: np.array([len(stop & text) for text in words]) for name, stop in STOP_WORDS.items()}
    german, english = (counts[one] > counts[other] for one, other in (("German", "English"), ("English", "German")))
    if min(german.mean(), english.mean()) > MIN_SHARE:
        yield "German to English", whole.take(german), whole.take(english)
    prefixes = np.array([label.partition(":")[0] for label in whole.label_names])
    first = np.array([prefixes[row[0]] if len(row) else "" for row in map(whole.labels.row, range(len(whole)))])
    names, sizes = np.unique(first, return_counts=True)
    names = names[np.argsort(-sizes)]
    if len(names) >= 4 and np.sort(sizes)[-4] > MIN_SHARE * len(whole):
        yield (
            f"{', '.join(names[:3])} to {names[3]}",
            whole.take(np.isin(first, names[:3])),
            whole.take(first == names[3]),
        )
    yield "train to test part", whole, shortlist.read(folder, "test")


def plain_calibration(model: shortlist.Model, test: shortlist.Dataset) -> Callable[[np.ndarray], np.ndarray]:
    """From scores before calibration to how often they were right on these texts."""
    ids, raw = model.raw_rank(test.texts, 5)
    truth = test.relabelled(model.label_names)
    order = np.argsort(raw.ravel(), kind="stable")
    right = is_relevant(ids, truth.labels, truth.n_labels).ravel()[order]
    curve = isotonic_regression(right.astype(float)).x
    return lambda scores: np.interp(scores, raw.ravel()[order], curve)


def honesty(model: shortlist.Model, fresh: shortlist.Dataset, texts: Texts) -> tuple[float, float, float]:
    """Calibration error, its largest bin, and the share of wrong answers that the model is sure of."""
    return honesty_of(*model.rank(texts, 5, min_score=0), model, fresh)


def honesty_of(
    ids: np.ndarray, scores: np.ndarray, model: shortlist.Model, fresh: shortlist.Dataset
) -> tuple[float, float, float]:
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
