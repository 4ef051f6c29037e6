"""What several test files share."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports a BLAS: tests that run side by side (pytest -n) share the cores.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(max(1, (os.cpu_count() or 1) // int(workers))))

# Before anything imports Ray: it takes 127.0.0.1 for any address of this machine otherwise, and listens on all of them.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
# One token per process: Ray reads it once, and never again.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

# Derandomised: a run of the tests says something about the change, not about luck. To go looking for
# trouble: pytest --hypothesis-profile=thorough
settings.register_profile(
    "full",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("quick", settings.get_profile("full"), max_examples=5)
settings.register_profile("thorough", settings.get_profile("full"), max_examples=3000, derandomize=False)
settings.load_profile("full")


def pytest_configure(config: pytest.Config) -> None:
    """Without the slow tests, the others try fewer examples, too."""
    if config.option.markexpr == "not slow" and not config.getoption("--hypothesis-profile"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the slow tests, do not import files that have no others."""
    is_quick = config.option.markexpr == "not slow" and collection_path.suffix == ".py"
    return True if is_quick and "\npytestmark = pytest.mark.slow" in collection_path.read_text() else None


@pytest.fixture
def full_floats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Training in float32 on one thread: the sums of two round differently, and Adam enlarges that at first."""
    import torch

    from shortlist.training import learner

    monkeypatch.setattr(learner, "has_fast_bfloat16", lambda: False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A stand-in for S3, which the processes of a cluster that starts later can reach, too."""
    from s3_server import s3_server
    from shortlist.data import storage

    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
        storage.forget()


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    """Writes a file below the test's own folder: `put("a/b.jsonl", content)` gives its path."""

    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
