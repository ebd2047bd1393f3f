"""``benchmarks/llama_small_findings.py`` on losses that are made by a known law."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import llama_small_findings as findings
import llama_small_law
from llama_small_findings import LINES
from llama_small_law import DRAWS, Law, Measured, measured, seed_deviation, shape_numbers
from llama_small_plan import SIZES, planned

BEST = {"depth": 5.0, "FFN / attention": 2.4}
NOISE = 0.002


def loss_of(numbers: dict[str, float], size: str) -> float:
    slim, ratio = (np.log(numbers[name] / best) for name, best in BEST.items())
    group = np.log(numbers["heads a KV head"])
    return float(3.5 - 0.1 * list(SIZES).index(size) + 0.03 * slim**2 + 0.02 * ratio**2 + 0.01 * group)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = np.random.default_rng(0)
    told: list[dict[str, Any]] = []
    for one in planned():
        exact = loss_of(shape_numbers(one.architecture), one.size)
        for seed in range(one.seeds):
            last = exact + NOISE * generator.normal()
            losses = {"749568": last + 1.0, "1499136": last + 0.5, "2998272": last}
            told.append({"id": one.id, "size": one.size, "seed": seed, "losses": losses, "seconds": 1.0})
    told.append({"id": planned()[0].id, "size": ".1M", "seed": 9, "losses": {}, "seconds": 1.0})  # failed
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row | {'z': {}})}\n" for row in told))
    monkeypatch.setattr(llama_small_law, "FOLDER", tmp_path)
    return tmp_path


def test_numbers_of_a_shape_are_its_weights() -> None:
    """SmolLM2-135M: 30 x 576, 9 heads on 3, FFN 1536; 3 x 1536 over 2 x 576 + 2 x 192."""
    space = pytest.importorskip("zerolm.spaces").make_space("llama", vocab=49152)
    sizes = {"depth": 30, "hidden": 576, "head_size": 64, "heads": 9, "kv_heads": 3, "ffn": 1536}
    assert shape_numbers(space.read(sizes)) == pytest.approx(
        {
            "depth": 30,
            "hidden": 576,
            "hidden / depth": 19.2,
            "FFN / attention": 3.0,
            "heads a KV head": 3.0,
            "head size": 64,
            "parameters / body": 134_515_008 / 106_203_456,  # transformers' count; 49,152 x 576 embedded
        }
    )


def test_the_law_is_recovered(rows: Path) -> None:
    shapes = measured()
    assert len(shapes) == len(planned())
    assert seed_deviation(shapes) == pytest.approx(NOISE, rel=0.15)
    assert Law.fitted(shapes).optima == pytest.approx(BEST, rel=0.1)
    optima = [drawn.optima for drawn in Law.draws(shapes)]
    assert len(optima) == DRAWS
    for name, best in BEST.items():
        low, high = np.percentile([drawn[name] for drawn in optima], [2.5, 97.5])
        assert low <= best <= high < 1.5 * low
    exact = [Measured(o.planned, np.array([[loss_of(o.numbers, o.planned.size)]]), (1,)) for o in shapes]
    assert Law.fitted(exact).optima == pytest.approx(BEST, rel=1e-6)


def test_a_ratio_is_worth_what_the_sizes_tell(rows: Path) -> None:
    """At equal loss: 3.5 - .1 i + .02 (ln 3 / 2.4)^2 of one body, as much with the best ratio of another."""
    shapes = [Measured(o.planned, np.array([[loss_of(o.numbers, o.planned.size)]]), (1,)) for o in measured()]
    law = Law.fitted(shapes)
    assert list(law.levels) == list(SIZES)
    assert law.slope == pytest.approx(0.2 / np.log(10), rel=0.01)
    worth = findings._worth(law, 2.4, law.slope)
    assert law.slope * np.log(worth) == pytest.approx(0.02 * np.log(3 / 2.4) ** 2)
    assert findings._worth(law, 3, law.slope) == 1


def test_the_page_says_the_law(rows: Path, capsys: pytest.CaptureFixture[str], decoders_folder: Path) -> None:
    findings.show_findings()
    page = capsys.readouterr().out
    agreement = page.split("## Responses")[0]
    law = next(line for line in agreement.splitlines() if line.startswith("| law of depth"))
    ceiling = next(line for line in agreement.splitlines() if line.startswith("| ceiling"))
    pairs = zip(law.split("|")[2:5], ceiling.split("|")[2:5], strict=True)
    assert all(float(own) > float(most) - 0.1 for own, most in pairs)
    lines = page.split("## Along one line")[1].split("## Equal")[0]
    depth = next(line for line in lines.splitlines() if line.startswith("| depth |"))
    assert depth.split("|")[2:5] == [" none "] * 3
    compute = page.split("## Equal tokens or equal operations")[1].split("## Responses")[0]
    assert (
        f"| score | {' | '.join(f'{s}, {e}' for s in SIZES for e in ('tokens', 'operations'))} |" in compute
    )
    assert all(f"| {line} |" in page for line in LINES)
    worth = page.split("## What a ratio is worth")[1].split("## Whether")[0]
    assert "| 3 | 100% | 100% | 100% to 100% |" in worth
    wish = page.split("## Whether geo's wish holds")[1].split("## How far")[0]
    lines = [
        line.split("|") for line in wish.splitlines() if line.startswith(tuple(f"| {s} |" for s in SIZES))
    ]
    assert len(lines) == 2 * len(SIZES)
    assert all(cells[6].strip().startswith("+") for cells in lines)  # geo wants the even one
    assert "| 25% | 50% | 100% |" in page
    assert "## With more tokens" not in page
    assert "| gemstones | geo | 20 of 20 |" in page
    assert "| decoder_pairs | geo | 7 of 9 | 1 |" in page
