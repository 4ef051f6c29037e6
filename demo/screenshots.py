"""Take screenshots of the page for the documentation, with a real model and server.

    python demo/screenshots.py demo-output/model docs/images

Needs Chromium (`apt-get install chromium`) and the extras `serve` and `test`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

TEXT = "heart attack"
SIZE = {"width": 1120, "height": 700}
START_SECONDS = 120


def main(model: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with served(model) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
            page.goto(url)
            page.locator("#card").wait_for()
            page.keyboard.type(TEXT)
            if scheme == "dark":
                page.keyboard.press("Control+Enter")
                page.locator("#shuffled").wait_for()
            settle(page)
            page.locator("#timing").evaluate("element => { element.textContent = ''; }")  # of a machine that is busy
            page.screenshot(path=folder / f"page-{scheme}.png", full_page=True)
        browser.close()


def settle(page: Page) -> None:
    """Wait until the answer to the last key is shown."""
    page.locator("#labels li").first.wait_for()
    page.wait_for_load_state("networkidle")


@contextmanager
def served(model: str) -> Iterator[str]:
    """Run a server during the block; yields its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "shortlist", "serve", model, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_ready(url + "/readyz", server)
            yield url
        finally:
            server.terminate()


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(10 * START_SECONDS):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url).close()
            return
        except urllib.error.URLError:
            time.sleep(0.1)
    raise SystemExit("the server did not start; run `shortlist serve` to see why")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "docs/images"))
