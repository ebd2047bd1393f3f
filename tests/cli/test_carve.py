"""``zerolm carve``: the child opens in stock software and does what the carved parent does."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from refusals import Zerolm
from tiny import saved, word_tokenizer
from tiny_families import saved as saved_tiny

BY_WEIGHTS = ("--criterion", "capacity")


def carved(zerolm: Zerolm, parent: Path, out: Path, *flags: str) -> dict[str, Any]:
    ran = zerolm("carve", str(parent), *flags, "--out", str(out), "--json")
    assert (ran.status, "Traceback" in ran.err) == (0, False), ran.err
    return json.loads(ran.out)  # type: ignore[no-any-return]


def test_shares_with_a_text_print_what_they_lose(zerolm: Zerolm, tmp_path: Path) -> None:
    """On the terminal, on the page, in JSON and from Python alike."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    flags = ("--keep-ffn", "0.5", "--text", "random", "--sequences", "8", "--length", "16")
    ran = zerolm("carve", str(parent), *flags, "--out", str(out))
    assert ran.status == 0, ran.err
    losses = json.loads((out / "result.json").read_text())["losses"]
    assert list(losses) == ["measured", "repaired"]
    words = ", ".join(f"{name} {loss:.3g}" for name, loss in losses.items())
    assert f"loss on held-out text, KL in nats a token: {words}" in ran.out
    page = (out / "report.html").read_text()
    assert "Loss on held-out tokens" in page
    assert all(f"{loss:.3g}" in page for loss in losses.values())
    assert "No loss was measured" not in page
    assert carved(zerolm, parent, tmp_path / "again", *flags)["losses"] == losses


@pytest.mark.parametrize("flags", [("--max-params", "1x"), ("--max-params", "1G"), ("--keep", "1")])
def test_a_plan_that_prunes_nothing_says_so(zerolm: Zerolm, tmp_path: Path, flags: tuple[str, ...]) -> None:
    parent = str(saved(tmp_path / "parent", "llama"))
    ran = zerolm("carve", parent, *flags, "--criterion", "capacity", "--json")
    document = json.loads(ran.out)
    assert document["costs"]["child"] == document["costs"]["parent"]
    assert document["notes"] == ["nothing is pruned: the parent fits the request as it is"]
    assert "nothing is pruned" in ran.err
    less = zerolm("carve", parent, "--max-params", ".9x", "--criterion", "capacity")
    assert "nothing is pruned" not in less.err


def test_a_llama_with_odd_heads_becomes_a_mistral(zerolm: Zerolm, tmp_path: Path) -> None:
    settings = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
        intermediate_size=48, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(settings).save_pretrained(tmp_path / "parent")
    text = ("--text", "random", "--sequences", "8", "--length", "16")
    carved(zerolm, tmp_path / "parent", tmp_path / "child", "--keep-heads", "0.75", *text)
    card = (tmp_path / "child" / "README.md").read_text()
    assert "its type is mistral" in card
    assert "- sizes: as requested, or planned by the criterion alone\n" in card
    assert "8 sequences of at most 16 tokens (random, seed 0)" in card
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("mistral", ["MistralForCausalLM"])
    assert (config["num_attention_heads"], config["head_dim"], config["sliding_window"]) == (6, 8, None)


def test_force_replaces_a_child_but_not_its_own_parent(zerolm: Zerolm, tmp_path: Path) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    carved(zerolm, parent, out, "--keep-ffn", "0.5", *BY_WEIGHTS)
    carved(zerolm, parent, out, "--keep-ffn", "0.25", *BY_WEIGHTS, "--force")
    assert json.loads((out / "config.json").read_text())["intermediate_size"] == 10
    before = (out / "model.safetensors").read_bytes()
    zerolm("carve", str(out), "--keep-ffn", "0.5", "--out", str(out), "--force").refused("never touched")
    assert (out / "model.safetensors").read_bytes() == before


PER_LAYER = ("--max-body-params", "0.6x", "--shape", "per-layer", "--format", "gguf")
TOKENS = ("--text", "random", "--sequences", "8", "--length", "16", "--repair", "none")


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize("tokens", [("--criterion", "capacity"), TOKENS], ids=["weights", "tokens"])
def test_a_per_layer_child_in_llama_cpp(tokens: tuple[str, ...], zerolm: Zerolm, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    (parent / "LICENSE").write_text("mine")
    found = zerolm("carve", str(parent), *PER_LAYER, *tokens, "--out", str(out), "--json").document
    assert len({(size["kv_heads"], size["ffn"]) for size in found["widths"]}) > 1
    assert found["verified"]["difference"] <= 5e-3
    files = sorted(file.name for file in out.iterdir())
    report = ["report.html", "result.json", "run.yaml"]
    assert files == ["LICENSE", "README.md", "parent-carved.gguf", "recipe.json", *report]
    model = llama_cpp.Llama(str(out / "parent-carved.gguf"), n_ctx=8, verbose=False)
    assert model.metadata["general.architecture"] == "deci"
    model.close()
    told = zerolm("doctor", str(out), "--json")
    assert told.status == 0, told.err


def test_what_gguf_cannot_hold_is_refused_before_the_work(zerolm: Zerolm, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parent = saved_tiny(tmp_path / "parent", "vaultgemma")
    word_tokenizer(parent)
    before = sorted(tmp_path.iterdir())
    zerolm("carve", str(parent), *PER_LAYER, "--out", str(tmp_path / "child")).refused("gguf", "llama")
    assert sorted(tmp_path.iterdir()) == before
