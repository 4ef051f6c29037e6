"""How much the server takes on: sizes of a request, requests at a time. So clients can claim only so much memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http import HTTPStatus

from shortlist.errors import OptionError
from shortlist.serving.problems import Problem, too_busy

CHARACTERS_A_WORD = 32  # some scripts have no spaces, some texts no words: their length is bounded, too
WEIGHT_OF_EXPLAINED = 8  # a text is scored again without each of its words, of which there are few
CONNECTIONS_A_REQUEST = 4  # connections may be open without asking anything


@dataclass(frozen=True)
class Limits:
    """The limits of one server.

    max_body        bytes of a request's body
    max_texts       texts of a request
    max_words       words of a text (and 32 times as many characters)
    max_concurrent  requests for predictions that are open at a time, over all clients
    max_per_client  the same from one address, so that one client alone cannot shut out the others
    """

    max_body: int = 1 << 20
    max_texts: int = 1000
    max_words: int = 256
    max_concurrent: int = 256
    max_per_client: int = 128

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise OptionError(f"{field.name} is {getattr(self, field.name)}; it must be at least 1")

    @property
    def max_characters(self) -> int:
        return CHARACTERS_A_WORD * self.max_words

    @property
    def max_connections(self) -> int:
        return CONNECTIONS_A_REQUEST * self.max_concurrent

    @property
    def max_open_texts(self) -> int:
        """Texts of all open requests together: what a queue may hold that is still answered soon."""
        return max(2 * self.max_texts, self.max_concurrent)

    def most_texts(self, weight: int) -> int:
        """How many texts of a request, if each is so many times the usual work."""
        return max(self.max_texts // weight, 1)

    def check_texts(self, texts: list[str], weight: int = 1) -> None:
        """Refuse too many texts (fewer where each is more work), or one with too many words."""
        most = self.most_texts(weight)
        if len(texts) > most:
            kind = " with explanations" if weight > 1 else ""
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"there are {len(texts):,} texts; this server takes {most:,}{kind} a request. "
                "Send them in several requests.",
            )
        for i, text in enumerate(texts):
            # A text of 2·n − 1 characters has at most n words: most texts need no counting.
            if len(text) >= 2 * self.max_words:
                self._check_length(i, text)

    def _check_length(self, i: int, text: str) -> None:
        words = len(text.split())
        if words > self.max_words or len(text) > self.max_characters:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"text {i} has {words:,} words and {len(text):,} characters; this server takes texts of "
                f"{self.max_words:,} words and {self.max_characters:,} characters. Send the part that matters.",
            )


class Admission:
    """Counts what is open and turns away what would be too much."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = self.texts = 0
        self._of_client: Counter[str] = Counter()

    @contextmanager
    def request(self, client: str) -> Iterator[None]:
        """A place for a request, from before its body is read until its answer is sent."""
        if self.requests >= self.limits.max_concurrent:
            raise too_busy(f"{self.requests:,} requests are open, as many as this server takes. Try again in a second.")
        if self._of_client[client] >= self.limits.max_per_client:
            raise too_busy(
                f"{self.limits.max_per_client:,} requests from your address are open, as many as this server takes "
                "from one. Wait for answers before you send more, or send several texts in one request.",
                HTTPStatus.TOO_MANY_REQUESTS,
            )
        self.requests += 1
        self._of_client[client] += 1
        try:
            yield
        finally:
            self.requests -= 1
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    @contextmanager
    def texts_of_request(self, number: int) -> Iterator[None]:
        """Places for the texts of a request that has been read."""
        if self.texts + number > self.limits.max_open_texts:
            raise too_busy(
                f"{self.texts:,} texts wait for their turn, and {number:,} more are too many. Try again in a second, "
                "or send fewer texts a request."
            )
        self.texts += number
        try:
            yield
        finally:
            self.texts -= number
