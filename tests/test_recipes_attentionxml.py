"""AttentionXML: network and stages against the paper's formulas, levels of the label tree, averaging, and resuming."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist
from model_files import replaced
from shortlist.arrays import Ragged
from shortlist.errors import ModelError, Stopped
from shortlist.recipes.options import resolve
from shortlist.stages.attention_layer import AttentionLayer
from shortlist.stages.candidates import AttentionClusters
from shortlist.stages.classifier import AttentionClassifier
from shortlist.stages.encoders import LSTMEncoder
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.batches import Batch, padded

torch = pytest.importorskip("torch")

from tests.tiny_learner import assert_equal, copied, interrupt_in_step  # noqa: E402

from shortlist.training.attention_learner import AttentionLearner  # noqa: E402
from shortlist.training.networks.attention import AttentionNetwork  # noqa: E402
from shortlist.training.phases import attention as phases  # noqa: E402

RECIPE = shortlist.get_recipe("attentionxml")
N_WORDS, N_ROWS = 30, 11
ONE_LEVEL = {"level": 0, "n_levels": 1}


def new_network(seed: int = 0, embedding_dim: int = 7, hidden_size: int = 5, **options) -> AttentionNetwork:
    torch.manual_seed(seed)
    network = AttentionNetwork(N_WORDS, N_ROWS, embedding_dim, hidden_size, **{"linear_sizes": (6,), **options})
    torch.nn.init.normal_(network.initial)
    torch.nn.init.normal_(network.queries.weight)
    return network


def random_texts(lengths, seed: int = 0) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(N_WORDS, size=length).tolist() for length in lengths])


def published_logits(network: AttentionNetwork, words: list[int]) -> torch.Tensor:
    """The paper's formulas for one text: an LSTM step by step, then for each label attention, sum and layers."""
    vectors = [network.words.weight[word] for word in words] or [torch.zeros_like(network.words.weight[0])]
    states = []
    for direction, side in enumerate(("", "_reverse")):
        w_ih, w_hh, b_ih, b_hh = (
            getattr(network.lstm, f"{name}_l0{side}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        (hidden, cell), found = network.initial[:, direction], []
        for vector in vectors if direction == 0 else vectors[::-1]:
            i, f, g, o = (w_ih @ vector + b_ih + w_hh @ hidden + b_hh).chunk(4)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            found.append(hidden)
        states.append(found if direction == 0 else found[::-1])
    together = [torch.cat(both) for both in zip(*states, strict=True)]
    logits = []
    for query in network.queries.weight:
        weights = torch.softmax(torch.stack([state @ query for state in together]), dim=0)
        seen = sum(weight * state for weight, state in zip(weights, together, strict=True))
        for layer in (network.hidden, network.second):
            seen = seen if layer is None else torch.relu(layer.weight @ seen + layer.bias)
        logits.append(network.output.weight[0] @ seen + network.output.bias[0])
    return torch.stack(logits)


def by_torch(network: AttentionNetwork, texts: Ragged, max_words: int = 32) -> np.ndarray:
    ids = padded(texts, np.arange(len(texts)), max_words, N_WORDS)
    with torch.no_grad():
        return copy.deepcopy(network).double().eval()(torch.from_numpy(ids)).numpy()


def stages_of(network: AttentionNetwork, max_words: int = 32) -> tuple[LSTMEncoder, AttentionLayer]:
    arrays = network.arrays()
    encoder = LSTMEncoder.from_arrays(without_prefix("encoder", arrays), {"max_words": max_words})
    return encoder, AttentionLayer(without_prefix("rows", arrays), ONE_LEVEL)


class TestNetwork:
    @pytest.mark.parametrize("linear_sizes", [(6,), (6, 4)])
    def test_equals_the_formulas(self, linear_sizes):
        network, texts = new_network(linear_sizes=linear_sizes).double(), random_texts([3, 1, 0, 6])
        expected = [published_logits(network, texts.row(row).tolist()).detach().numpy() for row in range(4)]
        np.testing.assert_allclose(by_torch(network, texts), expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("linear_sizes", [(6,), (6, 4)])
    def test_learns_as_the_formulas_do(self, linear_sizes):
        """Several steps of plain Adam on the mean binary cross-entropy, by the formulas and by the learner."""
        texts, labels = random_texts([3, 2, 0, 5]), Ragged.from_lists([[1], [2, 7], [0], [10]])
        network = new_network(linear_sizes=linear_sizes, word_dropout=0, dropout=0).double()
        reference = copy.deepcopy(network)
        batch = Batch(padded(texts, np.arange(4), 32, N_WORDS), labels)
        targets = torch.from_numpy(labels.to_csr(N_ROWS).toarray()).double()
        learner, words = AttentionLearner(network, 10**9, "adam"), reference.words.weight
        others = [p for p in reference.parameters() if p is not words]
        optimizers = torch.optim.Adam(others, lr=0.01), torch.optim.SparseAdam([words], lr=0.01)
        for _ in range(4):
            logits = torch.stack([published_logits(reference, texts.row(row).tolist()) for row in range(4)])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
            loss.backward()
            words.grad = words.grad.to_sparse(1)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            assert learner.step(batch, 0.01).loss == pytest.approx(loss.item() * N_ROWS, rel=1e-5)
        for name, values in reference.named_parameters():
            found = network.get_parameter(name).detach()
            np.testing.assert_allclose(found, values.detach(), rtol=1e-5, atol=1e-5, err_msg=name)

    def test_scores_of_candidates_are_those_among_all(self):
        network, texts = new_network().eval(), random_texts([4, 0, 2])
        ids = torch.from_numpy(padded(texts, np.arange(3), 32, N_WORDS))
        candidates = torch.tensor([[3, 1], [0, 10], [5, 5]])
        with torch.no_grad():
            expected = network(ids).gather(1, candidates)
            torch.testing.assert_close(network(ids, candidates), expected)

    def test_padding_changes_nothing(self):
        network, texts = new_network(), random_texts([4, 0, 2])
        alone = np.concatenate([by_torch(network, texts.take([row])) for row in range(3)])
        np.testing.assert_allclose(by_torch(network, texts), alone, rtol=1e-9)

    def test_starts_from_the_level_above_with_queries_of_its_own(self):
        above, network = new_network(linear_sizes=(6, 4)), new_network(seed=1, linear_sizes=(6, 4))
        queries = network.queries.weight.detach().clone()
        network.start_from(above.arrays())
        assert torch.equal(network.queries.weight, queries)
        network.queries.weight.data[:] = above.queries.weight
        texts = random_texts([4, 0, 2])
        np.testing.assert_allclose(by_torch(network, texts), by_torch(above, texts), rtol=1e-6)


class TestStages:
    @given(
        embedding_dim=st.integers(1, 9),
        hidden_size=st.integers(1, 6),
        linear_sizes=st.tuples(st.integers(1, 5)) | st.tuples(st.integers(1, 5), st.integers(1, 5)),
        max_words=st.integers(1, 12),
        lengths=st.lists(st.integers(0, 15), min_size=1, max_size=8),
        seed=st.integers(0, 1000),
    )
    def test_equal_torch(self, embedding_dim, hidden_size, linear_sizes, max_words, lengths, seed):
        network, texts = new_network(seed, embedding_dim, hidden_size, linear_sizes=linear_sizes), random_texts(lengths)
        encoder, layer = stages_of(network, max_words)
        states = encoder.encode(texts)
        assert states.values.dtype == np.float32
        assert states.counts.tolist() == [min(max(length, 1), max_words) for length in lengths]
        expected = by_torch(network, texts, max_words)
        np.testing.assert_allclose(layer.logits(states), expected, rtol=1e-4, atol=1e-5)
        candidates = np.tile(np.array([3, -1, 0]), (len(texts), 1))
        found = layer.logits_of(states, candidates)
        assert (found[:, 1] == -np.inf).all()
        np.testing.assert_allclose(found[:, [0, 2]], expected[:, [3, 0]], rtol=1e-4, atol=1e-5)

    def test_no_texts(self):
        encoder, layer = stages_of(new_network())
        states = encoder.encode(random_texts([]))
        assert states.values.shape == (0, 10)
        assert layer.best(states, 3)[0].shape == (0, 3)

    def test_lstms_side_by_side_equal_each_alone(self):
        texts, networks = random_texts([5, 0, 3]), [new_network(seed) for seed in range(2)]
        first, second = (without_prefix("encoder", network.arrays()) for network in networks)
        both = {name: np.concatenate([first[name], second[name]], int(name == "words")) for name in first}
        together = LSTMEncoder.from_arrays(both, {"max_words": 32})
        assert together.n_features == 20
        alone = [LSTMEncoder(arrays, {"max_words": 32}).encode(texts).values for arrays in (first, second)]
        np.testing.assert_allclose(together.encode(texts).values, np.concatenate(alone, axis=1), rtol=1e-6)

    def test_ranks_by_the_product_along_the_path(self):
        rng, texts = np.random.default_rng(0), random_texts([5, 0, 3])
        upper, lower = new_network(0), new_network(1)
        cluster_of_label = np.sort(rng.integers(4, size=N_ROWS)).astype(np.int32)
        cluster_of_label[:4] = np.arange(4)
        order = np.argsort(cluster_of_label, kind="stable").astype(np.int32)
        starts = np.searchsorted(cluster_of_label[order], np.arange(5))
        meta = with_prefix("meta", without_prefix("rows", upper.arrays()))
        meta["meta.queries"] = meta["meta.queries"][:4]
        arrays = {**meta, "starts": starts, "cluster_of_label": cluster_of_label}
        config = {"n_searched": 2, "max_searched": 4, "use_logits": True, "level": 0, "n_levels": 2}
        stage = AttentionClusters.from_arrays(arrays, config)
        rows = {**without_prefix("rows", lower.arrays()), "order": order}
        rows["queries"] = rows["queries"][order]
        classifier = AttentionClassifier.from_arrays(rows, {"level": 1, "n_levels": 2})
        states = [stages_of(network)[0].encode(texts) for network in (upper, lower)]
        features = Ragged(states[0].indptr, np.concatenate([s.values for s in states], axis=1))
        assert stage.n_features == classifier.n_features == features.values.shape[1]

        of_clusters, of_labels = by_torch(upper, texts)[:, :4], by_torch(lower, texts)
        product = 1 / (1 + np.exp(-of_labels)) / (1 + np.exp(-of_clusters[:, cluster_of_label]))
        every = np.tile(np.arange(N_ROWS), (3, 1))
        scores = classifier.scores(features, every, stage.evidence(features, every, 2))
        np.testing.assert_allclose(scores, product, rtol=1e-4)

        ids, found = classifier.best(features, stage.find(features, 2), N_ROWS)
        for row in range(3):
            best = np.argsort(-of_clusters[row])[:2]
            expected = [label for label in np.argsort(-product[row]) if cluster_of_label[label] in best]
            assert [label for label in ids[row].tolist() if label >= 0] == expected
            np.testing.assert_allclose(found[row, : len(expected)], product[row, expected], rtol=1e-4)

    def test_count_their_multiply_adds(self):
        encoder, _ = stages_of(new_network())  # 7 dimensions, 2 × 5 states, 6 hidden values
        assert encoder.multiply_adds(np.array([2, 4])) == 3 * 2 * (7 + 5) * 20
        classifier = AttentionClassifier(without_prefix("rows", new_network().arrays()), ONE_LEVEL)
        features = encoder.encode(random_texts([2, 4]))
        assert classifier.multiply_adds(10, features) == 3 * 60 + 10 * (3 * (10 + 6) + 6)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"states": lambda a: a[:1], "inputs": lambda a: a[:1]}, "expected 1 where"),
            ({"words": lambda a: a[:, :3]}, "do not fit bidirectional LSTMs over word vectors of 3 columns"),
            ({"initial": lambda a: a[:, :1]}, "'initial' has shape"),
            ({"states": lambda a: np.full_like(a, np.nan)}, "'states' contains NaN"),
        ],
    )
    def test_damaged_lstms_are_refused(self, change, message):
        arrays = replaced(without_prefix("encoder", new_network().arrays()), change)
        with pytest.raises(ModelError, match=message):
            LSTMEncoder.from_arrays(arrays, {"max_words": 32})

    @pytest.mark.parametrize(
        ("change", "config", "message"),
        [
            ({"output": lambda a: a[:3]}, {}, "takes 3 values; the layer before it gives 6"),
            ({"second": np.zeros((6, 2), np.float32)}, {}, "takes 6 values; the layer before it gives 2"),
            ({"hidden": None}, {}, "'hidden' is missing"),
            ({}, {"level": 2, "n_levels": 2}, "level is 2; expected a whole number from 0 to 1"),
        ],
    )
    def test_damaged_attention_is_refused(self, change, config, message):
        arrays = replaced(without_prefix("rows", new_network().arrays()), change)
        with pytest.raises(ModelError, match=message):
            AttentionClassifier.from_arrays(arrays, {**ONE_LEVEL, **config})


def a_batch(with_candidates: bool) -> Batch:
    texts = random_texts([3, 2, 0, 5])
    candidates = np.array([[1, 3, -1], [2, 7, 9], [0, -1, -1], [10, 4, 5]], np.int32) if with_candidates else None
    return Batch(padded(texts, np.arange(4), 32, N_WORDS), Ragged.from_lists([[1], [2, 7], [0], [10]]), candidates)


class TestLearner:
    @pytest.mark.slow
    @pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
    @pytest.mark.parametrize("sparse", [False, True])
    def test_resumes_from_its_state_bit_for_bit(self, monkeypatch, optimizer, sparse):
        monkeypatch.setattr("shortlist.training.attention_learner.STEPS_BETWEEN_AVERAGES", 2)
        learners = [AttentionLearner(new_network(seed, sparse=sparse), 2, optimizer) for seed in range(2)]

        def steps(learner, numbers):
            for number in numbers:
                torch.manual_seed(number)
                learner.step(a_batch(sparse), 0.01)

        steps(learners[0], range(5))
        learners[1].restore(copied(learners[0].state()))
        for learner in learners:
            steps(learner, range(5, 9))
        assert_equal(learners[1].state(), learners[0].state())
        assert_equal(learners[1].for_prediction(), learners[0].for_prediction())

    def test_only_candidates_learn(self):
        learner = AttentionLearner(new_network(sparse=True), 10**9)
        before = learner.network.queries.weight.detach().clone()
        learner.step(a_batch(True), 0.01)
        moved = (learner.network.queries.weight != before).any(dim=1)
        assert moved.nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 7, 9, 10]  # a single word has all attention anyway

    def test_what_is_no_candidate_does_not_count(self):
        batch, losses = a_batch(True), []
        for candidates in (batch.candidates, np.pad(batch.candidates, ((0, 0), (0, 4)), constant_values=-1)):
            learner = AttentionLearner(new_network(sparse=True, dropout=0, word_dropout=0), 10**9)
            losses.append(learner.step(batch._replace(candidates=candidates), 0.01).loss)
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)

    def test_averages_its_weights(self, monkeypatch):
        monkeypatch.setattr("shortlist.training.attention_learner.STEPS_BETWEEN_AVERAGES", 2)
        learner, seen = AttentionLearner(new_network(), averaged_from=3), []
        for number in range(1, 9):
            learner.step(a_batch(False), 0.05)
            if number in (4, 6, 8):
                seen.append(learner.network.arrays())
            elif number < 4:
                assert_equal(learner.for_prediction(), learner.network.arrays())
        for name, array in learner.for_prediction().items():
            np.testing.assert_allclose(array, np.mean([arrays[name] for arrays in seen], axis=0), atol=1e-5)
        assert_equal(seen[-1], learner.network.arrays())  # it goes on from where it was


SMALL = {
    "embedding_dim": 64,
    "hidden_size": 64,
    "linear_sizes": "64",
    "batch_size": 32,
    "learning_rate": 0.01,
    "dropout": 0.25,
    "word_dropout": 0.1,
    "n_epochs": 10,
    "threads": 1,
    "reranker": False,
}
TREE = {"n_clusters": 8, "n_clusters_searched": 3}


def topics(n_texts: int = 400, seed: int = 0) -> shortlist.Dataset:
    """Texts of two words of their topic and two others."""
    rng = np.random.default_rng(seed)
    rows = []
    for topic in rng.integers(40, size=n_texts).tolist():
        words = [f"t{topic}w{i}" for i in rng.integers(3, size=2)] + [f"noise{i}" for i in rng.integers(30, size=2)]
        rows.append((" ".join(rng.permutation(words)), [f"label {topic}"]))
    return shortlist.read(rows)


class TestTraining:
    @pytest.mark.slow
    def test_learns_with_a_label_tree(self):
        model = shortlist.train(topics(1000), "attentionxml", **SMALL | TREE | {"n_epochs": 15})
        assert {record["phase"] for record in model.records} == {"attention_clusters", "attention_labels"}
        test = topics(300, seed=1)
        assert shortlist.evaluate(model.predict_dataset(test), test)["P@1"] >= 90

    @pytest.mark.slow
    @pytest.mark.parametrize("options", [{"query_init": "xavier"}, {"averaging_start": 0.5}, {"freeze_words": True}])
    def test_other_options_learn_other_models(self, options, tmp_path):
        few = SMALL | {"n_epochs": 8, "validation_fraction": 0.0}
        models = [shortlist.train(topics(), "attentionxml", **few | more) for more in ({}, options)]
        scores = [model.rank(topics(20, seed=1).texts, 40)[1] for model in models]
        assert not np.array_equal(*scores)

    @pytest.mark.slow
    @pytest.mark.parametrize("phase", ["attention_clusters", "attention_labels"])
    def test_an_interrupted_training_ends_in_the_same_model(self, phase, tmp_path, monkeypatch):
        data, options = topics(), SMALL | TREE | {"n_epochs": 2}
        expected = shortlist.train(data, "attentionxml", **options)
        with monkeypatch.context() as patch:
            fit = phases.Build.fit

            def interrupted_fit(build, name, learner, *arguments, **more):
                if name == phase:
                    interrupt_in_step(learner, 17)
                return fit(build, name, learner, *arguments, **more)

            patch.setattr(phases.Build, "fit", interrupted_fit)
            with pytest.raises(Stopped):
                shortlist.train(data, "attentionxml", checkpoint_dir=str(tmp_path), **options)
        model = shortlist.train(data, "attentionxml", checkpoint_dir=str(tmp_path), resume=True, **options)
        for found, wanted in zip(model.rank(data.texts, 5), expected.rank(data.texts, 5), strict=True):
            assert np.array_equal(found, wanted)

    def test_own_clusters_are_among_the_candidates(self):
        """Whatever the level above says, a text is trained on the clusters of its own labels."""
        model = shortlist.train(topics(100), "attentionxml", **SMALL | TREE | {"n_epochs": 1, "n_clusters_searched": 1})
        pipeline = model.pipelines[0]
        assert isinstance(pipeline.candidates, AttentionClusters)

        class Data:
            labels = Ragged.from_lists([[label] for label in range(model.card["n_labels"])])
            word_ids = Ragged.from_lists([[0, 1]] * len(labels))

        class Build:
            data, options = (
                Data,
                resolve("", shortlist.get_recipe("attentionxml").options, TREE | {"n_clusters_searched": 2}),
            )
            encoder = pipeline.encoder

        tree = phases.tree_of(pipeline.candidates)
        found = phases.candidate_clusters(Build, pipeline.candidates, tree)
        assert found.shape == (model.card["n_labels"], 2)
        assert all(tree.cluster_of_label[label] in row for label, row in enumerate(found))


def test_published_values():
    published = shortlist.get_recipe("attentionxml@published")
    small = resolve(published.name, published.options, {}, 15_000, 4_000)
    assert (small.hidden_size, small.linear_sizes, small.n_epochs, small.batch_size) == (256, "256", 30, 40)
    assert (small.n_clusters, small.schedule, small.decay_epoch, small.vector_init) == (1, "step", 30, "random")
    with_vectors = resolve(published.name, published.options, {"vectors": "glove.txt"}, 15_000, 4_000)
    assert (with_vectors.vector_init, with_vectors.freeze_words, small.freeze_words) == ("given", True, False)
    large = resolve(published.name, published.options, {}, 1_800_000, 500_000)
    assert (large.hidden_size, large.linear_sizes, large.n_epochs, large.batch_size) == (512, "512,256", 10, 200)
    assert (large.n_clusters, large.n_clusters_searched, large.freeze_words) == (7813, 15, False)
    assert all(
        option.source for option in published.options if option.name in shortlist.get_recipe("attentionxml").published
    )
