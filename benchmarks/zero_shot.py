"""Labels that a model knows by name only, against tf-idf similarity to names.

    python benchmarks/zero_shot.py DATA [--texts 8000] [--recipe astec] [--set NAME=VALUE]

Hides a fifth of the labels of some training texts, trains on the others, and adds the hidden labels by name. Prints
recall@10 of hidden labels on test texts that have them, among all labels, and P@1 before and after on texts that have
none of them. Opponents rank the names of all labels by the cosine of their tf-idf vectors (scikit-learn) and the
text's, over words or over character n-grams.
"""

from __future__ import annotations

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, print_json, read_splits, show
from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import is_relevant

HIDDEN, K = 0.2, 10


def sample(data: shortlist.Dataset, n: int, seed: int = 0) -> shortlist.Dataset:
    return data.take(np.sort(np.random.default_rng(seed).permutation(len(data))[:n]))


def hide(data: shortlist.Dataset, seed: int = 0) -> tuple[shortlist.Dataset, list[str]]:
    """The data set without a fifth of the labels that occur and have a name; and these labels."""
    labels = [label for label in data.without_unused_labels().label_names if data.display_names.get(label)]
    hidden = np.random.default_rng(seed).permutation(labels)[: int(HIDDEN * len(labels))].tolist()
    kept = data.relabelled([label for label in data.label_names if label not in set(hidden)])
    return kept.take(np.flatnonzero(kept.labels.counts)).without_unused_labels(), hidden


def only(data: shortlist.Dataset, labels: list[str], all_labels: list[str]) -> shortlist.Dataset:
    """The texts that have some of these labels, with these labels only, as ids among all."""
    kept = data.relabelled(labels)
    return kept.take(np.flatnonzero(kept.labels.counts)).relabelled(all_labels)


def recall(ids: np.ndarray, labels: Ragged) -> float:
    """The share of the labels of each text that are among its first k, in per cent."""
    hits = is_relevant(ids, labels, max(int(ids.max()), int(labels.values.max())) + 1).sum(axis=1)
    return 100 * float((hits / labels.counts).mean())


def nearest_names(texts: list[str], names: list[str], known: list[str], **options: object) -> np.ndarray:
    """The labels with the most similar names; words weigh as in training texts and names."""
    tfidf = TfidfVectorizer(**options).fit([*known, *names])
    return np.argsort(-(tfidf.transform(texts) @ tfidf.transform(names).T).toarray(), axis=1, kind="stable")[:, :K]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data")
    parser.add_argument("--texts", type=int, default=8000)
    parser.add_argument("--test-texts", type=int, default=4000)
    parser.add_argument("--recipe", default="astec")
    parser.add_argument("--save", help="folder for the model before labels are added")
    add_recipe_options(parser, "an option of the recipe")
    args = parser.parse_args()
    train, test = read_splits(args.data)
    train, test = sample(train, args.texts), sample(test, args.test_texts)
    seen, hidden = hide(train)
    model = shortlist.train(seen, recipe=args.recipe, threads=1, **parse_recipe_options(args.options))
    if args.save:
        model.save(args.save)
    more = model.add_labels({label: train.display_names[label] for label in hidden})
    without = test.take(np.flatnonzero(test.relabelled(hidden).labels.counts == 0))
    unseen, others = only(test, hidden, more.label_names), only(without, model.label_names, more.label_names)
    names = [more.display_names.get(label, label) for label in more.label_names]
    texts, known = list(unseen.texts), list(seen.texts)
    by_names = recall(nearest_names(texts, names, known), unseen.labels)
    found = recall(more.rank(unseen.texts, K)[0], unseen.labels)
    n_known = model.n_labels
    before, after = (
        100 * float(is_relevant(m.rank(others.texts, 1)[0], others.labels, more.n_labels).mean()) for m in (model, more)
    )
    shares = nearest_names(texts, names, known, analyzer="char_wb", ngram_range=(3, 5))
    results = {
        "hidden labels": len(hidden),
        "other labels": n_known,
        "texts": len(unseen),
        f"recall@{K}": found,
        "tf-idf of words": by_names,
        "tf-idf of character n-grams": recall(shares, unseen.labels),
        "ratio": found / max(by_names, 1e-9),
        "P@1 before": before,
        "P@1 after": after,
    }
    show([{"": name, "value": value} for name, value in results.items()])
    print_json("zero_shot", data=args.data, recipe=args.recipe, **results)


if __name__ == "__main__":
    main()
