"""The width of the residual stream in words, tables and charts."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from zerolm.report.carving import carving_page
from zerolm.report.width import LOSS, LOST, width_chart, width_line, width_rows, width_sentence, widths_line

WHOLE = 64


def told(hidden: int | None, *, tied: bool = True, measured: bool = True, basis: str = "loss") -> Any:
    """What a carving's JSON says of its stream: energies are 1 - (1 - k/d)^2, losses 1 - k/d."""
    sizes = range(8, WHOLE + 1, 8)
    spectrum = [
        {"hidden": k, "kept_energy": kept(k), "loss": 1 - k / WHOLE if measured else None} for k in sizes
    ]
    stream = None
    if hidden is not None:
        stream = {"hidden": hidden, "tied": tied, "basis": basis, "kept_energy": kept(hidden)}
    return {"stream": stream, "spectrum": spectrum, "parent_sizes": {"hidden": WHOLE}}


def kept(hidden: int) -> float:
    return 1 - (1 - hidden / WHOLE) ** 2


def test_a_few_widths_stand_in_the_table_and_the_chosen_one() -> None:
    assert [(row.hidden, row.is_chosen) for row in width_rows(told(40))] == [
        (56, False), (48, False), (40, True), (32, False)
    ]  # fmt: skip
    rows = width_rows(told(51))
    assert [row.hidden for row in rows] == [56, 51, 48, 40, 32]
    chosen = next(row for row in rows if row.is_chosen)
    assert (chosen.kept_energy, chosen.loss) == (kept(51), None)
    assert not any(row.is_chosen for row in width_rows(told(None)))
    assert width_rows(told(None) | {"spectrum": []}) == []


def test_measured_widths_are_preferred() -> None:
    document = told(None)
    for one in document["spectrum"]:
        if one["hidden"] not in (16, 40):
            one["loss"] = None
    assert [row.hidden for row in width_rows(document)] == [40]
    assert [row.hidden for row in width_rows(told(None, measured=False))] == [56, 48, 40, 32]


def test_the_width_is_said_in_a_line_and_a_sentence() -> None:
    assert width_line(told(48)) == (
        "hidden 48 of 64: 93.8% of the energy, in a basis by the loss; the head is the embedding"
    )
    assert width_line(told(None)) == "hidden 64, the parent's"
    assert width_line({"parent_sizes": {"hidden": 64}}) == width_sentence({"spectrum": []}) == ""
    sentence = width_sentence(told(48, tied=False, basis="weights"))
    assert "48 of 64" in sentence
    assert "by the weights" in sentence
    assert sentence.endswith("the head is a matrix of its own.")
    assert widths_line(told(48)).startswith("56 98.4% 0.125; 48 93.8% 0.25; ")
    assert widths_line(told(48, measured=False)).startswith("56 98.4%; 48 93.8%; ")


def test_a_chart_for_what_is_known() -> None:
    both, one = width_chart(told(40)), width_chart(told(40, measured=False, basis="weights"))
    for name in (LOST, LOSS):
        assert f'aria-label="{name}, by the hidden size of 64"' in both
    assert (both.count("<svg class"), one.count("<svg class")) == (2, 1)
    assert "no tokens were looked at" in one
    assert "<th>loss</th>" in both
    assert "<th>loss</th>" not in one
    assert "40 chosen" in both
    assert "chosen" not in width_chart(told(None))
    assert width_chart({"parent_sizes": {"hidden": 64}, "spectrum": []}) == ""


@pytest.mark.parametrize("loss", [0.0, math.inf, math.nan])
def test_losses_that_no_axis_holds_are_in_the_table_alone(loss: float) -> None:
    document = told(None)
    for one in document["spectrum"]:
        one["loss"] = loss
    drawn = width_chart(document)
    assert LOST in drawn
    assert LOSS not in drawn
    assert f"<td>{loss:.3g}</td>" in drawn


@pytest.mark.parametrize("hidden", [1, 2])
def test_hardly_any_width_is_no_chart(hidden: int) -> None:
    document = {
        "stream": None,
        "spectrum": [{"hidden": k, "kept_energy": k / hidden, "loss": None} for k in range(1, hidden + 1)],
        "parent_sizes": {"hidden": hidden},
    }
    if hidden == 1:
        assert width_chart(document) == ""
    else:
        assert "<svg" not in width_chart(document | {"stream": told(1, basis="weights")["stream"]})


def test_the_strip_draws_the_child_as_wide_as_it_is(made: Any) -> None:
    page = made.pages["carving"]
    strips = re.findall(r'<h3>(Parent|Child)</h3><div class="strip" data-most="48 [^"]*">(.*?)</div>', page)
    widths = {name: re.search(r'class="value">([^<]*)<', drawn)[1] for name, drawn in strips}  # type: ignore[index]
    heights = {name: re.findall(r"M\d+\.08 100v-(\d+)", drawn)[:3] for name, drawn in strips}
    assert widths == {"Parent": "48", "Child": "36"}
    assert heights == {"Parent": ["100"] * 3, "Child": ["75"] * 3}


def test_the_page_says_how_to_build_it_again(made: Any) -> None:
    """A basis by the loss needs the text, whatever the repair."""
    written = made.inputs["carving"] | {"repair": "none"}
    line = "zerolm carve {} --recipe recipe.json --out child".format(written["parent"])
    assert f"{line} --text text.txt" in carving_page(written, {"text": "text.txt"})
    by_weights = written | {"stream": written["stream"] | {"basis": "weights"}}
    assert f"{line} --text" not in carving_page(by_weights, {"text": "text.txt"})
    assert "The hidden size is 36 of 48" in made.pages["carving"]
    assert "The hidden size is 36 of 48" in made.fragments["carving"]
    assert "The hidden size stays 48." in made.fragments["carving-plan"]
