"""Results that were saved are read back as what they were, or the wrong field is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from carvings import carve
from tiny import saved

from zerolm.carving.result import Carved
from zerolm.healing.result import Healed
from zerolm.healing.stages import CarvedAndHealed

HEALED = Healed(
    {"family": "llama", "child": "a", "parent": "b", "teacher": "b", "format": "hf"},
    [{"source": "text", "sha256": "0", "tokens": 9, "trained_on": 4, "held_out": 2}],
    {"tokens": 480, "losses": ["kl"], "lora": None},
    {"before": {"kl": 0.5}, "after": {"kl": 1}, "parent": {"kl": 0.0}},
    [{"tokens": 0, "kl": 0.5}],
    verified={"difference": 0.0},
)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One saved result of each kind."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLM_CACHE", str(folder / "cache"))
        carved = carve(
            saved(folder / "parent", "llama"), folder / "child", keep_hidden=0.5, text="random",
            sequences=4, length=8,
        )  # fmt: skip
    both = CarvedAndHealed(carved.to_json(), HEALED)
    return {kind.__name__: json.loads(json.dumps(one.to_json())) for kind, one in (
        (Carved, carved), (Healed, HEALED), (CarvedAndHealed, both),
    )}  # fmt: skip


KINDS: dict[str, Callable[[Any], Any]] = {
    kind.__name__: kind.from_json for kind in (Carved, Healed, CarvedAndHealed)
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_is_read_back(kind: str, documents: dict[str, dict[str, Any]]) -> None:
    read = KINDS[kind](documents[kind])
    assert type(read).__name__ == kind
    assert json.dumps(read.to_json()) == json.dumps(documents[kind])


def test_units_are_not_in_a_result(documents: dict[str, dict[str, Any]]) -> None:
    carved = Carved.from_json(documents["Carved"])
    assert carved.widths[0]["ffn"] == 40
    assert carved.parent_sizes["hidden"] == 48
    with pytest.raises(ValueError, match="its recipe does"):
        _ = carved.cut


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_is_wrong_is_named(kind: str, documents: dict[str, dict[str, Any]]) -> None:
    document = documents[kind]
    for name in document:
        without = {key: value for key, value in document.items() if key != name}
        for other in (without, document | {name: [None, 1.5]}):
            with pytest.raises(ValueError, match=rf"^{name}\b") as refused:
                KINDS[kind](other)
            assert "\n" not in str(refused.value)
    for wrong, words in (({"more": 1}, "^more: extra"), ({"note": 1}, "^note must be ")):
        with pytest.raises(ValueError, match=words):
            KINDS[kind](document | wrong)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("document", [None, [], "x", 3, {}])
def test_what_is_no_result_is_refused(kind: str, document: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a JSON object|valid|required"):
        KINDS[kind](document)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"costs": {"parent": {"params": "many"}}}, "costs.parent.params"),
        ({"widths": [{"ffn": 1.5}]}, "widths.0.ffn"),
        ({"weight_bits": [True]}, "weight_bits.0"),
        ({"losses": {"measured": None}}, "losses.measured"),
    ],
)
def test_the_place_within_a_field_is_named(
    changes: dict[str, Any], place: str, documents: dict[str, dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match=f"^{place} must be "):
        Carved.from_json(documents["Carved"] | changes)
