"""Shared by the tests in a real browser; the browser itself is a fixture in conftest.py."""

from __future__ import annotations

from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`").expect
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
