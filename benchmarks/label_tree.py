"""Clustering labels, against PECOS: the same centroids, number of clusters and threads.

    python benchmarks/label_tree.py DATA/commit-files [--clusters 16384] [--peers-python .venv-peers/bin/python]

The centroids (tf-idf of words) are computed once and passed to PECOS in a file. Each side clusters some rows first,
so that loading is not timed, then runs alone a few times; the best time counts. The ratio is PECOS's
time over ours.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

import shortlist
from common import make_parser, print_json, show, timed
from shortlist.labels import LabelTree, label_centroids
from shortlist.text import TfIdf, Vocabulary
from shortlist.text.features import normalize_sparse_rows

HERE = Path(__file__).parent


def centroids_of(folder):
    data = shortlist.read(folder, part="train")
    vocabulary, word_ids = Vocabulary.build_and_encode(data.texts)
    features = TfIdf.fit(word_ids, len(vocabulary)).transform(word_ids)
    return label_centroids(features, data.labels, data.n_labels)


def similarity(tree, centroids):
    """The mean cosine between a label's centroid and the mean direction of its cluster."""
    members = (np.ones(tree.n_labels), tree.order, tree.cluster_starts)
    sums = sparse.csr_array(members, shape=(tree.n_clusters, tree.n_labels)) @ normalize_sparse_rows(centroids)
    # The cosines of unit vectors with the direction of their sum add up to the length of that sum.
    return float(np.sqrt(sums.power(2).sum(axis=1)).sum()) / np.count_nonzero(np.diff(centroids.indptr))


def run_ours(centroids, n_clusters, threads, repeats):
    LabelTree.build(centroids[:20_000], threads=threads)  # loads what is needed
    runs = [timed(lambda: LabelTree.build(centroids, n_clusters=n_clusters, threads=threads)) for _ in range(repeats)]
    return runs[-1][1], [seconds for seconds, _ in runs]


def run_pecos(python, centroids, n_clusters, threads, repeats):
    with tempfile.TemporaryDirectory() as folder:
        matrix_file, clusters_file = Path(folder, "centroids.npz"), Path(folder, "clusters.npy")
        sparse.save_npz(matrix_file, sparse.csr_matrix(centroids), compressed=False)
        command = [python, HERE / "peers" / "pecos_tree.py", matrix_file, n_clusters, threads, repeats, clusters_file]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"PECOS did not run; is it installed (`make peers`)?\n{result.stderr}")
        report = json.loads(result.stdout.splitlines()[-1])
        return LabelTree.from_clusters(np.load(clusters_file)), report["seconds"]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("folder", help="a data set with a training part")
    parser.add_argument("--clusters", type=int, default=16_384, help="a power of two, as PECOS requires")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers-python", default=str(HERE.parent / ".venv-peers" / "bin" / "python"))
    arguments = parser.parse_args()
    if not Path(arguments.peers_python).exists():
        parser.error(f"{arguments.peers_python} does not exist: run `make peers`, or give --peers-python")
    n_clusters, threads, repeats = arguments.clusters, arguments.threads, arguments.repeats
    if n_clusters & (n_clusters - 1):
        parser.error("--clusters must be a power of two")

    centroids = centroids_of(arguments.folder)
    n_labels, n_words = centroids.shape
    print(f"{n_labels:,} labels over {n_words:,} words, {centroids.nnz:,} values, {n_clusters:,} clusters")
    print(f"{threads} threads, best of {repeats}\n")
    sides = {
        "PECOS": run_pecos(arguments.peers_python, centroids, n_clusters, threads, repeats),
        "Shortlist": run_ours(centroids, n_clusters, threads, repeats),
    }
    if {tree.n_clusters for tree, _ in sides.values()} != {n_clusters}:
        raise SystemExit("the two sides did not make the same number of clusters")
    results = [
        {
            "": name,
            "best s": round(min(seconds), 3),
            "all runs, s": " ".join(f"{run:.2f}" for run in seconds),
            "similarity": round(similarity(tree, centroids), 5),
            "cluster sizes": f"{tree.cluster_sizes.min()}–{tree.cluster_sizes.max()}",
        }
        for name, (tree, seconds) in sides.items()
    ]
    show(results)
    ratio = round(results[0]["best s"] / results[1]["best s"], 3)
    print_json("label_tree", ratio=ratio, n_labels=n_labels, n_clusters=n_clusters, threads=threads, results=results)


if __name__ == "__main__":
    main()
