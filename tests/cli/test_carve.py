"""``zerolm carve``: the child opens in stock software and does what the carved parent does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from refusals import Zerolm
from safetensors.torch import load_file
from tiny import saved, word_tokenizer
from tiny_families import saved as saved_tiny

IDS = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(0))
WHOLE = ("llama", "llama_tied", "mistral", "qwen2", "qwen3", "gemma2")
BY_WEIGHTS = ("--criterion", "capacity")
FFN_ONLY = ("gpt2", "bert")


def carved(zerolm: Zerolm, parent: Path, out: Path, *flags: str) -> dict[str, Any]:
    ran = zerolm("carve", str(parent), *flags, "--out", str(out), "--json")
    assert (ran.status, "Traceback" in ran.err) == (0, False), ran.err
    return json.loads(ran.out)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", [*WHOLE, *FFN_ONLY])
def test_children_open_in_stock_software(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    """No key is missing or left over, and the logits are those of the masked parent."""
    parent = saved(tmp_path / "parent", name)
    heads = ["--keep-heads", "0.5"] if name in WHOLE else []
    found = carved(zerolm, parent, tmp_path / "child", "--keep-ffn", "0.5", *heads, *BY_WEIGHTS)
    assert found["verified"]["relative"] <= 1e-4
    kind = transformers.AutoModel if name == "bert" else transformers.AutoModelForCausalLM
    child, info = kind.from_pretrained(tmp_path / "child", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert all("pooler" in key for key in info["missing_keys"])
    assert found["costs"]["child"]["params"] == sum(p.numel() for p in child.parameters())
    with torch.no_grad():
        ours, theirs = (_output(m(IDS)) for m in (child.eval(), masked(kind, parent, tmp_path / "child")))
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_shares_with_a_text_print_what_they_lose(zerolm: Zerolm, tmp_path: Path) -> None:
    """On the terminal, on the page, in JSON and from Python alike."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    flags = ("--keep-ffn", "0.5", "--text", "random", "--sequences", "8", "--length", "16")
    ran = zerolm("carve", str(parent), *flags, "--out", str(out))
    assert ran.status == 0, ran.err
    losses = json.loads((out / "result.json").read_text())["losses"]
    assert list(losses) == ["measured", "repaired"]
    words = ", ".join(f"{name} {loss:.3g}" for name, loss in losses.items())
    assert f"loss on held-out text: {words}" in ran.out
    page = (out / "report.html").read_text()
    assert "Loss on held-out tokens" in page
    assert all(f"{loss:.3g}" in page for loss in losses.values())
    assert "No loss was measured" not in page
    again = carved(zerolm, parent, tmp_path / "again", *flags)
    assert again["losses"] == losses


def masked(kind: Any, folder: Path, child: Path) -> Any:
    """The parent whose dropped heads and neurons send nothing, by the recipe of the child."""
    parent = kind.from_pretrained(folder).eval()
    weights = dict(parent.named_parameters())
    for entry in json.loads((child / "recipe.json").read_text())["layers"]:
        for tail, kind_, axis in (
            ("o_proj.weight", "groups", 1),
            ("down_proj.weight", "ffn", 1),
            ("mlp.c_proj.weight", "ffn", 0),
            (".output.dense.weight", "ffn", 1),
        ):
            for name, weight in weights.items():
                if f".{entry['layer']}." not in name or not name.endswith(tail) or "attention.output" in name:
                    continue
                size = weight.shape[axis]
                if kind_ == "groups":
                    per = size // parent.config.num_key_value_heads
                    kept = {g * per + i for g in entry["groups"] for i in range(per)}
                else:
                    kept = set(entry["ffn"])
                dropped = [i for i in range(size) if i not in kept]
                with torch.no_grad():
                    weight.index_fill_(axis, torch.tensor(dropped, dtype=torch.long), 0.0)
    return parent


def _output(found: Any) -> torch.Tensor:
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


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
    assert "8 sequences of 16 tokens (random, seed 0)" in card
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("mistral", ["MistralForCausalLM"])
    assert (config["num_attention_heads"], config["head_dim"], config["sliding_window"]) == (6, 8, None)


def test_layers_may_go_and_are_numbered_anew(zerolm: Zerolm, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    text = ("--text", "random", "--sequences", "4", "--length", "8", "--repair", "none")
    found = carved(zerolm, parent, tmp_path / "child", "--keep-layers", "0.67", *text)
    layers = [size["layer"] for size in found["widths"]]
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "child", parent))
    for place, layer in enumerate(layers):
        name = "model.layers.{}.mlp.up_proj.weight"
        assert torch.equal(ours[name.format(place)], theirs[name.format(layer)])


def test_sixteen_bits_stay_sixteen_bits(zerolm: Zerolm, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama", dtype="bfloat16")
    carved(zerolm, parent, tmp_path / "child", "--keep-ffn", "0.5", *BY_WEIGHTS)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "child", parent))
    kept = json.loads((tmp_path / "child" / "recipe.json").read_text())["layers"][0]["ffn"]
    name = "model.layers.0.mlp.down_proj.weight"
    assert ours[name].dtype == torch.bfloat16
    assert torch.equal(ours[name], theirs[name][:, kept])


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_random_tokens_repair_without_any_data(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", name)
    flags = ("--keep-ffn", "0.5", "--text", "random", "--sequences", "16", "--length", "16")
    found = carved(zerolm, parent, tmp_path / "child", *flags)
    assert (found["criterion"], found["repair"]) == ("surgeon", "least-squares")
    assert found["verified"]["relative"] <= 1e-4
    again = carved(zerolm, parent, tmp_path / "again", *flags)
    assert again["widths"] == found["widths"]
    assert (tmp_path / "child" / "model.safetensors").read_bytes() == (
        tmp_path / "again" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2", "bert"])
@pytest.mark.parametrize("repair", ["none", "least-squares"])
def test_layers_of_other_sizes_are_padded_with_zeros(
    name: str, repair: str, zerolm: Zerolm, tmp_path: Path
) -> None:
    """Any shape opens in the stock class, as large as its largest layer; outputs are those of the cut."""
    parent = saved(tmp_path / "parent", name)
    text = ("--text", "random", "--sequences", "8", "--length", "16") if repair != "none" else BY_WEIGHTS
    budget = "0.92x" if name == "bert" else "0.83x"  # heads of a bert stay
    flags = ("--max-body-params", budget, "--shape", "per-layer", "--format", "padded", "--repair", repair)
    found = carved(zerolm, parent, tmp_path / "child", *flags, *text)
    sizes = {(size["kv_heads"], size["ffn"]) for size in found["widths"]}
    assert len(sizes) > 1
    assert found["verified"]["relative"] <= 1e-4
    kind = transformers.AutoModel if name == "bert" else transformers.AutoModelForCausalLM
    child, info = kind.from_pretrained(tmp_path / "child", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert sum(p.numel() for p in child.parameters()) > found["costs"]["child"]["params"]


def test_force_replaces_a_child_but_not_its_own_parent(zerolm: Zerolm, tmp_path: Path) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    carved(zerolm, parent, out, "--keep-ffn", "0.5", *BY_WEIGHTS)
    carved(zerolm, parent, out, "--keep-ffn", "0.25", *BY_WEIGHTS, "--force")
    assert json.loads((out / "config.json").read_text())["intermediate_size"] == 10
    before = (out / "model.safetensors").read_bytes()
    zerolm("carve", str(out), "--keep-ffn", "0.5", "--out", str(out), "--force").refused("never touched")
    assert (out / "model.safetensors").read_bytes() == before


def test_a_plan_alone_writes_nothing(zerolm: Zerolm, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    ran = zerolm("carve", str(parent), "--max-params", "0.8x", "--shape", "per-layer", *BY_WEIGHTS)
    assert ran.status == 0
    assert "Costs compared with the parent" in ran.out
    assert [file.name for file in tmp_path.iterdir()] == ["parent"]


PER_LAYER = ("--max-body-params", "0.6x", "--shape", "per-layer", "--format", "gguf")
TOKENS = ("--text", "random", "--sequences", "8", "--length", "16")


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize("tokens", [("--criterion", "capacity"), TOKENS], ids=["weights", "tokens"])
def test_a_per_layer_child_opens_in_llama_cpp(
    tokens: tuple[str, ...], zerolm: Zerolm, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    (parent / "LICENSE").write_text("mine")
    ran = zerolm("carve", str(parent), *PER_LAYER, *tokens, "--out", str(out), "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
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
