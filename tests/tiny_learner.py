"""A small network, data that it can learn, and other helpers for tests of the training loop. Needs torch."""

from __future__ import annotations

import os
import signal

import numpy as np
import torch

from shortlist.arrays import Ragged
from shortlist.labels.tree import LabelTree
from shortlist.training.batches import WordBatches
from shortlist.training.heads import HeadOptions
from shortlist.training.learner import ClusterSearch, Learner
from shortlist.training.networks.layers import Dropout

N_TOPICS, WORDS_PER_TOPIC, N_FEATURES = 12, 4, 16


class SumOfWords(torch.nn.Module):
    """An encoder with one of everything that has state or draws random numbers."""

    def __init__(self, n_words):
        super().__init__()
        self.padding, self.n_features = n_words, N_FEATURES
        self.words = torch.nn.Embedding(n_words + 1, N_FEATURES, padding_idx=n_words, sparse=True)
        self.linear = torch.nn.Linear(N_FEATURES, N_FEATURES)
        self.norm, self.dropout = torch.nn.BatchNorm1d(N_FEATURES), Dropout(0.25)

    def forward(self, word_ids):
        return self.dropout(self.norm(self.linear(self.words(word_ids).sum(dim=1))))

    def arrays(self):
        return {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}


class Given(torch.nn.Module):
    """Features in, features out: nothing to learn."""

    def __init__(self, n_features):
        super().__init__()
        self.n_features = n_features

    def forward(self, features):
        return features

    def arrays(self):
        return {}


def new_learner(seed=0, clusters=True, whole_clusters=True, **head):
    torch.manual_seed(seed)
    tree = LabelTree.from_clusters(np.arange(N_TOPICS) % 4)
    search = ClusterSearch(tree, 2, whole_clusters) if clusters else None
    options = HeadOptions(**head)
    return Learner(SumOfWords(N_TOPICS * WORDS_PER_TOPIC), N_TOPICS, 1.0, search, seed, head=options, meta_head=options)


def topic_batches(n_texts, seed=0):
    """Texts of one to five words of a topic, and the topic as their label."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(N_TOPICS, size=n_texts)
    words = [t * WORDS_PER_TOPIC + rng.integers(WORDS_PER_TOPIC, size=rng.integers(1, 6)) for t in topics]
    labels = Ragged.from_lists([[t] for t in topics])
    padding = N_TOPICS * WORDS_PER_TOPIC
    return WordBatches(Ragged.from_lists(words), labels, max_words=8, padding=padding, shuffle=True)


def one_batch(n_texts=8):
    """Word ids of equal length and their labels."""
    topics = np.random.default_rng(1).integers(N_TOPICS, size=n_texts)
    return (topics * WORDS_PER_TOPIC)[:, None] + np.arange(3), Ragged.from_lists([[t] for t in topics])


def copied(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def assert_equal(found, expected):
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name


def interrupt_in_step(learner, number, by=signal.SIGINT):
    """Send Ctrl-C, or another signal, during this step of the learner, counted from 1."""
    step, taken = learner.step, []

    def step_and_interrupt(*arguments, **options):
        taken.append(1)
        if len(taken) == number:
            os.kill(os.getpid(), by)
        return step(*arguments, **options)

    learner.step = step_and_interrupt
