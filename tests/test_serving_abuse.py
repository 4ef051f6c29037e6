"""Clients that mean harm, or are careless: none of them may take the server's memory or shut out the others."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

import pytest

from serving import SECONDS, save_model, serving, until
from shortlist.serving import server

pytestmark = pytest.mark.slow

HOST = b"host: 127.0.0.1\r\n"
PREDICT = b"POST /v1/predict HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("abuse") / "model")


def connect(served, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS, source_address=(address, 0))


def predict_request(**fields):
    body = json.dumps(fields).encode()
    return PREDICT + b"content-length: %d\r\n\r\n" % len(body) + body


def send_until_refused(connection, pieces):
    """Send pieces until the server closes the connection; returns the number of bytes sent."""
    sent = 0
    try:
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


def test_a_connection_can_be_used_again_after_a_large_body_was_refused(folder):
    head = b"POST /v1/predict HTTP/1.1\r\n" + HOST + b"content-type: text/plain\r\n"
    body = b"a" * 300_000
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    last = b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
    with serving(folder) as served, connect(served) as connection:
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + chunks + last)
        answered = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert [answered.count(b"HTTP/1.1 " + status) for status in (b"415", b"200", b"")] == [2, 1, 3]


@pytest.mark.parametrize(
    "endless",
    [b"x-filler: " + b"a" * 10_000 + b"\r\n", b"a" * 10_000, b"a: b\r\n" * 1000],
    ids=["lines", "one line", "short lines"],
)
def test_trailers_count_as_headers(folder, endless):
    with serving(folder) as served:
        before = served.memory()
        with connect(served) as connection:
            connection.sendall(PREDICT + b"transfer-encoding: chunked\r\n\r\n8\r\n" + b'{"text":\r\n0\r\n')
            sent = send_until_refused(connection, (endless for _ in range(40_000_000 // len(endless))))
        assert sent < 20_000_000  # what the system's socket buffers hold
        assert served.memory() < before + 20


def test_trailers_are_allowed_and_ignored(folder):
    body = b'{"text": "red hat", "k": 1}'
    with serving(folder) as served, connect(served) as connection:
        connection.sendall(PREDICT + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        connection.sendall(b"%x\r\n" % len(body) + body + b"\r\n0\r\ncontent-type: text/plain\r\n\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")


def test_many_headers_are_refused(folder):
    with serving(folder) as served, connect(served) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"a:b\r\n" * 200 + b"\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 431 ")


def test_pipelined_requests_wait_for_their_turn(folder):
    one = b"GET /v1/model HTTP/1.1\r\n" + HOST + b"\r\n"
    with serving(folder) as served, connect(served) as connection:
        before = served.memory()
        connection.settimeout(0.2)
        sent = 0
        try:
            while sent < 5_000_000:
                sent += connection.send(one * 1000)
        except TimeoutError:  # the server reads no further while the answers are not read
            pass
        start = time.perf_counter()
        assert served.call("GET", "/healthz")[0] == 200
        assert time.perf_counter() - start < 1
        assert served.memory() < before + 20


def test_every_pipelined_request_is_answered_in_order(folder):
    with serving(folder) as served, connect(served) as connection:
        requests = [predict_request(text="red hat", k=1 + i % 5) for i in range(300)]
        connection.sendall(b"".join(requests) + b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")
        received = connection.makefile("rb").read()
    bodies = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    assert [len(body["predictions"][0]) for body in bodies[:-1]] == [1 + i % 5 for i in range(300)]
    assert bodies[-1] == {"status": "ok"}


def test_idle_connections_of_one_address_do_not_shut_out_others(folder):
    with serving(folder, "--max-concurrent", "16", "--max-per-client", "8") as served:
        idle = [connect(served, "127.0.0.2") for _ in range(100)]
        time.sleep(1.1)  # from now on they are idle, not new
        for path in ("/healthz", "/readyz", "/v1/model", "/"):
            assert served.call("GET", path)[0] == 200
        idle += [connect(served, "127.0.0.2") for _ in range(40)]
        until(lambda: served.metric("process_open_fds") < 100)
        with connect(served, "127.0.0.2") as another:  # idle connections make way for new ones of their address
            another.sendall(predict_request(text="red hat"))
            assert another.recv(100).startswith(b"HTTP/1.1 200 ")
        for connection in idle:
            connection.close()


def test_probes_are_answered_when_all_connections_are_busy(folder):
    limits = ("--max-concurrent", "2", "--max-per-client", "2")
    with serving(folder, *limits, batch_seconds=0.5) as served:
        busy = [connect(served) for _ in range(8)]
        for connection in busy:
            connection.sendall(predict_request(text="red hat") * 20)
        with connect(served) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
            assert probe.recv(100).startswith(b"HTTP/1.1 200 ")
        for connection in busy:
            connection.close()


def test_clients_that_do_not_read_their_answers_block_nobody(folder):
    request = predict_request(texts=["red shoes"] * 1000, k=100)
    with serving(folder, "--max-concurrent", "2", "--max-per-client", "2") as served:
        slow = []
        for _ in range(2):
            slow.append(connect(served))
            slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow[-1].settimeout(0.5)
            with suppress(TimeoutError):
                slow[-1].sendall(request * 30)  # more than the system's socket buffers hold
        start = time.monotonic()
        until(lambda: served.predict(text="red hat")[0] == 200)
        assert time.monotonic() - start < 15
        for connection in slow:
            connection.close()


def test_unread_answers_are_bounded(folder):
    request = predict_request(texts=["red shoes"] * 1000, k=100)
    with serving(folder, max_unsent=100_000) as served:
        before, slow = served.memory(), []
        for _ in range(4):
            slow.append(connect(served))
            slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow[-1].settimeout(0.5)
            with suppress(TimeoutError, ConnectionError):
                slow[-1].sendall(request * 30)  # more than the system's socket buffers hold
        until(lambda: any("did not read" in line["event"] for line in served.logged()))
        until(lambda: served.predict(text="red hat")[0] == 200)
        assert served.memory() < before + 30
        for connection in slow:
            connection.close()


def test_the_system_keeps_little_for_clients_that_do_not_read():
    """By default, it would take up to 4 MiB per connection, which nobody counts, and the server would fill it."""
    with (
        server.listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * server.UNSENT_BYTES  # Linux doubles it


def test_a_client_that_is_cut_off_is_not_a_bug(folder):
    with serving(folder, response_seconds=0.3) as served, connect(served) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        with suppress(TimeoutError, ConnectionError):
            connection.sendall(predict_request(texts=["red shoes"] * 1000, k=100) * 30)
        until(lambda: any("did not read" in line["event"] for line in served.logged()))
        assert served.predict(text="red hat")[0] == 200
        assert not [line for line in served.logged() if line["level"] == "error" or "traceback" in line]


def test_a_loopback_server_answers_to_local_names_only(folder):
    def status(served, host, path="/v1/model"):
        return served.call("GET", path, headers={"Host": host})

    with serving(folder) as served:
        for host in ("localhost", "127.0.0.1:8000", f"LOCALHOST:{served.port}", "[::1]:80", "127.3.2.1", "a.localhost"):
            assert status(served, host)[0] == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "evil.example:127", ""):
            code, body = status(served, host)
            assert code == 421 and "--allow-host" in json.loads(body)["detail"], host
        assert status(served, "evil.example", "/")[0] == 421
        assert status(served, "evil.example", "/healthz")[0] == 200
    with serving(folder, "--allow-host", "models.example") as served:
        assert status(served, "models.example")[0] == 200
        assert status(served, "evil.example")[0] == 421
    with serving(folder, token="secret") as served:  # a page of elsewhere does not know the token
        answer = served.call("GET", "/v1/model", headers={"Host": "models.example", "Authorization": "Bearer secret"})
        assert answer[0] == 200


def test_explaining_counts_every_word(folder):
    with serving(folder, "--max-texts", "100") as served:
        long = "red hat " * 50
        assert served.predict(text=long, explain=True)[0] == 200
        assert served.predict(texts=["red hat"] * 12, explain=True)[0] == 200
        status, body = served.predict(texts=[long] * 2, explain=True)
        assert status == 422 and "words" in body["detail"]
