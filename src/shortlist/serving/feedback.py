"""`POST /v1/feedback`: what a person says about the labels of a text goes to a file, for the next `shortlist update`.

The file is JSON lines, and lines are only appended. The model that is served does not change.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from shortlist.errors import DataError, OptionError
from shortlist.files import sync_folder
from shortlist.model import Model
from shortlist.serving.limits import Admission
from shortlist.serving.messages import Status, decoding
from shortlist.serving.operations import PREDICT_PROBLEMS, Operation, field
from shortlist.serving.predict import check_content_type, read_body, send_json
from shortlist.serving.served_model import ServedModel

FEEDBACK = "/v1/feedback"
MAX_BYTES = 1 << 30
STORED = b'{"status":"stored"}'


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a person says about the labels of a text."""

    text: Annotated[str, field("The text.", "chest pain")]
    right: Annotated[list[str], field("Labels of the model that are right.", ["R07.9"])] = []
    wrong: Annotated[list[str], field("Labels of the model that are wrong.", ["J45.0"])] = []


_decoder = msgspec.json.Decoder(FeedbackRequest)


class FeedbackFile:
    """A file that lines are appended to, by any number of servers.

    It is opened for each line, so it may be moved away at any time.
    """

    def __init__(self, path: str | Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.max_bytes = Path(path), max_bytes
        if self.path.exists() and not self.path.is_file():
            raise DataError(f"{path}: feedback cannot be written there: it is not a file.")
        try:
            os.close(self._open())
        except OSError as error:
            raise DataError(f"{path}: feedback cannot be written there: {error.strerror}.") from None

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, line: bytes) -> None:
        """Append a line, all or nothing. It is on the disk when this returns."""
        try:
            file = self._open()
        except OSError as error:
            raise full(f"{self.path.name} cannot be opened ({error.strerror}).") from None
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if size + len(line) > self.max_bytes:
                raise full(f"{self.path.name} has {size:,} bytes, the limit is {self.max_bytes:,}.")
            if size and os.pread(file, 1, size - 1) != b"\n":  # a power failure left half a line, which stays alone
                line = b"\n" + line
            try:
                written = os.write(file, line)
                os.fsync(file)
                if not size:
                    sync_folder(self.path.parent)
            except OSError as error:
                os.ftruncate(file, size)
                raise full(f"The disk does not take it ({error.strerror}).") from None
            if written < len(line):
                os.ftruncate(file, size)
                raise full("The disk is full.")
        finally:
            os.close(file)


def full(why: str) -> HTTPException:
    detail = f"The feedback was not stored. {why} Ask the server's operator to move the file away."
    return HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, detail)


class Feedback:
    """Checks feedback, and appends it to the file."""

    OPERATIONS = (
        Operation("feedback", "POST", FEEDBACK, "Say which labels of a text are right or wrong, for the next update",
                  "The feedback is stored.", Status, (*PREDICT_PROBLEMS, 507), FeedbackRequest,
                  example="""-H 'Content-Type: application/json' -d '{"text": "chest pain", "right": ["R07.9"]}'"""),
    )  # fmt: skip

    def __init__(self, served: ServedModel, admission: Admission, file: FeedbackFile) -> None:
        self.served, self.admission, self.file = served, admission, file

    async def feedback(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        check_content_type(headers)
        client = scope["client"][0] if scope.get("client") else ""
        self.admission.add_request(client)
        try:
            body = await read_body(headers, receive, self.admission.limits.max_body)
            with decoding("JSON"):
                request = _decoder.decode(body)
            self.admission.limits.check_texts([request.text])
            line = line_of(request, self.served.model)
            await asyncio.to_thread(self.file.append, line)
        except OptionError as error:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        finally:
            self.admission.release(client, 0)
        await send_json(send, STORED)


def line_of(request: FeedbackRequest, model: Model) -> bytes:
    """The line that `shortlist update` reads: right labels have a weight of 1, wrong ones of 0."""
    if model.columns is not None:
        raise OptionError("this model takes features, and feedback is about texts")
    if model.text_fields is not None:
        raise OptionError("this model takes several text fields, and feedback is about a single text")
    if not request.text.strip():
        raise OptionError("the text is empty")
    if not request.right and not request.wrong:
        raise OptionError('the feedback names no label: give "right" or "wrong" labels')
    for label in (*request.right, *request.wrong):
        if label not in model.labels.ids:
            model.labels.find([label], "feedback")  # raises, unless it is a name or a prefix
            raise OptionError(f"feedback: {label!r:.80} is not a label of this model. Give labels, not names.")
    both = set(request.right) & set(request.wrong)
    if both:
        raise OptionError(f"feedback: {min(both)!r:.80} is both right and wrong")
    labels = dict.fromkeys(request.right, 1) | dict.fromkeys(request.wrong, 0)
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return msgspec.json.encode({"text": request.text, "labels": labels, "time": time}) + b"\n"
