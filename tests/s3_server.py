"""A stand-in for an object store that speaks S3, for tests: objects in memory, no checks of who asks."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

TIME = "2026-01-01T00:00:00.000Z"


class Server(ThreadingHTTPServer):
    """`objects` has the contents, by "bucket/key"; `uploads` the parts of those that are not complete."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count()

    def handle_error(self, *_: Any) -> None:
        """Clients are killed in tests."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that bring clients here."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def s3_server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, True).items()}

    def answer(self, status: int, content: bytes = b"", **headers: Any) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def read_body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("transfer-encoding") == "chunked":
            while n_bytes := int(self.rfile.readline(), 16):
                body += self.rfile.read(n_bytes)
                self.rfile.readline()
            self.rfile.readline()
        return from_chunks(body) if "aws-chunked" in self.headers.get("content-encoding", "") else body

    def do_HEAD(self) -> None:
        content = self.server.objects.get(self.key)
        if content is not None:
            self.answer(200, content, ETag='"x"', Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")
        else:
            self.answer(200 if "/" not in self.key else 404)

    def do_GET(self) -> None:
        if "list-type" in self.query:
            self.list_objects()
        elif (content := self.server.objects.get(self.key)) is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif wanted := self.headers.get("range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1 if last else None]
            self.answer(206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        else:
            self.answer(200, content)

    def list_objects(self) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        bucket, xml, n_keys, folders = self.key, "", 0, set()
        for name in sorted(self.server.objects):
            if not name.startswith(f"{bucket}/{prefix}"):
                continue
            key = name.removeprefix(f"{bucket}/")
            if delimiter and delimiter in (rest := key.removeprefix(prefix)):
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            size, n_keys = len(self.server.objects[name]), n_keys + 1
            xml += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{TIME}</LastModified><Size>{size}</Size></Contents>"
            )
        xml += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        head = f"<KeyCount>{n_keys + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
        self.answer(200, f"<ListBucketResult>{head}{xml}</ListBucketResult>".encode())

    def do_PUT(self) -> None:
        body = self.read_body()
        if "partNumber" in self.query:
            self.server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = body
        elif "/" in self.key:
            self.server.objects[unquote(urlsplit(self.path).path).lstrip("/")] = body  # folders end in a slash
        self.answer(200, ETag='"x"')

    def do_POST(self) -> None:
        body = self.read_body()
        if "uploads" in self.query:
            number = str(next(self.server.numbers))
            self.server.uploads[number] = {}
            content = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            self.answer(200, content.encode())
        elif "uploadId" in self.query:
            parts = self.server.uploads.pop(self.query["uploadId"])
            self.server.objects[self.key] = b"".join(parts[number] for number in sorted(parts))
            self.answer(200, b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')
        elif "delete" in self.query:
            bucket = self.key
            for part in body.decode().split("<Key>")[1:]:
                self.server.objects.pop(f"{bucket}/{part.partition('</Key>')[0]}", None)
            self.answer(200, b"<DeleteResult></DeleteResult>")

    def do_DELETE(self) -> None:
        self.server.objects.pop(unquote(urlsplit(self.path).path).lstrip("/"), None)
        self.answer(204)


def from_chunks(body: bytes) -> bytes:
    """What S3's own chunks contain: "size;signature", content, "size", content, …, "0", checksums."""
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        n_bytes = int(size.split(b";")[0], 16)
        if not n_bytes:
            return whole
        whole, body = whole + body[:n_bytes], body[n_bytes + 2 :]
