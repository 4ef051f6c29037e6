"""The names under which a server on loopback answers.

A page in a browser on the same machine can reach such a server under a name of its own that resolves to 127.0.0.1 (DNS
rebinding). The Host header reveals this: it has that name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from starlette.exceptions import HTTPException


class HostCheck:
    """Refuses requests to names other than the local ones and those given."""

    def __init__(self, also: Iterable[str] = ()) -> None:
        self._also = {name.lower() for name in also}

    def __call__(self, host: bytes) -> None:
        name = host_name(host)
        if name not in self._also and not is_local(name):
            detail = (
                f"This server listens on a local address and does not answer to the name {name!r:.80}. Use 127.0.0.1 "
                "or localhost, or start the server with --allow-host NAME or with a token."
            )
            raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, detail)


@lru_cache(maxsize=64)
def host_name(host: bytes) -> str:
    """
    >>> host_name(b"LocalHost:8000"), host_name(b"[::1]:8000")
    ('localhost', '::1')
    """
    text = host.decode("latin-1").strip().lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0].removesuffix(".")


@lru_cache(maxsize=64)
def is_local(name: str) -> bool:
    """
    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("127.0.0.1.example.org")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
