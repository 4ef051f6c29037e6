"""Recall of the candidates: how many labels of the test texts are among the first 10, 20, … candidates of a model.

    python benchmarks/recall.py MODEL DATA/yso-finna-en [--texts 20000] [--search-effort 1] [--threads 2]

For models with an index of labels (astec and the like): what both indexes find, what the index of label centres finds
alone, and what the votes of neighbouring texts find alone. Labels unseen in training are not counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shortlist
from common import changed, make_parser, print_json, show
from shortlist.kernels.threads import use_cores
from shortlist.stages.candidates import NearestLabels

SIZES = (10, 20, 50, 100, 200, 300, 500)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path, help="a data set with a test part")
    parser.add_argument("--texts", type=int, default=20_000, help="number of random test texts")
    parser.add_argument("--search-effort", type=float, default=1.0, help="as in prediction")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    model, test = shortlist.load(arguments.model), shortlist.read(arguments.folder, "test")
    test = test.take(np.sort(np.random.default_rng(0).permutation(len(test))[: arguments.texts]))
    truth = test.relabelled(model.label_names).labels
    pipeline = model.pipelines[0]
    n_cells = max(1, round(arguments.search_effort * pipeline.candidates.n_searched))
    both = changed(pipeline.candidates, n_candidates=max(SIZES))
    centres = {name: array for name, array in both.arrays().items() if name == "owner" or name.startswith("centres.")}
    stages = {"label centres": NearestLabels(centres, both.config())}
    if len(centres) < len(both.arrays()):
        stages |= {"votes of texts": changed(both, vote_weight=1.0), "both": both}
    results = []
    for name, stage in stages.items():
        with use_cores(arguments.threads):
            features = pipeline.encoder.encode(pipeline.vocabulary.encode(test.texts))
            ids, _, _, (cosines, votes) = stage.find(features, n_cells)
        if name == "label centres":  # these candidates are not sorted
            ids = np.take_along_axis(ids, np.argsort(-cosines, axis=1, kind="stable"), axis=1)
        if name == "votes of texts":
            ids = np.where(votes > 0, ids, -1)
        is_label = ids[truth.row_ids] == truth.values[:, None]
        ranks = np.where(is_label.any(axis=1), is_label.argmax(axis=1), max(SIZES))
        results.append({"candidates": name, **{str(k): round(100 * float((ranks < k).mean()), 2) for k in SIZES}})
    show(results)
    print_json("recall", cells=n_cells, results=results)


if __name__ == "__main__":
    main()
