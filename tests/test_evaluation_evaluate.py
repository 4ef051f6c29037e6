"""`evaluate` with all forms of input, filter pairs, unseen labels, and wrong arguments."""

from __future__ import annotations

import json

import napkinxc.metrics as napkin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, OptionError
from shortlist.evaluation import evaluate
from shortlist.text.texts import Texts

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]


def dataset(rows, names=NAMES, scores=None, texts=None, **more):
    labels = Ragged.from_lists([[names.index(name) for name in row] for row in rows])
    if scores is not None:
        labels = Ragged(labels.indptr, labels.values, np.asarray(scores, np.float32))
    texts = Texts.from_strings(texts or [""] * len(rows))
    return Dataset(texts, labels, list(names), **more)


def ids(rows):
    return [[NAMES.index(name) for name in row] for row in rows]


def padded(rows, width=6):
    return np.asarray([row + [-1] * (width - len(row)) for row in rows])


def indicators(rows):
    matrix = np.zeros((len(rows), len(NAMES)))
    for i, row in enumerate(rows):
        matrix[i, row] = 1
    return sparse.csr_array(matrix)


def scores_of(rows):
    matrix = np.zeros((len(rows), len(NAMES)))
    for i, row in enumerate(rows):
        for place, label in enumerate(row):
            matrix[i, label] = 9 - place
    return sparse.csr_matrix(matrix)


TRUTH = [["ant", "bee"], ["cat"], [], ["dog", "ant", "fox"]]
PREDICTED = [["bee", "cat", "ant"], ["dog"], ["ant"], ["ant", "elk", "dog", "fox"]]
TRAIN = [["ant"], ["ant", "bee"], ["ant", "cat"], ["dog", "bee"], ["ant"], ["cat"], ["elk"], ["fox", "ant"]]


def scored(rows):
    return [[(name, 1.0 - 0.1 * place, "display name") for place, name in enumerate(row)] for row in rows]


@pytest.mark.parametrize(
    ("predictions", "truth"),
    [
        (PREDICTED, TRUTH),
        (PREDICTED, dataset(TRUTH)),
        (scored(PREDICTED), TRUTH),
        ([row[::-1] for row in scored(PREDICTED)], [set(row) for row in TRUTH]),
        (dataset(PREDICTED), dataset(TRUTH, NAMES[::-1])),
        (dataset(PREDICTED, NAMES[::-1], scores=-np.arange(9.0)), TRUTH),
        (ids(PREDICTED), ids(TRUTH)),
        (padded(ids(PREDICTED)), Ragged.from_lists(ids(TRUTH))),
        (padded(ids(PREDICTED)).astype(np.uint8).astype(np.int8), indicators(ids(TRUTH))),
        (Ragged.from_lists(ids(PREDICTED)), ids(TRUTH)),
        (Ragged.from_lists(ids(PREDICTED)), Ragged(indicators(ids(TRUTH)).indptr, indicators(ids(TRUTH)).indices)),
        (scores_of(ids(PREDICTED)), indicators(ids(TRUTH))),
        (scores_of(ids(PREDICTED)).tocoo(), indicators(ids(TRUTH)).tocsc()),
    ],
)
def test_all_forms_of_input_give_the_same_values(predictions, truth):
    expected = evaluate(padded(ids(PREDICTED)), Ragged.from_lists(ids(TRUTH)), train=dataset(TRAIN))
    found = evaluate(predictions, truth, train=dataset(TRAIN))
    assert found.values == pytest.approx(expected.values)
    assert found.quantiles == expected.quantiles
    assert (found.texts, found.left_out, found.labels) == (4, 0, 5)


def test_values_by_hand():
    found = evaluate(PREDICTED, TRUTH, k=(1, 3))
    assert found["P@1"] == pytest.approx(100 * 2 / 4)
    assert found["P@3"] == pytest.approx(100 * (2 / 3 + 0 + 0 + 2 / 3) / 4)
    assert found["R@3"] == pytest.approx(100 * (1 + 0 + 0 + 2 / 3) / 4)
    assert found["coverage@3"] == pytest.approx(100 * 3 / 5)


def test_propensities_come_from_the_training_data():
    by_names = evaluate(PREDICTED, TRUTH, train=dataset(TRAIN), a=0.6, b=2.6)
    frequencies = np.asarray([5, 2, 2, 1, 1, 1])
    by_ids = evaluate(ids(PREDICTED), ids(TRUTH), train=(frequencies, 8), a=0.6, b=2.6)
    by_dict = evaluate(PREDICTED, TRUTH, train=(dict(zip(NAMES, frequencies, strict=True)), 8), a=0.6, b=2.6)
    gain = 1 + (np.log(8) - 1) * 3.6**0.6 * (frequencies + 2.6) ** -0.6
    expected = 100 * (gain[1] + gain[0]) / (max(gain[0], gain[1]) + gain[2] + max(gain[[0, 3, 5]]))
    assert by_names["PSP@1"] == pytest.approx(expected)
    assert by_names.values == pytest.approx(by_ids.values)
    assert by_names.values == pytest.approx(by_dict.values)


def test_without_training_data_a_note_replaces_psp():
    found = evaluate(PREDICTED, TRUTH)
    assert "PSP@1" not in found.values and not found.quantiles
    assert any("need the training data" in note for note in found.notes)
    with pytest.raises(KeyError, match="was not measured; available: P@1"):
        found["PSP@1"]


def test_an_unknown_label_is_a_miss():
    known = evaluate([["dog"], ["cat"]], [["ant"], ["cat"]], train=dataset(TRAIN))
    unknown = evaluate([["yak"], ["cat"]], [["ant"], ["cat"]], train=dataset(TRAIN))
    assert unknown.values == pytest.approx(known.values)
    assert unknown.quantiles == known.quantiles


def test_k_larger_than_the_number_of_labels():
    found = evaluate([["ant"]], [["ant"]], k=100)
    assert found["P@100"] == 1.0 and found["N@100"] == 100.0 and found["R@100"] == 100.0


# Ties


def test_ties_in_a_matrix_go_to_the_smaller_id():
    scores = sparse.csr_array(([0.5, 0.5, 0.7, 0.5], ([0, 0, 0, 0], [5, 2, 3, 0])), shape=(1, 6))
    ranking = [3, 0, 2, 5]
    for place, label in enumerate(ranking, start=1):
        found = evaluate(scores, [[label]], k=range(1, 5))
        assert [found[f"R@{k}"] for k in range(1, 5)] == [100.0 * (k >= place) for k in range(1, 5)]


def test_ties_in_lists_and_datasets_keep_their_order():
    assert evaluate(dataset([["fox", "ant"]], scores=[1, 1]), [["fox"]], k=1)["P@1"] == 100
    assert evaluate([[("fox", 1), ("ant", 1)]], [["fox"]], k=1)["P@1"] == 100


def test_negative_and_zero_scores_are_predictions():
    scores = sparse.csr_array(([-1.0, 0.0], ([0, 0], [0, 1])), shape=(1, 2))
    assert evaluate(scores, [[1]], k=1)["P@1"] == 100


def test_stored_zeros_in_a_true_matrix_are_not_labels_unlike_in_napkinxc():
    truth = sparse.csr_matrix(([1.0, 0.0], ([0, 0], [0, 1])), shape=(1, 2))
    assert napkin.recall_at_k(truth, [[0]], k=1)[0] == 0.5
    assert evaluate([[0]], truth, k=1)["R@1"] == 100


# Filter pairs


def test_filtered_labels_are_removed_from_predictions_and_truth():
    # Text 0 loses its first prediction, so that "cat" moves up; text 3 loses a true label.
    pairs = [(0, "bee"), (3, "fox"), (3, "nobody's")]
    found = evaluate(PREDICTED, TRUTH, filter_pairs=pairs, k=(1, 2, 3))
    expected = evaluate(
        [["cat", "ant"], ["dog"], ["ant"], ["ant", "elk", "dog"]],
        [["ant"], ["cat"], [], ["dog", "ant"]],
        k=(1, 2, 3),
    )
    assert found.values == expected.values
    assert "Filter pairs that do not count: 3." in found.notes


def test_predictions_beyond_k_move_up():
    scores = scores_of(ids([["fox", "elk", "dog"]]))
    pairs = np.asarray([[0, NAMES.index("fox")], [0, NAMES.index("elk")]])
    assert evaluate(scores, indicators(ids([["dog"]])), k=1, filter_pairs=pairs)["P@1"] == 100
    assert evaluate([["fox", "elk", "dog"]], [["dog"]], k=1, filter_pairs=[(0, "fox"), (0, "elk")])["P@1"] == 100


def test_filter_pairs_default_to_those_of_the_truth():
    truth = dataset([["fox"], ["ant"]], NAMES[::-1], filter_pairs=np.asarray([[0, NAMES[::-1].index("ant")]]))
    predictions = [["ant", "fox"], ["ant"]]
    assert evaluate(predictions, truth, k=1)["P@1"] == 100
    assert evaluate(predictions, truth, k=1, filter_pairs=[])["P@1"] == 50


@given(st.data())
def test_filter_pairs_equal_editing_the_lists(data):
    rows = st.lists(st.integers(0, 5), unique=True)
    n = data.draw(st.integers(1, 5))
    predictions = data.draw(st.lists(rows, min_size=n, max_size=n))
    truth = data.draw(st.lists(rows, min_size=n, max_size=n))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 5))))
    edited = [
        [[label for label in row if (i, label) not in pairs] for i, row in enumerate(both)]
        for both in (predictions, truth)
    ]
    assert evaluate(predictions, truth, filter_pairs=pairs).values == evaluate(*edited).values


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([(7, "ant")], DataError, r"text row 7 is out of range \(4 texts"),
        ([(0, 17)], OptionError, "filter_pairs has label ids, but predictions and truth have names"),
        ([(0, "ant", 1)], OptionError, "must be"),
        ([("0", "ant")], OptionError, "row number"),
        ([(0, "ant"), (0, 1)], OptionError, "all names or all ids"),
        (np.zeros((2, 3), int), OptionError, "two columns"),
    ],
)
def test_wrong_filter_pairs_are_refused(pairs, error, message):
    with pytest.raises(error, match=message):
        evaluate(PREDICTED, TRUTH, filter_pairs=pairs)


def test_filter_pairs_must_match_the_labels():
    with pytest.raises(OptionError, match="filter_pairs has label names"):
        evaluate(ids(PREDICTED), ids(TRUTH), filter_pairs=[(0, "ant")])
    with pytest.raises(DataError, match=r"label id 6 is out of range \(the truth has 6 labels"):
        evaluate(PREDICTED, dataset(TRUTH), filter_pairs=[(0, 6)])


# Unseen labels


def test_unseen_labels_count_or_are_ignored():
    train = dataset([["ant"], ["bee"], ["ant"]])
    counted = evaluate(PREDICTED, TRUTH, train=train)
    ignored = evaluate(PREDICTED, TRUTH, train=train, unseen="ignore")
    assert (counted.texts, counted.left_out) == (4, 0)
    assert (ignored.texts, ignored.left_out, ignored.labels) == (2, 2, 2)
    by_hand = evaluate([PREDICTED[0], PREDICTED[3]], [["ant", "bee"], ["ant"]], train=train)
    assert ignored.values == pytest.approx(by_hand.values)
    assert "texts left out: 2" in ignored.table()
    assert sum(one.labels for one in counted.quantiles) == 6
    assert sum(one.labels for one in ignored.quantiles) == 2  # ant and bee


def test_ids_without_training_texts_are_unseen():
    frequencies = np.asarray([2, 1, 0, 0, 0, 0])
    found = evaluate(ids(PREDICTED), ids(TRUTH), train=(frequencies, 3), unseen="ignore")
    assert (found.texts, found.left_out) == (2, 2)


def test_labels_without_training_texts_have_a_propensity():
    found = evaluate([["yak"]], [["yak"]], train=dataset(TRAIN))
    assert found["PSP@1"] == pytest.approx(100)
    assert sum(one.labels for one in found.quantiles) == len(NAMES) + 1


# Unseen labels, leaks and ceilings are stated


def test_the_share_of_unseen_labels_is_stated():
    train = dataset([["ant"], ["bee"], ["ant"]])
    counted = evaluate(PREDICTED, TRUTH, train=train)
    # cat, dog and fox, of five labels; three pairs of six.
    assert (counted.overlap.unseen_labels, counted.overlap.labels) == (3, 5)
    assert (counted.overlap.unseen_pairs, counted.overlap.pairs) == (3, 6)
    assert "3 of 5 test labels (60.0 %)" in counted.overlap_notes[0] and "They count:" in counted.overlap_notes[0]
    ignored = evaluate(PREDICTED, TRUTH, train=train, unseen="ignore")
    assert "3 of 6 (text, label) pairs (50.0 %). They do not count." in ignored.overlap_notes[0]
    assert ignored.to_json()["overlap"]["unseen_pairs"] == 3
    assert (
        "All test labels occur in training." in evaluate(PREDICTED, TRUTH, train=dataset(TRAIN)).to_json()["notes"][0]
    )


def test_what_is_not_known_is_said():
    assert "not known without the training data" in evaluate(PREDICTED, TRUTH).table()
    assert "Leaks: not known" in evaluate(PREDICTED, TRUTH, train=dataset(TRAIN)).table()  # there are no texts


def leaky_parts():
    train = dataset(TRAIN, texts=[f"training text {i}" for i in range(8)])
    return train, dataset(TRUTH, texts=["new", "Training  text 3!", "training text", "training-text 5"])


def test_leaks_are_a_warning():
    train, test = leaky_parts()
    found = evaluate(PREDICTED, test, train=train)
    assert found.overlap.leaks == 2 and found.texts == 4
    assert "WARNING, leaks: 2 of 4 test texts (50.0 %)" in found.overlap_notes[1]
    clean = evaluate(PREDICTED, test, train=dataset(TRAIN, texts=["other"] * 8))
    assert "Leaks: none." in clean.overlap_notes[1]


def test_leaks_can_be_dropped():
    train, test = leaky_parts()
    pairs = [(2, "ant"), (3, "ant")]  # rows of the given texts
    found = evaluate(PREDICTED, test, train=train, drop_leaks=True, filter_pairs=pairs)
    expected = evaluate([PREDICTED[0], PREDICTED[2]], [TRUTH[0], TRUTH[2]], train=train, filter_pairs=[(1, "ant")])
    assert found.values == expected.values and (found.texts, found.left_out) == (2, 0)
    assert found.overlap.labels == 2 and "2 of 4 test texts (50.0 %)" in found.overlap_notes[1]
    assert "They were left out." in found.overlap_notes[1]
    for truth, training in ((TRUTH, train), (test, None), (test, dataset(TRAIN))):
        with pytest.raises(OptionError, match="drop_leaks needs the texts of both parts"):
            evaluate(PREDICTED, truth, train=training, drop_leaks=True)


def test_ceilings_by_hand():
    found = evaluate(PREDICTED, TRUTH, k=(1, 5))  # 2, 1, 0 and 3 labels
    assert found.ceilings["P@5"] == pytest.approx(100 * (2 + 1 + 0 + 3) / 5 / 4)
    assert found.ceilings["R@1"] == pytest.approx(100 * (1 / 2 + 1 + 0 + 1 / 3) / 4)
    assert found.ceilings["N@5"] == pytest.approx(75)  # a text without labels counts as a miss
    lines = [line.split() for line in found.table().splitlines()]
    assert lines[2] == ["at", "most", "75.00", "30.00"]


def test_no_ceiling_is_shown_where_all_can_be_reached():
    table = evaluate([["ant"]], [["ant"]], k=1).table()
    assert "at most" not in table


@given(st.data())
def test_no_ranking_is_above_the_ceiling_and_the_best_one_reaches_it(data):
    rows = st.lists(st.integers(0, 5), unique=True)
    n = data.draw(st.integers(1, 5))
    predictions = data.draw(st.lists(rows, min_size=n, max_size=n))
    truth = data.draw(st.lists(rows, min_size=n, max_size=n))
    frequencies = np.asarray([9, 7, 5, 3, 2, 1])
    found = evaluate(predictions, truth, train=(frequencies, 20))
    rarest_first = [sorted(row, key=lambda label: frequencies[label]) for row in truth]
    best = evaluate(rarest_first, truth, train=(frequencies, 20))
    for name, ceiling in found.ceilings.items():
        assert found[name] <= ceiling + 1e-9
        assert best[name] == pytest.approx(ceiling)


# Wrong arguments


def test_names_and_ids_are_not_mixed():
    with pytest.raises(OptionError, match="predictions have label ids, but the truth has label names"):
        evaluate(padded(ids(PREDICTED)), TRUTH)
    with pytest.raises(OptionError, match="predictions have label names, but the truth has label ids"):
        evaluate(PREDICTED, indicators(ids(TRUTH)))
    with pytest.raises(OptionError, match=r"all names .* or all ids .* not int, str"):
        evaluate([["ant", 3]], [["ant"]])
    with pytest.raises(OptionError, match="frequencies must be a dict"):
        evaluate(PREDICTED, TRUTH, train=([1, 2, 3], 3))
    with pytest.raises(OptionError, match="frequencies must be an array"):
        evaluate(ids(PREDICTED), ids(TRUTH), train=({"ant": 1}, 3))


def test_different_numbers_of_rows_are_refused():
    with pytest.raises(DataError, match=r"predictions for 3 texts but true labels for 4"):
        evaluate(PREDICTED[:3], TRUTH)


@pytest.mark.parametrize(
    ("predictions", "error", "message"),
    [
        ("ant", OptionError, "one list of labels per text, not str"),
        (["ant", "bee", "cat", "dog"], OptionError, "text 0 should have a list of labels, not 'ant'"),
        ([[("ant",)], [], [], []], OptionError, r"text 0 should have \(label, score\) tuples"),
        ([[], [("ant", "bee")], [], []], OptionError, r"text 1 should have \(label, score\) tuples"),
        ([[], [("ant", float("nan"))], [], []], DataError, "text 1 has a score of NaN"),
        (np.zeros((4, 2)), OptionError, "label ids, texts × places"),
        (17, OptionError, "not int"),
    ],
)
def test_wrong_predictions_are_refused(predictions, error, message):
    with pytest.raises(error, match=message):
        evaluate(predictions, TRUTH)


def test_wrong_ids_and_scores_are_refused():
    with pytest.raises(DataError, match="NaN"):
        evaluate(sparse.csr_array([[np.nan, 1.0]]), [[1]])
    with pytest.raises(DataError, match="-2 is not a label id"):
        evaluate(np.asarray([[-2]]), [[1]])
    with pytest.raises(DataError, match="-1 is not a label id"):
        evaluate([[1]], [[-1]])
    with pytest.raises(DataError, match=r"label id 9 is out of range \(the training data has 3 labels"):
        evaluate([[9]], [[1]], train=([1, 2, 3], 3))
    with pytest.raises(OptionError, match="ambiguous"):
        evaluate([[1]], np.asarray([[1]]))


def test_wrong_options_are_refused():
    with pytest.raises(OptionError, match='"count" or "ignore"'):
        evaluate(PREDICTED, TRUTH, unseen="maybe")
    with pytest.raises(OptionError, match="needs the training data"):
        evaluate(PREDICTED, TRUTH, unseen="ignore")
    with pytest.raises(OptionError, match="train must be a Dataset or a pair"):
        evaluate(PREDICTED, TRUTH, train=3)
    with pytest.raises(OptionError, match="k must be"):
        evaluate(PREDICTED, TRUTH, k=0)


def test_nothing_to_evaluate():
    with pytest.raises(DataError, match="nothing to evaluate"):
        evaluate([], [])
    with pytest.raises(DataError, match="none of the 1 texts is left"):
        evaluate([["ant"]], [["yak"]], train=dataset(TRAIN), unseen="ignore")


# Output


def test_notes():
    found = evaluate([["ant", "ant"], []], [["ant"], ["ant"]], train=dataset(TRAIN))
    assert found.notes == [
        "Texts without any prediction: 1. They count as misses.",
        "No text has 5 predictions; missing places count as misses.",
        "Predictions that repeat a label of the same text: 1. They count as misses.",
    ]


def test_a_note_on_texts_that_differ():
    truth = dataset([["ant"], ["bee"]], texts=["a small one", "a yellow one"])
    same = dataset([["ant"], ["bee"]], texts=["a small one", "a yellow one"])
    swapped = dataset([["bee"], ["ant"]], texts=["a yellow one", "a small one"])
    without = dataset([["bee"], ["ant"]])
    differs = "Text 0 differs between predictions and truth: are the rows in the same order?"
    assert differs in evaluate(swapped, truth).notes
    assert differs not in evaluate(same, truth).notes + evaluate(without, truth).notes


def test_table_markdown_and_json():
    found = evaluate(PREDICTED, TRUTH, train=dataset(TRAIN), intervals=True, resamples=20)
    low, high = found.intervals["P@1"]
    lines = found.table().splitlines()
    assert lines[0].split() == ["%", "@1", "@3", "@5"]
    assert lines[1].startswith("P ") and f"50.00 [{low:.2f}, {high:.2f}]" in lines[1]
    assert len({len(line) for line in lines[:7]}) == 1  # aligned
    assert "texts: 4   labels in the truth: 5" in lines
    assert str(found) == found.table()
    assert found.to_markdown().splitlines()[1] == "| --- | ---: | ---: | ---: |"
    back = json.loads(json.dumps(found.to_json()))
    assert back["values"] == found.values
    assert back["intervals"]["P@1"] == [low, high]
    assert back["quantiles"][0]["contributions"].keys() == {"P@1", "P@3", "P@5"}
