"""Healing: every family, shape and format, and what is refused."""

import json
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from carvings import killed_while
from forked import contents, forks, in_another_process, in_two_processes, killed_at
from safetensors.numpy import load_file
from tiny import byte_tokenizer, saved, word_tokenizer
from transformers import AutoModel, AutoModelForCausalLM

import zerolm
from zerolm.cli import main
from zerolm.healing import heal as healing
from zerolm.training import watch
from zerolm.training.learner import Student
from zerolm.training.train import TrainingFailed

FAST: dict[str, Any] = {"tokens": 12 * 4 * 12, "batch": 4, "length": 12, "rate": 2e-4}
CUT: dict[str, Any] = {"keep_ffn": 0.5}
PER_LAYER: dict[str, Any] = {
    "max_body_params": "0.6x", "shape": "per-layer", "text": "random", "sequences": 12, "length": 16,
    "repair": "none",
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path, Path]]:
    """Parents, children and a text: each is made once."""
    folder = tmp_path_factory.mktemp("made")
    steps = np.random.default_rng(0).integers(0, 4, 3000)
    (folder / "text.txt").write_text(" ".join(f"w{word}" for word in np.cumsum(steps) % 64))

    def make(name: str = "llama", **settings: Any) -> tuple[Path, Path, Path]:
        parent = folder / name
        if not parent.exists():
            (byte_tokenizer if name.startswith("qwen2") else word_tokenizer)(saved(parent, name))
        child = folder / "-".join([name, *(str(value) for value in settings.values())])
        if not child.exists():
            by = {} if "text" in settings else {"criterion": "capacity"}
            zerolm.carve(parent, child, **settings, **by)
        return parent, child, folder / "text.txt"

    return make


@pytest.fixture
def llama(made: Callable[..., tuple[Path, Path, Path]]) -> tuple[Path, Path, Path]:
    return made("llama", **CUT)


def weights(folder: Path) -> dict[str, Any]:
    return dict(load_file(folder / "model.safetensors"))


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in theirs)


@pytest.mark.parametrize(
    ("name", "settings", "form"),
    [
        ("llama", PER_LAYER | {"format": "padded"}, "padded"),
        ("llama_tied", {"keep_hidden": 0.75, "keep_ffn": 0.5}, "hf"),
        ("gpt2", CUT, "hf"),
        ("bert", {"keep_layers": 0.67, "text": "random", "sequences": 4, "length": 12}, "hf"),
    ],
)
def test_families_formats(tmp_path: Path, made: Any, name: str, settings: dict[str, Any], form: str) -> None:
    """The child comes nearer to its parent, is written as it was trained, and opens again.

    Every family by every cut is carved in test_every_family; here is each form that is trained otherwise.
    """
    parent, child, text = made(name, **settings)
    before = contents(child)
    out = tmp_path / "healed"
    report = zerolm.heal(child, out, parent=parent, text=text, format=form, **FAST | {"rate": 1e-4})
    losses = report.losses
    if name == "bert":
        assert losses["before"]["cosine"] < losses["after"]["cosine"] <= 1
        assert losses["parent"]["cosine"] == pytest.approx(1, abs=1e-5)
    else:
        assert 0 < losses["after"]["kl"] < losses["before"]["kl"]
        assert losses["parent"]["kl"] == pytest.approx(0, abs=1e-5)
    assert report.verified.difference < 1e-4
    assert contents(child) == before
    assert [path.name for path in tmp_path.iterdir()] == ["healed"]
    recipe = json.loads((out / "recipe.json").read_text())
    (stage,) = recipe["healing"]
    assert recipe["written_as"] == form
    assert (stage["teacher"], stage["losses_on_held_out"]) == (parent.name, losses)
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert files == set(recipe["files"])
    assert str(tmp_path) not in (out / "recipe.json").read_text()
    cards = [(folder / "README.md").read_text().splitlines() for folder in (child, out)]
    streams = [[line for line in card if "residual stream" in line] for card in cards]
    assert streams[0] == streams[1]
    opened = (AutoModel if name == "bert" else AutoModelForCausalLM).from_pretrained(out)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in opened.parameters())
    assert difference(weights(out), weights(child)) > 1e-4
    assert zerolm.load(out).losses == losses
    zeros = {role: tensor == 0 for role, tensor in weights(child).items() if (tensor == 0).mean() > 0.01}
    assert bool(zeros) is (form == "padded")  # they fill layers up, and stay zeros
    assert not any(weights(out)[role][where].any() for role, where in zeros.items())


@pytest.mark.parametrize("losses", ["next-token", "dist", "reverse-kl,hidden"])
def test_losses(tmp_path: Path, llama: Any, losses: str) -> None:
    parent, child, text = llama
    longer = FAST | {"tokens": 40 * 4 * 12, "rate": 1e-3}
    report = zerolm.heal(child, tmp_path / "out", parent=parent, text=text, losses=losses, **longer)
    names = losses.split(",")
    curve = report.curve
    assert {f"loss_{name}" for name in names} <= curve[-1].keys()
    sums = [sum(row[f"loss_{name}"] for name in names) for row in curve[1:]]
    assert np.mean(sums[-4:]) < np.mean(sums[:4])


def test_with_a_large_vocabulary_layers_alone_learn_from_some_positions(
    tmp_path: Path, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child, text = llama
    monkeypatch.setattr("zerolm.passes.walk.LARGE", 64)
    report = zerolm.heal(child, tmp_path / "out", parent=parent, text=text, **FAST)
    assert 0 < report.losses["after"]["kl"] < report.losses["before"]["kl"]
    ours, theirs = weights(tmp_path / "out"), weights(child)
    same = {name for name, tensor in theirs.items() if np.array_equal(ours[name], tensor)}
    assert same == {"model.embed_tokens.weight", "lm_head.weight"}


def test_adapters_that_are_merged_are_the_network_with_adapters(
    tmp_path: Path, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child, text = llama
    outputs = []
    ids = torch.arange(24).reshape(2, 12)
    real = healing.train

    def train(learner: Student, *given: Any, **more: Any) -> Any:
        trained = real(learner, *given, **more)
        adapted: Any = learner.model
        assert {name.split(".")[-3] for name, p in adapted.named_parameters() if p.requires_grad} == {
            "lora_A", "lora_B"
        }  # fmt: skip
        with torch.no_grad():
            outputs.append(adapted.eval()(input_ids=ids).logits)
        return trained

    monkeypatch.setattr(healing, "train", train)
    zerolm.heal(child, tmp_path / "out", parent=parent, text=text, lora=4, **FAST)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        torch.testing.assert_close(opened(input_ids=ids).logits, outputs[0], rtol=1e-4, atol=1e-5)
    assert weights(tmp_path / "out").keys() == weights(child).keys()


def test_the_likeliest_tokens_from_the_disk_teach_the_same(tmp_path: Path, llama: Any) -> None:
    parent, child, text = llama
    common = FAST | {"parent": parent, "text": text, "losses": "kl"}
    live = zerolm.heal(child, tmp_path / "live", **common)
    cached = zerolm.heal(child, tmp_path / "cached", **common, top=64)
    assert cached.losses["after"]["kl"] == pytest.approx(live.losses["after"]["kl"], rel=0.02)


@pytest.mark.usefixtures("opened_here")
def test_everything_that_takes_a_child_takes_a_healed_one(tmp_path: Path, llama: Any, zerolm: Any) -> None:
    """``zerolm`` is the command here."""
    parent, child, text = (str(path) for path in llama)
    out, again, cut = (str(tmp_path / name) for name in ("healed", "again", "cut"))
    common = ("--parent", parent, "--text", text, "--tokens", "480", "--batch", "4", "--length", "12")
    ran = zerolm("heal", child, *common, "--out", out)
    assert ran.status == 0, ran.err
    assert "child, after" in ran.out
    judged = zerolm("eval", out, *common[:4], "--sequences", "6", "--length", "12", "--json")
    assert judged.status == 0, judged.err
    assert (zerolm("doctor", out).status, zerolm("ledger", out).status) == (0, 0)
    ran = zerolm("carve", out, "--keep-ffn", ".5", "--criterion", "capacity", "--out", cut)
    assert ran.status == 0, ran.err
    ran = zerolm("heal", out, *common, "--out", again)
    assert ran.status == 0, ran.err
    assert len(json.loads((tmp_path / "again" / "recipe.json").read_text())["healing"]) == 2
    ran = zerolm("heal", child, *common, "--out", out)
    assert ran.status == 2
    assert "exists" in ran.err
    ran = zerolm("heal", child, *common, "--out", out, "--force", "--seed", "1")
    assert ran.status == 0, ran.err
    assert zerolm("heal", *("--config", f"{out}/run.yaml"), "--out", str(tmp_path / "same")).status == 0
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == (
        tmp_path / "healed" / "model.safetensors"
    ).read_bytes()


def test_a_mix_and_a_time(tmp_path: Path, llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child, text = llama
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text(" ".join(f"w{place * place % 61}" for place in range(2000)))
    monkeypatch.setattr(healing, "step_seconds", lambda *_: 0.1)
    clock = iter(range(10**6))  # each look at it is a tenth of a second later
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: next(clock) / 10))
    looks = iter([0.0, 5.0, 6.5, 7.5] * 2)  # at the start, before and behind the first check, before training
    monkeypatch.setattr(healing, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    common = {name: value for name, value in FAST.items() if name != "tokens"}
    report = zerolm.heal(
        child, tmp_path / "out", parent=parent, text=[text, other], mix=[3, 1], for_="11s", **common
    )
    trained_on = [one.trained_on for one in report.texts]
    assert report.training.tokens == 48 * report.training.steps == sum(trained_on)
    assert 18 <= report.training.steps <= 22
    assert trained_on[0] > 2 * trained_on[1]
    assert all(one.held_out > 0 for one in report.texts)
    with pytest.raises(ValueError, match=r"--for 9 s is too short: opening .* take about 9 s"):
        zerolm.heal(child, tmp_path / "none", parent=parent, text=text, for_="9s", **common)
    assert not (tmp_path / "none").exists()


def test_a_teacher_that_is_not_the_parent(tmp_path: Path, llama: Any) -> None:
    """Another depth and width, the same words."""
    parent, child, text = llama
    teacher = tmp_path / "teacher"
    word_tokenizer(saved(teacher, "qwen3", seed=3))
    settings = FAST | {"parent": parent, "text": text, "rate": 5e-3, "losses": "kl,hidden"}
    report = zerolm.heal(child, tmp_path / "out", teacher=teacher, **settings)
    curve = [row["loss_kl"] for row in report.curve[1:]]
    assert np.mean(curve[-4:]) < np.mean(curve[:4])
    assert report.losses["after"]["kl"] > report.losses["before"]["kl"], "the parent still judges"
    assert report.teacher == str(teacher)


def changed(folder: Path, name: str, edit: Callable[[Any], None]) -> None:
    value = json.loads((folder / name).read_text())
    edit(value)
    (folder / name).write_text(json.dumps(value))


def refused(out: Path, *given: Any, match: str, **more: Any) -> None:
    with pytest.raises(ValueError, match=match) as error:
        zerolm.heal(*given, out=out, **more)
    assert "\n" not in str(error.value)
    assert not out.exists()
    assert not list(out.parent.glob(".*"))


def test_what_does_not_belong_together_is_refused(tmp_path: Path, made: Any, llama: Any) -> None:
    parent, child, text = llama
    out, common = tmp_path / "out", FAST | {"text": text}
    stranger = tmp_path / "stranger"
    word_tokenizer(saved(stranger, "llama", seed=9))
    refused(out, child, parent=stranger, match="carved from|weights", **common)
    refused(out, child, parent=made("mistral", **CUT)[0], match=r"\bllama\b|\bmistral\b", **common)
    alone = tmp_path / "alone"
    shutil.copytree(child, alone)
    (alone / "recipe.json").unlink()
    refused(out, alone, parent=parent, match=r"no recipe\.json", **common)
    gguf = tmp_path / "gguf"
    gguf.mkdir()
    (gguf / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    refused(out, gguf, parent=parent, match="'.*gguf' is GGUF, which is not trained: carve without", **common)
    words = tmp_path / "words"
    word_tokenizer(saved(words, "llama"))
    changed(words, "tokenizer.json", lambda value: value["model"]["vocab"].update(w63=62, w62=63))
    refused(out, child, parent=parent, teacher=words, match="another vocabulary: 2 tokens differ", **common)
    refused(out, child, parent=parent, teacher=tmp_path / "nowhere", match="nowhere", **common)


def test_texts_and_lengths_that_cannot_be_are_refused(tmp_path: Path, llama: Any) -> None:
    parent, child, text = llama
    out, common = tmp_path / "out", FAST | {"parent": parent, "text": text}
    short = tmp_path / "short.txt"
    short.write_text("w1 w2 w3 " * 50)
    few = tmp_path / "few.txt"
    few.write_text("w1 " * 12)
    refused(out, child, match=r"11 sequences of 12 .* batch of 20", **common | {"text": short, "batch": 20})
    refused(out, child, match=r"has 12 tokens; 120 are the least", **common | {"text": few})
    refused(out, child, match="less than one batch of 4 x 12; 48", **common | {"tokens": 40})
    refused(out, child, match="--tokens 10M or --for 30m", **common | {"tokens": None})
    refused(out, child, match="--tokens 10M or --for 30m", **common, for_="3s")
    refused(out, child, match="2 shares for 1 text: give", **common, mix=[1, 2])
    refused(out, child, match="3 micro-batches", **common, accumulate=3)
    refused(out, child, match="loss 'kll' is not known; did you mean 'kl'", **common, losses="kll")
    refused(out, child, match="--top keeps .* hidden need more", **common, top=4, losses="kl,hidden")
    refused(out, child, match="does not exist", **common | {"text": tmp_path / "nowhere"})
    bert = tmp_path / "bert"
    word_tokenizer(saved(bert, "bert"))
    zerolm.carve(bert, tmp_path / "narrow", keep_ffn=0.5, criterion="capacity")
    encoder = common | {"parent": bert}
    refused(out, tmp_path / "narrow", match="an encoder predicts no tokens", **encoder, losses="kl")


MOMENTS = (("running the text", 3), ("training", 6), ("writing the weights", 9), ("reopening the child", 1))


@forks
def test_killed_at_any_moment_it_goes_on_to_the_same_child(tmp_path: Path, llama: Any) -> None:
    parent, child, text = llama
    common = FAST | {"parent": parent, "text": text, "lora": 2}
    zerolm.heal(child, tmp_path / "whole", **common)
    out = tmp_path / "healed"
    for words, step in MOMENTS:
        work = partial(zerolm.heal, child, out, **common, progress=killed_while(words, step))
        assert in_another_process(work) == signal.SIGKILL
        assert not out.exists()
    zerolm.heal(child, out, **common)
    assert difference(weights(out), weights(tmp_path / "whole")) <= 1e-6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["healed", "whole"]


@forks
def test_checkpoints_of_another_run_are_refused(tmp_path: Path, llama: Any) -> None:
    parent, child, text = llama
    out, common = tmp_path / "healed", FAST | {"parent": parent, "text": text}

    def killed() -> None:
        zerolm.heal(child, out, **common, progress=killed_at(10))

    assert in_another_process(killed) == signal.SIGKILL
    work = tmp_path / ".healed.zerolm-run"
    before = contents(work)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"seed": 5}, "seed 0, not 5"),
        ({"lora": 4}, "lora None, not 4"),
        ({"rate": 1e-4}, "rate 0.0002, not 0.0001"),
        ({"batch": 2}, "batch 4, not 2"),
    ]
    for change, name in changes:
        with pytest.raises(ValueError, match=rf"{name}: give the same to go on, or --force"):
            zerolm.heal(child, out, **common | change)
    assert contents(work) == before
    zerolm.heal(child, out, **common | {"seed": 5}, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["healed"]


def test_a_loss_that_is_not_finite_writes_nothing(
    tmp_path: Path, llama: Any, monkeypatch: pytest.MonkeyPatch, zerolm: Any
) -> None:
    parent, child, text = (str(path) for path in llama)
    forward = Student.forward
    calls = iter(range(100))

    def failing(self: Student, *given: Any, **more: Any) -> Any:
        losses = forward(self, *given, **more)
        return {name: loss * float("nan") for name, loss in losses.items()} if next(calls) > 6 else losses

    monkeypatch.setattr(Student, "forward", failing)
    flags = ("--tokens", "480", "--batch", "4", "--length", "12", "--losses", "kl")
    ran = zerolm("heal", child, "--parent", parent, "--text", text, *flags, "--out", str(tmp_path / "out"))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines()[-1].startswith("zerolm: the loss is nan at step")
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()
    assert issubclass(TrainingFailed, RuntimeError)


@forks
def test_two_processes_are_one(tmp_path: Path, llama: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """They speak by gloo; the first alone prints and writes."""
    parent, child, text = llama
    one, two = tmp_path / "one", tmp_path / "two"
    settings = FAST | {"rate": 1e-3, "dtype": "float32"}
    zerolm.heal(child, one, parent=parent, text=text, **settings)
    flags = [f"--{name}={value}" for name, value in settings.items()]
    words = ["heal", str(child), f"--parent={parent}", f"--text={text}", *flags, "--out", str(two)]

    def heal() -> None:
        assert main(words) == 0

    in_two_processes(heal)
    said = capfd.readouterr()
    assert said.out.count("verified") == 1
    assert said.err.count("wrote") == 1
    assert difference(weights(two), weights(one)) <= 1e-4
    assert difference(weights(two), weights(child)) > 5e-4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
