"""Every two kinds of units in one child: carved, written, proven, built again by its recipe, and judged."""

import math
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from carvings import carve, rebuild
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import NAMED, ROWS
from saved_mixtures import mixture
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import zerolm
from zerolm.carving import budgeted_units
from zerolm.carving.result import Carved
from zerolm.carving.vocabulary import byte_losses, planned_size

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from gguf_parents import in_blocks

UNITS: Final[dict[str, dict[str, Any]]] = {
    "layers": {"keep_layers": 0.5}, "KV groups": {"keep_heads": 0.5}, "FFN neurons": {"keep_ffn": 0.5},
    "hidden size": {"keep_hidden": 0.5}, "experts": {"keep_experts": "0.5"},
    "neurons of experts": {"keep_expert_ffn": "0.5"}, "tokens": {"keep_vocab": "used"},
    "types": {"max_weight_bytes": "0.2x", "types": "Q8_0,Q4_0"},
}  # fmt: skip
CUTS: Final = ("layers", "KV groups", "FFN neurons", "hidden size")
OF_EXPERTS: Final = ("experts", "neurons of experts")
FORMS: Final = ("hf", "gguf")
PAIRS: Final = list(combinations(UNITS, 2))
STAYING: Final[dict[str, Any]] = {
    "keep_layers": 1, "keep_heads": 1, "keep_ffn": 1, "keep_hidden": 1,
    "keep_vocab": "all", "keep_experts": "all", "multiple_of": 32,
}  # fmt: skip
"""Beside types all units that are not named stay: else they would be weighed against them, too."""
QUICK: Final[dict[str, Any]] = {"sequences": 6, "length": 16, "multiple_of": 8}
PAGE: Final = Path(__file__).parents[2] / "docs" / "limits.md"


class Refusal(NamedTuple):
    """Pairs of units that are refused: in which formats, of which parent, and why, in the page's words."""

    mark: str
    pairs: Sequence[tuple[str, str]]
    forms: Sequence[str]
    parent: str
    error: str
    reason: str


REFUSED: Final = (
    Refusal(
        "*a*",
        [(unit, "types") for unit in UNITS if unit != "types"],
        ["hf"],
        "",
        "is for quantisation types of gguf files: give --format gguf",
        "only in a GGUF file. The folder of a stock class has no blocks of quantised weights.",
    ),
    Refusal(
        "*b*",
        [("FFN neurons", unit) for unit in OF_EXPERTS],
        FORMS,
        "granitemoe",
        "ffn cannot be cut here",
        "in most families, dense layers of an MoE have no width of their own. "
        "Neurons of a shared expert are pruned if it has one.",
    ),
)
"""All refusals; those without a ``parent`` hold for every parent. Every other pair works."""


def refused_always(pair: tuple[str, str], form: str) -> Refusal | None:
    return next((one for one in REFUSED if not one.parent and pair in one.pairs and form in one.forms), None)


def is_of_mixture(units: Sequence[str]) -> bool:
    return any(unit in OF_EXPERTS for unit in units)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dense decoder, of mixtures with and without shared experts, and of a text."""
    root = tmp_path_factory.mktemp("parents")
    for name in ("llama", "qwen2", "granitemoeshared", "granitemoe"):
        sizes = in_blocks(name) | {"vocab_size": ROWS, "num_hidden_layers": 2}
        sizes |= {"shared_intermediate_size": 64} if name == "granitemoeshared" else {}
        sizes |= {"hidden_size": 128, "num_attention_heads": 8} if name == "qwen2" else {}
        mixture(root / name, name, **sizes | ({"num_experts_per_tok": 2} if "moe" in name else {}))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level()), **NAMED)
        tokenizer.save_pretrained(root / name)
    (root / "text.txt").write_text(CORPUS[0], "utf-8")
    return root


def parent_of(parents: Path, units: Sequence[str]) -> Path:
    """Return a dense parent, or a mixture whose shared experts have neurons of their own."""
    return parents / ("granitemoeshared" if is_of_mixture(units) else "llama")


def flags_of(parents: Path, units: Sequence[str]) -> dict[str, Any]:
    cuts = {name: value for unit in units for name, value in UNITS[unit].items()}
    staying = STAYING if len(units) == 2 and "types" in units else {}
    return QUICK | {"text": str(parents / "text.txt")} | staying | cuts


def checked(parents: Path, folder: Path, form: str, units: Sequence[str], **more: Any) -> Carved:
    """Carve a child with fewer of each of these units, build it again, and judge it."""
    parent, flags = parent_of(parents, units), flags_of(parents, units) | more
    child = carve(parent, folder / "child", form=form, **flags)
    assert child.verified is not None
    smaller = {row.unit for row in child.units if row.after < row.before}
    assert smaller >= {unit for unit in units if unit != "types"}
    gave = [row.params for row in child.units]
    assert sum(gave) == child.costs["parent"]["params"] - child.costs["child"]["params"]
    assert bool(child.types) is ("types" in units)
    if child.types:
        assert {row.type for row in child.types} & set(flags["types"].split(","))
        share = float(flags["max_weight_bytes"].removesuffix("x"))
        assert child.costs["child"]["weight_bytes"] <= share * child.costs["parent"]["weight_bytes"]
    files = [*folder.glob("child/*.gguf"), *folder.glob("child/*.safetensors")]
    assert files
    rebuild(folder / "child" / "recipe.json", parent, folder / "again", text=flags["text"])
    for file in files:
        assert file.read_bytes() == (folder / "again" / file.name).read_bytes()
    judged = zerolm.eval(
        file if form == "gguf" else file.parent, parent=parent, text=flags["text"], sequences=4, length=16
    )
    rows = {row["name"]: row for row in judged.rows()}
    assert rows["parent"]["kl"] == 0 < rows["child"]["kl"] < math.inf
    assert rows["child"]["params"] == child.costs["child"]["params"]
    return child


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 256)
    monkeypatch.setattr(planned_size, "SHARES", (1.2, 0.7))
    monkeypatch.setattr(budgeted_units, "SHARES", (0.5,))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_kinds_of_units_combine(pair: tuple[str, str], form: str, parents: Path, tmp_path: Path) -> None:
    refusal = refused_always(pair, form)
    if refusal is None:
        checked(parents, tmp_path, form, pair)
        return
    with pytest.raises(ValueError, match=refusal.error):
        carve(parent_of(parents, pair), tmp_path / "child", form=form, **flags_of(parents, pair))
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("refusal", "pair", "form"),
    [(one, pair, form) for one in REFUSED if one.parent for pair in one.pairs for form in one.forms],
    ids=lambda part: " and ".join(part) if type(part) is tuple else getattr(part, "parent", part),
)
def test_some_families_refuse_a_pair_in_one_line(
    refusal: Refusal, pair: tuple[str, str], form: str, parents: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=refusal.error) as raised:
        carve(parents / refusal.parent, tmp_path / "child", form=form, **flags_of(parents, pair))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "child").exists()


def test_the_page_has_the_table_of_pairs() -> None:
    page = " ".join(PAGE.read_text("utf-8").split())
    for line in [*rows_of_the_page(), *(f"- {one.mark}: {one.reason}" for one in REFUSED)]:
        assert line in page


def rows_of_the_page() -> list[str]:
    """Return the rows of the table of pairs in the documentation."""
    heads = [f" | {' | '.join(UNITS)} |", "|---" * (1 + len(UNITS)) + "|"]
    rows = [[f"**{unit}**", *(cell(unit, other) for other in UNITS)] for unit in UNITS]
    return [f"|{heads[0]}", heads[1], *(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)]


def cell(unit: str, other: str) -> str:
    """Return the cell of a pair: yes, with the marks of its refusals, or nothing for a unit with itself."""
    marks = [one.mark for one in REFUSED if {(unit, other), (other, unit)} & {*one.pairs}]
    return "" if unit == other else " ".join(["yes", *marks])


@pytest.mark.parametrize("form", FORMS)
def test_all_kinds_but_types_combine(form: str, parents: Path, tmp_path: Path) -> None:
    """The judge compares the child with its parent, whose tokens are others."""
    child = checked(parents, tmp_path, form, [unit for unit in UNITS if unit != "types"])
    assert all(row.after < row.before for row in child.units)


def test_types_and_all_kinds_that_they_are_weighed_against(parents: Path, tmp_path: Path) -> None:
    checked(
        parents, tmp_path, "gguf", [*CUTS, "tokens", "types"], types="Q4_0", max_weight_bytes="0.07x",
        multiple_of=32,
    )  # fmt: skip


def test_types_and_all_kinds_of_a_mixture(parents: Path, tmp_path: Path) -> None:
    checked(parents, tmp_path, "gguf", list(UNITS), types="Q4_0", max_weight_bytes="0.05x", multiple_of=32)


def test_a_text_and_budgets_weigh_experts_against_all_else(parents: Path, tmp_path: Path) -> None:
    """The number of least loss is taken, and its child is the one that is asked for by that number."""
    parent = parents / "granitemoeshared"
    flags: dict[str, Any] = QUICK | {"text": str(parent.parent / "text.txt"), "max_params": "0.6x"}
    child = carve(parent, tmp_path / "child", **flags)
    losses = dict(re.findall(r"(all|\d+ of \d+(?: neurons of each)?) ([\d.e-]+)", child.notes[0]))
    assert len(losses) > 2
    assert "all" in losses
    count, _, of = min(losses, key=lambda name: float(losses[name])).partition(" of ")
    assert child.costs["child"]["params"] <= 0.6 * child.costs["parent"]["params"]
    given = {"keep_expert_ffn" if "neurons" in of else "keep_experts": count}
    assert carve(parent, tmp_path / "named", **given, **flags).widths == child.widths
    files = (tmp_path / name / "model.safetensors" for name in ("child", "named"))
    assert len({file.read_bytes() for file in files}) == 1
    for more in ({"keep_experts": "all"}, {"plan": "weights"}, {"for_": 60.0}):
        assert carve(parent, **flags | {"max_params": "0.95x"} | more).experts is None
    assert "no text is given" in carve(parent, max_params="0.95x", criterion="capacity").notes[0]


def test_a_plan_keeps_queries_as_wide_as_the_stream_where_the_format_has_no_others(
    parents: Path, tmp_path: Path
) -> None:
    """llama.cpp has them so in its architecture of qwen2: here 8 heads of 16 in 2 groups, and 128."""
    flags: dict[str, Any] = QUICK | {"text": str(parents / "text.txt"), "keep_vocab": "all", "form": "gguf"}
    flags["keep_layers"] = 1.0
    for name, budget in (("child", {"max_params": "0.5x"}), ("typed", {"max_weight_bytes": "0.09x"})):
        child = carve(parents / "qwen2", tmp_path / name, **flags | budget | {"multiple_of": 16})
        assert child.verified is not None
        after = {row.unit: row.after for row in child.units}
        assert (after["KV groups"], after["hidden size"]) == (2, 64)
    with pytest.raises(ValueError, match="no KV groups make them 64 wide: --keep-heads 1"):
        carve(parents / "qwen2", tmp_path / "refused", keep_hidden=0.5, keep_heads=1.0, **flags)
    with pytest.raises(ValueError, match="no size is left"):
        carve(parents / "qwen2", tmp_path / "refused", max_params="0.9x", tensor_parallel=7, **flags)
    carve(parents / "qwen2", tmp_path / "named", keep_hidden=0.5, keep_heads=0.5, **flags)


def test_experts_alone_may_take_bytes_in_stored_types(parents: Path) -> None:
    flags: dict[str, Any] = {"keep_experts": "auto", "keep_expert_ffn": "auto", "keep": 1.0}
    flags |= {"max_weight_bytes": "0.7x", "types": "stored", "keep_vocab": "all"}
    flags |= QUICK | {"text": str(parents / "text.txt")}
    child = carve(parents / "granitemoeshared", form="gguf", **flags)
    assert {row.unit for row in child.units if row.after < row.before} <= {*OF_EXPERTS}
    assert child.experts is not None
    assert child.costs["child"]["weight_bytes"] <= 0.7 * child.costs["parent"]["weight_bytes"]


AUTO: Final[dict[str, dict[str, Any]]] = {
    "experts with given neurons": {
        "keep_experts": "auto", "keep_expert_ffn": "0.5", "keep_vocab": "auto", "max_params": "0.4x"
    },
    "experts and neurons": {
        "keep_experts": "auto", "keep_expert_ffn": "auto", "keep_vocab": "auto", "max_params": "0.4x"
    },
    "types": {"keep_expert_ffn": "auto", "keep": 1.0, "types": "Q8_0,Q4_0", "max_weight_bytes": "0.13x"},
}  # fmt: skip


@pytest.mark.parametrize("auto", AUTO.values(), ids=AUTO)
def test_numbers_of_experts_share_budgets_with_tokens_and_types(auto: dict[str, Any], parents: Path) -> None:
    parent, text = parents / "granitemoeshared", str(parents / "text.txt")
    child = carve(parent, form="gguf" if "types" in auto else "hf", text=text, **QUICK | auto)
    losses = {n: float(loss) for n, loss in re.findall(r"(all|\d[^,:;]*) ([\d.e-]+)(?:,|$)", child.notes[0])}
    assert len(losses) > 1
    least = min(losses, key=losses.__getitem__)
    units = {row.unit: row for row in child.units}
    count = re.search(r"(\d+) of 8", least)
    assert units["experts"].after == 2 * (int(count[1]) if count else 8)
    neurons = re.search(r"(\d+) of 64", least)
    of_each = int(neurons[1]) if neurons else 32 if auto.get("keep_expert_ffn") == "0.5" else 64
    narrower = units.get("neurons of experts")
    assert (narrower.after if narrower else units["experts"].after * 64) == units["experts"].after * of_each
    for name in ("params", "weight_bytes"):
        share = float(auto.get(f"max_{name}", "1x").removesuffix("x"))
        assert child.costs["child"][name] <= share * child.costs["parent"][name]
    both = [name for name in losses if " of 8" in name and " of 64" in name]
    assert bool(both) is (auto.get("keep_experts") == auto["keep_expert_ffn"])
    assert bool(child.types) is ("types" in auto)


def test_tokens_are_not_compared_with_experts_in_limited_time_or_of_several_texts(parents: Path) -> None:
    parent, text = parents / "granitemoeshared", str(parents / "text.txt")
    with pytest.raises(ValueError, match=r"by losses on one --text FILE \(--for\): give numbers"):
        carve(parent, keep_experts="auto", keep_vocab="auto", text=text, max_params="0.9x", for_=60.0)
    with pytest.raises(ValueError, match="tokens are chosen by one text"):
        carve(parent, keep_experts="2", keep_vocab="used", text=f"code={text},chat={text}")
