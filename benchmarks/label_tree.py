"""Clustering labels, here and with PECOS: the same centroids, the same number of clusters, the same threads.

    python benchmarks/label_tree.py DATA_FOLDER [--clusters 16384] [--peers-python .venv-peers/bin/python]

The centroids (tf-idf of single words) are made once and go to PECOS in a file. Neither reading them nor
compiling is timed: both sides first cluster a small part of the rows. Then each runs alone, a few times, and
its best time counts. The ratio is PECOS's time over ours: above 1, we are faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import shortlist
from shortlist.labels import LabelTree, label_centroids
from shortlist.text import TfIdf, Vocabulary

HERE = Path(__file__).parent


def centroids_of(folder):
    data = shortlist.read(folder, part="train")
    vocabulary, word_ids = Vocabulary.build_and_encode(data.texts)
    features = TfIdf.fit(word_ids, len(vocabulary)).transform(word_ids)
    return label_centroids(features, data.labels, data.n_labels)


def run_ours(centroids, n_clusters, threads, repeats):
    LabelTree.build(centroids[:20_000], threads=threads)  # compiles, or loads what was compiled before
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        tree = LabelTree.build(centroids, n_clusters=n_clusters, threads=threads)
        seconds.append(time.perf_counter() - start)
    return tree, seconds


def run_pecos(python, centroids, n_clusters, threads, repeats):
    with tempfile.TemporaryDirectory() as folder:
        matrix_file, clusters_file = Path(folder, "centroids.npz"), Path(folder, "clusters.npy")
        sparse.save_npz(matrix_file, sparse.csr_matrix(centroids), compressed=False)
        command = [python, HERE / "peers" / "pecos_tree.py", matrix_file, n_clusters, threads, repeats, clusters_file]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"PECOS did not run (see benchmarks/peers/requirements.txt):\n{result.stderr}")
        report = json.loads(result.stdout.splitlines()[-1])
        return LabelTree.from_clusters(np.load(clusters_file)), report["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a data set with a training part")
    parser.add_argument("--clusters", type=int, default=16_384, help="a power of two: PECOS makes no others")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers-python", default=str(HERE.parent / ".venv-peers" / "bin" / "python"))
    chosen = parser.parse_args()
    if chosen.clusters & (chosen.clusters - 1):
        parser.error("--clusters must be a power of two: PECOS makes no other numbers of clusters")

    centroids = centroids_of(chosen.folder)
    n_labels, n_words = centroids.shape
    print(f"{n_labels:,} labels over {n_words:,} words, {centroids.nnz:,} values → {chosen.clusters:,} clusters")
    print(f"{chosen.threads} threads each, one side after the other, warmed up, best of {chosen.repeats}\n")
    pecos, pecos_seconds = run_pecos(chosen.peers_python, centroids, chosen.clusters, chosen.threads, chosen.repeats)
    ours, our_seconds = run_ours(centroids, chosen.clusters, chosen.threads, chosen.repeats)
    if not ours.n_clusters == pecos.n_clusters == chosen.clusters:
        raise SystemExit(f"not the same number of clusters: ours {ours.n_clusters}, PECOS {pecos.n_clusters}")

    print(f"{'':10} {'best s':>8} {'all runs, s':>20} {'similarity':>11} {'cluster sizes':>14}")
    for name, tree, seconds in [("PECOS", pecos, pecos_seconds), ("Shortlist", ours, our_seconds)]:
        runs = " ".join(f"{run:.2f}" for run in seconds)
        sizes = f"{tree.cluster_sizes.min()}–{tree.cluster_sizes.max()}"
        similarity = tree.within_cluster_similarity(centroids)
        print(f"{name:10} {min(seconds):8.2f} {runs:>20} {similarity:11.4f} {sizes:>14}")
    result = {
        "benchmark": "label_tree",
        "ratio": round(min(pecos_seconds) / min(our_seconds), 3),
        "similarity": round(ours.within_cluster_similarity(centroids), 5),
        "pecos_similarity": round(pecos.within_cluster_similarity(centroids), 5),
        "seconds": round(min(our_seconds), 3),
        "pecos_seconds": round(min(pecos_seconds), 3),
        "n_labels": n_labels,
        "n_clusters": chosen.clusters,
        "threads": chosen.threads,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
