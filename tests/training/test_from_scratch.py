"""Folders of ``zerolm init``: they train as they are, in two processes, and by the depth as they say."""

import json
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from forked import forks, in_two_processes

import zerolm
from zerolm.pretraining import chinchilla_tokens
from zerolm.training import from_scratch
from zerolm.training.request import DEPTH_RULES

SIZES: dict[str, Any] = {
    "hidden": (64,), "depth": (3,), "head_size": (16,), "ffn": (160, 192), "vocab": 300,
    "hidden_per_depth": (1, 1000), "ffn_per_hidden": (1, 8),
}  # fmt: skip
DECODERS = ("llama", "gpt2-uniform")
"""Spaces whose architectures are decoders that a stock class builds."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    for space in DECODERS:
        zerolm.search(space, train_tokens=10**6, top=2, **SIZES).save(folder / space)
    return folder


def run_script(folder: Path, *flags: str) -> None:
    """What ``python train.py`` does, in this process."""
    before = sys.argv
    sys.argv = [str(folder / "train.py"), "--out", str(folder / "run"), *flags]
    try:
        runpy.run_path(str(folder / "train.py"), run_name="__main__")
    finally:
        sys.argv = before


@pytest.mark.parametrize("space", DECODERS)
def test_a_folder_smokes(
    space: str, searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = zerolm.init(tmp_path / "run", architecture=searched / space, length=64)
    assert report.how["tokens"] == 10**6
    run_script(tmp_path / "run", "--smoke")
    said = capsys.readouterr().out
    assert f"{report.how['params']:,} parameters, 20 steps" in said
    assert "train_loss" in said
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config == json.loads((searched / space / "pick" / "config.json").read_text())


@forks
def test_two_processes_learn_text(searched: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With a tokenizer of the text, and a model at the end."""
    folder, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("".join(f"{i} times {i} is {i * i}; " for i in range(3000)))
    zerolm.init(
        folder, architecture=searched / "llama", length=32, batch_tokens=256, train_tokens=256 * 30, rate=3e-3
    )
    in_two_processes(partial(run_script, folder, "--text", str(text), "--per-device", "2"))
    said = capfd.readouterr().out
    assert said.count("30 steps of 256 tokens") == 1
    assert "on 2 x cpu" in said
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "run")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "run")
    ids = tokenizer(text.read_text()[:2000], return_tensors="pt")["input_ids"][:, :64]
    with torch.no_grad():
        assert model(input_ids=ids, labels=ids).loss < 0.9 * torch.log(torch.tensor(300.0))


@pytest.mark.parametrize("rule", ["sqrt", "linear"])
def test_a_rule_of_depth_is_the_same_as_branches_that_are_divided(rule: str) -> None:
    """One network with its last matrices scaled, one that multiplies its branches: the same steps of Adam."""
    how = {"depth_rule": rule, "depth": 6, "base_depth": 2.0, "rate": 1e-2, "weight_decay": 0.1}
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=6, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16,
    )  # fmt: skip
    torch.manual_seed(0)
    scaled = transformers.LlamaForCausalLM(config).double()
    divided = transformers.LlamaForCausalLM(config).double()
    divided.load_state_dict(scaled.state_dict())
    factor = (6 / 2.0) ** -{"sqrt": 0.5, "linear": 1.0}[rule]
    for name, module in divided.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            module.register_forward_hook(lambda _m, _i, output: output * factor)
    inside = (6 / 2.0) ** ({"sqrt": 0.5, "linear": 1.0}[rule] - 1)
    layers, others = dict[str, Any](params=[], lr=1e-2 * inside), dict[str, Any](params=[], lr=1e-2)
    for name, parameter in divided.named_parameters():
        group = layers if ".layers." in name else others
        group["params"].append(parameter)
    plain = [
        {**group, "params": [p for p in group["params"] if (p.ndim > 1) == matrix], "weight_decay": decay}
        for group in (layers, others)
        for matrix, decay in ((True, 0.1), (False, 0.0))
    ]
    optimizers = [
        torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-30)
        for groups in (from_scratch.groups_of(scaled, how), plain)
    ]
    ids = torch.randint(50, (4, 16), generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        losses = []
        for model, optimizer in zip((scaled, divided), optimizers, strict=True):
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_script_has_the_rules_of_bench_train() -> None:
    """It stands alone, so it says them again."""
    assert from_scratch.BRANCHES == DEPTH_RULES


def test_windows_hold_every_token_once_a_round(tmp_path: Path) -> None:
    class Letters:
        eos_token_id = 0

        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": [ord(letter) for letter in text]}

    (tmp_path / "a.txt").write_text("abcdefgh" * 8)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": "xyz" * n}) + "\n" for n in (1, 2, 3)))
    windows = from_scratch.Windows(str(tmp_path), Letters(), 4, 300, seed=0)
    drawn = windows._in_order(from_scratch.random.Random(0))
    stream = [ord(c) for c in "abcdefgh" * 8] + [0]
    for n in (1, 2, 3):
        stream += [*map(ord, "xyz" * n), 0]
    taken = [token for _, window in zip(range(len(stream) // 4), drawn, strict=False) for token in window]
    assert taken == stream[: len(taken)]


def test_tokens_of_nobody_are_best_for_the_size(tmp_path: Path) -> None:
    report = zerolm.init(tmp_path / "run", architecture="SmolLM2-135M")
    assert report.how["tokens"] == chinchilla_tokens(report.how["macs"])
    assert report.how["batch_tokens"] % 1024 == 0
    assert report.train_bytes is not None
    again = zerolm.init(tmp_path / "run", architecture="SmolLM2-135M", force=True)
    assert again.to_json() == report.to_json()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--architecture", "SmolLM2-135M", "--batch-tokens", "2000", "--train-tokens", "1500"),
            "more than --train-tokens",
        ),
        (("--architecture", "SmolLM2-135M", "--batch-tokens", "100"), "fewer than the 1,024 of one sequence"),
        (("--architecture", "SmolLM2-135M", "--length", "1000000"), "more than the"),
        (("--architecture", "SmolLM2-135M", "--train-tokens", "0"), "--train-tokens must be"),
        (("--architecture", "SmolLM2-135M", "--tokenizer", "."), "there is no tokenizer.json"),
        (("--architecture", "nothing-of-this-name"), "nothing-of-this-name"),
        (("--architecture", "bert.json"), "does not predict the next token"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    flags: tuple[str, ...],
    words: str,
    tmp_path: Path,
    zerolm: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert.json").write_text(json.dumps(transformers.BertConfig().to_dict()))
    zerolm("init", "run", *flags).refused(words)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_with_more_ids_is_refused(
    tmp_path: Path, searched: Path, zerolm: Callable[..., Any]
) -> None:
    place = tmp_path / "tokenizer"
    place.mkdir()
    vocab = {f"t{i}": i for i in range(301)}
    (place / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": vocab}}))
    ran = zerolm(
        "init", str(tmp_path / "run"), "--architecture", str(searched / "llama"), "--tokenizer", str(place)
    )
    ran.refused("has 301 ids, the network 300")
