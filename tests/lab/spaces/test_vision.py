"""Vision transformers: parameters of known networks, published results, the flags and the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zerolm as package
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


def test_body_parameters_are_the_matrices_of_the_layers() -> None:
    for name in ("autoformer", "pit"):
        space = make_space(name)
        backbone = next(space.backbones())
        architecture = space.assemble(backbone, [[0] * (1 if b.tied else b.count) for b in backbone.blocks])
        weights = sum(m.rows * m.cols for layer in architecture.layers for m in layer.matrices)
        assert CostModel().of(architecture)["body_params"] == weights


@pytest.mark.parametrize("name", ["autoformer", "pit"])
def test_the_published_architectures_are_read_as_they_are(name: str, data_folder: Path) -> None:
    document = json.loads((data_folder / f"{name}_vit.json").read_text(encoding="utf-8"))
    space = make_space(name)
    assert len(document["architectures"]) == 100
    for entry in document["architectures"]:
        assert space.read(entry["architecture"]).choices == entry["architecture"]


AGREEMENT = {
    "autoformer_vit":
        ((.548, .726), (.555, .743), (.595, .800), (.652, .839), (.683, .862), (.700, .878)),
    "pit_vit":
        ((.811, .952), (.844, .965), (.841, .964), (.866, .973), (.675, .851), (.868, .973)),
}  # fmt: skip
COLUMNS = ("body_params", "geo", "geo_saturating", "stable_rank", 0.5, "best")


def agreement(name: str, data_folder: Path, metric: str | None = None) -> dict[Any, tuple[float, float]]:
    """Tau-b and rho by score, of ``zerolm`` by alpha."""
    rows = package.bench.run([name], data=str(data_folder), metric=metric).comparison.rows
    return {
        row.score if row.alpha is None else row.alpha: (row.tau, row.rho)
        for row in rows
        if row.tau is not None and row.rho is not None
    }


@pytest.mark.parametrize("name", AGREEMENT)
def test_the_agreement_with_published_results(name: str, data_folder: Path) -> None:
    found = agreement(name, data_folder)
    for column, expected in zip(COLUMNS, AGREEMENT[name], strict=True):
        assert found[column] == pytest.approx(expected, abs=0.003), column


@pytest.mark.parametrize(
    ("name", "metric", "expected"),
    [
        ("autoformer_vit", "c100_base_acc", (-0.33, -0.47)),
        ("autoformer_vit", "flower_base_acc", (0.31, 0.45)),
        ("autoformer_vit", "flower_kd_acc", (0.70, 0.85)),
        ("autoformer_vit", "chaoyang_base_acc", (0.06, 0.08)),
        ("autoformer_vit", "chaoyang_kd_acc", (0.31, 0.44)),
        ("autoformer_vit", "imagenet_super_acc", (-0.18, -0.47)),
        ("pit_vit", "c100_base_acc", (0.71, 0.88)),
        ("pit_vit", "flower_base_acc", (0.76, 0.92)),
        ("pit_vit", "flower_kd_acc", (0.86, 0.97)),
        ("pit_vit", "chaoyang_base_acc", (0.54, 0.74)),
        ("pit_vit", "chaoyang_kd_acc", (0.56, 0.74)),
    ],
)
def test_body_parameters_against_every_metric(
    name: str, metric: str, expected: tuple[float, float], data_folder: Path
) -> None:
    assert agreement(name, data_folder, metric)["body_params"] == pytest.approx(expected, abs=0.0055)


def test_the_flags_of_autoformer(zerolm: Callable[..., Any]) -> None:
    ran = zerolm("search", "autoformer", "--size", "base", "--depth", "3:4", "--hidden", "64,128",
                 "--heads", "2", "--mlp-ratio", "2.5,4", "--classes", "1k", "--max-params", "1M",
                 "--json")  # fmt: skip
    found = json.loads(ran.out)
    assert found["settings"] == {
        "size": "base", "depth": [3, 4], "hidden": [64, 128], "heads": [2], "mlp_ratio": [2.5, 4.0],
        "classes": 1000,
    }  # fmt: skip
    assert found["certificate"]["optimal"]


def test_the_flags_of_pit_and_a_configuration_file(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    flags = ("--base-dim", "16:32:8", "--mlp-ratio", "2,4", "--depth1", "1", "--depth2", "4", "--depth3",
             "2,4", "--heads", "2,4", "--max-params", "2M", "--json")  # fmt: skip
    file = tmp_path / "run.yaml"
    file.write_text("space: pit\nbase_dim: [16, 24, 32]\nmlp_ratio: [2, 4.0]\ndepth1: 1\ndepth2: [4]\n"
                    "depth3: '2,4'\nheads: [2, 4]\nmax-params: 2M\njson: true\n")  # fmt: skip
    one = json.loads(zerolm("search", "pit", *flags).out)
    other = json.loads(zerolm("search", "--config", str(file)).out)
    assert one["settings"] == other["settings"]
    assert one["best"] == other["best"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("autoformer", "--size", "huge"), "size 'huge' is not known; there are tiny, small, base"),
        (("autoformer", "--mlp-ratio", "wide"), "--mlp-ratio must be a number, not 'wide'"),
        (("autoformer", "--mlp-ratio", "3,-1"), "--mlp-ratio must be a positive number"),
        (("autoformer", "--base-dim", "16"), "no setting 'base_dim'"),
        (("pit", "--depth", "4"), "no setting 'depth'"),
        (("llama", "--mlp-ratio", "4"), "no setting 'mlp_ratio'"),
    ],
)
def test_bad_flags_are_one_line(arguments: tuple[str, ...], message: str, zerolm: Callable[..., Any]) -> None:
    zerolm("search", *arguments).refused(message)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ("autoformer --depth 3 --hidden 192 --heads 3", "3 x 192, heads 3, ffn ratio 4.0"),
        ("pit --base-dim 16 --heads 2,4", "3 x 64 + 8 x 64 + 6 x 64, heads 4/4/4, ffn ratio 8"),
    ],
)
def test_the_page_names_the_shape(
    arguments: str, shape: str, zerolm: Callable[..., Any], tmp_path: Path
) -> None:
    assert zerolm("search", *arguments.split(), "--out", str(tmp_path / "out")).status == 0
    assert shape in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "out" / "pick").iterdir()] == ["architecture.json"]
