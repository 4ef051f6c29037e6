"""What it costs to allow only some labels: CPU time relative to all labels, texts one by one and in bulk.

    python benchmarks/allow_lists.py MODEL DATA [--shares 0.01,0.1,0.5] [--texts 2000] [--turns 7]

Labels are allowed at random. Every turn predicts with all labels and with each list, in turn, and the smallest of all
turns counts. Also prints how many of the five best labels are those that brute force finds: every allowed label
scored by all stages, for a few texts. One thread.
"""

from __future__ import annotations

import time

import numpy as np

import shortlist
from common import make_parser, print_json, read_splits, show

N_SINGLE, N_BRUTE_FORCE = 200, 20


def brute_force(model: shortlist.Model, texts: list[str], ids: np.ndarray, k: int) -> np.ndarray:
    found = []
    for text in texts:
        scores = model._raw_scores([text], ids[None, :])[0]
        found.append(ids[np.argsort(-scores, kind="stable")[:k]])
    return np.array(found)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--shares", default="0.01,0.1,0.5")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    model = shortlist.load(args.model)
    texts = list(read_splits(args.data)[1].texts)[: args.texts]
    rng = np.random.default_rng(0)
    lists: dict[str, list[str] | None] = {"all": None}
    for share in args.shares.split(","):
        ids = rng.permutation(model.n_labels)[: max(1, round(float(share) * model.n_labels))]
        lists[share] = [model.label_names[i] for i in np.sort(ids)]
        model.store_list(share, lists[share])  # as a user would: a list of many labels in every request takes time
    seconds: dict[str, dict[str, list[float]]] = {name: {"one by one": [], "bulk": []} for name in lists}
    for _ in range(args.turns):
        for name, allow in lists.items():
            allow = allow and f"@{name}"
            model.rank(texts[:1], allow=allow, threads=1)  # what is made once per list
            begin = time.process_time()
            for text in texts[:N_SINGLE]:
                model.rank([text], allow=allow, threads=1)
            middle = time.process_time()
            model.rank(texts, allow=allow, threads=1)
            seconds[name]["one by one"].append((middle - begin) / min(N_SINGLE, len(texts)))
            seconds[name]["bulk"].append((time.process_time() - middle) / len(texts))
    rows = []
    for name, allow in lists.items():
        best = {kind: min(values) for kind, values in seconds[name].items()}
        row = {"allowed": name, "labels": model.n_labels if allow is None else len(allow)}
        row |= {f"{kind}, µs": 1e6 * value for kind, value in best.items()}
        row |= {f"{kind}, ratio": value / min(seconds["all"][kind]) for kind, value in best.items()}
        some = texts[:N_BRUTE_FORCE]
        ids = np.array([model.labels.ids[label] for label in allow or model.label_names], np.int32)
        same = model.rank(some, allow=allow)[0][:, :, None] == brute_force(model, some, ids, 5)[:, None]
        row["as brute force, %"] = 100 * float(same.any(axis=2).mean())
        rows.append(row)
    header = {name: None for row in rows for name in row}
    show([{**header, **row} for row in rows])
    print_json("allow_lists", model=args.model, data=args.data, texts=len(texts), results=rows)


if __name__ == "__main__":
    main()
