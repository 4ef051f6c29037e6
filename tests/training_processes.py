"""For tests of ensembles and of resuming: data on which seeds disagree, and processes that Ctrl-C reaches."""

from __future__ import annotations

import signal

import numpy as np

import shortlist

OPTIONS = {
    "n_epochs": 2,
    "n_surrogate_epochs": 2,
    "embedding_dim": 16,
    "batch_size": 32,
    "dropout": 0.25,
    "n_clusters": 7,
    "threads": 1,
    "seed": 5,
}


def noisy_topics(n_texts: int, seed: int) -> shortlist.Dataset:
    """Texts with one word of their topic among words of others; one label in five is wrong."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_texts):
        topic, other = rng.integers(20, size=2)
        words = [
            f"t{topic}w{rng.integers(4)}",
            f"t{other}w{rng.integers(4)}",
            *(f"n{i}" for i in rng.integers(40, size=2)),
        ]
        label = topic if rng.random() < 0.8 else rng.integers(20)
        rows.append((" ".join(words), [f"label {label}", f"group {label % 4}"]))
    dataset = shortlist.read(rows)
    dataset.display_names = {"label 3": "the third topic"}
    return dataset


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def default_sigint():
    """For `Popen(preexec_fn=...)`: a shell starts background jobs with SIGINT ignored, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
