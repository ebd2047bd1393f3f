"""The page of a carving: the width of the stream in words, tables and charts; how to build it again."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape

import pytest
from tiny import saved, word_tokenizer

import zerolm
from zerolm.carving.result import (
    ChildExperts,
    ChildStream,
    ChildVocabulary,
    ChildWidth,
    EqualBytes,
    SpectrumRow,
    TriedSize,
    TypeRow,
    UnitRow,
)
from zerolm.show.charts import Linked
from zerolm.show.page import body
from zerolm.show.sheet import as_cell
from zerolm.verbs.carve import CarvingReport
from zerolm.verbs.carve_parts import LOST, stream_line, stream_sheets, tokens_line, tokens_sheets
from zerolm.verbs.report import Run

WHOLE = 64
UNIT = "1 - cosine of embeddings"
LOSS = f"loss, {UNIT}"
SIZES = range(8, WHOLE + 1, 8)


def energy(hidden: int) -> float:
    return 1 - (1 - hidden / WHOLE) ** 2


def lost(hidden: int) -> float:
    return 1 - hidden / WHOLE


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CarvingReport]:
    """A child of three quarters of its parent's hidden size, whose layers differ."""
    folder = tmp_path_factory.mktemp("carved")
    parent, text = saved(folder / "parent", "llama"), folder / "text.txt"
    word_tokenizer(parent)
    text.write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLM_CACHE", str(folder / "cache"))
        yield zerolm.carve(
            parent, folder / "child", max_params="0.7x", keep_hidden=0.75, shape="per-layer", format="padded",
            text=text, sequences=6, length=12,
        )  # fmt: skip


Widths = Callable[..., CarvingReport]


@pytest.fixture
def widths(child: CarvingReport) -> Widths:
    """A child of a stream and its spectrum: energies are 1 - (1 - k/d)^2, losses 1 - k/d."""

    def make(
        hidden: int | None, tied: bool = True, basis: str = "loss", loss: Callable[[int], float | None] = lost
    ) -> CarvingReport:
        stream = None if hidden is None else ChildStream(hidden, tied, basis, energy(hidden))
        spectrum = [SpectrumRow(k, energy(k), loss(k)) for k in SIZES]
        sizes = replace(child.parent_sizes, hidden=WHOLE)
        return replace(child, parent_sizes=sizes, stream=stream, spectrum=spectrum, unit=UNIT)

    return make


def drawn(child: CarvingReport) -> str:
    return "".join(map(body, stream_sheets(child)))


def table(child: CarvingReport) -> list[tuple[str, str]]:
    (sheet,) = stream_sheets(child)
    return [(cell.text, cell.note) for cell in (as_cell(row[0]) for row in sheet.rows)]


def test_a_few_widths_stand_in_the_table_and_the_chosen_one(widths: Widths) -> None:
    assert table(widths(40)) == [("56", ""), ("48", ""), ("40", "chosen"), ("32", "")]
    assert table(widths(51)) == [("56", ""), ("51", "chosen"), ("48", ""), ("40", ""), ("32", "")]
    assert not any(note for _, note in table(widths(None)))
    ((_, energy_kept, loss),) = [row for row in stream_sheets(widths(51))[0].rows if "51" in str(row[0])]
    assert (energy_kept, loss) == (f"{energy(51):.1%}", "")


def test_the_width_is_said_in_a_line(widths: Widths) -> None:
    assert stream_line(widths(48)) == (
        "hidden size 64 -> 48 (93.8% of energy, loss-weighted basis), tied head"
    )
    assert stream_line(widths(None)) == "hidden size 64, as the parent"
    assert stream_line(widths(48, tied=False, basis="weights")).endswith("basis from weights), untied head")
    unseen = replace(widths(None), spectrum=[])
    assert (stream_line(unseen), stream_sheets(unseen)) == ("", [])


def test_a_chart_for_what_is_known(widths: Widths) -> None:
    both, one = drawn(widths(40)), drawn(widths(40, basis="weights", loss=lambda _: None))
    for name in (LOST, LOSS):
        assert f'aria-label="{name}, by the hidden size of 64"' in both
    assert (both.count('<svg class="xy"'), one.count('<svg class="xy"')) == (2, 1)
    assert "no tokens were looked at" in one
    assert "<th>loss</th>" in both
    assert "<th>loss</th>" not in one
    assert "40 chosen" in both
    assert "chosen" not in drawn(widths(None))


@pytest.mark.parametrize("loss", [0.0, math.inf, math.nan])
def test_losses_that_no_axis_holds_are_in_the_table_alone(loss: float, widths: Widths) -> None:
    page = drawn(widths(None, loss=lambda _: loss))
    assert LOST in page
    assert LOSS not in page
    assert f"<td>{loss:.3g}</td>" in page


def test_the_page_says_how_to_build_it_again(child: CarvingReport) -> None:
    """A basis by the loss needs the text, whatever the repair."""
    written = replace(child, repair="none", run=Run({"text": "text.txt"}))
    line = f"zerolm carve {written.parent} --recipe recipe.json --out child"
    assert f"{line} --text text.txt" in written.page()
    by_weights = replace(written, stream=replace(child.stream, basis="weights"))
    assert f"{line} --text" not in by_weights.page()
    for html in (child.page(), child._repr_html_()):
        assert "Hidden size 48 -&gt; 36 (" in html
    whole = replace(child, stream=None, verified=None)
    assert "Hidden size 48, as the parent." in whole._repr_html_()
    assert "Build the same child again" not in whole.page()
    noted = replace(child, notes=["36 is slow; 32 is not", "so it is"])
    assert noted.heading().trust.endswith("36 is slow; 32 is not. So it is.")
    assert noted.remarks == noted.notes


def test_layers_that_differ_are_listed_where_no_strip_is_drawn(child: CarvingReport) -> None:
    (listed,) = [sheet for sheet in child.sheets() if list(sheet.head)[:1] == ["layer"]]
    assert [list(map(int, map(str, row))) for row in listed.rows] == [
        [one.layer, one.heads, one.kv_heads, one.ffn] for one in child.widths
    ]
    assert "<th>layer</th>" not in child.page()
    even = replace(child, widths=[replace(one, heads=6, kv_heads=2, ffn=9) for one in child.widths])
    assert not [sheet for sheet in even.sheets() if list(sheet.head)[:1] == ["layer"]]


def test_a_page_of_a_healed_child_shows_the_healing(child: CarvingReport) -> None:
    kls = [{"tokens": float(tokens), "kl": 1 / tokens} for tokens in (1, 2, 4)]
    losses = {name: {"perplexity": 9.0, "kl": kl} for name, kl in (("before", 1.0), ("after", 0.25))}
    training = {
        "tokens": 4, "steps": 2, "seconds": 1.0, "rate": 1e-3, "losses": ["kl"], "temperature": 1.0,
        "top": None, "lora": None, "only": None,
        "batch": 1, "length": 2, "bfloat16": False, "seed": 0, "held_out": 3,
    }  # fmt: skip
    healing = {
        "child": "child", "parent": "parent", "teacher": "parent", "family": "llama", "format": "hf",
        "texts": [], "training": training, "curve": kls, "notes": [], "verified": None,
        "losses": losses | {"parent": {"perplexity": 8.0, "kl": 0.0}},
    }  # fmt: skip
    healed = CarvingReport.from_json(child.to_json() | {"healing": healing})
    assert healed.to_json()["healing"] == healing
    assert "healing" not in child.to_json()
    (sheet,) = [sheet for sheet in healed.sheets() if sheet.title == "How healing went"]
    assert [type(chart) for chart in sheet.charts] == [Linked]
    assert [next(iter(row)) for row in sheet.rows] == ["child, before", "child, after", "parent"]
    assert "kl 1.0000 to 0.2500" in repr(healed)
    assert "trained network" in repr(healed)


@pytest.mark.parametrize("unit", ["bits a byte", "1 - cosine"])
@pytest.mark.parametrize("losses", [{}, {"parent": 0.0, "child": 0.1}, {"parent": 0.5, "child": 0.6}])
def test_losses_of_the_vocabulary_are_in_its_unit(unit: str, losses: dict[str, float]) -> None:
    """Also where nothing was lost by the parent, or all tokens stay."""
    tried = [TriedSize(64, 1000, 0.0, 0.1), TriedSize(32, 900, 0.2, 0.0)]
    tokens = ChildVocabulary(64, 32 if losses else 64, unit, sizes=tried, losses=losses)
    (sheet,) = tokens_sheets(tokens)
    assert sheet.title.endswith(f"what they lose ({unit})")
    assert (unit in tokens_line(tokens)) == bool(losses)


def test_losses_that_choose_a_plan_are_apart_from_that_of_the_child(child: CarvingReport) -> None:
    """They are measured on other tokens."""
    types, others = [TypeRow(0, "q", "Q4_0")], [EqualBytes("types alone", 9, 0.1, 0.2)]
    losses = {"predicted": 0.1, "as_read_back": 0.3}
    page = replace(child, types=types, equal_bytes=others, losses=losses).page()
    assert "<th>measured before the choice</th>" in page
    assert "the child's loss is on others." in unescape(page)
    assert page.count("measured, quantised") == 1


def test_the_first_lines_say_what_is_given_up_and_why(child: CarvingReport) -> None:
    measured = [EqualBytes("8 layers", 9, 0.1, 0.2), EqualBytes("6 layers", 9, 0.1, 0.3)]
    too_large = [EqualBytes("types alone", 2_370_000, None, None)]
    every = [*measured, EqualBytes("4 layers", 9, 0.1, 0.25), *too_large]
    costs = {**child.costs, "child": {**child.costs["child"], "weight_bytes": 2_200_000}}
    units = [UnitRow("layers", 8, 6, 1500), UnitRow("tokens", 64, 64, 0)]
    types = [TypeRow(0, "q", "Q4_0")]
    pruned, kinds, why, *_ = replace(child, types=types, equal_bytes=every, costs=costs, units=units).lines()
    assert pruned == "pruned: layers 8 -> 6 (1.5k parameters)"
    assert kinds == "quantisation types: 1 Q4_0"
    losses = "0.2 (8 layers), 0.25 (4 layers)"
    assert why == f"the best plans of 2.2 MB lose {losses}, {child.unit}; types alone take at least 2.37 MB"
    slow = EqualBytes("types alone", 9, 0.1, 0.4)  # also where others lose less
    (line,) = (row for row in replace(child, equal_bytes=[*measured, slow]).lines() if "the best" in row)
    assert line.endswith(f"lose 0.2 (8 layers), 0.3 (6 layers), 0.4 (types alone), {child.unit}")


def test_the_page_says_first_how_many_experts_and_neurons_stay(child: CarvingReport) -> None:
    experts = ChildExperts("reap", 16, 12, 4, ffn=ChildWidth(256, 192))
    line = "Experts 12 of 16 in 0 layers (4 active), chosen by reap; 192 of 256 neurons of each kept."
    assert line in replace(child, experts=experts).heading().finding
