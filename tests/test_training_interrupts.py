"""Signals between the epochs of training: what is saved, and what is said."""

from __future__ import annotations

import os
import signal

import pytest

import shortlist
from shortlist.errors import Stopped
from shortlist.training.checkpoints import FACTS
from shortlist.training.interrupts import stopping
from shortlist.training.phases import candidates

NUMBERS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
SMALL = {"embedding_dim": 16, "n_surrogate_epochs": 2, "n_epochs": 1, "threads": 1}


@NUMBERS
@pytest.mark.parametrize(
    ("checkpoint_dir", "files", "message"),
    [
        ("", [], "nothing is saved, because there was no checkpoint_dir"),
        ("here", [], "stopped before anything was learnt"),
        ("here", [FACTS], "saved in .*here. To continue, rerun with --resume"),
    ],
)
def test_what_is_kept(tmp_path, number, checkpoint_dir, files, message):
    before = signal.getsignal(number)
    for name in files:
        (tmp_path / "here" / "surrogate" / "state").mkdir(parents=True)
        (tmp_path / "here" / "surrogate" / "state" / name).touch()
    with pytest.raises(Stopped, match=message), stopping(checkpoint_dir and str(tmp_path / checkpoint_dir)):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


@NUMBERS
def test_what_a_library_makes_of_the_interrupt(number):
    """NumPy once said "Cannot compare structured arrays", and the process ended with a traceback."""
    with pytest.raises(Stopped, match="nothing is saved"), stopping(""):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise TypeError("Cannot compare structured arrays") from None


def test_other_errors_stay_as_they_are():
    with pytest.raises(TypeError, match="unlike"), stopping(""):
        raise TypeError("unlike")


@pytest.mark.slow
@NUMBERS
def test_between_two_phases(tmp_path, monkeypatch, number):
    data = [(f"{kind} {thing} {i}", [thing]) for i in range(6) for kind in ("red", "old") for thing in "abcdef"]
    options = {**SMALL, "checkpoint_dir": str(tmp_path / "c")}
    expected = shortlist.train(data, "astec", **SMALL)

    def interrupted(build):
        os.kill(os.getpid(), number)

    with monkeypatch.context() as patched:
        patched.setattr(candidates, "candidates", interrupted)
        with pytest.raises(Stopped, match="To continue, rerun with --resume"):
            shortlist.train(data, "astec", **options)
    resumed = shortlist.train(data, "astec", **options, resume=True)
    assert [str(one) for one in resumed.predict("red a")] == [str(one) for one in expected.predict("red a")]
