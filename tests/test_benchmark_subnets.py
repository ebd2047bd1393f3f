"""``benchmarks/subnets.py``: what it counts of attacks, and its page of what was measured so far."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1] / "examples"))
pytest.importorskip("transformers")
import subnets_attacks
import subnets_compared
import subnets_findings
from parts import Parts
from subnets_attacks import PARENT, attack_each, victims_in
from subnets_compared import compared, within
from subnets_page import page
from subnets_runs import foretold, seconds_alone, sliced
from tiny import saved, word_tokenizer

from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest, Limits
from zerolm.statistics import within_budget


def test_agreement_within_budgets_has_an_interval_around_it() -> None:
    draw = np.random.default_rng(0)
    sizes, noise = draw.permutation(80).astype(float), draw.normal(size=80)
    result = sizes + 9 * noise
    true, blind = (within(score, result, sizes) for score in (noise, draw.normal(size=80)))
    assert true.value == within_budget(noise, result, sizes)
    assert true.low > 0.5
    assert true.low < true.value < true.high
    assert blind.low < 0 < blind.high


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models, tiny and random, with what a first run of each leaves behind."""
    folder = tmp_path_factory.mktemp("work")
    word_tokenizer(saved(folder / "llama", "llama_tied"))
    word_tokenizer(saved(folder / "classifier", "bert_classes"), "w0")
    (folder / "seen.txt").write_text("\n".join(f"w{n * n % 61} w{n * 7 % 59} w{n % 50}" for n in range(400)))
    (folder / "text.txt").write_text(" ".join(f"w{n * n * n % 61}" for n in range(300)))
    rows = [f"w{n} w{n * 7 % 60} w{n * 3 % 50},{n % 2}" for n in range(1, 24)]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]))
    log = [f"w{n} w{n + 9},w{n} w{n + 11},{n % 2},Failed" for n in range(1, 24)]
    head = "original_text,perturbed_text,ground_truth_output,result_type"
    (folder / "log.csv").write_text("\n".join([head, *log]))
    return folder


ASKED = {
    "pydec": ("llama", {"text": "text.txt"}),
    "pyenc": ("classifier", {"data": "rows.csv", "attacked": "log.csv"}),
}


def asked(model: str, work: Path) -> tuple[Path, JudgingRequest, CutRequest, CutRequest]:
    parent, files = ASKED[model]
    judging = JudgingRequest(**{one: str(work / file) for one, file in files.items()}, sequences=6, length=12)
    how = CutRequest("output_energy", calibration=str(work / "seen.txt"))
    return work / parent, judging, how, how


def measure(model: str, work: Path) -> dict[str, Any]:
    parent, judging, cutting, how = asked(model, work)
    document = sliced(
        parent, DrawRequest("heads-ffn", 12, Limits(min_macs="0.1x", max_macs="0.99x")), cutting, judging,
        work / model, "first",
    )  # fmt: skip
    foretold(parent, how, judging, document, work / model)
    return document


FEW = (
    (subnets_attacks, "VICTIMS", 3), (subnets_compared, "WITHIN_DRAWS", 4),
    (subnets_compared, "DRAWS", 40), (subnets_findings, "DRAWS", 40),
)  # fmt: skip


def test_the_page_says_what_is_there_and_what_is_not(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, few in FEW:
        monkeypatch.setattr(module, name, few)
    runs = (("pydec", "output_energy", ("first", "second")), ("pyenc", "output_energy", ("first", "second")))
    documents = {model: measure(model, work) for model, _, _ in runs}
    parent, judging, cutting, _ = asked("pyenc", work)
    parts = Parts(work / "pyenc" / "output_energy-attacks.jsonl")
    attack_each(parent, cutting, judging, documents["pyenc"], parts)
    assert list(parts.every()) == [PARENT, "1", "5", "9"]
    assert victims_in(documents["pyenc"], list(parts.every())[1:]) == [0, 4, 8]
    assert {len(ends) for ends in parts.every().values()} == {23}
    alone = seconds_alone(*asked("pydec", work)[:1], "prefix", asked("pydec", work)[1], count=1)
    assert set(alone) == {"carve", "open", "judge"}
    (work / "pydec" / "seconds.json").write_text(json.dumps(alone))
    facts = {"seconds": 60.0, "of": "x 1", "accuracy": 0.5, "commonest class": 0.5}
    rates = {"accuracy under attack": 1.0, "attack success rate": 2.0}
    for name, content in (("trained", facts), ("attacks", {"first": rates, "second": rates})):
        (parent / f"{name}.json").write_text(json.dumps(content))
    text = page(runs, work)
    assert "Not measured so far: pydec, output_energy, second set; pyenc, output_energy, second set." in text
    assert "Then 3 of them, drawn like all, are attacked themselves, on the 23 rows" in text
    assert "| pydec | output_energy | kl |" in text
    assert "times as long." in text


def test_what_is_foretold_is_of_the_cuts_that_were_judged(work: Path) -> None:
    """The measured prediction of a tiny model orders what sub-networks lose; a score of chance does not."""
    document = measure("pydec", work)
    columns = json.loads((work / "pydec" / "output_energy-foretold.json").read_text())
    run = {"sets": {"first": document}, "foretold": columns}
    (kl,) = (each for each in compared("pydec", "output_energy", run) if each.metric == "kl")
    assert kl.tau("predicted loss, measured") > 0.5
    assert kl.beyond("predicted loss, measured", "predicted loss, measured").value == 0
    assert not kl.best_other().startswith("predicted")
