"""Every kind of page in a real browser (nothing is loaded), and fragments for notebooks."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_pages import KINDS, Made

WIDTHS = (390, 768, 1280)
COLOURED = ("search", "comparison", "supernet", "doctor", "path", "proxies-benchmark")
"""Kinds of pages that have between them all that has a colour; all pages have one style."""
LEAST = 11.0
"""Pixels of the smallest text."""
SMALL = """least => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), small = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || ["SCRIPT", "STYLE", "title"].includes(parent.tagName) || !parent.checkVisibility()) continue;
    const svg = parent instanceof SVGElement;
    const size = parseFloat(getComputedStyle(parent).fontSize) * (svg ? parent.getScreenCTM().a : 1);
    if (size < least) small.push([text.slice(0, 40), size]);
  }
  return small;
}"""
OUTSIDE = """() => [...document.querySelectorAll("svg text, p, li, h1, h2, h3, dd, button, code")]
.filter(one => {
  const box = one.getBoundingClientRect();
  return one.checkVisibility() && box.width && !one.closest(".scroll") && !one.closest(".tip")
    && (box.left < 0 || box.right > innerWidth + 0.5);
}).map(one => one.textContent.slice(0, 40))"""
PAPER = 695
"""Pixels across A4 between its margins."""
OVERLAPPING = """() => {
  const boxes = [...document.querySelectorAll(".scroll")].map(one => {
    const around = one.getBoundingClientRect(), within = one.firstElementChild.getBoundingClientRect();
    return getComputedStyle(one).overflowX === "visible" ? within : around;
  });
  return boxes.filter((a, i) => a.right > innerWidth + 0.5 || boxes.slice(i + 1).some(b =>
    a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5
  )).map(box => [box.left, box.top, box.right, box.bottom]);
}"""


@pytest.fixture
def opened(chromium: Any, made: Any, tmp_path: Path) -> Any:
    """Open a page of a kind, and fail in the end for what its console says or it asks for."""
    contexts, odd = [], []

    def open_page(kind: str, width: int = 1280, scheme: str = "light") -> Any:
        path = tmp_path / f"{kind}.html"
        path.write_text(made.pages[kind], encoding="utf-8")
        size = {"width": width, "height": 900}
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        page.on("console", lambda message: odd.append(message.text))
        page.on("pageerror", lambda error: odd.append(str(error)))
        page.on("request", lambda asked: odd.append(asked.url) if asked.url != path.as_uri() and not
                asked.url.startswith("data:") else None)  # fmt: skip
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not odd


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fits_every_width_and_can_be_read(opened: Callable[..., Any], kind: str) -> None:
    """And axe finds no violation; contrast is measured where there are colours, in both schemes."""
    page = opened(kind)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.evaluate(OUTSIDE), width
        assert not page.evaluate(SMALL, LEAST), width
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    from axe_playwright_python.sync_playwright import Axe

    for part in page.query_selector_all("details"):
        part.evaluate("part => { part.open = true }")
    runs = [("light", {"rules": {"color-contrast": {"enabled": kind in COLOURED}}})]
    runs += [("dark", {"runOnly": ["color-contrast"]})] if kind in COLOURED else []
    for scheme, options in runs:
        page.emulate_media(color_scheme=scheme)
        violations = Axe().run(page, options=options).response["violations"]
        assert not [(one["id"], one["nodes"][0]["html"][:200]) for one in violations], scheme


def test_coloured_pages_have_all_colours(made: Any) -> None:
    (style,) = {text for p in made.pages.values() for text in re.findall("<style>(.*?)</style>", p, re.S)}
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", style)
    coloured = {
        name
        for selector, body in rules
        if re.search(r"\b(color|fill|stroke|background|border)\b", body)
        for name in re.findall(r"\.([a-z][\w-]*)", selector)
    }

    def classes(*kinds: str) -> set[str]:
        named = [re.findall('class="?([^">]*)', made.pages[kind]) for kind in kinds]
        return coloured & {name for names in named for name in " ".join(names).split()}

    assert classes(*COLOURED) == classes(*KINDS)
    assert len(classes(*KINDS)) > 30


def held(page: Any, mark: str) -> Any:
    return json.loads(page.locator(f"script.{mark}").first.text_content())


def picked(page: Any) -> dict[str, str]:
    slots = page.locator(".detail [data-slot]").all()
    return {slot.get_attribute("data-slot"): slot.text_content() for slot in slots}


def click(page: Any, place: int, group: int = 0) -> None:
    """Click at a point of the first plot of a group."""
    points = json.loads(page.locator("script.points").nth(group).text_content())["plots"][0]
    cursor = page.locator(".linked").nth(group).locator(".cursor").first
    cursor.scroll_into_view_if_needed()
    box = cursor.bounding_box()
    page.mouse.click(box["x"] + points["x"][place] * box["width"] / 1000, box["y"] + points["y"][place])


def test_a_point_that_is_clicked_shows_its_architecture(opened: Callable[..., Any]) -> None:
    page = opened("search")
    first, records = page.locator(".detail").inner_html(), held(page, "records")
    plot = held(page, "points")["plots"][0]
    places = list(zip(plot["x"], plot["y"], strict=True))
    near = [sorted(abs(x - a) + abs(y - b) for a, b in places) for x, y in places]
    alone = [place for place, distances in enumerate(near) if distances[1] > 30]
    assert alone
    for place in alone[:3]:
        click(page, place)
        record, shown = records["records"][place], picked(page)
        assert (shown["words"], shown["roles"]) == (record["words"], record["roles"])
        assert [shown[f"value{i}"] for i in range(len(record["values"]))] == record["values"]
        assert record["choices"] in shown["command"]
        depth = sum(run[0] for run in record["runs"])
        assert page.locator(".detail svg").first.get_attribute("viewBox") == f"0 0 {depth} 100"
    page.locator("button.show[data-record='0']").first.click()
    assert page.locator(".detail").inner_html() == first  # Python and the script draw the same


def test_arrow_keys_walk_along_the_front(opened: Callable[..., Any]) -> None:
    page = opened("search", 390)
    records, points = held(page, "records")["records"], held(page, "points")
    cursor = page.locator(".cursor").first
    assert cursor.get_attribute("aria-valuetext").startswith(points["names"][0])
    cursor.focus()
    page.keyboard.press("Home")
    cheapest = min(range(len(records)), key=lambda place: points["plots"][0]["x"][place])
    assert picked(page)["words"] == records[cheapest]["words"]
    assert records[cheapest]["words"] in cursor.get_attribute("aria-valuetext")
    assert page.locator(".tip").is_visible()
    config = json.loads(picked(page)["config"])
    assert config["num_hidden_layers"] == json.loads(records[cheapest]["choices"])["depth"]
    words = set()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        words.add(picked(page)["words"])
    assert len(words) == 4
    page.keyboard.press("Escape")
    assert page.locator(".tip").count() == 0


def test_points_of_a_benchmark_say_what_they_are_in_all_its_drawings(opened: Callable[..., Any]) -> None:
    page = opened("comparison")
    group = page.locator(".linked").first
    points = held(page, "points")
    click(page, 3)
    said = group.locator(".readout").text_content()
    assert any(said.startswith(f"{name} · quality") for name in points["names"])
    for plot in points["plots"]:
        assert plot["columns"][0][0] in said
    assert group.locator(".ring").count() == len(points["plots"])
    group.locator(".cursor").nth(1).focus()
    page.keyboard.press("End")
    x = points["plots"][1]["x"]
    assert points["names"][max(range(len(x)), key=lambda i: (x[i], -points["plots"][1]["y"][i]))] in (
        group.locator(".readout").text_content()
    )


@pytest.mark.parametrize("clipboard", [True, False])
def test_a_command_is_copied(opened: Callable[..., Any], clipboard: bool) -> None:
    from playwright.sync_api import expect

    page = opened("search")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not clipboard:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')) }")
    click(page, len(held(page, "records")["records"]) - 1)
    button = page.locator(".detail button.copy")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == picked(page)["command"]
    expect(button).to_have_text("Copy")


def test_a_page_without_a_landscape_has_one_drawing_to_walk_along(
    opened: Callable[..., Any], made: Any
) -> None:
    report = made.reports["search"]
    made.pages["bare"] = replace(report, plateau=replace(report.plateau, landscape=[])).page()
    page = opened("bare")
    assert page.locator(".plot").count() == 1
    assert page.locator(".cursor").count() == 1
    page.locator(".cursor").focus()
    page.keyboard.press("End")
    assert picked(page)["words"]


def test_the_page_says_all_without_its_script(opened: Callable[..., Any], made: Any) -> None:
    made.pages["plain"] = re.sub(r"<script>.*?</script>", "", made.pages["search"], flags=re.DOTALL)
    page = opened("plain")
    assert picked(page)["words"] in page.locator("h1").text_content()
    assert page.locator("button.copy").first.is_hidden()
    assert page.locator("svg.xy").first.bounding_box()["width"] > 300


@pytest.mark.parametrize("kind", ["search", "comparison"])
def test_what_is_folded_is_printed(opened: Callable[..., Any], kind: str) -> None:
    page = opened(kind)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[data-print]:not([open])").count() == 0
    assert page.locator("button.copy:visible").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def wide(supernet: Any) -> Any:
    """Return a supernet of nine kinds of blocks and twelve layers with the history of another."""
    kinds = [(block, share) for block in ("bert", "mobile", "llama") for share in ("none", "kv", "qv")]
    history = [
        replace(
            epoch,
            widths=[[132 * (1 + (layer * kind + place) % 6) for kind in range(9)] for layer in range(12)],
            scores=[[float(layer + kind) for kind in range(9)] for layer in range(12)],
            diversity=[0.5] * 12,
        )
        for place, epoch in enumerate(supernet.history * 3)
    ]
    return replace(supernet, kinds=kinds, depth=12, history=history)


@pytest.mark.parametrize(("width", "media"), [(PAPER, "print"), (390, "screen"), (1280, "screen")])
def test_maps_stand_apart_from_others(opened: Callable[..., Any], made: Any, width: int, media: str) -> None:
    made.pages["wide"] = wide(made.reports["supernet"]).page()
    page = opened("wide", width)
    page.emulate_media(media=media)
    assert page.locator("table.heat").count() == 13
    assert not page.evaluate(OVERLAPPING)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "score"])
def test_a_fragment_is_small_and_needs_no_script_or_style(made: Made, kind: str) -> None:
    fragment = made.fragments[kind]
    assert len(fragment) < 30_000
    assert not re.search(r"<(script|style|link|img)\b|var\(--", fragment)
    assert (fragment[:4], fragment[-6:]) == ("<div", "</div>")
    assert "<svg" in fragment or kind in ("doctor", "ledger", "comparison", "proxies-model", "path")
    assert not re.search(r'(fill|stroke)="(black|white|#fff|#000)"', fragment)


@pytest.mark.parametrize("kind", ["search", "comparison", "carving", "doctor", "healing"])
def test_a_page_holds_no_undefined_number(made: Made, kind: str) -> None:
    text = re.sub(r"<(script|style)\b.*?</\1>", "", made.pages[kind], flags=re.DOTALL)
    assert not re.search(r">[^<]*\b(nan|inf)\b|\bNone<", text)
