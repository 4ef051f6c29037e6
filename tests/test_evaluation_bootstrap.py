"""Intervals, comparisons and frequency quantiles."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.evaluation import bootstrap, compare, evaluate
from shortlist.evaluation.metrics import PerText, find_hits, label_quantiles, measure, per_text

N_LABELS = 40


def problem(n_texts, seed=0, hit_rate=0.4):
    """True labels of random texts, and predictions whose first label is a hit at about this rate."""
    rng = np.random.default_rng(seed)
    truth = [rng.choice(N_LABELS, rng.integers(1, 5), replace=False).tolist() for _ in range(n_texts)]
    predictions = rng.permuted(np.tile(np.arange(N_LABELS), (n_texts, 1)), axis=1)[:, :5]
    for row, true in zip(predictions, truth, strict=True):
        if rng.random() < hit_rate:
            row[0] = true[0]
    return predictions, truth


TRAIN = (np.arange(N_LABELS) ** 2, 5000)


def test_intervals_contain_the_value_and_shrink_with_more_texts():
    widths = []
    for n_texts in (100, 1600):
        found = evaluate(*problem(n_texts), train=TRAIN, intervals=True, resamples=300)
        for name, (low, high) in found.intervals.items():
            assert low <= found[name] <= high, name
        low, high = found.intervals["P@1"]
        widths.append(high - low)
    assert 2 < widths[0] / widths[1] < 8  # sixteen times the texts: about a quarter of the width


def test_macro_f1_and_coverage_have_no_interval():
    found = evaluate(*problem(20), train=TRAIN, intervals=True, resamples=10)
    without = {name for name in found.values if name not in found.intervals}
    assert without == {f"{family}@{k}" for family in ("macro-F1", "coverage") for k in (1, 3, 5)}


def test_the_interval_of_a_mean_is_the_normal_one():
    rng = np.random.default_rng(5)
    score = rng.random(2000)
    low, high = bootstrap.percentile_interval(bootstrap.resample({"x": PerText(score)}, 2000, 0)["x"])
    margin = 1.96 * score.std() / np.sqrt(len(score))
    assert low == pytest.approx(score.mean() - margin, abs=0.1 * margin)
    assert high == pytest.approx(score.mean() + margin, abs=0.1 * margin)


def test_resampling_equals_measuring_the_drawn_texts():
    predictions, truth = problem(30)
    gains = 1 + np.arange(N_LABELS) / 7
    hits = find_hits(predictions, Ragged.from_lists(truth), 5, gains)
    resampled = bootstrap.resample(per_text(hits, (1, 3, 5)), 4, seed=9)
    rng = np.random.default_rng(9)
    for number in range(4):
        drawn = rng.integers(30, size=30)
        again = find_hits(predictions[drawn], Ragged.from_lists([truth[i] for i in drawn]), 5, gains)
        values = measure(again)
        for name, found in resampled.items():
            assert found[number] == pytest.approx(values[name]), name


def test_block_size_does_not_change_the_result(monkeypatch):
    metrics = {"x": PerText(np.arange(50.0)), "y": PerText(np.ones(50), np.arange(50.0))}
    whole = bootstrap.resample(metrics, 20, seed=1)
    monkeypatch.setattr(bootstrap, "MAX_COUNTS", 150)
    for name, values in bootstrap.resample(metrics, 20, seed=1).items():
        assert values == pytest.approx(whole[name])


def test_seed_decides():
    arguments = problem(50)
    one, same, other = (
        evaluate(*arguments, intervals=True, resamples=50, seed=seed).intervals["P@3"] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_texts_without_labels_give_ratio_metrics_of_zero():
    found = evaluate([[0], [1]], [[], []], train=TRAIN, intervals=True, resamples=10)
    assert found.intervals["PSP@1"] == (0.0, 0.0)


def test_resamples_must_be_positive():
    with pytest.raises(OptionError, match="resamples"):
        evaluate(*problem(5), intervals=True, resamples=0)


# Comparisons


def test_a_better_system_is_significantly_better():
    predictions, truth = problem(400, hit_rate=0.5)
    worse = predictions.copy()
    worse[::3, 0] = -1
    a, b = (evaluate(rows, truth, train=TRAIN) for rows in (predictions, worse))
    found = compare(a, b, resamples=300)
    for name in ("P@1", "N@5", "PSP@3", "R@1"):
        difference = found[name]
        assert difference.value == pytest.approx(a[name] - b[name])
        assert 0 < difference.low <= difference.value <= difference.high
        assert difference.p < 0.02
    back = compare(b, a, resamples=300)["P@1"]
    assert (back.value, back.low, back.high) == pytest.approx(
        (-found["P@1"].value, -found["P@1"].high, -found["P@1"].low)
    )


def test_a_system_does_not_differ_from_itself():
    a = evaluate(*problem(30), train=TRAIN)
    for difference in compare(a, a, resamples=50).differences.values():
        assert (difference.value, difference.low, difference.high, difference.p) == (0, 0, 0, 1)


def test_paired_intervals_are_narrower():
    predictions, truth = problem(300, hit_rate=0.5)
    worse = predictions.copy()
    worse[:9, 0] = -1
    a, b = (evaluate(rows, truth, intervals=True, resamples=300) for rows in (predictions, worse))
    paired = compare(a, b, resamples=300)["P@1"]
    low, high = a.intervals["P@1"]
    assert paired.high - paired.low < (high - low) / 2


@pytest.mark.slow
def test_p_values_are_rarely_small_without_a_difference():
    ps = []
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        predictions, truth = problem(60, seed)
        a, b = (evaluate(rng.permuted(predictions, axis=1), truth, k=1) for _ in range(2))
        ps.append(compare(a, b, resamples=100)["P@1"].p)
    assert np.mean(np.asarray(ps) < 0.1) < 0.25


def test_different_truth_or_metrics_are_refused():
    predictions, truth = problem(20)
    a = evaluate(predictions, truth)
    with pytest.raises(OptionError, match="same truth"):
        compare(a, evaluate(predictions[:19], truth[:19]))
    with pytest.raises(OptionError, match="no metric in common"):
        compare(a, evaluate(predictions, truth, k=2))


def test_comparison_as_table_markdown_and_json():
    predictions, truth = problem(20)
    found = compare(evaluate(predictions, truth, k=1), evaluate(predictions[:, ::-1], truth, k=1), resamples=20)
    assert found.table().splitlines()[0].split() == ["%", "difference", "95", "%", "interval", "p"]
    assert str(found) == found.table() and found.to_markdown().startswith("| % | difference |")
    back = json.loads(json.dumps(found.to_json()))
    assert back["differences"]["P@1"]["p"] == found["P@1"].p and back["texts"] == 20
    with pytest.raises(KeyError, match="was not compared"):
        found["coverage@1"]


# Quantiles


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 10_000))
def test_contributions_add_up_to_precision(n_texts, n_labels, seed):
    rng = np.random.default_rng(seed)
    predictions = rng.integers(-1, n_labels, (n_texts, 4))
    truth = [rng.integers(0, n_labels, rng.integers(0, 4)).tolist() for _ in range(n_texts)]
    frequencies = rng.integers(0, 5, n_labels)
    hits = find_hits(predictions, Ragged.from_lists(truth), 5)
    bins = label_quantiles(hits, frequencies, np.arange(n_labels), (1, 3, 5))
    values = measure(hits, (1, 3, 5))
    for k in (1, 3, 5):
        assert sum(one.contributions[f"P@{k}"] for one in bins) == pytest.approx(100 * values[f"P@{k}"])
    sizes = [one.labels for one in bins]
    assert sum(sizes) == n_labels and max(sizes) - min(sizes) <= 1
    means = [one.mean_frequency for one in bins]
    assert means == sorted(means, reverse=True)


def test_quantiles_by_hand():
    found = evaluate([[9], [8], [0], [5]], [[9], [8], [0], [1]], k=1, train=(np.arange(10), 45))
    assert [one.labels for one in found.quantiles] == [2] * 5
    assert [one.mean_frequency for one in found.quantiles] == [8.5, 6.5, 4.5, 2.5, 0.5]
    assert [one.contributions["P@1"] for one in found.quantiles] == [50, 0, 0, 0, 25]
    assert "most frequent" in found.table() and "rarest" in found.table()
