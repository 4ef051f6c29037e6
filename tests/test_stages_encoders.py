"""Encoders of words without torch: against the networks they were learnt as, and against damaged arrays."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf

from model_files import replaced
from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.errors import ModelError
from shortlist.kernels.encoders import join_taps
from shortlist.stages.encoders import BagEncoder, CNNEncoder, InceptionEncoder
from shortlist.stages.encoders import cnn as cnn_module
from shortlist.stages.encoders import inception as inception_module
from shortlist.stages.encoders.cnn import WIDTHS, chunk_bounds
from shortlist.training.batches import padded

torch = pytest.importorskip("torch")

from shortlist.training.networks.bag import BagNetwork, HashedBagNetwork  # noqa: E402 - needs torch
from shortlist.training.networks.cnn import CNNNetwork  # noqa: E402
from shortlist.training.networks.inception import InceptionNetwork  # noqa: E402

N_WORDS = 50
LENGTHS = pytest.mark.parametrize(
    "lengths", [[], [0], [1], [0, 0, 1], [5], [31, 32, 33, 60], [3, 0, 7, 3, 90, 1, 3]], ids=str
)


def new_bag(seed: int = 0, embedding_dim: int = 20, relu: bool = False) -> BagNetwork:
    torch.manual_seed(seed)
    return BagNetwork(np.random.default_rng(seed).uniform(1, 5, N_WORDS), embedding_dim, relu=relu).eval()


def new_relu_bag(seed: int = 0) -> BagNetwork:
    return new_bag(seed, relu=True)


def new_hashed_bag(seed: int = 0, embedding_dim: int = 20, n_buckets: int = 11) -> HashedBagNetwork:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = HashedBagNetwork(rng.uniform(1, 5, N_WORDS), rng.permutation(N_WORDS) % n_buckets, embedding_dim).eval()
    torch.nn.init.normal_(network.biases)
    return network


def new_cnn(seed: int = 0, embedding_dim: int = 20, **sizes) -> CNNNetwork:
    torch.manual_seed(seed)
    return CNNNetwork(N_WORDS, embedding_dim, **{"channels": 6, "hidden_size": 15, **sizes}).eval()


def new_inception(seed: int = 0, embedding_dim: int = 64, **sizes) -> InceptionNetwork:
    """A network with nothing as it starts: gates are open, and batch norms have statistics."""
    torch.manual_seed(seed)
    network = InceptionNetwork(N_WORDS, embedding_dim, **sizes)
    with torch.no_grad():
        network.words.weight *= 0.3
        for layer in network.attention:
            layer.gate.uniform_(-0.5, 0.5)
        for norm in filter(None, (network.project_norm, network.branch_norm, network.last_norm)):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.1, 2)
            norm.weight.normal_()
            norm.bias.normal_()
    return network.eval()


STAGES = {
    BagNetwork: BagEncoder,
    HashedBagNetwork: BagEncoder,
    CNNNetwork: CNNEncoder,
    InceptionNetwork: InceptionEncoder,
}
NETWORKS = pytest.mark.parametrize("new", [new_bag, new_relu_bag, new_hashed_bag, new_cnn, new_inception])


def stage_of(network, max_words: int = 32, **change):
    """The stage that a network becomes, with some arrays changed."""
    config = {"max_words": max_words, **network.config()}
    return STAGES[type(network)].from_arrays(replaced(network.arrays(), change), config)


def random_texts(lengths, seed: int = 0) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(0, N_WORDS, length).tolist() for length in lengths])


def by_torch(network, texts: Ragged, max_words: int = 32, more_padding: int = 0) -> np.ndarray:
    ids = padded(texts, np.arange(len(texts)), max_words, N_WORDS)
    ids = np.pad(ids, ((0, 0), (0, more_padding)), constant_values=N_WORDS)
    with torch.no_grad():
        return copy.deepcopy(network).double()(torch.from_numpy(ids)).numpy()


def assert_equals_torch(network, texts: Ragged, max_words: int = 32) -> None:
    encoder = stage_of(network, max_words)
    features, expected = encoder.encode(texts), by_torch(network, texts, max_words)
    assert features.dtype == np.float32
    assert features.shape == (len(texts), network.n_features) == (len(texts), encoder.n_features)
    assert encoder.n_words == N_WORDS
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(initial=1))


class TestEqualsTorch:
    @NETWORKS
    @LENGTHS
    def test_on_texts_of_any_length(self, new, lengths):
        assert_equals_torch(new(), random_texts(lengths))

    @pytest.mark.slow
    @pytest.mark.parametrize("bag", [False, True])
    @pytest.mark.parametrize("attention", [True, False])
    @pytest.mark.parametrize("embedding_dim", [64, 100, 300])
    @LENGTHS
    def test_inception_in_all_its_variants(self, bag, attention, embedding_dim, lengths):
        assert_equals_torch(
            new_inception(embedding_dim=embedding_dim, attention=attention, bag=bag), random_texts(lengths)
        )

    @given(
        embedding_dim=st.integers(64, 200),
        max_words=st.integers(1, 20),
        channels=st.integers(1, 40),
        attention=st.booleans(),
        attention_value=st.sampled_from(["vectors", "query"]),
        parts=st.fixed_dictionaries({name: st.booleans() for name in ("bag", "norm_first", "project_norm")}),
        lengths=st.lists(st.integers(0, 25), max_size=3 * inception_module.TEXTS_PER_BLOCK),
        seed=st.integers(0, 1000),
    )
    def test_inception_on_random_shapes(
        self, embedding_dim, max_words, channels, attention, attention_value, parts, lengths, seed
    ):
        sizes = {"max_words": max_words, "channels": channels, "attention": attention}
        network = new_inception(seed, embedding_dim, attention_value=attention_value, **sizes, **parts)
        assert_equals_torch(network, random_texts(lengths, seed), max_words)

    @given(
        embedding_dim=st.integers(1, 30),
        channels=st.integers(1, 9),
        n_chunks=st.integers(1, 6),
        hidden_size=st.integers(1, 20),
        max_words=st.integers(1, 20),
        fixed_chunks=st.booleans(),
        lengths=st.lists(st.integers(0, 25), max_size=12),
        seed=st.integers(0, 1000),
    )
    def test_cnn_on_random_shapes(
        self, embedding_dim, channels, n_chunks, hidden_size, max_words, fixed_chunks, lengths, seed
    ):
        sizes = {"channels": channels, "n_chunks": n_chunks, "hidden_size": hidden_size}
        network = new_cnn(seed, embedding_dim, fixed_chunks=fixed_chunks, max_words=max_words, **sizes)
        assert_equals_torch(network, random_texts(lengths, seed), max_words)


class TestEveryTextEncoder:
    @NETWORKS
    def test_features_do_not_depend_on_the_other_texts(self, new):
        n_texts = 3 * max(cnn_module.TEXTS_PER_BLOCK, inception_module.TEXTS_PER_BLOCK) + 3
        texts = random_texts(np.random.default_rng(1).integers(0, 40, n_texts))
        encoder = stage_of(new())
        together = encoder.encode(texts)
        alone = np.concatenate([encoder.encode(texts.take([row])) for row in range(len(texts))])
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)
        order = np.random.default_rng(2).permutation(len(texts))
        np.testing.assert_allclose(encoder.encode(texts.take(order)), together[order], rtol=1e-4, atol=1e-4)

    @NETWORKS
    def test_words_in_8_bits_change_features_little(self, new):
        network, texts = new(), random_texts([3, 0, 7, 12])
        encoder = stage_of(network)
        quantized = encoder.quantized()
        assert quantized.arrays()["words"].dtype == np.int8
        before, after = encoder.encode(texts), quantized.encode(texts)
        assert not np.array_equal(before, after)
        assert np.abs(after - before).max() < 0.02 * np.abs(before).max()

    @NETWORKS
    def test_a_vocabulary_without_words(self, new):
        network, empty = new(), random_texts([0, 0])
        without = {name: lambda a: a[:0] for name in ("idf", "buckets") if name in network.arrays()}
        wordless = stage_of(network, words=lambda a: a[:0], **without)
        assert wordless.n_words == 0
        assert np.array_equal(wordless.encode(empty), stage_of(network).encode(empty))

    @pytest.mark.parametrize("max_words", [0, -1, "32", None, 2.5, True, 1 << 40])
    @NETWORKS
    def test_max_words_must_be_a_whole_number(self, new, max_words):
        with pytest.raises(ModelError, match="max_words"):
            stage_of(new(), max_words)

    @NETWORKS
    def test_the_caller_may_know_the_number_of_words(self, new):
        network = new()
        stage, config = STAGES[type(network)], {"max_words": 32, **network.config()}
        assert stage.from_arrays(network.arrays(), config, n_words=N_WORDS).n_words == N_WORDS
        with pytest.raises(ModelError, match="expected 49 where it has 50"):
            stage.from_arrays(network.arrays(), config, n_words=N_WORDS - 1)


class TestBagEncoder:
    def test_word_order_does_not_matter(self):
        forth, back = Ragged.from_lists([[1, 2, 3, 4]]), Ragged.from_lists([[4, 3, 2, 1]])
        for network in (new_bag(), new_hashed_bag()):
            encoder = stage_of(network)
            np.testing.assert_allclose(encoder.encode(forth), encoder.encode(back), atol=1e-6)

    def test_words_of_one_bucket_share_a_vector(self):
        encoder = stage_of(new_hashed_bag(n_buckets=1), idf=np.ones(N_WORDS, np.float32))
        features = encoder.encode(Ragged.from_lists([[3, 4], [7, 8]]))
        assert np.array_equal(features[0], features[1])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"buckets": lambda a: a + 1}, "'buckets' has a value of 11"),
            ({"buckets": lambda a: a - 1}, "'buckets' has a value of -1"),
            ({"buckets": lambda a: a.astype(np.int64)}, "'buckets' is int64; expected int32"),
            ({"buckets": lambda a: a[:-1]}, r"'buckets' has shape \(49,\)"),
            ({"buckets": None}, r"'idf' has shape \(50,\); expected 11"),
            ({"words": lambda a: a[:-1]}, "'buckets' has a value of 10"),
            ({"words": lambda a: a[:, :-1]}, r"'biases' has shape \(20,\)"),
            ({"words": lambda a: a[0, 0]}, "'words' has 0 axes"),
            ({"words": None}, "'words' is missing"),
            ({"idf": lambda a: a[:-1]}, r"'buckets' has shape \(50,\)"),
            ({"idf": lambda a: a * np.nan}, "'idf' contains NaN"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            stage_of(new_hashed_bag(), **change)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"words": lambda a: a[:-1]}, r"'idf' has shape \(50,\); expected 49"),
            ({"words": lambda a: a[0, 0]}, "'words' has 0 axes"),
            ({"words": lambda a: a[:, :0]}, "the rows of 'words' are empty"),
            ({"idf": lambda a: a[:-1]}, r"'idf' has shape \(49,\); expected 50"),
            ({"idf": None}, "'idf' is missing"),
        ],
    )
    def test_damaged_arrays_without_buckets_are_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            stage_of(new_bag(), **change)


class TestCNNEncoder:
    def test_word_order_matters(self):
        encoder = stage_of(new_cnn())
        forth, back = (encoder.encode(Ragged.from_lists([ids])) for ids in ([1, 2, 3, 4], [4, 3, 2, 1]))
        assert not np.allclose(forth, back, atol=1e-3)

    def test_a_filter_is_the_sum_of_its_window(self):
        """By hand: one filter of width 2 over words of one dimension sees each word and the next one."""
        network = new_cnn(embedding_dim=1, channels=1, n_chunks=2, hidden_size=2)
        with torch.no_grad():
            network.words.weight[:N_WORDS] = torch.arange(N_WORDS)[:, None].float()
            for filters in network.filters:
                filters.weight.zero_()
                filters.bias.zero_()
            network.filters[0].weight[:] = torch.tensor([1.0, 10.0])
            network.hidden.weight.zero_()
            network.hidden.weight[0, 0] = network.hidden.weight[1, len(WIDTHS)] = 1
            network.hidden.bias.zero_()
        # Windows: 1 + 10·2, 2 + 10·3, and 3 alone. Chunks of three words: the first two, and the last two.
        assert stage_of(network).encode(Ragged.from_lists([[1, 2, 3]])).tolist() == [[32, 32]]
        assert stage_of(network).encode(Ragged.from_lists([[4, 2, 3, 1]])).tolist() == [[32, 13]]

    @given(st.integers(1, 40), st.integers(1, 9))
    def test_chunks_cover_every_word_and_none_is_empty(self, n_words, n_chunks):
        bounds = chunk_bounds(n_words, n_chunks)
        assert {word for begin, end in bounds for word in range(begin, end)} == set(range(n_words))
        assert all(begin < end for begin, end in bounds)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"words": lambda a: a[:, :-1]}, r"'taps' has shape \(20, 84\); expected 19"),
            ({"words": lambda a: a.astype(np.float64)}, "'words' is float64; expected float32 or int8"),
            ({"taps": lambda a: a[:, :-1]}, "do not fit 18 filters"),
            ({"biases": lambda a: a[:-1]}, "do not fit 17 filters"),
            ({"biases": lambda a: a[:0]}, "do not fit 0 filters"),
            ({"hidden": lambda a: a[:-1]}, "do not fit 18 filters"),
            ({"hidden": lambda a: a[:0]}, "do not fit 18 filters"),
            ({"hidden_biases": lambda a: a[:-1]}, r"'hidden_biases' has shape \(14,\); expected 15"),
            ({"hidden_biases": None}, "'hidden_biases' is missing"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            stage_of(new_cnn(), **change)


class TestInceptionEncoder:
    def test_sizes(self):
        encoder = stage_of(new_inception(embedding_dim=300))
        assert (encoder.n_words, encoder.n_features) == (N_WORDS, 480)
        assert stage_of(new_inception(embedding_dim=300, bag=True)).n_features == 780

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"words": lambda a: a[:, :-1]}, r"'dimension_mix' has shape \(64, 64\); expected 63"),
            ({"words": lambda a: a[0]}, "'words' has 1 axes; expected 2"),
            ({"words": lambda a: a.astype(np.float64)}, "'words' is float64; expected float32 or int8"),
            ({"words": None}, "'words' is missing"),
            ({"project": lambda a: a[:-1]}, r"'word_mix' has shape \(32, 32\); expected 31"),
            ({"project": lambda a: a[:, :0], "project_biases": None}, "'branch_weights' has shape"),
            ({"project": lambda a: a[0, 0]}, "'project' has 0 axes"),
            ({"project": None}, "'project' is missing"),
            ({"word_mix": lambda a: a[:5]}, "'word_mix' has shape"),
            ({"word_mix": None}, "one of the arrays 'word_mix' and 'dimension_mix' is missing"),
            ({"scales": None}, "one of the arrays 'scales' and 'shifts' is missing"),
            ({"shifts": lambda a: a[:-1]}, "'shifts' has shape"),
            ({"project_biases": lambda a: a[:-1]}, "'project_biases' has shape"),
            ({"dimension_mix": None}, "one of the arrays 'word_mix' and 'dimension_mix' is missing"),
            ({"branch_weights": lambda a: a.T}, "'branch_weights' has shape"),
            ({"branch_biases": lambda a: a[:-1]}, "'branch_biases' has shape"),
            ({"last_weights": lambda a: a[None]}, "'last_weights' has 3 axes; expected 2"),
            ({"last_weights": lambda a: a[:, :-1]}, "'last_weights' has shape"),
            ({"last_biases": None}, "'last_biases' is missing"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            stage_of(new_inception(project_norm=True, norm_first=False), **change)

    def test_max_words_must_fit_the_projection(self):
        network = new_inception(attention=False)
        with pytest.raises(ModelError, match=r"'project' has shape \(32, 32\); the others need \(31, 32\)"):
            stage_of(network, 31)

    def test_too_few_dimensions_or_channels_for_the_convolutions_are_refused(self):
        network = new_inception(attention=False)
        with pytest.raises(ModelError, match="48 dimensions and 32 channels are too few"):
            stage_of(network, words=lambda a: a[:, :48])
        nothing = {name: np.zeros([0] * array.ndim, np.float32) for name, array in network.arrays().items()}
        nothing |= {"words": np.zeros((0, 64), np.float32), "project": np.zeros((32, 0), np.float32)}
        with pytest.raises(ModelError, match="64 dimensions and 0 channels are too few"):
            stage_of(network, **nothing)

    @given(
        columns=st.lists(st.integers(0, 20), min_size=1, max_size=5),
        n_texts=st.integers(0, 3),
        n_positions=st.integers(1, 9),
        scale=st.floats(0.01, 100),
        seed=st.integers(0, 1000),
    )
    def test_join_taps_equals_its_definition(self, columns, n_texts, n_positions, scale, seed):
        rng = np.random.default_rng(seed)
        bounds, n_channels = np.cumsum([0, *columns]), max(columns)
        products = scale * rng.standard_normal((n_texts, n_positions + len(columns) - 1, bounds[-1])).astype(np.float32)
        biases = rng.standard_normal(n_channels).astype(np.float32)
        out = np.empty((n_texts, n_positions, n_channels), np.float32)
        join_taps(products.astype(np.float32), bounds, biases, out)
        sums = np.zeros(out.shape) + biases
        for tap, n_columns in enumerate(columns):
            part = products[:, tap : tap + n_positions, bounds[tap] : bounds[tap + 1]]
            sums[:, :, n_channels - n_columns :] += part
        expected = sums / 2 * (1 + erf(sums / np.sqrt(2)))
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6 * np.abs(products).max(initial=1))

    def test_gelu_is_precise_and_passes_nan_on(self):
        x = np.append(np.linspace(-10, 10, 100_001), np.nan).astype(np.float32)[None, None]
        out = np.empty_like(x)
        join_taps(x, np.asarray([0, x.size]), np.zeros(x.size, np.float32), out)
        exact = x.astype(np.float64) / 2 * (1 + erf(x.astype(np.float64) / np.sqrt(2)))
        np.testing.assert_allclose(out, exact, rtol=1e-6, atol=1.5e-6)


def test_quantized_words_need_scales():
    packed = QuantizedMatrix.of_floats(new_bag().arrays()["words"]).in_8_bits().to_arrays("words")
    del packed["words.scales"]
    with pytest.raises(ModelError, match="one float32 scale for each of its 50 rows"):
        stage_of(new_bag(), **packed)


@pytest.mark.slow
def test_encoders_do_not_import_torch():
    code = "import sys, shortlist.stages.encoders; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
