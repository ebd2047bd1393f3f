"""Calibration texts that a parent samples from its own predictions."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from bert_tokenizers import bert_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from tiny import saved, word_tokenizer
from transformers import AutoTokenizer

import zerolm as package
from zerolm.carving.pace import GENERATED_TOKENS, usual_sequences
from zerolm.carving.request import Methods
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks.compute import Compute
from zerolm.networks.opener import load_model
from zerolm.progress import silent
from zerolm.text import generated
from zerolm.text.generated import BATCH_TOKENS, drawn, generated_tokens, random_sentences

SHORT: dict[str, Any] = {"sequences": 6, "length": 12}
Zerolm = Callable[..., Any]


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = saved(tmp_path / "parent", "llama")
    word_tokenizer(folder)
    return folder


def with_start(folder: Path, **tokens: str) -> Path:
    """Let the tokenizer put its BOS before a text, and know an EOS."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens(dict(tokens))
    if "bos_token" in tokens:
        word = tokens["bos_token"]
        start = TemplateProcessing(
            single=f"{word} $A", special_tokens=[(word, tokenizer.convert_tokens_to_ids(word))]
        )
        tokenizer.backend_tokenizer.post_processor = start
    tokenizer.save_pretrained(folder)
    return folder


@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_a_token_is_drawn_where_the_distribution_function_passes(rows: int, size: int, seed: int) -> None:
    """As counted in double precision, one token after another; forbidden tokens have no share."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, size, generator=generator)
    allowed = torch.rand(size, generator=generator) < 0.7
    allowed[int(torch.randint(size, (1,), generator=generator))] = True
    uniforms = torch.rand(rows, generator=generator)
    for row, token in enumerate(drawn(logits, allowed, uniforms).tolist()):
        weights = [float(logits[row, k].double().exp()) * bool(allowed[k]) for k in range(size)]
        below, total = sum(weights[:token]), sum(weights)
        assert allowed[token]
        assert below / total - 1e-5 <= float(uniforms[row]) <= (below + weights[token]) / total + 1e-5


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_forbidden_tokens_at_both_ends_are_never_drawn(uniform: float) -> None:
    allowed = torch.tensor([False, False, True, True, False])
    tokens = drawn(torch.zeros(1, 5), allowed, torch.tensor([uniform]))
    assert tokens.tolist() == [2 if uniform == 0 else 3]


@pytest.mark.parametrize("tokens", [{}, {"eos_token": "w9"}, {"bos_token": "w5", "eos_token": "w9"}])
def test_sampling_with_the_cache_is_sampling_without(tokens: dict[str, str], parent: Path) -> None:
    """Every token follows from the whole text before it and its uniform number; texts begin as texts do."""
    with_start(parent, **tokens)
    sampled = generated_tokens(Checkpoint.open(parent), **SHORT, seed=3).ids
    model = load_model(parent, decoder=True)
    allowed = torch.ones(64, dtype=torch.bool)
    allowed[[int(word[1:]) for word in tokens.values()]] = False
    before = [9] if tokens == {"eos_token": "w9"} else []
    begins = "bos_token" in tokens
    assert sampled.shape == (6, 12)
    assert not begins or set(sampled[:, 0].tolist()) == {5}
    assert bool(allowed[sampled[:, int(begins) :]].all())
    uniforms = torch.from_numpy(np.random.default_rng([3, 0]).random((6, 12), np.float32))
    ids = torch.cat([torch.tensor([before] * 6, dtype=torch.long).reshape(6, -1), sampled], 1)
    for step in range(int(begins), 12):
        if len(before) + step == 0:
            logits = torch.zeros(6, 64)
        else:
            with torch.no_grad():
                logits = model(input_ids=ids[:, : len(before) + step]).logits[:, -1]
        assert drawn(logits, allowed, uniforms[:, step]).tolist() == sampled[:, step].tolist()


def test_a_seed_says_the_text_and_fewer_begin_more(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "BATCH_TOKENS", 36)  # three sequences at a time
    checkpoint = Checkpoint.open(parent)
    first, again = (generated_tokens(checkpoint, **SHORT, seed=1) for _ in range(2))
    assert first.digest() == again.digest()
    assert generated_tokens(checkpoint, **SHORT, seed=2).digest() != first.digest()
    more = generated_tokens(checkpoint, sequences=9, length=12, seed=1)
    assert torch.equal(more.ids[:6], first.ids)
    assert len({tuple(row) for row in more.ids.tolist()}) == 9


def test_a_killed_run_goes_on_then(parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "BATCH_TOKENS", 24)  # two sequences at a time
    checkpoint, cache = Checkpoint.open(parent), ArrayCache(tmp_path / "tokens")
    whole = generated_tokens(checkpoint, **SHORT)

    def stop(_: str, done: int = 0, __: int = 0) -> None:
        if done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated_tokens(checkpoint, **SHORT, cache=cache, progress=stop)
    done: list[int] = []
    tokens = generated_tokens(
        checkpoint, **SHORT, cache=cache, progress=lambda _, done_=0, __=0: done.append(done_)
    )
    assert min(done) > 24
    assert tokens.digest() == whole.digest()
    monkeypatch.setattr(generated.Sampler, "of", None)  # all of it is there
    assert generated_tokens(checkpoint, **SHORT, cache=cache).digest() == whole.digest()


def test_a_text_is_no_longer_than_the_model_reads(tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", "gpt2")
    tokens = generated_tokens(Checkpoint.open(folder), 2, 4096)
    assert tokens.ids.shape == (2, Checkpoint.open(folder).layout.sizes["positions"])
    assert BATCH_TOKENS >= 4096


def test_a_child_is_carved_and_built_again_without_a_text(parent: Path, tmp_path: Path) -> None:
    """By its parent's own text: by default, by name, and from its recipe, where nothing else is needed."""
    named: dict[str, Any] = {"text": "generated"}
    for name, more in (("child", {}), ("named", named)):
        report = package.carve(parent, tmp_path / name, keep_ffn=0.5, **SHORT, **more)
        assert (report.criterion, report.repair) == ("surgeon", "least-squares")
        assert "calibrated on 72 tokens sampled from the parent; a text like" in " ".join(report.notes)
        assert report.configuration["text"] == "generated"
    weights = (tmp_path / "child" / "model.safetensors").read_bytes()
    assert (tmp_path / "named" / "model.safetensors").read_bytes() == weights
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    tokens = generated_tokens(Checkpoint.open(parent), **SHORT)
    assert recipe["calibration"] == {
        "text": None, "seed": 0, "sequences": 6, "length": 12, "generated": tokens.digest()
    }  # fmt: skip
    assert "(sampled from the parent, seed 0)" in (tmp_path / "child" / "README.md").read_text()
    sheet = next(sheet for sheet in report.sheets() if sheet.title == "Build the same child again")
    assert [command.endswith("--recipe recipe.json --out child") for command in sheet.commands] == [True]
    built = package.carve(parent, tmp_path / "built", recipe=tmp_path / "child" / "recipe.json")
    assert (tmp_path / "built" / "model.safetensors").read_bytes() == weights
    assert "another text" not in " ".join(built.notes)
    recipe["calibration"]["generated"] = "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(recipe))
    other = package.carve(parent, tmp_path / "other", recipe=tmp_path / "other.json")
    assert "the parent generates another text here than for the recipe" in " ".join(other.notes)


def test_types_without_a_text_are_weighed_by_a_generated_one(parent: Path) -> None:
    flags: dict[str, Any] = {"keep": 1, "format": "gguf", "max_weight_bytes": "0.6x", **SHORT}
    report = package.carve(parent, **flags)
    assert report.losses
    assert "tokens sampled from the parent" in " ".join(report.notes)
    alone = package.carve(parent, **flags, criterion="capacity")
    assert not alone.losses
    assert "capacity: chosen by weights alone, for research" in " ".join(alone.notes)


def test_criteria_by_weights_only_warn(parent: Path, monkeypatch: pytest.MonkeyPatch, zerolm: Zerolm) -> None:
    monkeypatch.setattr(generated.Sampler, "of", None)
    for name in ("capacity", "magnitude", "max_weight"):
        ran = zerolm("carve", str(parent), "--keep-ffn", ".5", "--criterion", name)
        assert ran.status == 0, ran.err
        assert f"{name}: chosen by weights alone, for research" in ran.err
        assert "by weights alone" not in zerolm("carve", str(parent), "--keep-ffn", "1").err


@given(st.integers(1, 9), st.integers(3, 40), st.integers(0, 2**63 - 1))
def test_sentences_of_encoders_are_random_words_of_tokenizers(sequences: int, length: int, seed: int) -> None:
    folder = bert()
    tokens = random_sentences(Checkpoint.open(folder), sequences, length, seed)
    again = random_sentences(Checkpoint.open(folder), sequences, length, seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    around, usual = tokenizer("")["input_ids"], set(tokenizer.get_vocab().values())
    usual -= set(tokenizer.all_special_ids)
    assert tokens.digest() == again.digest()
    assert len(tokens) == sequences
    for ids, mask in zip(tokens.ids.tolist(), tokens.mask.tolist(), strict=True):
        count = sum(mask)
        assert mask == [1] * count + [0] * (len(mask) - count)
        assert min(8, length) <= count <= min(32, length)
        assert [ids[0], ids[count - 1]] == around
        assert set(ids[1 : count - 1]) <= usual


@cache
def bert() -> Path:
    folder = saved(Path(mkdtemp()), "bert")
    bert_tokenizer([" ".join(f"w{i}" for i in range(64))], 64).save_pretrained(folder)
    return folder


def test_an_encoder_gets_as_many_tokens_as_it_needs() -> None:
    checkpoint, methods = Checkpoint.open(bert()), Methods(text="generated")
    tokens = random_sentences(checkpoint, usual_sequences(checkpoint, methods), 256)
    assert tokens.count == pytest.approx(GENERATED_TOKENS, rel=0.25)


def test_an_encoder_is_carved_by_random_sentences_without_a_text(tmp_path: Path) -> None:
    report = package.carve(bert(), tmp_path / "child", keep_ffn=0.5, sequences=20)
    count = random_sentences(Checkpoint.open(bert()), 20, 256).count
    assert (report.criterion, report.repair) == ("surgeon", "least-squares")
    assert f"calibrated on {count} random tokens; a text like" in " ".join(report.notes)
    built = package.carve(bert(), tmp_path / "built", recipe=tmp_path / "child" / "recipe.json")
    assert "another text" not in " ".join(built.notes)


REFUSED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "tokens that leave": ("llama", ("--keep-vocab", "used", "--text", "generated"), "needs --text FILE"),
    "a field": ("llama", ("--keep-ffn", ".5", "--text-field", "x"), "give --text FILE"),
    "healing": (
        "llama", ("--keep-ffn", ".5", "--text", "generated", "--heal", "9", "--out", "child"),
        "give --text FILE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_a_file_says_so(
    case: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, flags, words = REFUSED[case]
    saved(Path("parent"), name)
    refused(zerolm, "carve", "parent", *flags, words=words)


def test_a_model_that_memory_does_not_hold_is_refused(
    parent: Path, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parent)
    monkeypatch.setattr(generated, "free_memory", lambda: 1000)
    flags = ("--keep-ffn", ".5", "--out", "../child")
    refused(zerolm, "carve", str(parent), *flags, words="are free: give --text FILE")


def test_predictions_that_are_not_finite_are_refused(parent: Path) -> None:
    sampler = generated.Sampler.of(Checkpoint.open(parent), Compute())
    with torch.no_grad():
        sampler.model.get_parameter("lm_head.weight").fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite, so no text is sampled from it: give --text FILE"):
        sampler.sample(torch.zeros(1, 4), silent, done=0, of=4)
