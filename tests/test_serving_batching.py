"""The batcher: waiting requests share a batch, large requests let small ones through, one bad text fails alone."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from shortlist.serving.batching import Batcher


@dataclass(frozen=True)
class Upper:
    """Predicts the upper-case text. `gate` delays it; `calls` records the texts of each call."""

    name: str = ""
    calls: list = field(default_factory=list, compare=False)
    gate: threading.Event | None = field(default=None, compare=False)

    def __call__(self, texts):
        if self.gate is not None:
            assert self.gate.wait(10)
        self.calls.append(list(texts))
        if "bad" in texts:
            raise RuntimeError("a bad text")
        return [[text.upper()] for text in texts]


def run(scenario, **options):
    """Run a scenario with a batcher and stop its worker."""

    async def inside():
        batcher = Batcher(**options)
        try:
            return await asyncio.wait_for(scenario(batcher), 20)
        finally:
            batcher.close()

    return asyncio.run(inside())


def test_a_single_request_is_predicted_at_once():
    upper = Upper()
    assert run(lambda batcher: batcher.predict(["a", "b"], upper)) == [["A"], ["B"]]
    assert upper.calls == [["a", "b"]]


def test_requests_that_arrive_during_a_batch_form_the_next_one():
    upper = Upper(gate=threading.Event())
    sizes = []

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.predict(["first"], upper))
        while not sizes:
            await asyncio.sleep(0)
        others = [asyncio.ensure_future(batcher.predict([f"t{i}"], upper)) for i in range(10)]
        while batcher.n_waiting < 10:
            await asyncio.sleep(0)
        upper.gate.set()
        return await asyncio.gather(first, *others)

    answers = run(scenario, on_batch=sizes.append)
    assert answers == [[["FIRST"]], *([[f"T{i}"]] for i in range(10))]
    assert sizes == [1, 10]
    assert upper.calls == [["first"], [f"t{i}" for i in range(10)]]


def test_a_large_request_is_split_and_lets_small_ones_through():
    upper = Upper()
    texts = [f"t{i}" for i in range(10)]

    async def scenario(batcher):
        return await asyncio.gather(batcher.predict(texts, upper), batcher.predict(["small"], upper))

    large, small = run(scenario, max_texts=4)
    assert large == [[text.upper()] for text in texts] and small == [["SMALL"]]
    assert upper.calls == [texts[:4], ["small", *texts[4:7]], texts[7:]]


def test_heavier_texts_form_smaller_batches():
    upper = Upper()
    run(lambda batcher: batcher.predict([*"abc"], upper, weight=4), max_texts=8)
    assert upper.calls == [["a", "b"], ["c"]]
    heaviest = Upper()
    run(lambda batcher: batcher.predict([*"ab"], heaviest, weight=100), max_texts=8)
    assert heaviest.calls == [["a"], ["b"]]


def test_different_options_are_separate_calls():
    one, other = Upper("one"), Upper("other")

    async def scenario(batcher):
        return await asyncio.gather(*(batcher.predict([f"{i}"], (one, other)[i % 2]) for i in range(6)))

    assert run(scenario) == [[[f"{i}"]] for i in range(6)]
    assert one.calls == [["0", "2", "4"]] and other.calls == [["1", "3", "5"]]


def test_one_bad_text_fails_alone():
    upper = Upper()

    async def scenario(batcher):
        requests = [batcher.predict([text], upper) for text in ("a", "bad", "b")]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        return answers, await batcher.predict(["after"], upper)

    (a, bad, b), after = run(scenario)
    assert (a, b, after) == ([["A"]], [["B"]], [["AFTER"]])
    assert isinstance(bad, RuntimeError)


def test_no_texts_cause_no_call():
    upper = Upper()
    assert run(lambda batcher: batcher.predict([], upper)) == []
    assert upper.calls == []


def test_a_cancelled_request_is_not_predicted():
    upper = Upper(gate=threading.Event())

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.predict(["first"], upper))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(batcher.predict(["second"], upper))
        await asyncio.sleep(0)
        second.cancel()
        upper.gate.set()
        assert await first == [["FIRST"]]
        with pytest.raises(asyncio.CancelledError):
            await second
        return await batcher.predict(["third"], upper)

    assert run(scenario) == [["THIRD"]]
    assert upper.calls == [["first"], ["third"]]
