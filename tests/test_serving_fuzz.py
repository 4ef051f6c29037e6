"""Requests generated from the OpenAPI description, valid and invalid: the responses match it, and none is a 500."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import HealthCheck, assume, given, settings

from serving import InProcess, save_model
from shortlist.serving.limits import Limits


class OnAnotherLoop:
    """The application for schemathesis, which calls it from its own event loop."""

    def __init__(self, server: InProcess) -> None:
        self.server = server
        self.loop = server.runner.get_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        caller = asyncio.get_running_loop()

        def there(call):
            """Run `call` on the caller's loop when it is awaited on the application's."""

            async def across(*arguments):
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(*arguments), caller))

            return across

        work = self.server.app(scope, there(receive), there(send))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.server.close()


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("fuzz") / "model")
    schemathesis = pytest.importorskip("schemathesis")  # slow to import
    server = InProcess(folder, limits=Limits(max_words=50)).ready()
    together = OnAnotherLoop(server)
    yield schemathesis.openapi.from_asgi("/openapi.json", together)
    together.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "examples", "mode"),
    [
        ("/v1/predict", 300, "positive"),
        ("/v1/predict", 300, "negative"),
        ("/v1/projects/model/suggest", 100, "positive"),
        ("/v1/projects/model/suggest", 100, "negative"),
        ("/v2/models/model/infer", 100, "negative"),
        *((path, 1, "positive") for path in ("/v1/model", "/metrics", "/healthz", "/readyz")),  # nothing to vary
        *((path, 1, "positive") for path in ("/v1/projects", "/v2", "/v2/models/model", "/v2/health/ready")),
    ],
)
def test_generated_requests(described, path, examples, mode):
    operation = next(found.ok() for found in described.get_all_operations() if found.ok().path == path)

    from schemathesis import GenerationMode

    # Not schemathesis' pytest integration: this release does not support this pytest.
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def check(case):
        # The description is that of any model; this one reads texts, and says so to a request with features or fields.
        # It has labels of its own and no hierarchy, and says so to a request that allows or denies others, or levels.
        of_other_models = {"features", "fields", "allow", "deny", "levels"}
        assume(mode == "negative" or not isinstance(case.body, dict) or not of_other_models & set(case.body))
        case.call_and_validate()

    check()
