"""The metrics against napkinXC and against slow versions."""

from __future__ import annotations

import math

import napkinxc.metrics as napkin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.evaluation.metrics import check_k, find_hits, measure, sort_unique
from shortlist.kernels import metrics as kernels
from shortlist.kernels.threads import use_threads

CLOSE = {"rel": 1e-9, "abs": 1e-9}


def as_array(rows, width):
    array = np.full((len(rows), width), -1, np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array


@st.composite
def problems(draw):
    """Ranked predictions without repeats, true labels, inverse propensities and a k; rows may be empty."""
    n_labels = draw(st.integers(1, 12))
    n_texts = draw(st.integers(1, 8))
    label = st.integers(0, n_labels - 1)
    rows = st.lists(label, unique=True, max_size=n_labels)
    predictions = draw(st.lists(rows, min_size=n_texts, max_size=n_texts))
    truth = draw(st.lists(rows, min_size=n_texts, max_size=n_texts))
    gains = draw(st.lists(st.floats(1, 50), min_size=n_labels, max_size=n_labels))
    return predictions, truth, np.asarray(gains), draw(st.integers(1, 15))


def ours(predictions, truth, k, gains=None):
    width = max([len(row) for row in predictions] + [1])
    hits = find_hits(as_array(predictions, width), Ragged.from_lists(truth), k, gains)
    return measure(hits, range(1, k + 1))


def family(values, name):
    return np.asarray([value for key, value in values.items() if key.split("@")[0] == name])


def slow(predictions, truth, k, gains):
    """Every metric at k, one text and one label at a time."""
    n = len(truth)
    totals = dict.fromkeys(["P", "N", "R", "F1"], 0.0)
    psp = psp_best = psn = psn_best = 0.0
    for row, true in zip(predictions, truth, strict=True):
        correct = [label in true for label in row[:k]]
        c, t = sum(correct), len(true)
        totals["P"] += c / k
        if t:
            totals["R"] += c / t
        if c:
            totals["F1"] += 2 / (k / c + t / c)
        ideal = sum(1 / math.log2(i + 2) for i in range(min(k, t)))
        if ideal:
            totals["N"] += sum(1 / math.log2(i + 2) for i, hit in enumerate(correct) if hit) / ideal
            gained = [gains[label] * hit for label, hit in zip(row, correct, strict=False)]
            best = sorted((gains[label] for label in true), reverse=True)[:k]
            psp, psp_best = psp + sum(gained) / k, psp_best + sum(best) / k
            psn += sum(g / math.log2(i + 2) for i, g in enumerate(gained)) / ideal
            psn_best += sum(g / math.log2(i + 2) for i, g in enumerate(best)) / ideal
    values = {name: total / n for name, total in totals.items()}
    values["PSP"] = psp / psp_best if psp_best else 0.0
    values["PSN"] = psn / psn_best if psn_best else 0.0
    predicted = [set(row[:k]) for row in predictions]
    true_labels = {label for row in truth for label in row}
    found = {label for row, true in zip(predicted, truth, strict=True) for label in row & set(true)}
    values["coverage"] = len(found) / len(true_labels) if true_labels else 0.0
    scores = []
    for label in true_labels.union(*predicted):
        both = sum(label in row and label in true for row, true in zip(predicted, truth, strict=True))
        either = sum(label in row for row in predicted) + sum(label in true for true in truth)
        scores.append(2 * both / either)
    values["macro-F1"] = sum(scores) / len(scores) if scores else 0.0
    return {f"{name}@{k}": value for name, value in values.items()}


@given(problems())
def test_all_metrics_equal_their_slow_versions(problem):
    predictions, truth, gains, k = problem
    values = ours(predictions, truth, k, gains)
    for one in range(1, k + 1):
        for name, value in slow(predictions, truth, one, gains).items():
            assert values[name] == pytest.approx(value, **CLOSE), name


@given(problems())
def test_agrees_with_napkinxc(problem):
    predictions, truth, gains, k = problem
    values = ours(predictions, truth, k, gains)
    theirs = {
        "P": napkin.precision_at_k(truth, predictions, k=k),
        "N": napkin.ndcg_at_k(truth, predictions, k=k),
        "R": napkin.recall_at_k(truth, predictions, k=k),
    }
    if any(truth):
        theirs["PSP"] = napkin.psprecision_at_k(truth, predictions, gains, k=k)
        theirs["PSN"] = napkin.psndcg_at_k(truth, predictions, gains, k=k)
        theirs["coverage"] = napkin.coverage_at_k(truth, predictions, k=k)
    for name, expected in theirs.items():
        assert family(values, name) == pytest.approx(expected, **CLOSE), name


@given(problems())
def test_macro_f1_agrees_with_napkinxc_on_names(problem):
    predictions, truth, _, _ = problem
    if not any(truth):
        return  # napkinXC takes the largest of no labels
    named = [[[f"label {one}" for one in row] for row in rows] for rows in (truth, predictions)]
    expected = napkin.macro_f1_measure_at_k(*named)  # always 1 to 5, whatever k it is given
    assert family(ours(predictions, truth, 5), "macro-F1") == pytest.approx(expected, **CLOSE)


def test_macro_f1_of_ids_ignores_labels_that_never_occur_unlike_napkinxc():
    truth, predictions = [[0], [7]], [[0], [3]]
    expected = napkin.macro_f1_measure_at_k(truth, predictions)[0]
    assert expected == pytest.approx(1 / 8)  # ids 0 to 7, of which 1, 2, 4, 5 and 6 occur nowhere
    assert ours(predictions, truth, 1)["macro-F1@1"] == pytest.approx(1 / 3)  # labels 0, 3 and 7


def test_macro_f1_takes_any_k_unlike_napkinxc():
    truth, predictions = [["a"], ["b"]], [["b", "a"], ["a", "c"]]
    assert len(napkin.macro_f1_measure_at_k(truth, predictions, k=2)) == 5
    assert family(ours([[1, 0], [0, 2]], [[0], [1]], 7), "macro-F1").shape == (7,)


def test_macro_f1_without_a_miss_is_one_unlike_napkinxc():
    with pytest.raises(ValueError, match="empty"):
        napkin.macro_f1_measure_at_k([[0]], [[0]])
    assert ours([[0]], [[0]], 1)["macro-F1@1"] == 1.0


@given(problems())
def test_f1_agrees_with_napkinxc_if_k_labels_are_predicted(problem):
    predictions, truth, _, _ = problem
    k = min(len(row) for row in predictions)
    if k == 0:
        return
    expected = napkin.samples_f1_measure(truth, [row[:k] for row in predictions])
    assert ours(predictions, truth, k)[f"F1@{k}"] == pytest.approx(expected, **CLOSE)


def test_f1_differs_from_napkinxc_if_fewer_are_predicted():
    truth, predictions = [[4]], [[4]]
    assert napkin.samples_f1_measure(truth, predictions) == 1.0
    assert ours(predictions, truth, 3)["F1@3"] == pytest.approx(0.5)  # P@3 = 1/3, R@3 = 1


def test_a_repeated_prediction_counts_once_unlike_napkinxc():
    truth, predictions = [[4, 5]], [[4, 4, 5]]
    assert napkin.precision_at_k(truth, predictions, k=3)[2] == 1.0
    values = ours(predictions, truth, 3)
    assert values["P@2"] == 0.5
    assert values["P@3"] == pytest.approx(2 / 3)
    assert values["macro-F1@2"] == pytest.approx(0.5)  # the repeat is no false positive of label 4 either


def test_repeated_true_labels_count_once():
    assert ours([[1]], [[1, 1]], 1) == ours([[1]], [[1]], 1)
    assert napkin.recall_at_k([[1, 1]], [[1]], k=1)[0] == 0.5


def test_without_true_labels_all_metrics_are_zero_unlike_napkinxc():
    with np.errstate(invalid="ignore"):
        assert np.isnan(napkin.psprecision_at_k([[]], [[1]], np.ones(2), k=1)).all()
    assert set(ours([[1]], [[]], 1, np.ones(2)).values()) == {0.0}


def test_no_predictions_and_no_true_labels():
    assert set(ours([[]], [[]], 3, np.zeros(0)).values()) == {0.0}


def test_an_empty_place_is_a_miss():
    hits = find_hits(np.asarray([[-1, 2, -1]]), Ragged.from_lists([[2]]), 3)
    values = measure(hits, (1, 2, 3))
    assert (values["P@1"], values["P@2"], values["R@3"]) == (0, 0.5, 1)


def test_perfect_predictions_score_one():
    values = ours([[3, 1], [2]], [[1, 3], [2]], 5, np.asarray([1.0, 2, 3, 4]))
    for name in ("N", "PSP", "PSN", "R", "macro-F1", "coverage"):
        assert values[f"{name}@5"] == pytest.approx(1), name


def test_propensity_scored_metrics_normalise_over_all_texts():
    # Text 0 is worth 10 and missed, text 1 is worth 1 and hit: 1 / 11, not the mean of 0 and 1.
    assert ours([[1], [1]], [[0], [1]], 1, np.asarray([10.0, 1.0]))["PSP@1"] == pytest.approx(1 / 11)


@pytest.mark.parametrize("k", [0, (), (1, -3), 2.5, (1, 2.5)])
def test_wrong_k_is_refused(k):
    with pytest.raises(OptionError):
        check_k(k)


def test_k_is_sorted_without_duplicates():
    assert check_k([5, 1, np.int64(5)]) == (1, 5)
    assert check_k(3) == (3,)


@given(st.lists(st.lists(st.integers(0, 5), max_size=20), max_size=6))
def test_sort_unique(rows):
    unique = sort_unique(Ragged.from_lists(rows))
    assert [unique.row(i).tolist() for i in range(len(unique))] == [sorted(set(row)) for row in rows]


@pytest.mark.parametrize("n", [0, 1, 24, 25, 26, 999, 5000])
def test_long_rows_are_sorted_whatever_their_order(n):
    rng = np.random.default_rng(n)
    up = np.arange(n)
    rows = [up, up[::-1], np.zeros(n), up % 3, np.append(up[::2], up[1::2][::-1]), rng.integers(-(2**31), 2**31, n)]
    rows = Ragged(n * np.arange(len(rows) + 1), np.concatenate(rows).astype(np.int32))
    values, is_first = rows.values.copy(), np.empty(len(rows.values), np.bool_)
    kernels.sort_rows(rows.indptr, values, is_first)
    for i in range(len(rows)):
        distinct, first = np.unique(values[i * n : (i + 1) * n], return_index=True)
        assert np.array_equal(values[i * n : (i + 1) * n], np.sort(rows.row(i)))
        assert np.array_equal(np.flatnonzero(is_first[i * n : (i + 1) * n]), first) and len(distinct) == len(first)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(-3, 3)), max_size=9), max_size=6),
    st.integers(1, 7),
)
def test_top_of_rows_is_a_stable_sort(rows, width):
    pairs = Ragged.from_lists([[label for label, _ in row] for row in rows])
    scores = np.asarray([score for row in rows for _, score in row], np.float64)
    top = np.empty((len(rows), width), np.int32)
    kernels.top_of_rows(pairs.indptr, pairs.values, scores, top)
    expected = [[label for label, _ in sorted(row, key=lambda pair: -pair[1])][:width] for row in rows]
    assert top.tolist() == as_array(expected, width).tolist()


def test_threads_do_not_change_the_result():
    rng = np.random.default_rng(3)
    truth = Ragged.from_lists([rng.integers(0, 50, rng.integers(0, 9)).tolist() for _ in range(500)])
    predictions, gains = rng.integers(-1, 50, (500, 5)), rng.random(50) + 1
    with use_threads(1):
        one = measure(find_hits(predictions, truth, 5, gains))
    assert measure(find_hits(predictions, truth, 5, gains)) == one
