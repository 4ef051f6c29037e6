"""The page of `shortlist serve`, in headless Chromium.

Most tests use a server without a model (`fake_server.py`), which can be made slow, busy or broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from browsing import PHONE, expect
from fake_server import CARD, NAMES, FakeServer
from serving import until

pytestmark = pytest.mark.slow

NO_EFFECT = {"words": [{"start": 0, "end": 5, "moved": 0.0}]}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


@pytest.fixture
def open_page(browser, server):
    """Open the page in a new browser context. At the end, check for errors and for requests to other hosts."""
    contexts, errors, foreign_requests = [], [], []

    def open_(address: str = "", url: str = server.url, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        own = url + "/"
        page.on(
            "request", lambda request: None if request.url.startswith(own) else foreign_requests.append(request.url)
        )
        page.goto(own + address)
        return page

    yield open_
    for context in contexts:
        context.close()
    # Chromium itself logs responses such as 503.
    assert [error for error in errors if not error.startswith("Failed to load resource")] == []
    assert foreign_requests == []


@pytest.fixture
def page(open_page):
    return open_page()


def names(page: Any) -> Any:
    return page.locator("#labels .name")


def rows(page: Any) -> Any:
    return page.get_by_role("option")


def best(page: Any, label: str) -> None:
    expect(names(page).first).to_have_text(NAMES[label])


def words(page: Any) -> dict[str, str]:
    """The words shown, each with its class: for, against or neutral."""
    script = "spans => spans.map((span) => [span.textContent, span.className])"
    spans = page.locator("#words .word").evaluate_all(script)
    return {text: kind.removeprefix("word ") for text, kind in spans}


def selected(page: Any) -> str:
    return page.locator("#labels [aria-selected=true] .name").inner_text()


class TestFilter:
    def test_allowed_and_denied_labels_are_sent(self, open_page, server):
        server.card["lists"] = {"billable": 71}
        page = open_page("#q=heart+attack")
        best(page, "I21")
        assert server.requests[-1]["allow"] is None and server.requests[-1]["deny"] is None
        page.get_by_text("Which labels may answer").click()
        page.get_by_label("Only", exact=True).fill("I21* ; Heart failure;")
        n_before = len(server.requests)
        page.keyboard.press("Enter")
        until(lambda: server.requests[-1]["allow"] == ["I21*", "Heart failure"])
        assert len(server.requests) == n_before + 1  # not for each key: half a label is an error
        page.get_by_label("Not", exact=True).fill("@billable")
        page.locator("#text").focus()
        until(lambda: server.requests[-1]["deny"] == ["@billable"])
        assert page.locator("#lists option").evaluate_all("all => all.map((one) => one.value)") == ["@billable"]

    def test_an_unknown_label_can_be_corrected(self, page, server):
        page.locator("#text").fill("heart attack")
        best(page, "I21")
        page.get_by_text("Which labels may answer").click()
        server.problems.append((422, {"title": "Unprocessable Entity", "detail": "Did you mean 'I21'?"}, {}))
        page.locator("#allow").fill("I2I")
        page.keyboard.press("Enter")
        expect(page.locator("#notice")).to_contain_text("Did you mean 'I21'?")
        page.locator("#allow").fill("I21")
        page.keyboard.press("Enter")
        expect(page.locator("#notice")).to_be_hidden()


class TestTyping:
    def test_labels_follow_the_text(self, page):
        expect(page.locator("#invitation")).to_contain_text("46,881 labels")
        page.keyboard.type("heart attack")
        best(page, "I21")
        expect(rows(page)).to_have_count(5)
        expect(rows(page).first).to_contain_text("81.8%")
        expect(rows(page).first).to_contain_text("I21")
        expect(page.locator("#timing")).to_have_text(re.compile(r"^0\.61 ms in the server, [\d.]+ ms round trip$"))
        page.locator("#text").fill("broken wrist")
        best(page, "S62")

    def test_bars_are_as_long_as_the_scores(self, page):
        page.locator("#text").fill("broken wrist")
        best(page, "S62")
        script = "bars => bars.map((bar) => Number(bar.style.getPropertyValue('--share')))"
        shares = page.locator("#labels .bar").evaluate_all(script)
        assert shares[0] == pytest.approx(0.9526, abs=1e-3)
        assert shares == sorted(shares, reverse=True)

    def test_one_request_in_flight_and_only_the_newest_waits(self, page, server):
        server.gate.clear()
        with page.expect_request("**/v1/predict"):
            page.keyboard.type("h")
        page.keyboard.type("eart attack")
        server.gate.set()
        best(page, "I21")
        assert server.request_texts() == ["h", "heart attack"]

    def test_the_answer_to_a_deleted_text_is_not_shown(self, page, server):
        server.gate.clear()
        with page.expect_request("**/v1/predict"):
            page.locator("#text").fill("heart attack")
        page.locator("#text").fill("")
        with page.expect_request("**/v1/predict"):
            page.locator("#text").fill("bee")
        page.locator("#text").fill("")
        server.gate.set()
        expect(page.locator("#invitation")).to_be_visible()
        expect(page.locator("#answer")).to_be_hidden()
        page.locator("#text").fill("broken wrist")
        best(page, "S62")
        assert server.request_texts() == ["heart attack", "bee", "broken wrist"]

    def test_number_of_labels_and_minimum_score(self, page, server):
        page.locator("#text").fill("heart attack")
        best(page, "I21")
        page.locator(".count label").nth(1).click()
        expect(rows(page)).to_have_count(len(NAMES))
        page.locator("#min-score").fill("0.5")
        expect(rows(page)).to_have_count(2)
        expect(page.locator("#min-score-value")).to_have_text("50%")
        page.locator("#min-score").fill("0.95")
        expect(page.locator("#no-labels")).to_have_text("Not sure. No label scores 95% or more.")
        until(lambda: (server.requests[-1]["k"], server.requests[-1]["min_score"]) == (10, 0.95))
        expect(page.locator("#reset-min-score")).to_be_hidden()  # the model has no threshold to go back to

    def test_the_threshold_of_the_model_applies_until_another_is_set(self, open_page, server):
        server.card |= {"min_score": 0.634}
        page = open_page("#q=heart+attack")
        best(page, "I21")
        expect(page.locator("#min-score-value")).to_have_text("63.4% · model")
        expect(page.locator("#card-body")).to_contain_text("63.4%")
        assert server.requests[-1]["min_score"] is None
        page.locator("#text").fill("panic")  # the server's threshold leaves nothing
        expect(page.locator("#no-labels")).to_have_text("Not sure. No label scores 63.4% or more.")
        page.locator("#text").fill("heart attack")
        page.locator("#min-score").fill("0.05")
        expect(page.locator("#min-score-value")).to_have_text("5%")
        until(lambda: server.requests[-1]["min_score"] == 0.05)
        page.locator("#reset-min-score").click()
        expect(page.locator("#min-score-value")).to_have_text("63.4% · model")
        expect(page.locator("#min-score")).to_be_focused()
        expect(page.locator("#reset-min-score")).to_be_hidden()
        until(lambda: server.requests[-1]["min_score"] is None)

    def test_thresholds_of_labels(self, open_page, server):
        server.card |= {"min_score": 0.0, "threshold": {"goal": "precision 0.9", "labels_with_own": 3}}
        page = open_page("#q=xyzzy")
        expect(page.locator("#no-labels")).to_have_text("Not sure. No label reaches its threshold.")
        expect(page.locator("#min-score-value")).to_have_text("by label · model")

    def test_rare_labels(self, open_page, server):
        server.card |= {"tail": 0.3}
        page = open_page("#q=heart+attack")
        best(page, "I21")
        expect(page.locator("#tail-value")).to_have_text("off")
        until(lambda: server.requests[-1]["tail"] == 0)
        for value, shown in (("0.3", "0.3 · auto"), ("1", "1.0")):
            with page.expect_request("**/v1/predict"):
                page.locator("#tail").fill(value)
            expect(page.locator("#tail-value")).to_have_text(shown)
        best(page, "I21")
        until(lambda: server.requests[-1]["tail"] == 1)

    def test_unknown_words(self, page):
        page.keyboard.type("xyzzy")
        expect(page.locator("#no-labels")).to_have_text("The model knows none of these words.")

    @pytest.mark.parametrize(("explanation", "is_guess"), [(NO_EFFECT, True), ({"words": []}, True), ({}, False)])
    def test_labels_without_words(self, page, explanation, is_guess):
        """The page says that labels are a guess if the explanation shows no effect."""
        guess = {"label": "I21", "name": NAMES["I21"], "score": 0.1, **explanation}
        page.route("**/v1/predict", lambda route: route.fulfill(json={"predictions": [[guess]]}))
        page.keyboard.type("xyzzy")
        best(page, "I21")
        expect(page.locator("#words")).to_have_text("xyzzy")
        expect(page.locator("#unknown")).to_be_visible(visible=is_guess)

    def test_html_stays_text(self, page, server):
        server.problems.append((500, {"title": "<b>Oh</b>", "detail": "<script>alert(1)</script>"}, {}))
        page.locator("#text").fill("html <i>")
        expect(page.locator("#notice")).to_contain_text("<script>alert(1)</script>")
        page.locator("#retry").click()
        best(page, "X1")
        expect(page.locator("#why-label")).to_have_text(NAMES["X1"])
        expect(page.locator("#words")).to_have_text("html <i>")
        assert page.locator("#answer img, #answer b, #answer i, #notice b, #notice script").count() == 0

    def test_screen_readers_hear_the_result(self, page):
        page.keyboard.type("heart attack")
        expect(page.locator("#announcement")).to_have_text(
            re.compile(r"^5 labels\. Best: Acute myocardial infarction, 82%")
        )


class TestWords:
    def test_hovering_over_a_label_colours_its_words(self, page):
        page.keyboard.type("heart attack")
        best(page, "I21")
        assert words(page) == {"heart": "for", "attack": "for"}
        rows(page).filter(has_text=NAMES["I50"]).hover()
        expect(page.locator("#why-label")).to_have_text(NAMES["I50"])
        assert words(page) == {"heart": "for", "attack": "against"}
        assert selected(page) == NAMES["I50"]
        expect(page.locator("#words-summary")).to_have_text("For: heart +3.5. Against: attack −1.5.")
        page.locator("h1").hover()
        expect(page.locator("#why-label")).to_have_text(NAMES["I21"])

    def test_effects_are_not_shown_by_colour_alone(self, page):
        page.keyboard.type("heart attack")
        best(page, "I21")
        rows(page).filter(has_text=NAMES["I50"]).hover()
        spans = page.locator("#words .word")
        expect(spans.nth(0)).to_have_attribute("data-moved", "+3.5")
        expect(spans.nth(1)).to_have_attribute("data-moved", "−1.5")
        expect(spans.nth(1)).to_have_attribute("title", "against the label")
        styles = spans.evaluate_all("spans => spans.map((span) => getComputedStyle(span).borderBottomStyle)")
        assert styles == ["solid", "dashed"]

    def test_positions_count_characters_not_utf16(self, page):
        page.locator("#text").fill("😀🫀 heart, 😀 attack")
        best(page, "I21")
        assert words(page) == {"heart": "for", "attack": "for"}
        expect(page.locator("#words")).to_have_text("😀🫀 heart, 😀 attack")

    def test_tapping_a_label_on_a_phone(self, open_page):
        page = open_page("#q=heart+attack", **PHONE)
        best(page, "I21")
        rows(page).nth(2).tap()
        expect(page.locator("#why-label")).to_have_text(names(page).nth(2).inner_text())


class TestShuffling:
    def test_shuffling_changes_the_labels(self, page, server):
        page.keyboard.type("first heart")
        best(page, "I21")
        page.locator("#shuffle").click()
        expect(page.locator("#text")).to_have_value("heart first")
        expect(page.locator("#shuffled")).to_have_text(
            "Different best label: 5 of 5 labels kept, scores changed by up to 46.2 points."
        )
        expect(rows(page).nth(1)).to_contain_text("▼ was #1")
        assert server.requests[-1]["texts"] == ["heart first", "first heart"]
        page.locator("#undo").click()
        expect(page.locator("#text")).to_have_value("first heart")
        best(page, "I21")
        expect(page.locator("#shuffled")).to_be_hidden()
        expect(page.locator("#undo")).to_be_hidden()

    def test_shuffling_changes_nothing(self, page):
        typed = "heart attack and a broken wrist"
        page.keyboard.type(typed)
        for _ in range(3):  # always compared with the typed text
            before = page.locator("#text").input_value()
            page.keyboard.press("Control+Enter")
            expect(page.locator("#shuffled")).to_have_text("Same best label: 5 of 5 labels kept, no score changed.")
            mixed = page.locator("#text").input_value()
            assert mixed != before
            assert sorted(mixed.split()) == sorted(typed.split())
        page.keyboard.press("Escape")
        expect(page.locator("#text")).to_have_value(typed)

    def test_typing_after_a_shuffle_keeps_the_new_order(self, page):
        page.keyboard.type("heart attack")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#undo")).to_be_visible()
        page.keyboard.type(" bee")
        expect(page.locator("#undo")).to_be_hidden()
        expect(page.locator("#shuffled")).to_be_hidden()

    def test_nothing_to_shuffle(self, page):
        page.keyboard.type("heart heart")
        best(page, "I50")
        expect(page.locator("#shuffle")).to_be_disabled()


class TestErrors:
    def test_an_error_is_shown_until_the_next_answer(self, page, server):
        page.locator("#text").fill("heart attack")
        best(page, "I21")
        server.problems.append((422, {"title": "Too long", "detail": "the text is too long"}, {}))
        page.locator("#text").fill("bee")
        expect(page.locator("#notice")).to_have_text(re.compile(r"Too long\.\s+the text is too long\."))
        expect(page.locator("#answer")).to_have_class("stale")
        best(page, "I21")
        page.locator("#text").fill("bee sting")
        best(page, "T63.44")
        expect(page.locator("#notice")).to_be_hidden()
        expect(page.locator("#answer")).not_to_have_class("stale")

    def test_a_response_that_is_not_json(self, page):
        page.route("**/v1/predict", lambda route: route.fulfill(status=502, body="<html>Bad gateway"))
        page.locator("#text").fill("bee")
        expect(page.locator("#notice")).to_contain_text("Status 502.")

    @pytest.mark.parametrize("status", [429, 503])
    def test_busy_is_retried_automatically(self, page, server, status):
        server.problems += [(status, {"title": "Busy"}, {"Retry-After": "0"})] * 2
        page.locator("#text").fill("bee")
        best(page, "T63.44")
        expect(page.locator("#notice")).to_be_hidden()
        assert server.request_texts() == ["bee"] * 3

    def test_busy_is_shown_and_retry_after_is_respected(self, page, server):
        server.problems.append((503, {"title": "Busy"}, {"Retry-After": "30"}))
        page.locator("#text").fill("bee")
        expect(page.locator("#notice")).to_contain_text("The server is busy.")
        page.locator("#text").fill("broken wrist")
        assert server.request_texts() == ["bee"]
        page.locator("#retry").click()
        best(page, "S62")
        assert server.request_texts() == ["bee", "broken wrist"]

    def test_a_network_failure(self, page):
        page.locator("#text").fill("heart")
        best(page, "I50")
        page.context.set_offline(True)
        page.locator("#text").fill("heart attack")
        expect(page.locator("#notice")).to_contain_text("The server cannot be reached.")
        expect(page.locator("#answer")).to_have_class("stale")
        best(page, "I50")
        page.context.set_offline(False)
        page.locator("#text").fill("heart attack bee")
        best(page, "I21")
        expect(page.locator("#notice")).to_be_hidden()

    def test_the_token_form(self, page, server):
        server.token = "open sesame"
        page.reload()
        form = page.locator("#token")
        expect(form).to_be_visible()
        page.locator("#text").fill("bee")
        expect(page).to_have_url(re.compile("#q=bee$"))
        page.locator("#token-value").fill("wrong")
        page.keyboard.press("Enter")
        expect(form).to_contain_text("not accepted")
        page.locator("#token-value").fill(server.token)
        form.get_by_role("button").click()
        best(page, "T63.44")
        expect(form).to_be_hidden()
        expect(page.locator("#tagline")).to_contain_text(CARD["title"])
        page.reload()
        best(page, "T63.44")


class TestUrl:
    def test_the_url_holds_the_text(self, open_page):
        page = open_page("#q=broken+wrist+%2B+50%25")
        expect(page.locator("#text")).to_have_value("broken wrist + 50%")
        best(page, "S62")
        page.locator("#text").fill("bee & sting")
        expect(page).to_have_url(re.compile(r"#q=bee\+%26\+sting$"))
        expect(page).to_have_title("bee & sting · Shortlist")
        page.reload()
        best(page, "T63.44")

    @pytest.mark.parametrize("options", [{"viewport": {"width": 1120, "height": 700}}, PHONE])
    def test_many_examples_do_not_push_the_answer_down(self, open_page, server, options):
        server.card["examples"] = [f"heart attack of the {i}th kind, in many words" for i in range(8)]
        page = open_page("#q=heart+attack", **options)
        best(page, "I21")
        expect(page.locator("#examples button")).to_have_count(8)
        assert page.locator("#examples").bounding_box()["height"] < 80  # one row
        assert rows(page).first.bounding_box()["y"] < options["viewport"]["height"]

    def test_the_page_links_to_the_description_of_the_api(self, page):
        assert page.get_by_role("link", name="API").get_attribute("href") == "docs"

    def test_examples_and_the_back_button(self, page):
        for example in CARD["examples"][:2]:
            page.get_by_role("button", name=example).click()
            expect(page.locator("#text")).to_have_value(example)
        best(page, "S62")
        page.go_back()
        expect(page.locator("#text")).to_have_value("heart attack")
        best(page, "I21")
        page.go_back()
        expect(page.locator("#invitation")).to_be_visible()
        page.go_forward()
        best(page, "I21")


class TestCard:
    def test_all_fields(self, page):
        card = page.locator("#card")
        facts = ("InceptionXML+", "46,881", "18,052", "46.3 MB", "Nov 15, 2026", "83.41", "98,765", "12 of 800")
        for text in facts:
            expect(card).to_contain_text(text)
        expect(card.get_by_role("img")).to_have_attribute("aria-label", re.compile("score 50%, right 53%"))
        expect(card.get_by_text("Reranked")).to_be_hidden()
        card.get_by_text("Options").click()
        expect(card.get_by_text("Reranked")).to_be_visible()

    @pytest.mark.parametrize("card", [{}, {"recipe": "centroid", "scores": {}, "calibration": None, "examples": []}])
    def test_missing_fields(self, page, server, card):
        server.card = card
        page.reload()
        expect(page.locator("#examples")).to_be_hidden()
        expect(page.locator("#text")).to_have_attribute("placeholder", "Type a short text")
        expect(page.locator("#invitation")).to_contain_text("Start typing")
        page.locator("#text").fill("bee")
        best(page, "T63.44")

    def test_a_model_that_takes_features_says_so(self, page, server):
        server.card = {**CARD, "inputs": "sparse features", "n_words": None, "n_columns": 135909}
        page.reload()
        expect(page.locator("#invitation")).to_contain_text("takes 135,909 features instead of texts")
        expect(page.locator("#text")).to_be_disabled()
        expect(page.locator("#card")).to_contain_text("135,909")


class TestAccessibility:
    def test_with_the_keyboard_alone(self, page):
        press, text = page.keyboard.press, page.locator("#text")
        expect(text).to_be_focused()
        page.keyboard.type("heart attack")
        best(page, "I21")
        press("ArrowDown")
        expect(rows(page).nth(0)).to_be_focused()
        press("End")
        expect(rows(page).nth(4)).to_be_focused()
        expect(page.locator("#why-label")).to_have_text(names(page).nth(4).inner_text())
        press("ArrowUp")
        press("ArrowUp")
        expect(rows(page).nth(2)).to_be_focused()
        assert selected(page) == names(page).nth(2).inner_text()
        press("Escape")
        expect(text).to_be_focused()
        press("Tab")
        expect(page.locator("#shuffle")).to_be_focused()
        press("Enter")
        expect(text).to_have_value("attack heart")
        press("Tab")
        expect(page.locator("#undo")).to_be_focused()
        press("Space")
        expect(text).to_have_value("heart attack")
        press("Tab")
        press("Tab")
        press("Enter")
        expect(text).to_have_value("broken wrist")
        press("Tab")
        press("Tab")
        press("ArrowRight")
        expect(rows(page)).to_have_count(len(NAMES))
        press("Tab")
        expect(rows(page).nth(0)).to_be_focused()
        press("Tab")
        press("ArrowRight")
        expect(page.locator("#min-score-value")).to_have_text("5%")
        press("Tab")
        press("ArrowRight")
        expect(page.locator("#tail-value")).to_have_text("0.1")
        press("Tab")
        press("Enter")
        expect(page.locator("#allow")).to_be_visible()
        rows(page).nth(0).focus()
        press("ArrowUp")
        expect(text).to_be_focused()

    def test_focus_survives_a_shorter_list(self, page):
        page.keyboard.type("heart attack")
        best(page, "I21")
        rows(page).nth(4).focus()
        page.locator("#min-score").evaluate(
            "slider => { slider.value = 0.5; slider.dispatchEvent(new Event('input')); }"
        )
        expect(rows(page)).to_have_count(2)
        expect(rows(page).nth(1)).to_be_focused()

    def test_focus_goes_with_its_label(self, page):
        page.keyboard.type("first heart")
        best(page, "I21")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Control+Enter")
        best(page, "I50")
        expect(rows(page).nth(1)).to_be_focused()
        assert selected(page) == NAMES["I21"]
        page.keyboard.press("Escape")
        best(page, "I21")
        expect(rows(page).nth(0)).to_be_focused()
        assert selected(page) == NAMES["I21"]

    def test_a_phone(self, open_page):
        page = open_page("#q=heart+attack+with+a+tooth+" + "m" * 60, **PHONE)
        best(page, "I21")
        page.locator("#shuffle").tap()
        expect(page.locator("#shuffled")).to_be_visible()
        page.locator("#card > summary").tap()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        targets = page.locator("button:visible, summary:visible, #labels li, .count input, #min-score, #tail, #text")
        boxes = [target.bounding_box() for target in targets.all()]
        assert len(boxes) > 12
        assert min(min(box["width"], box["height"]) for box in boxes) >= 44

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_contrast(self, open_page, server, scheme):
        page = open_page("#q=heart+attack+with+tooth", color_scheme=scheme, reduced_motion="reduce")
        best(page, "I21")
        page.locator("#shuffle").click()
        expect(page.locator("#shuffled")).to_be_visible()
        rows(page).filter(has_text=NAMES["I50"]).focus()
        assert_contrast(page, READABLE, 4.5)
        assert_contrast(page, ".bar::before", 3)
        assert_contrast(page, ".word.for::border,.word.against::border,#text::border,#shuffle::border", 3)
        server.problems.append((500, {"title": "Broken"}, {}))
        page.locator("#text").fill("bee")
        expect(page.locator("#notice")).to_be_visible()
        assert_contrast(page, "#notice p,#retry", 4.5)
        server.token = "secret"
        page.locator("#text").fill("bee sting")
        expect(page.locator("#token")).to_be_visible()
        assert_contrast(page, "#token label,#token button", 4.5)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
        assert dark == (scheme == "dark")

    def test_reduced_motion_and_print(self, open_page):
        page = open_page("#q=heart", reduced_motion="reduce")
        best(page, "I50")
        duration = "getComputedStyle(document.querySelector('.bar'), '::before').transitionDuration"
        assert page.evaluate(duration) == "0s"
        page.emulate_media(media="print")
        expect(page.locator("#shuffle")).to_be_hidden()
        expect(names(page).first).to_be_visible()


def test_the_real_server(open_page, tmp_path):
    serving = pytest.importorskip("serving", reason="needs the extras `serve` and `test`")
    model = serving.save_model(tmp_path / "model")
    with serving.serving(model, token="sesame") as served:
        page = open_page(url=f"http://127.0.0.1:{served.port}")
        page.locator("#token-value").fill("sesame")
        page.keyboard.press("Enter")
        expect(page.locator("#tagline")).to_contain_text("6 labels")
        page.locator("#text").fill("😀 the RED shoes")
        expect(rows(page)).to_have_count(5)
        expect(page.locator("#why-label")).to_have_text(re.compile("^(red|shoes)$"))
        found = words(page)
        assert {found["RED"], found["shoes"]} & {"for"}
        assert set(found) == {"the", "RED", "shoes"}
        page.locator("#shuffle").click()
        expect(page.locator("#shuffled")).to_have_text("Same best label: 5 of 5 labels kept, no score changed.")
        page.locator("#text").fill("xyzzy")
        expect(page.locator("#no-labels")).to_have_text("The model knows none of these words.")
        page.locator("#text").fill("red " * 5000)
        expect(page.locator("#notice")).to_contain_text("words")


READABLE = (
    "h1,h2,h2 > em,#tagline,.input > label,#text,#shuffle,#undo,.examples > button,#timing,#shuffled,.words,.word,"
    ".legend,.count span,.sliders label,.sliders output,.name,.score,.id > code,.keys,kbd,dt,dd,figcaption,summary"
)
CONTRASTS = """
(selectors) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  // Paints colours over each other, as the screen does, and reads what comes out.
  const paint = (colours) => {
    canvas.fillStyle = "white";
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => (node ? [...behind(node.parentElement), getComputedStyle(node).backgroundColor] : []);
  return selectors.split(",").flatMap((selector) => {
    const [plain, part] = selector.split("::");
    const nodes = [...document.querySelectorAll(plain)].filter((node) => node.checkVisibility());
    if (!nodes.length) return [[selector, 0]];
    return nodes.map((node) => {
      const style = getComputedStyle(node);
      const under = behind(part === "border" ? node.parentElement : node);
      const over = part === "border" ? style.borderBottomColor
        : part === "before" ? getComputedStyle(node, "::before").backgroundColor : style.color;
      const [light, dark] = [paint(under), paint([...under, over])].map(luminance).sort((a, b) => b - a);
      return [selector + " " + node.textContent.slice(0, 20), (light + 0.05) / (dark + 0.05)];
    });
  });
}
"""


def assert_contrast(page: Any, selectors: str, min_ratio: float) -> None:
    """Every element that a selector finds has WCAG's contrast ratio to its background."""
    ratios = page.evaluate(CONTRASTS, selectors)
    assert [(what, round(ratio, 2)) for what, ratio in ratios if ratio < min_ratio] == []
