"""Reports in a real browser: no errors, no requests, readable on a phone, in dark mode and in print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shortlist
from browsing import PHONE, expect
from reports import FULL, rows
from shortlist.report import write_comparison

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    write_comparison(FULL, folder)
    train, test = shortlist.read(rows(6)), shortlist.read(rows(2))
    model = shortlist.train(train, recipe="centroid")
    shortlist.model_report(model, test, train, name="a" * 80).write(folder / "model.html")
    return {"comparison": folder / "report.html", "model": folder / "model.html"}


@pytest.fixture(params=["comparison", "model"])
def open_report(browser, reports, request):
    """Opens a report. At the end, there must be no errors and no requests."""
    contexts, errors, requests = [], [], []
    address = reports[request.param].as_uri()

    def open_(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda request: None if request.url == address else requests.append(request.url))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == [] and requests == []


@pytest.mark.parametrize("options", [{"viewport": {"width": 1200, "height": 800}}, PHONE])
def test_the_page_does_not_scroll_sideways(open_report, options):
    page = open_report(**options)
    content, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert content <= window


def test_names_stay_inside_their_plots(open_report):
    page = open_report(viewport={"width": 1200, "height": 800})
    outside = page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].filter((svg) => svg.getBoundingClientRect().width)
        .flatMap((svg) => [...svg.querySelectorAll('text')].filter((text) => {
          const box = text.getBoundingClientRect(), frame = svg.getBoundingClientRect();
          return box.left < frame.left - 4 || box.right > frame.right + 4;
        }).map((text) => text.textContent))"""
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_enough_contrast(open_report, scheme):
    """WCAG AA: 4.5 for text, 3 for plots."""
    page = open_report(color_scheme=scheme)
    contrasts = page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const light = (name) => {
            const probe = document.body.appendChild(document.createElement('i'));
            probe.style.color = style.getPropertyValue(name);
            const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
            probe.remove();
            const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const contrast = (one, other) => {
            const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
          };
          const texts = ['--ink', '--soft', '--accent', '--right', '--s0', '--s1', '--s2', '--s3'];
          return [
            ...texts.map((name) => [name, contrast(name, '--sheet'), 4.5]),
            ...['--ink', '--soft', '--accent'].map((name) => [name, contrast(name, '--paper'), 4.5]),
            ...['--bar', '--edge'].map((name) => [name, contrast(name, '--sheet'), 3]),
          ];
        }"""
    )
    assert [row for row in contrasts if row[1] < row[2]] == []


def test_prints_in_light_colours(open_report):
    page = open_report(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert ink == "rgb(27, 29, 34)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF") and len(printed) > 10_000


def test_numbers_unfold_and_navigation_works(open_report):
    page = open_report(viewport={"width": 1200, "height": 800})
    page.locator("summary").first.click()
    expect(page.locator("details table").first).to_be_visible()
    page.locator("nav a").last.click()
    assert page.evaluate("window.scrollY") > 0
    expect(page.locator("main > section").last.locator("h2")).to_be_in_viewport()


def test_every_plot_has_a_text_alternative(open_report):
    page = open_report()
    plots = page.locator("figure svg")
    assert plots.count() > 3
    alternatives = plots.evaluate_all(
        "all => all.map((svg) => [svg.getAttribute('role'), svg.getAttribute('aria-label')])"
    )
    assert all(role == "img" and len(label) > 20 for role, label in alternatives)
