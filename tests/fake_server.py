"""A fake of `shortlist serve` without a model, for tests of the page: it can be made slow, busy or broken.

It knows a dozen words and records the requests it gets.
"""

from __future__ import annotations

import json
import math
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import shortlist

PAGE = Path(shortlist.__file__).parent / "serving" / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
POLICY = (  # as in the real server
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

NAMES = {
    "I21": "Acute myocardial infarction",
    "I21.9": "Acute myocardial infarction, unspecified",
    "I50": "Heart failure",
    "S62": "Fracture at wrist and hand level",
    "T63.44": "Toxic effect of venom of bees",
    "X1": "<img src=x onerror=alert(1)><b>bold</b> & co",
    "F41.0": "Panic disorder [episodic paroxysmal anxiety]",
    "K08": "Other disorders of teeth and supporting structures, in a name that is long enough to need two lines",
}
WEIGHTS = {
    "heart": {"I21": 3.0, "I21.9": 2.5, "I50": 3.5, "S62": -2.0, "F41.0": 0.5},
    "attack": {"I21": 2.5, "I21.9": 2.0, "I50": -1.5, "F41.0": 2.2},
    "broken": {"S62": 3.0, "I50": -0.5, "K08": 0.8},
    "wrist": {"S62": 4.0, "K08": -1.0},
    "bee": {"T63.44": 4.0},
    "sting": {"T63.44": 3.0},
    "html": {"X1": 6.0},
    "tooth": {"K08": 4.5},
    "first": {"I21": 2.0},  # has an effect only at the start of a text
}
CARD = {
    "title": "InceptionXML+ on ICD-10-CM",
    "recipe": "inceptionxml+",
    "shortlist_version": "0.1.0",
    "created": "2026-11-15T10:30:00+00:00",
    "n_labels": 46881,
    "n_words": 18052,
    "options": {"n_epochs": 4, "n_reranked": 30, "label_texts": False},
    "data": {"train_texts": 98765, "labels_per_text": 4.9, "source": "simple-icd-10-cm 1.5"},
    "scores": {"P@1": 83.41, "P@5": 61.2, "PSP@1": 71.0},
    "search_effort": {
        "searched": 12,
        "of": 800,
        "curve": [{"searched": 800, "P@1": 83.5}, {"searched": 12, "P@1": 83.4}],
    },
    "calibration": {
        "method": "isotonic",
        "error": 0.012,
        "table": [
            {"from": 0.0, "to": 0.1, "mean_score": 0.1, "right": 0.08, "labels": 900},
            {"from": 0.5, "to": 0.6, "mean_score": 0.5, "right": 0.53, "labels": 300},
            {"from": 0.9, "to": 1.0, "mean_score": 0.9, "right": 0.94, "labels": 500},
        ],
    },
    "size_bytes": 46_300_000,
    "examples": ["heart attack", "broken wrist", "bee sting"],
}


class FakeServer:
    """Listens on a free port. `requests` holds the bodies of predict requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.card: dict[str, Any] = dict(CARD)
        self.problems: list[tuple[int, dict[str, Any], dict[str, str]]] = []  # sent instead of the next answers
        self.token: str | None = None
        self.gate = threading.Event()  # answers wait until it is set
        self.gate.set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                if self.path in FILES:
                    name, kind = FILES[self.path]
                    self.answer(200, (PAGE / name).read_bytes(), kind)
                elif self.path != "/v1/model":
                    self.problem(404, {"title": "Not found"})
                elif self.allowed():
                    self.answer(200, json.dumps(fake.card).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.allowed():
                    return
                fake.requests.append(body)
                fake.gate.wait(20)
                if fake.problems:
                    self.problem(*fake.problems.pop(0))
                else:
                    self.answer(200, json.dumps(predicted(body)).encode())

            def allowed(self) -> bool:
                if fake.token is None or self.headers["Authorization"] == f"Bearer {fake.token}":
                    return True
                self.problem(401, {"title": "A token is needed", "status": 401})
                return False

            def problem(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
                self.answer(status, json.dumps(body).encode(), "application/problem+json", headers or {})

            def answer(self, status: int, body: bytes, kind: str = "application/json", headers: Any = ()) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def request_texts(self) -> list[str]:
        return [body["texts"][0] for body in self.requests]

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


def predicted(body: dict[str, Any]) -> dict[str, Any]:
    texts = body["texts"] if "texts" in body else [body["text"]]
    min_score, k = body.get("min_score") or 0, body.get("k", 5)
    return {"predictions": [_ranked(text, k, min_score) for text in texts], "took_ms": 0.61}


def _ranked(text: str, k: int, min_score: float) -> list[dict[str, Any]]:
    found = list(re.finditer(r"\w+", text.lower()))
    known = [match[0] in WEIGHTS and (match[0] != "first" or match.start() == 0) for match in found]
    if not any(known):
        return []
    rows = []
    for label, name in NAMES.items():
        moved = [WEIGHTS[m[0]].get(label, 0.0) if there else 0.0 for m, there in zip(found, known, strict=True)]
        words = [{"start": m.start(), "end": m.end(), "moved": by} for m, by in zip(found, moved, strict=True)]
        rows.append({"label": label, "name": name, "score": 1 / (1 + math.exp(4 - sum(moved))), "words": words})
    rows.sort(key=lambda row: -row["score"])
    return [row for row in rows[:k] if row["score"] >= min_score]
