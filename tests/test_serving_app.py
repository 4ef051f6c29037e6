"""The application, called in process: predictions, refusals, the model card, probes, metrics, the page."""

from __future__ import annotations

import json
import math
import re
import threading
from copy import copy

import pytest

import shortlist
from serving import SECONDS, InProcess, save_model, until
from shortlist.cli.serve import read_token
from shortlist.errors import OptionError, ShortlistError
from shortlist.serving import logs, predict, served_model
from shortlist.serving.limits import Limits
from shortlist.serving.messages import PredictRequest
from shortlist.serving.served_model import PredictCall
from shortlist.stages.thresholds import Thresholds

TOKEN = "a-long-secret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("app") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return shortlist.load(folder)


@pytest.fixture(scope="module")
def server(folder):
    limits = Limits(max_body=20_000, max_texts=20, max_words=8)
    server = InProcess(folder, limits=limits).ready()
    yield server
    server.close()


@pytest.fixture
def make_server(folder):
    """Make another server, with options; of another folder, if it is given."""
    made = []

    def make(folder=folder, **options):
        made.append(InProcess(folder, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def problem_of(answer, status):
    """The detail of a refusal, which must be a complete problem document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail"}
    assert document["status"] == status and document["title"] and document["detail"]
    return document["detail"]


def test_one_text(server, model):
    answer = server.predict(text="red shoes", k=3)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"predictions", "took_ms"}
    expected = [{"label": p.label, "name": p.name, "score": p.score} for p in model.predict("red shoes", k=3)]
    assert answer.json()["predictions"] == [expected]
    assert len(expected) == 3 and answer.json()["took_ms"] > 0


def test_allow_and_deny(server, model):
    text, label = "red shoes", model.label_names[0]
    (only,) = server.predict(text=text, allow=[label]).json()["predictions"]
    assert [one["label"] for one in only] == [p.label for p in model.predict(text, allow=[label])]
    (others,) = server.predict(text=text, deny=[label]).json()["predictions"]
    assert label not in {one["label"] for one in others}
    refused = server.predict(text=text, allow=[label + "x"])
    assert refused.status_code == 422 and "Did you mean" in refused.json()["detail"]


def test_levels_of_a_hierarchy(server, model, make_server, tmp_path):
    detail = problem_of(server.predict(text="red shoes", levels="leaves"), 422)
    assert "this model has no hierarchy" in detail
    assert "levels" in problem_of(server.predict(text="red shoes", levels="up"), 422)
    other = copy(model)
    other.set_hierarchy({model.label_names[0]: "everything"}, {"everything": "All things"})
    other.save(tmp_path / "model")
    own = make_server(tmp_path / "model").ready()
    (found,) = own.predict(text="red shoes", levels="roll-up", allow=["All things"]).json()["predictions"]
    assert [(one["label"], one["name"]) for one in found] == [("everything", "All things")]


def test_several_texts_give_the_same_labels_as_the_library(server, model):
    texts = ["red shoes", "", "nothing that is known", "blue hat", "grün 日本 ☃", "a\0b red"]
    rows = server.predict(texts=texts, k=2, min_score=0.3).json()["predictions"]
    expected = model.predict(texts, k=2, min_score=0.3)
    assert [[(p["label"], p["score"]) for p in row] for row in rows] == [[p[:2] for p in row] for row in expected]
    assert all(math.isfinite(p["score"]) for row in rows for p in row)
    assert server.predict(texts=[]).json()["predictions"] == []


def test_the_threshold_of_the_model_applies_unless_a_request_sets_another(make_server, tmp_path):
    model = shortlist.load(save_model(tmp_path / "model"))
    everything = model.predict("red shoes")
    model.thresholds = Thresholds.of(round((everything[1].score + everything[2].score) / 2, 3))
    model.save(tmp_path / "model", bits=32)
    server = make_server(folder=tmp_path / "model").ready()
    labels = lambda **fields: [p["label"] for p in server.predict(**fields).json()["predictions"][0]]  # noqa: E731
    assert labels(text="red shoes") == labels(text="red shoes", min_score=None) == [p.label for p in everything[:2]]
    assert labels(text="red shoes", min_score=0) == [p.label for p in everything]
    assert server.predict(text="nothing known").json()["predictions"] == [[]]  # not sure
    assert server.get("/v1/model").json()["min_score"] == model.thresholds.min_score


def test_tail(server, model):
    for tail in (0, 0.5, 1):
        rows = server.predict(texts=["red", "shoes 3"], k=6, tail=tail).json()["predictions"]
        expected = model.predict(["red", "shoes 3"], k=6, tail=tail)
        assert [[(p["label"], p["score"]) for p in row] for row in rows] == [[p[:2] for p in row] for row in expected]
    assert server.predict(text="red", tail="auto").status_code == 200
    for wrong in (-0.1, 1.1, "much", None, True):
        assert "tail" in problem_of(server.predict(text="red", tail=wrong), 422)
    schema = server.get("/openapi.json").json()["components"]["schemas"]["PredictRequest"]["properties"]["tail"]
    assert {"enum": ["auto"]} in schema["anyOf"]
    assert "number (0 to 1) or &#34;auto&#34;" in server.get("/docs").text


def test_auto_without_a_chosen_tail_is_an_error(make_server, tmp_path):
    shortlist.train([("red shoes", ["shoes"])] * 3, recipe="popular").save(tmp_path / "model")
    server = make_server(folder=tmp_path / "model").ready()
    assert "training has chosen no value" in problem_of(server.predict(text="red", tail="auto"), 422)


def test_k_is_five_by_default(server):
    assert len(server.predict(text="red shoes").json()["predictions"][0]) == 5
    assert len(server.predict(text="red shoes", k=2.0).json()["predictions"][0]) == 2
    assert len(server.predict(text="red shoes", k=100).json()["predictions"][0]) > 5


def test_explanations_point_into_the_text(server, model):
    text = "ZÄH red, Shoes"
    best = server.predict(text=text, explain=True).json()["predictions"][0][0]
    words = {text[word["start"] : word["end"]]: word["moved"] for word in best["words"]}
    assert set(words) == {"ZÄH", "red", "Shoes"}
    wanted = model.predict(text, explain=True)[0]
    assert [tuple(word.values()) for word in best["words"]] == [pytest.approx(tuple(word)) for word in wanted.words]
    assert "words" not in server.predict(text=text).json()["predictions"][0][0]


def test_search_effort_has_a_default_and_a_limit(make_server):
    server = make_server(search_effort=0.5).ready()
    asked = []

    class Noted:
        def predict(self, texts, k, threads, *, search_effort, **others):
            asked.append(search_effort)
            return [[] for _ in texts]

    server.app.served.current = Noted()
    for search_effort in ({}, {"search_effort": 2}, {"search_effort": None}):
        assert server.predict(text="red", **search_effort).status_code == 200
    assert asked == [0.5, 2, 0.5]
    for search_effort in (0, -1, 5, "much"):
        assert "search_effort" in problem_of(server.predict(text="red", search_effort=search_effort), 422)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"text": "a"} {', 400, "not JSON"),
        (b'\xef\xbb\xbf{"text": "a"}', 400, "not JSON"),
        (b'{"text": "\xff"}', 400, "UTF-8"),
        (b'{"text": "\xed\xa0\x80"}', 400, "UTF-8"),
        (b'{"text": "\\ud800"}', 400, "not JSON"),
        (b'{"text": "a\0b"}', 400, "not JSON"),
        (b'{"text": "a", "min_score": NaN}', 400, "not JSON"),
        (b"[" * 10_000, 422, "object"),
        (b'{"text": ' + b"[" * 10_000, 422, "text"),
        (b'{"texts": ' + b'{"a":' * 3000, 422, "texts"),
        (b'{"unknown": ' + b"[" * 10_000, 422, "unknown"),
        (b"null", 422, "object"),
        (b"{}", 422, "Give one of"),
        (b'{"text": "a", "texts": ["b"]}', 422, "Give one of"),
        (b'{"text": null}', 422, "text"),
        (b'{"text": 5}', 422, "text"),
        (b'{"texts": "a"}', 422, "texts"),
        (b'{"texts": ["a", null]}', 422, "texts"),
        (b'{"text": "a", "surprise": 1}', 422, "surprise"),
        (b'{"text": "a", "k": 0}', 422, "k"),
        (b'{"text": "a", "k": 101}', 422, "k"),
        (b'{"text": "a", "k": 1e400}', 422, "k"),
        (b'{"text": "a", "k": 99999999999999999999999999}', 422, "k"),
        (b'{"text": "a", "k": 1.5}', 422, "k"),
        (b'{"text": "a", "k": true}', 422, "k"),
        (b'{"text": "a", "min_score": 1.01}', 422, "min_score"),
        (b'{"text": "a", "min_score": -0.1}', 422, "min_score"),
        (b'{"text": "a", "min_score": 1e999}', 422, "min_score"),
        (b'{"text": "a", "explain": "yes"}', 422, "explain"),
        (b'{"text": "1 2 3 4 5 6 7 8 9"}', 422, "Text 0 has 9 words"),
        (b'{"texts": ["a", "1 2 3 4 5 6 7 8 9"]}', 422, "Text 1 has 9 words"),
        (json.dumps({"text": "日" * 257}).encode(), 422, "257 characters"),
        (json.dumps({"texts": ["a"] * 21}).encode(), 422, "21 texts"),
        (json.dumps({"texts": ["a b c d e f g"] * 3, "explain": True}).encode(), 422, "21 words to explain"),
        (b'{"text": "' + b"a" * 20_000 + b'"}', 413, "20,000 bytes"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refusals_say_what_is_wrong(server, body, status, says):
    assert says in problem_of(server.predict(body), status)
    assert server.predict(text="red").status_code == 200


def test_large_requests_do_not_hold_up_others(make_server, monkeypatch):
    """A thread decodes and encodes them, and counts what is to explain: that took 0.2 s for a megabyte."""
    server, threads = make_server().ready(), []

    def note(place, name):
        real = getattr(place, name)

        def noted(*arguments, **options):
            threads.append(threading.current_thread().name.partition("_")[0])
            return real(*arguments, **options)

        monkeypatch.setattr(place, name, noted)

    note(Limits, "check_texts")
    note(predict, "encode_response")
    for fields, expected in (
        ({"text": "red"}, ["MainThread", "MainThread"]),
        ({"text": "red", "deny": ["blue"] * 4000}, ["large", "large"]),
        ({"texts": ["red"] * 65}, ["MainThread", "large"]),
        ({"text": "red", "explain": True}, ["MainThread", "large"]),
    ):
        threads.clear()
        assert server.predict(**fields).status_code == 200 and threads == expected
    assert "5,000 texts" in problem_of(server.predict(texts=["red"] * 5000), 422) and threads[-1] == "large"


def test_requests_at_the_limits_are_accepted(server):
    assert server.predict(texts=["1 2 3 4 5 6 7 8"] * 20).status_code == 200
    assert server.predict(text="日" * 256).status_code == 200
    assert server.predict(texts=["a", "b"], explain=True).status_code == 200


def test_a_chunked_body(server):
    async def pieces(size, n):
        yield b'{"text": "'
        for _ in range(n):
            yield b"a" * size
        yield b'"}'

    assert server.predict(pieces(20, 5)).status_code == 200
    assert "20,000" in problem_of(server.predict(pieces(1000, 10_000)), 413)


def test_content_types(server):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        answer = server.request("POST", "/v1/predict", content=b'{"text": "a"}', headers={"content-type": kind})
        assert "application/json" in problem_of(answer, 415)
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.request("POST", "/v1/predict", content=b'{"text": "a"}', headers=headers).status_code == 200
    headers["content-encoding"] = "gzip"
    answer = server.request("POST", "/v1/predict", content=b'{"text": "a"}', headers=headers)
    assert "compressed" in problem_of(answer, 415)


def test_other_methods_and_paths(server):
    for method, path, allowed in (("GET", "/v1/predict", {"POST"}), ("DELETE", "/healthz", {"GET", "HEAD"})):
        answer = server.request(method, path)
        assert "takes" in problem_of(answer, 405)
        assert set(answer.headers["allow"].split(", ")) == allowed
    for path in ("/nothing", "/v1/predict/", "/v1", "/page/index.html", "/../pyproject.toml", "/app.py"):
        assert "/docs" in problem_of(server.get(path), 404)
    assert "/docs" in problem_of(server.request("POST", "/nothing"), 404)
    assert "takes GET" in problem_of(server.request("POST", "/"), 405)
    head = server.request("HEAD", "/v1/model")
    assert head.status_code == 200 and int(head.headers["content-length"]) > 0


def test_an_option_that_the_model_refuses_is_a_422(make_server):
    server = make_server().ready()

    class Choosy:
        def predict(self, *arguments, **options):
            raise OptionError("this model has no such thing; leave it out.")

    server.app.served.current = Choosy()
    assert "no such thing" in problem_of(server.predict(text="red"), 422)


def test_a_bug_is_a_500_without_details_and_is_logged(make_server):
    server = make_server().ready()

    class Broken:
        def predict(self, *arguments, **options):
            raise RuntimeError("inner workings")

    server.app.served.current = Broken()
    assert "inner workings" not in problem_of(server.predict(text="secret words"), 500)
    assert "inner workings" in next(line["traceback"] for line in server.logged() if "traceback" in line)


def test_too_many_requests_and_texts(make_server):
    server = make_server(limits=Limits(max_concurrent=3, max_per_client=2, max_texts=2)).ready()
    admission = server.app.admission
    for _ in range(2):
        admission.add_request("127.0.0.1")
    answer = server.predict(text="red")
    assert "your address" in problem_of(answer, 429) and answer.headers["retry-after"] == "1"
    admission.add_request("elsewhere")
    answer = server.predict(text="red")
    assert "3 requests are in flight" in problem_of(answer, 503) and answer.headers["retry-after"] == "1"
    assert server.get("/healthz").status_code == 200
    for client in ("127.0.0.1", "127.0.0.1", "elsewhere"):
        admission.release(client, 0)
    admission.add_request("elsewhere")
    admission.add_texts(3)
    assert server.predict(text="red").status_code == 200
    assert "texts are waiting" in problem_of(server.predict(texts=["red", "blue"]), 503)
    admission.release("elsewhere", 3)
    assert server.predict(texts=["red", "blue"]).status_code == 200
    assert (admission.requests, admission.texts) == (0, 0)


def test_refused_requests_are_not_counted_as_in_flight(server):
    for body in (b"", b"{}", b'{"text": "a", "k": 0}', b"x" * 30_000):
        server.predict(body)
    assert (server.app.admission.requests, server.app.admission.texts) == (0, 0)
    assert not server.app.admission._per_client


def test_limits_must_be_positive():
    with pytest.raises(OptionError, match="max_texts is 0"):
        Limits(max_texts=0)


def test_the_model_card(server, model):
    answer = server.get("/v1/model")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json()["recipe"] == "centroid" and answer.json()["n_labels"] == len(model.label_names)


def test_probes_of_a_running_server(server):
    assert server.get("/healthz").json() == {"status": "ok"}
    assert server.get("/readyz").json() == {"status": "ready"}


def test_probes_while_starting_and_stopping(make_server, monkeypatch):
    may_load = threading.Event()

    def load_when_allowed(folder):
        assert may_load.wait(SECONDS)
        return shortlist.load(folder)

    monkeypatch.setattr(served_model, "load", load_when_allowed)
    server = make_server()
    assert server.get("/healthz").status_code == 200
    for answer in (server.get("/readyz"), server.get("/v1/model"), server.predict(text="red")):
        problem_of(answer, 503)
        assert answer.headers["retry-after"]
    may_load.set()
    server.ready()
    assert server.get("/readyz").status_code == 200
    server.app.draining = True
    assert "stopping" in problem_of(server.get("/readyz"), 503)
    assert server.get("/healthz").status_code == 200
    assert server.predict(text="red").status_code == 200


def test_a_model_that_cannot_be_loaded(tmp_path):
    server = InProcess(tmp_path / "none")
    while not server.app.model_task.done():
        server.get("/healthz")
    with pytest.raises(ShortlistError, match="no such model folder"):
        server.close()


def test_metrics(make_server):
    server = make_server().ready()
    server.predict(texts=["red", "blue"])
    server.predict(text="")
    server.predict(b"{")
    server.get("/nothing/here")
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in (
        'shortlist_requests_total{path="/v1/predict",status="200"} 2.0',
        'shortlist_requests_total{path="/v1/predict",status="400"} 1.0',
        'shortlist_requests_total{path="other",status="404"} 1.0',
        "shortlist_texts_total 3.0",
        "shortlist_predict_seconds_count 3.0",
        "shortlist_batch_texts_count 2.0",
        "shortlist_batch_texts_sum 3.0",
        "shortlist_open_requests 0.0",
        "shortlist_open_texts 0.0",
        "shortlist_waiting_requests 0.0",
        'shortlist_model_reloads_total{outcome="success"} 1.0',
        'shortlist_model_reloads_total{outcome="failure"} 0.0',
        f'shortlist_model_info{{recipe="centroid",version="{shortlist.__version__}"}} 1.0',
        "shortlist_model_labels 6.0",
    ):
        assert line in lines, line


def test_the_token_is_required_for_the_api_only(make_server):
    server = make_server(token=TOKEN).ready()
    for path in ("/v1/model", "/metrics"):
        assert server.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert server.get(path, headers={"authorization": f"bearer  {TOKEN}"}).status_code == 200
        wrong = ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer \xe9\xff")
        for given in wrong:
            answer = server.get(path, headers={"authorization": given.encode("latin-1")})
            assert "Authorization: Bearer" in problem_of(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    problem_of(server.predict(text="red"), 401)
    problem_of(server.get("/v1/nothing"), 401)
    for path in ("/v1/projects", "/v2", "/v2/models/model", "/v2/models/nothing"):
        assert server.get(path).status_code == 401
    for user, password, status in (("annif", TOKEN, 200), (TOKEN, "", 401), ("", TOKEN + "x", 401)):
        assert server.get("/v1/projects", auth=(user, password)).status_code == status
    for path in ("/", "/healthz", "/readyz", "/docs", "/openapi.json", "/style.css", "/v2/health/ready"):
        assert server.get(path).status_code == 200
    assert TOKEN not in str(server.logged())


def test_reading_the_token(tmp_path, monkeypatch):
    monkeypatch.delenv("SHORTLIST_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("SHORTLIST_TOKEN", "from-environment")
    assert read_token(None) == "from-environment"
    (tmp_path / "token").write_text("from-file\n")
    assert read_token(str(tmp_path / "token")) == "from-file"
    for bad in ("", "\n", "two words", "grün"):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(OptionError, match="token is empty or contains"):
            read_token(str(tmp_path / "token"))
    with pytest.raises(ShortlistError, match="No such file"):
        read_token(str(tmp_path / "nowhere"))


def test_logs_contain_texts_only_if_asked_for(make_server):
    quiet, with_texts = make_server(), make_server(log_texts=True)
    for server in (quiet, with_texts):
        server.ready().predict(texts=["red secret", "blue"])
        server.get("/v1/predict?text=secret")
        server.predict(b'{"text": "secret"')
        server.get("/healthz")
    lines = [line for line in quiet.logged() if line["event"] == "request"]
    assert "secret" not in str(lines)
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/v1/predict", 200), ("GET", "/v1/predict", 405), ("POST", "/v1/predict", 400)]  # fmt: skip
    assert lines[0]["n_texts"] == 2 and lines[0]["ms"] > 0 and lines[0]["time"].endswith("Z")
    assert [line.get("texts") for line in with_texts.logged() if line["event"] == "request"] == [
        ["red secret", "blue"], None, None]  # fmt: skip


def test_every_response_has_security_headers(server):
    answers = [server.get(path) for path in ("/", "/healthz", "/docs", "/nothing")]
    for answer in [*answers, server.predict(text="red"), server.predict(b"{")]:
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_browsers_cache_the_page_until_it_changes(server):
    kinds = {"/": "text/html", "/app.js": "text/javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml"}
    for path, kind in kinds.items():
        answer = server.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        tag = answer.headers["etag"]
        assert answer.headers["cache-control"] == "no-cache"
        for known in (tag, f'"other", W/{tag}', "*"):
            again = server.get(path, headers={"if-none-match": known})
            assert again.status_code == 304 and not again.content and again.headers["etag"] == tag
        assert server.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_openapi_describes_every_field(server, model):
    description = server.get("/openapi.json").json()
    paths = {"/v1/predict", "/v1/model", "/healthz", "/readyz", "/metrics", "/v1/projects", "/v1/projects/model"}
    paths |= {"/v1/projects/model/suggest", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/model"}
    assert set(description["paths"]) == paths | {"/v2/models/model/ready", "/v2/models/model/infer"}
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        for field, property in schema["properties"].items():
            assert property["description"] and property["examples"], (name, field)
            assert {"type", "anyOf", "enum", "allOf", "$ref"} & set(property), (name, field)
    assert set(schemas["PredictRequest"]["properties"]) == set(PredictRequest.__struct_fields__)
    assert schemas["PredictRequest"]["properties"]["k"] == {
        "type": "integer", "minimum": 1, "maximum": 100, "multipleOf": 1, "default": 5,
        "description": "Maximum number of labels per text.", "examples": [3]}  # fmt: skip
    answer = server.predict(text="red", explain=True).json()
    assert set(answer) == set(schemas["PredictResponse"]["properties"])
    assert set(answer["predictions"][0][0]) == set(schemas["PredictedLabel"]["properties"])
    assert set(answer["predictions"][0][0]["words"][0]) == set(schemas["Word"]["properties"])
    assert set(server.predict(b"{").json()) == set(schemas["ProblemDocument"]["required"])
    assert set(schemas["ModelCard"]["required"]) <= set(server.get("/v1/model").json())
    assert "security" not in str(description["paths"])


def test_openapi_with_a_token(make_server):
    description = make_server(token=TOKEN).get("/openapi.json").json()
    operation = description["paths"]["/v1/model"]["get"]
    assert operation["security"] == [{"token": []}] and "401" in operation["responses"]
    assert "security" not in description["paths"]["/healthz"]["get"]


def test_the_docs_page(server):
    description, page = server.get("/openapi.json").json(), server.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in description["paths"]:
        assert path in page.text
    for schema in description["components"]["schemas"].values():
        for field in schema["properties"]:
            assert f"<code>{field}</code>" in page.text
    assert "integer (1 to 100)" in page.text and "list of list of PredictedLabel" in page.text
    assert "<script" not in page.text and "//cdn" not in page.text and "style=" not in page.text
    assert "http://server/v1/predict" in page.text and "text=heart attack" in page.text  # examples for this server
    targets = set(re.findall(r'href="#([^"]*)"', page.text))
    assert "PredictRequest" in targets and targets <= set(re.findall(r'id="([^"]*)"', page.text))
    elsewhere = server.get("/docs", headers={"host": "127.0.0.1:<9000>"}).text
    assert "http://127.0.0.1:&lt;9000&gt;/v1/predict" in elsewhere


def test_the_name_of_the_model(make_server, folder):
    server = make_server(name="red & blue").ready()
    assert server.get("/v1/projects/red & blue").json()["project_id"] == "red & blue"
    assert "/v2/models/red%20%26%20blue" in server.get("/openapi.json").json()["paths"]
    assert "/docs" in problem_of(server.get("/v1/projects/model"), 404)
    with pytest.raises(OptionError, match="slash"):
        make_server(name="red/blue")


def test_equal_calls_can_share_a_batch(model):
    one, same, other = (PredictCall(model, None, k, 0.0, False, 1.0, 0.0) for k in (5, 5, 6))
    assert one == same and hash(one) == hash(same) and one != other


def test_a_log_that_nobody_reads_drops_lines_and_counts_them(monkeypatch):
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 3)
    written, may_write = [], threading.Event()

    def write(data):
        assert may_write.wait(SECONDS)
        written.append(data)

    log = logs.Log(write)
    log.event("first")
    until(lambda: not log._lines)  # the thread is now stuck in `write`
    for i in range(8):
        log.event("more", i=i)
    may_write.set()
    log.close()
    lines = [json.loads(line) for line in b"".join(written).splitlines()]
    assert [line["event"] for line in lines] == ["first", "more", "more", "more", "dropped lines"]
    assert lines[-1]["n"] == 5
