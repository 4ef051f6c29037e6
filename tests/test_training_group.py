"""Workers that train together, as threads of this process: the same model as one machine, up to rounding."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.cluster.reduce import TcpGroup, WorkerLostError
from shortlist.errors import OptionError
from shortlist.training.group import Group, Range, Shard, share_bounds
from shortlist.training.sharding import whole_pipeline
from shortlist.training.train import recipe_of, resolve_for, train_one
from training_processes import OPTIONS, files_of, in_processes, noisy_topics

KEY = b"the key of this test"


def in_group(size, work):
    """work(group) of every worker, in order; each is a thread."""
    groups = [TcpGroup(rank, size, "127.0.0.1", KEY) for rank in range(size)]
    addresses = [group.address for group in groups]

    def connect_and_work(group):
        try:
            group.connect(addresses)
            return work(group)
        finally:
            group.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(connect_and_work, groups))


def train_as_worker(group, recipe, data, folder, options):
    """The number of label rows of this worker; worker 0 saves the model."""
    recipe = recipe_of(recipe, False)
    model = train_one(recipe, data, resolve_for(recipe, data, options), group)
    shard = model.pipelines[0].classifier.arrays()["weights"]
    whole = whole_pipeline(model.pipelines[0], 32)
    if whole is not None:
        model.pipelines = [whole]
        model.save(folder, 32)
    return len(shard)


def train_in_group(size, data, folder, **options):
    return in_group(size, lambda group: train_as_worker(group, "astec", data, folder, {**OPTIONS, **options}))


def train_in_float32(group, *arguments):
    """Products in bfloat16 would differ in the third digit."""
    from shortlist.training import learner

    learner.has_fast_bfloat16 = lambda: False
    return train_as_worker(group, *arguments)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(7,), (4, 3), (1,), (0,), (300, 200)])
def test_sum_adds_up_in_the_order_of_workers(size, shape):
    arrays = np.random.default_rng(0).normal(size=(size, *shape)).astype(np.float32)
    expected = np.zeros(shape, np.float32)
    for array in arrays:
        expected += array
    for result in in_group(size, lambda group: group.sum(arrays[group.rank])):
        np.testing.assert_array_equal(result, expected)


def test_gather_and_collect():
    arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 3), np.int32), np.ones((1, 3), np.float32)]
    for rank, (every, first) in enumerate(
        in_group(3, lambda group: (group.gather(arrays[group.rank]), group.collect(arrays[group.rank])))
    ):
        for parts in (every, first) if rank == 0 else (every,):
            for part, array in zip(parts, arrays, strict=True):
                assert part.dtype == array.dtype
                np.testing.assert_array_equal(part, array)
        assert rank == 0 or first == []


def test_a_sum_sends_each_number_twice_at_most():
    sent = in_group(4, lambda group: (group.sum(np.zeros(4000, np.float32)), group.bytes_sent)[1])
    assert all(n_bytes == 2 * 3 / 4 * 16_000 for n_bytes in sent)


def test_strangers_do_not_join():
    groups = [TcpGroup(rank, 2, "127.0.0.1", KEY) for rank in range(2)]
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(groups[0].connect, [group.address for group in groups])
        with pytest.raises(Exception, match="digest"):
            Client(groups[0].address, authkey=b"another key")
        pool.submit(groups[1].connect, [group.address for group in groups]).result()
        first.result()
        sums = pool.map(lambda group: group.sum(np.ones(2)).tolist(), groups)
        assert list(sums) == [[2, 2], [2, 2]]


def test_who_waits_for_others_knows_how_long():
    def work(group):
        if group.rank == 1:
            time.sleep(0.3)
        group.sum(np.zeros(10))
        group.gather(np.zeros(10))
        return group.seconds_waited

    first, slow = in_group(2, work)
    assert first > 0.2 and first - slow > 0.1


def test_a_lost_worker_is_an_error():
    def work(group):
        if group.rank:
            return group.close()
        with pytest.raises(WorkerLostError, match="worker 0 lost worker 1"):
            group.sum(np.zeros(10))

    in_group(2, work)


def test_shares_are_contiguous_and_even():
    class Four(Group):
        size = 4

    rng = np.random.default_rng(0)
    for n in (4, 5, 9, 100):
        weights = rng.integers(1, 20, n)
        bounds = share_bounds(Four(), weights)
        assert bounds[0] == 0 and bounds[-1] == n and (np.diff(bounds) > 0).all()
        if n == 100:
            shares = np.add.reduceat(weights, bounds[:-1])
            assert shares.max() - shares.min() <= 2 * weights.max()
    with pytest.raises(OptionError, match="3 clusters of labels for 4 workers: use fewer workers"):
        share_bounds(Four(), np.ones(3))


class Second(Group):
    rank, size = 1, 2


def test_a_worker_knows_its_rows_among_those_of_all():
    own = Range.of(Second(), np.ones(5))
    assert (own.first, own.end, len(own)) == (3, 5, 2)
    np.testing.assert_array_equal(own.own_ids(np.array([[-1, 3], [4, 0]])), [[-1, 0], [1, -1]])
    pairs = Ragged(np.array([0, 2, 3]), np.array([4, 2, 3], np.int32), np.array([0.5, 1, 0.25], np.float32))
    mine = own.own_pairs(pairs)
    assert (mine.indptr.tolist(), mine.values.tolist(), mine.weights.tolist()) == ([0, 1, 2], [1, 0], [0.5, 0.25])


def test_the_labels_of_a_shard_are_in_the_order_of_its_rows():
    clusters, order = np.array([1, 0, 1, 0]), np.array([3, 1, 2, 0], np.int32)
    assert Shard.of(Second(), clusters).labels.tolist() == [0, 2]
    shard = Shard.of(Second(), clusters, order)
    assert shard.labels.tolist() == [2, 0]
    assert shard.row_of_label.tolist() == [1, -1, 0, -1, -1]
    assert Shard.of(Group(), clusters) is None


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"finetune_encoder": True, "rows_from_centres": False, "n_head_labels": 3}])
def test_workers_learn_what_one_machine_learns(tmp_path, options):
    data, texts = noisy_topics(600, 3), list(noisy_topics(300, 9).texts)
    alone = shortlist.train(data, "astec", **OPTIONS, **options)
    expected_ids, expected_scores = alone.rank(texts, 5)
    for size in (2, 4):
        for name in ("first", "again"):
            sizes = train_in_group(size, data, tmp_path / f"{name}-{size}", **options)
            assert sum(sizes) == data.n_labels and max(sizes) < data.n_labels
        assert files_of(tmp_path / f"first-{size}") == files_of(tmp_path / f"again-{size}")
        together = shortlist.load(tmp_path / f"first-{size}")
        ids, scores = together.rank(texts, 5)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
        assert (ids[:, 0] == expected_ids[:, 0]).mean() > 0.99
        assert together.facts["scores"] == alone.facts["scores"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "recipe", "options"),
    [
        ((2,), "inceptionxml", {}),
        ((3, 2, 2), "inceptionxml+", {"n_clusters": 7, "n_clusters_searched": 3}),
        ((2,), "inceptionxml+", {"n_clusters": 0, "reranker": "none", "block_norm": "batch"}),
        ((2,), "inceptionxml+", {"n_clusters": 7, "variant": "lightxml", "missing_positives": "labels"}),
        ((2,), "inceptionxml-deepxml", {"n_clusters": 7, "n_surrogate_epochs": 2}),
    ],
)
def test_workers_with_torch_learn_what_one_machine_learns(tmp_path, sizes, recipe, options):
    """The meta-classifier is sharded by cluster, label rows by the labels of these clusters."""
    data, texts = noisy_topics(600, 3), list(noisy_topics(300, 9).texts)
    options = {"n_epochs": 2, "embedding_dim": 64, "channels": 4, "batch_size": 32, "threads": 1, "seed": 5, **options}
    in_processes(1, train_in_float32, recipe, data, tmp_path / "alone", options)
    alone = shortlist.load(tmp_path / "alone")
    expected_ids, expected_scores = alone.rank(texts, 5)
    for number, size in enumerate(sizes):
        shares = in_processes(size, train_in_float32, recipe, data, tmp_path / f"{number}", options)
        assert sum(shares) == data.n_labels and max(shares) < data.n_labels
        together = shortlist.load(tmp_path / f"{number}")
        ids, scores = together.rank(texts, 5)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
        assert (ids[:, 0] == expected_ids[:, 0]).mean() > 0.99
        assert together.facts["scores"] == alone.facts["scores"]
        assert together.facts.get("search_effort") == alone.facts.get("search_effort")
    if len(sizes) == 3:
        assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


@pytest.mark.slow
def test_the_index_of_many_labels_is_that_of_one_machine(tmp_path):
    """With more than 2,048 labels, centres are in cells; head labels have several centres."""
    rng = np.random.default_rng(0)
    rows = [
        (f"{'often ' if text % 3 else ''}w{label} w{label // 7} n{rng.integers(50)}", [f"l{label}", f"h{label % 2}"])
        for text, label in enumerate(rng.permutation(np.tile(np.arange(2500), 2)).tolist())
    ]
    data = shortlist.read(rows)
    options = OPTIONS | {"n_clusters": 64, "n_candidates": 50, "n_epochs": 1, "n_surrogate_epochs": 1}
    alone = shortlist.train(data, "astec", **options)
    train_in_group(2, data, tmp_path / "model", **options)
    together = shortlist.load(tmp_path / "model")
    (expected, found) = (model.pipelines[0].candidates.arrays() for model in (alone, together))
    assert len(expected["centres.cells"]) > 1 and len(expected["owner"]) > data.n_labels
    for name in ("centres.order", "centres.starts", "owner"):
        assert (expected[name] == found[name]).mean() > 0.99, name
    np.testing.assert_allclose(found["centres.cells"], expected["centres.cells"], atol=1e-3)
    texts = [text for text, _ in rows[:500]]
    same = together.rank(texts, 1)[0] == alone.rank(texts, 1)[0]
    assert same.mean() > 0.98
