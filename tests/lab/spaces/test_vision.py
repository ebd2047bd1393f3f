"""Vision transformers: parameters of known networks, published architectures, and the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zerolm.costs import CostModel
from zerolm.spaces import make_space

RATIOS = [3.5, 3.5, 3.0, 3.5, 3.0, 3.0, 4.0, 4.0, 3.5, 4.0, 3.5, 4.0, 3.5]


@pytest.mark.parametrize(
    ("base_dim", "heads", "params"),
    [(32, [2, 4, 8], 4_847_272), (48, [2, 4, 8], 10_618_888), (48, [3, 6, 12], 23_461_912)],
)
def test_pit_has_the_parameters_of_timm(base_dim: int, heads: list[int], params: int) -> None:
    """pit_ti_224, pit_xs_224 and pit_s_224: 4.85, 10.62 and 23.46 million."""
    choices = {"base_dim": base_dim, "mlp_ratio": 4, "depth": [2, 6, 4], "num_heads": heads}
    assert CostModel().of(make_space("pit", classes=1000).read(choices))["params"] == params


def test_autoformer_has_the_parameters_of_deit_and_relative_positions() -> None:
    """DeiT-Ti has 5,717,416 in the same shapes; four tables of 30 x 64 a layer come on top."""
    choices = {"hidden_dim": 192, "mlp_ratio": 4, "depth": 12, "num_heads": 3}
    architecture = make_space("autoformer", classes=1000).read(choices)
    assert CostModel().of(architecture)["params"] == 5_717_416 + 12 * 4 * 30 * 64


def test_autoformer_tiny_is_as_large_as_published() -> None:
    """5.7 million (arXiv 2107.00651, table 5), relative positions left out."""
    choices = {"hidden_dim": 192, "mlp_ratio": RATIOS, "depth": 13, "num_heads": [3] * 10 + [4, 3, 3]}
    params = CostModel().of(make_space("autoformer", classes=1000).read(choices))["params"]
    assert params - 13 * 4 * 30 * 64 == pytest.approx(5.7e6, rel=0.02)


@pytest.mark.parametrize("name", ["autoformer", "pit"])
def test_the_published_architectures_are_read_as_they_are(name: str, data_folder: Path) -> None:
    document = json.loads((data_folder / f"{name}_vit.json").read_text(encoding="utf-8"))
    space = make_space(name)
    assert len(document["architectures"]) == 100
    for entry in document["architectures"]:
        assert space.read(entry["architecture"]).choices == entry["architecture"]


def test_the_page_names_the_shape(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    flags = ("--depth", "3", "--hidden", "192", "--heads", "3", "--out", str(tmp_path / "out"))
    assert zerolm("search", "autoformer", *flags).status == 0
    assert "3 x 192, heads 3, ffn ratio 4.0" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "out" / "pick").iterdir()] == ["architecture.json"]
