"""Limits on the size of requests and on the number in flight: they bound the memory that clients can use."""

from __future__ import annotations

from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from shortlist.errors import OptionError
from shortlist.serving.problems import busy

CHARACTERS_PER_WORD = 32  # bounds texts without spaces
CONNECTIONS_PER_REQUEST = 4  # connections may be idle


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    max_body        bytes per request body
    max_texts       texts per request; with explanations, their words count, because each is one more text to score
    max_words       words per text (and 32 times as many characters)
    max_concurrent  predict requests in flight, over all clients
    max_per_client  predict requests in flight from one address, so that one client cannot lock out the others
    max_slowdown    small requests are refused while they take more than this many times as long as alone, unless few
                    are in flight
    """

    max_body: int = 1 << 20
    max_texts: int = 1000
    max_words: int = 256
    max_concurrent: int = 256
    max_per_client: int = 128
    max_slowdown: int = 4

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise OptionError(f"{field.name} is {getattr(self, field.name)}; it must be at least 1.")

    @property
    def max_characters(self) -> int:
        return CHARACTERS_PER_WORD * self.max_words

    @property
    def max_connections(self) -> int:
        return CONNECTIONS_PER_REQUEST * self.max_concurrent

    @property
    def max_texts_in_flight(self) -> int:
        return max(2 * self.max_texts, self.max_concurrent)

    @property
    def max_connections_per_client(self) -> int:
        return CONNECTIONS_PER_REQUEST * self.max_per_client

    def check_explained(self, n_texts: int, n_words: int) -> None:
        """Refuse too many words to explain; a text alone is always accepted."""
        if n_words > self.max_texts and n_texts > 1:
            detail = (
                f"The request has {n_words:,} words to explain; the limit is {self.max_texts:,}. Split the texts into "
                "several requests."
            )
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)

    def check_texts(self, texts: list[Any]) -> None:
        """Refuse too many texts (or rows of features), or a text that is too long: of fields, all of them together."""
        if len(texts) > self.max_texts:
            limit = f"the limit is {self.max_texts:,}"
            detail = f"The request has {len(texts):,} texts; {limit}. Split them into several requests."
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        for i, one in enumerate(texts):
            text = " ".join(filter(None, one.values())) if isinstance(one, dict) else one
            # A text of 2n - 1 characters has at most n words: most texts need no counting.
            if not isinstance(text, str) or len(text) < 2 * self.max_words:
                continue
            n_words = len(text.split())
            if n_words > self.max_words or len(text) > self.max_characters:
                limit = f"{self.max_words:,} words and {self.max_characters:,} characters"
                detail = (
                    f"Text {i} has {n_words:,} words and {len(text):,} characters; the limits are {limit}. Shorten it."
                )
                raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


class Admission:
    """Counts the requests and texts in flight, and refuses those over the limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = self.texts = 0
        self._per_client: dict[str, int] = {}

    def add_request(self, client: str) -> None:
        """Admit a request, before its body is read."""
        from_client = self._per_client.get(client, 0)
        if self.requests >= self.limits.max_concurrent:
            raise busy(f"{self.requests:,} requests are in flight, the server's limit. Retry in a second.")
        if from_client >= self.limits.max_per_client:
            raise busy(
                f"{from_client:,} requests from your address are in flight, the limit per client. Wait for responses "
                "before you send more, or put several texts into one request.",
                HTTPStatus.TOO_MANY_REQUESTS,
            )
        self.requests += 1
        self._per_client[client] = from_client + 1

    def add_texts(self, number: int) -> None:
        """Admit the texts of a request."""
        if self.texts + number > self.limits.max_texts_in_flight:
            raise busy(
                f"{self.texts:,} texts are waiting; {number:,} more would exceed the server's limit. Retry in a second "
                "or send fewer texts per request."
            )
        self.texts += number

    def release(self, client: str, n_texts: int) -> None:
        """Call this when a request is predicted, or refused. Its response may still have to be sent."""
        self.requests -= 1
        self.texts -= n_texts
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]
