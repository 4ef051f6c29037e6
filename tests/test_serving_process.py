"""The server as a process: signals, reloading under load, misbehaving clients, overload."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import shortlist
from serving import SECONDS, save_model, serving, until
from shortlist.serving import server
from shortlist.serving.app import App
from shortlist.serving.logs import Log

JSON = {"Content-Type": "application/json"}
SUCCESS, FAILURE = (f'shortlist_model_reloads_total{{outcome="{outcome}"}}' for outcome in ("success", "failure"))

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    return save_model(tmp_path / "model")


class Load:
    """Clients that send requests all the time, each over one connection, and keep the responses."""

    def __init__(self, served, clients=4):
        self.served, self.over = served, threading.Event()
        self.answers = []
        self.threads = [threading.Thread(target=self.ask) for _ in range(clients)]

    def ask(self):
        connection = self.served.connect()
        while not self.over.is_set():
            try:
                connection.request("POST", "/v1/predict", b'{"texts": ["shoes", "hat"], "k": 100}', JSON)
                answer = connection.getresponse()
                self.answers.append((answer.status, answer.read()))
            except (OSError, http.client.HTTPException) as error:
                self.answers.append((0, repr(error).encode()))
                connection.close()
        connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        for thread in self.threads:
            thread.join(SECONDS)

    def labels(self):
        """The set of labels in each response, in order of time."""
        assert {status for status, _ in self.answers} == {200}, [pair for pair in self.answers if pair[0] != 200][:3]
        rows = [json.loads(body)["predictions"] for _, body in self.answers]
        return [frozenset(p["label"] for row in rows for p in row) for rows in rows]


@pytest.mark.parametrize("how", ["signal", "watch"])
def test_reloading_fails_no_request(folder, how):
    with serving(folder, *(["--watch"] if how == "watch" else [])) as served, Load(served) as clients:
        until(lambda: len(clients.answers) > 20)
        save_model(folder, colours=("black", "white"))
        if how == "signal":
            served.process.send_signal(signal.SIGHUP)
        until(lambda: served.metric(SUCCESS) == 2)
        seen = len(clients.answers)
        until(lambda: len(clients.answers) > seen + 50)
        clients.__exit__()
    old, new = {"red", "blue", "green"}, {"black", "white"}
    labels = clients.labels()
    assert labels[0] >= old and labels[-1] >= new
    assert all(bool(found & old) != bool(found & new) for found in labels), "a response came from two models"


def replace_file(path, content):
    """Replace a file. (Writing into the old one would change memory that the server has mapped.)"""
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(content)
    beside.replace(path)


@pytest.mark.parametrize("how", ["signal", "watch"])
def test_a_damaged_model_does_not_replace_a_good_one(folder, how):
    with serving(folder, *(["--watch"] if how == "watch" else [])) as served, Load(served) as clients:
        victim = next(path for path in folder.iterdir() if path.suffix == ".safetensors")
        replace_file(victim, victim.read_bytes()[:-1] + b"?")
        if how == "signal":
            served.process.send_signal(signal.SIGHUP)
        until(lambda: served.metric(FAILURE) == 1)
        until(lambda: any(line["level"] == "error" for line in served.logged()))
        errors = [line for line in served.logged() if line["level"] == "error"]
        until(lambda: len(clients.answers) > 20)
        for path in save_model(folder.with_name("good"), colours=("black", "white")).iterdir():
            replace_file(folder / path.name, path.read_bytes())  # file by file, as rsync does
        if how == "signal":
            served.process.send_signal(signal.SIGHUP)
        until(lambda: served.metric(SUCCESS) == 2)
        assert served.predict(text="white hat", k=1)[1]["predictions"][0][0]["label"] in ("white", "hat")
        clients.__exit__()
    assert clients.labels()
    assert "the current model stays in use" in errors[0]["event"] and "Fetch it again" in errors[0]["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_in_flight_finish(folder, number):
    with serving(folder, batch_seconds=1.0) as served, ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(served.predict, text=f"red hat {i}") for i in range(20)]
        until(lambda: served.metric("shortlist_open_requests") == 20)
        served.process.send_signal(number)
        assert [answer.result(SECONDS)[0] for answer in answers] == [200] * 20
        assert served.process.wait(SECONDS) == 0
        with pytest.raises(OSError):
            served.call("GET", "/healthz")
    events = [line["event"] for line in served.logged() if line["event"] != "request"]
    assert events == ["listening", "model loaded", "stopping", "stopped"]


def test_a_stop_does_not_wait_for_a_model_to_load(folder):
    with serving(folder, reload_seconds=600) as served:
        served.process.send_signal(signal.SIGHUP)
        assert served.predict(text="red hat")[0] == 200
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(SECONDS) == 0


def test_drain_delay_reports_not_ready_first(folder):
    with serving(folder, "--drain-delay", "600") as served:
        served.process.send_signal(signal.SIGTERM)
        until(lambda: served.call("GET", "/readyz")[0] == 503)
        assert served.call("GET", "/healthz")[0] == 200
        assert served.predict(text="red hat")[0] == 200
        served.process.send_signal(signal.SIGTERM)  # the second one stops at once
        assert served.process.wait(SECONDS) == 0


def test_loaded_models_are_exempt_from_garbage_collection(folder, monkeypatch):
    """Otherwise, all requests wait for 50 ms and more whenever the collector looks at everything there is."""
    frozen = []
    monkeypatch.setattr(server.gc, "freeze", lambda: frozen.append(app.served.current))
    app = App(folder, log=Log(lambda data: None))

    async def serve_two_models(listening):
        running = asyncio.create_task((serving := server.Server(app)).serve(listening))
        while not frozen:
            await asyncio.sleep(0.01)
        app.served.request_reload()
        while len(frozen) < 2:
            await asyncio.sleep(0.01)
        serving.drain()
        await running

    asyncio.run(asyncio.wait_for(serve_two_models(server.listen("127.0.0.1", 0)), SECONDS))
    first, second = frozen
    assert first is not second and None not in frozen


def test_a_model_that_is_replaced_needs_no_garbage_collection(folder):
    gc.collect()
    gc.disable()
    try:
        model = shortlist.load(folder)
        model.warm_up()
        model.predict(["red hat"], explain=True)
        gone = weakref.ref(model)
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_overload_is_refused_not_lost(folder):
    limits = ("--max-concurrent", "8", "--max-per-client", "8")
    with serving(folder, *limits, batch_seconds=0.05) as served, ThreadPoolExecutor(80) as pool:
        before = served.memory()
        statuses = [status for status, _ in pool.map(lambda i: served.predict(text=f"hat {i}"), range(800))]
        assert set(statuses) == {200, 503}
        assert len(statuses) == 800 and statuses.count(200) >= 8
        assert served.predict(text="red hat")[0] == 200
        assert served.metric("shortlist_open_requests") == 0
        assert served.memory() < before + 50


def raw(served, *pieces):
    """Send raw bytes and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) as connection:
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(1 << 16):
                received += data
        except ConnectionError:
            pass
        return received


def refusal(received):
    """The status and the detail of a raw response with a problem document."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head, received[:500]
    return int(head.split()[1]), json.loads(body)["detail"]


def test_slow_and_endless_requests_are_cut_off(folder):
    head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with serving(folder, request_seconds=0.5, response_seconds=0.5) as served:
        for pieces in ((), (b"POST /v1/pre",), (head,), (head + b"content-length: 50\r\n\r\n", b'{"text"')):
            status, detail = refusal(raw(served, *pieces))
            assert status == 408 and "0.5 seconds" in detail
        endless = (b"x-filler: " + b"a" * 10_000 + b"\r\n" for _ in range(10_000))
        received = raw(served, b"GET /healthz HTTP/1.1\r\n", *endless)
        assert not received or refusal(received)[0] == 431  # lost if the connection was reset before it was read
        status, detail = refusal(raw(served, b"HELLO\r\n\r\n"))
        assert status == 400 and "HTTP" in detail
        # The same timeout holds for a connection that was used before.
        answered = raw(served, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"GET /heal")
        assert b" 200 OK" in answered and b" 408 " in answered
        assert served.predict(text="red hat")[0] == 200
        until(lambda: served.metric("shortlist_open_requests") == 0)


def test_a_client_that_does_not_read_its_responses(folder):
    body = json.dumps({"texts": ["red shoes"] * 1000, "k": 100}).encode()
    request = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request += b"content-length: %d\r\n\r\n" % len(body) + body
    with serving(folder, "--max-texts", "1000", response_seconds=0.5) as served:
        idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(4)]
        for connection in idle:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = served.memory()
        for connection in idle:
            for _ in range(5):
                connection.sendall(request)
        until(lambda: served.metric("shortlist_open_requests") == 0 and served.metric("shortlist_texts_total") > 0)
        assert served.predict(text="red hat")[0] == 200
        assert served.memory() < before + 50
        for connection in idle:
            connection.close()


def test_abuse_does_not_grow_memory(folder):
    def stream(kilobytes):
        yield b'{"text": "'
        for _ in range(kilobytes):
            yield b"a" * 1024
        yield b'"}'

    def abuse(i):
        bodies = [stream(20_000), b"x" * 3_000_000, b'{"texts": [' + b'"a",' * 200_000 + b'"a"]}', b"[" * 900_000]
        try:
            return served.call("POST", "/v1/predict", bodies[i % len(bodies)], JSON)[0]
        except ConnectionError:  # refused before the whole body was sent
            return 413

    with serving(folder) as served, ThreadPoolExecutor(8) as pool:
        list(pool.map(abuse, range(16)))
        before = served.memory()
        statuses = set(pool.map(abuse, range(160)))
        assert statuses <= {413, 422, 429, 503}
        assert served.memory() < before + 30
        assert served.predict(text="red hat")[0] == 200


def test_the_token_comes_from_the_environment_or_a_file(folder, tmp_path):
    (tmp_path / "token").write_text("from-a-file\n")
    for options, environment, token in (
        ((), "from-the-environment", "from-the-environment"),
        (("--token-file", str(tmp_path / "token")), None, "from-a-file"),
    ):
        with serving(folder, *options, token=environment) as served:
            assert served.call("GET", "/v1/model")[0] == 401
            assert served.call("GET", "/v1/model", headers={"Authorization": f"Bearer {token}"})[0] == 200
            assert token not in served.log.read_text()


def test_a_log_that_nobody_reads_does_not_block(folder):
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "shortlist", "serve", str(folder), "--port", "0", "--log-texts"]
    process = subprocess.Popen(command, stderr=writing)
    os.close(writing)
    try:
        with os.fdopen(reading) as log:
            port = int(json.loads(log.readline())["url"].rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
            body = json.dumps({"texts": ["red hat " + "x" * 500] * 100})
            ready = 0
            while ready < 20:  # twenty responses log a megabyte; a pipe holds 64 kB
                connection.request("POST", "/v1/predict", body, JSON)
                answer = connection.getresponse()
                answer.read()
                ready += answer.status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "--port", "0"], "there is no such model folder"),
        (["MODEL", "--port", "TAKEN"], "cannot listen on 127.0.0.1 port"),
        (["MODEL", "--port", "0", "--max-texts", "0"], "max_texts is 0"),
        (["MODEL", "--port", "0", "--token-file", "nowhere"], "the token cannot be read"),
        (["MODEL", "--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_startup_errors_exit_with_2(folder, arguments, says):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        known = {"MODEL": str(folder), "TAKEN": str(taken.getsockname()[1])}
        command = [sys.executable, "-m", "shortlist", "serve", *(known.get(given, given) for given in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
