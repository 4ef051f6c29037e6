"""The files of the page: read once, served with what lets a browser keep them and ask whether they changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True)
class StaticFile:
    """One file in memory."""

    content: bytes
    content_type: str

    async def answer(self, request: Request) -> Response:
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}  # keep it, but ask
        known = [given.strip().removeprefix("W/") for given in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.content_type)


def page_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """The page's files by the path they are served at."""
    return {
        path: StaticFile((folder / name).read_bytes(), content_type)
        for path, (name, content_type) in FILES.items()
        if (folder / name).is_file()
    }
