"""A group of workers that send arrays to each other over TCP, and add them up in a fixed order.

Ray 2.60's own collectives on CPUs need torch (gloo), which training `astec` does not. Between a few workers, this is as
little traffic: of an array that is summed, each worker adds up one part, so that it is sent and received once in each
direction, whatever the number of workers. All sums are in the order of the workers: the same number of workers gives
the same bytes.

Connections are those of `multiprocessing`: both ends prove that they know the key of this training, which the driver
hands to the workers through Ray. What is sent are bytes of arrays. Nothing is unpickled.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import ShortlistError
from shortlist.training.group import Group


class WorkerLostError(ShortlistError):
    """Another worker of the group ended or cannot be reached."""


class TcpGroup(Group):
    """A connection to every other worker. `listen` first, then `connect` with the addresses of all."""

    def __init__(self, rank: int, size: int, host: str, key: bytes) -> None:
        self.rank, self.size, self._key = rank, size, key
        self._listener = Listener((host, 0), backlog=size, authkey=key)
        self._peers: dict[int, Connection] = {}
        self._senders = ThreadPoolExecutor(max(size - 1, 1), "send")
        self.bytes_sent, self.seconds_waited = 0, 0.0

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    def connect(self, addresses: list[tuple[str, int]]) -> None:
        """Connect to the workers before this one, and wait for those behind it."""
        try:
            for rank in range(self.rank):
                peer = Client(addresses[rank], authkey=self._key)
                peer.send_bytes(self.rank.to_bytes(4, "little"))
                self._peers[rank] = peer
            while len(self._peers) < self.size - 1:
                try:
                    peer = self._listener.accept()
                except AuthenticationError:
                    continue  # somebody else
                self._peers[int.from_bytes(peer.recv_bytes(4), "little")] = peer
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        self._listener.close()
        for peer in self._peers.values():
            own = socket.socket(fileno=peer.fileno())
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # every message is waited for
            own.detach()

    def sum(self, array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)
        bounds = [rank * len(flat) // self.size for rank in range(self.size + 1)]
        parts = [flat[begin:end] for begin, end in pairwise(bounds)]
        sending = [self._send(rank, parts[rank]) for rank in self._peers]
        own = parts[self.rank]
        received = {rank: self._receive_into(rank, np.empty_like(own)) for rank in sorted(self._peers)}
        total = np.zeros_like(own)
        for rank in range(self.size):
            total += own if rank == self.rank else received[rank]
        self._finish(sending)
        sending = [self._send(rank, total) for rank in self._peers]
        result = np.empty_like(flat)
        result[bounds[self.rank] : bounds[self.rank + 1]] = total
        for rank in sorted(self._peers):
            self._receive_into(rank, result[bounds[rank] : bounds[rank + 1]])
        self._finish(sending)
        return result.reshape(array.shape)

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        sending = [self._send_array(rank, array) for rank in self._peers]
        arrays = [array if rank == self.rank else self._receive_array(rank) for rank in range(self.size)]
        self._finish(sending)
        return arrays

    def collect(self, array: np.ndarray) -> list[np.ndarray]:
        if self.rank:
            self._finish([self._send_array(0, array)])
            return []
        return [array if rank == 0 else self._receive_array(rank) for rank in range(self.size)]

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._senders.shutdown(wait=False)

    def _send(self, rank: int, *arrays: np.ndarray) -> Future[None]:
        """Send in the background: two workers that send much to each other at once would wait forever."""

        def send() -> None:
            for array in arrays:
                self._peers[rank].send_bytes(as_bytes(array))

        self.bytes_sent += sum(array.nbytes for array in arrays)
        return self._senders.submit(send)

    def _send_array(self, rank: int, array: np.ndarray) -> Future[None]:
        header = msgspec.json.encode([array.dtype.str, array.shape])
        return self._send(rank, np.frombuffer(header, np.uint8), np.ascontiguousarray(array).reshape(-1))

    def _finish(self, sending: list[Future[None]]) -> None:
        try:
            for future in sending:
                future.result()
        except OSError as error:
            raise self._lost(error) from None

    def _receive_into(self, rank: int, array: np.ndarray) -> np.ndarray:
        try:
            with self._waiting(rank) as peer:
                peer.recv_bytes_into(as_bytes(array))
        except (OSError, EOFError) as error:
            raise self._lost(error, rank) from None
        return array

    def _receive_array(self, rank: int) -> np.ndarray:
        try:
            with self._waiting(rank) as peer:
                dtype, shape = msgspec.json.decode(peer.recv_bytes(), type=tuple[str, list[int]])
        except (OSError, EOFError) as error:
            raise self._lost(error, rank) from None
        flat = np.empty(int(np.prod(shape)), dtype)
        return self._receive_into(rank, flat).reshape(shape)

    @contextmanager
    def _waiting(self, rank: int) -> Iterator[Connection]:
        """The connection to a worker. The time that this worker waits for it counts: see `slowest`."""
        start = time.perf_counter()
        try:
            yield self._peers[rank]
        finally:
            self.seconds_waited += time.perf_counter() - start

    def _lost(self, error: Exception, rank: Any = None) -> WorkerLostError:
        other = "another worker" if rank is None else f"worker {rank}"
        return WorkerLostError(f"worker {self.rank} lost {other}: {error or type(error).__name__}")


def as_bytes(array: np.ndarray) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(bytearray())
