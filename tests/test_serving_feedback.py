"""Feedback over HTTP: stored for the next update, and never in the model that is served."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from starlette.exceptions import HTTPException

import shortlist
from serving import InProcess, save_model
from shortlist.errors import DataError, OptionError
from shortlist.serving.app import App
from shortlist.serving.feedback import FeedbackFile

HEADERS = {"authorization": "Bearer secret", "content-type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("feedback") / "model")


@pytest.fixture
def server(folder, tmp_path):
    started = InProcess(folder, token="secret", feedback=tmp_path / "feedback.jsonl").ready()
    yield started
    started.close()


def send(server, headers=HEADERS, **fields):
    return server.request("POST", "/v1/feedback", content=json.dumps(fields), headers=headers)


def test_feedback_is_what_update_reads(server, folder, tmp_path):
    before = server.request("POST", "/v1/predict", content=b'{"text": "red"}', headers=HEADERS).json()["predictions"]
    answer = send(server, text="red clogs", right=["shoes"], wrong=["hat"])
    assert (answer.status_code, answer.json()) == (200, {"status": "stored"})
    assert send(server, text="blue", wrong=["red"]).status_code == 200
    file = tmp_path / "feedback.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["labels"] for line in lines] == [{"shoes": 1, "hat": 0}, {"red": 0}]
    assert file.stat().st_mode & 0o777 == 0o600
    after = server.request("POST", "/v1/predict", content=b'{"text": "red"}', headers=HEADERS).json()["predictions"]
    assert after == before
    changed = shortlist.load(folder).update(file)
    assert changed.facts["updates"] == [{"texts": 2, "pairs": 1, "new_labels": 0}]


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"text": "red", "right": ["shoe"]}, "Did you mean 'shoes'"),
        ({"text": "red", "right": ["sho*"]}, "Give labels, not names"),
        ({"text": "red"}, "names no label"),
        ({"text": " ", "right": ["shoes"]}, "text is empty"),
        ({"text": "red", "right": ["shoes"], "wrong": ["shoes"]}, "both right and wrong"),
        ({"text": "red " * 300, "right": ["shoes"]}, "limits are 256 words"),
        ({"text": "red", "right": "shoes"}, "Expected `array`"),
        ({"text": "red", "labels": ["shoes"]}, "unknown field `labels`"),
    ],
)
def test_bad_feedback_is_refused(server, tmp_path, fields, says):
    answer = send(server, **fields)
    assert answer.status_code == 422 and says in answer.json()["detail"]
    assert not (tmp_path / "feedback.jsonl").read_bytes()


def test_feedback_needs_a_token(server, folder, tmp_path):
    assert send(server, {"content-type": "application/json"}, text="red", right=["red"]).status_code == 401
    with pytest.raises(OptionError, match="needs a token"):
        App(folder, feedback=tmp_path / "other.jsonl")
    assert not (tmp_path / "other.jsonl").exists()
    with pytest.raises(DataError, match="cannot be written there: No such file or directory"):
        App(folder, token="secret", feedback=tmp_path / "no" / "folder.jsonl")


def test_feedback_is_off_by_default(folder):
    server = InProcess(folder, token="secret").ready()
    assert send(server, text="red", right=["red"]).status_code == 404
    assert "feedback" not in server.get("/v1/model", headers=HEADERS).json()
    assert "/v1/feedback" not in server.get("/openapi.json").json()["paths"]
    server.close()


def test_feedback_is_described(server):
    described = server.get("/openapi.json").json()["paths"]["/v1/feedback"]["post"]
    assert described["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/FeedbackRequest")
    assert {"200", "401", "422", "507"} <= set(described["responses"])
    assert server.get("/v1/model", headers=HEADERS).json()["feedback"] is True
    assert "/v1/feedback" in server.get("/docs").text


def test_a_full_file_and_a_full_disk_leave_whole_lines(tmp_path, monkeypatch):
    file = FeedbackFile(tmp_path / "file", max_bytes=20)
    file.append(b"0123456789\n")
    with pytest.raises(HTTPException, match="limit is 20"):
        file.append(b"0123456789\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, line: write(number, line[:3]))
    with pytest.raises(HTTPException, match="disk is full"):
        file.append(b"abcdef\n")

    def fail(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HTTPException, match="No space left"):
        file.append(b"abcdef\n")
    monkeypatch.undo()
    assert file.path.read_bytes() == b"0123456789\n"
    file.path.rename(tmp_path / "moved")
    file.append(b"next\n")
    assert file.path.read_bytes() == b"next\n"
    file.path.write_bytes(b"next\nhal")  # after a power failure
    file.append(b"last\n")
    file.append(b"all\n")
    assert file.path.read_bytes() == b"next\nhal\nlast\nall\n"


def test_two_servers_with_one_file(tmp_path, monkeypatch):
    """What one takes back because the disk is full is never a line of the other."""
    files = [FeedbackFile(tmp_path / "file") for _ in range(2)]
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, line: write(number, line if line[:1].isdigit() else line[:2]))

    def append(i):
        with suppress(HTTPException):
            files[i % 2].append(b"%d\n" % i if i % 3 else b"not stored\n")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(600)))
    assert sorted(map(int, files[0].path.read_text().split())) == [i for i in range(600) if i % 3]


def test_a_place_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="it is not a file"):  # opening it would wait for a reader
        FeedbackFile(tmp_path / "pipe")
    file = FeedbackFile(tmp_path / "new")
    file.path = tmp_path / "gone" / "new"
    with pytest.raises(HTTPException, match="cannot be opened"):
        file.append(b"line\n")
