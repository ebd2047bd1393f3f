"""``--like``: checkpoints of types that no document describes, read by that of another family."""

from pathlib import Path

import pytest
import torch
from changed_folders import configured
from refusals import Zerolm
from tiny import word_tokenizer
from tiny_families import DERIVED, FACTORS, random_model
from transformers import AutoConfig, AutoModelForCausalLM

from zerolm.families.reading import current

UNKNOWN = DERIVED | FACTORS | {"use_post_norm": False, "max_position_embeddings": 32}
"""Of a hyperclovax without norms on outputs: the tensors of a llama, and factors on the stream."""
BY_WEIGHTS = ("--criterion", "capacity")
WEIGHTS = ("--keep-ffn", ".5", *BY_WEIGHTS)
TEXT = ("--text", "random", "--sequences", "4", "--length", "12")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model("hyperclovax", **UNKNOWN)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    network.save_pretrained(tmp_path / "parent")
    return tmp_path / "parent"


def test_a_refusal_says_which_document_the_tensors_fit(zerolm: Zerolm, parent: Path) -> None:
    ran = zerolm("ledger", str(parent))
    ran.refused("model_type 'hyperclovax' is not known; there are ")
    assert ran.err.endswith("; its tensors fit llama: --like llama\n")


def test_no_document_is_named_that_fits_nearly(zerolm: Zerolm, parent: Path) -> None:
    configured(parent, intermediate_size=41)
    error = zerolm("ledger", str(parent)).err
    assert "is not known" in error
    assert "fit" not in error


CUTS = [WEIGHTS, ("--keep-heads", ".5", *BY_WEIGHTS), ("--keep-layers", ".67", *TEXT)]


@pytest.mark.parametrize("cut", CUTS)
def test_a_child_is_read_like_a_family_and_keeps_its_own_type(
    cut: tuple[str, ...], zerolm: Zerolm, parent: Path, tmp_path: Path
) -> None:
    out = tmp_path / "child"
    document = zerolm("carve", str(parent), *cut, "--like", "llama", "--out", str(out), "--json").document
    assert document["family"] == "hyperclovax"
    assert document["verified"]["relative"] <= 1e-5
    child = AutoModelForCausalLM.from_pretrained(out)
    assert child.config.model_type == "hyperclovax"
    stored = sum(parameter.numel() for parameter in child.parameters())
    assert document["costs"]["child"]["params"] == stored
    assert "--like llama" in (out / "report.html").read_text()
    assert current() is None


def test_verbs_that_open_a_checkpoint_read_it_alike(zerolm: Zerolm, parent: Path, tmp_path: Path) -> None:
    like = ("--like", "llama", "--json")
    scored = zerolm("score", str(parent), *like).document["costs"]
    stored = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_pretrained(parent).parameters())
    assert scored["params"] == stored
    assert zerolm("ledger", str(parent), *like).document["total"]["all"]["weights"] == stored
    child, text = tmp_path / "child", tmp_path / "text.txt"
    word_tokenizer(parent)
    text.write_text(" ".join(f"w{number % 64}" for number in range(400)))
    assert zerolm("carve", str(parent), *WEIGHTS, "--out", str(child), *like).status == 0
    judged = zerolm("eval", str(child), "--parent", str(parent), "--text", str(text), *TEXT[2:], *like)
    assert judged.status == 0, judged.err


def test_its_stream_stays_whole(zerolm: Zerolm, parent: Path, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "child"))
    told = "nothing says that the norms of a model that is read like another are plain"
    zerolm("carve", str(parent), "--keep-hidden", ".5", *BY_WEIGHTS, "--like", "llama", *out).refused(told)
    assert not (tmp_path / "child").exists()


def test_a_type_unknown_to_transformers_is_only_counted(zerolm: Zerolm, parent: Path, tmp_path: Path) -> None:
    configured(parent, model_type="nobodys")
    assert zerolm("score", str(parent), "--like", "llama").status == 0
    assert zerolm("carve", str(parent), *WEIGHTS, "--like", "llama").status == 0
    out = ("--out", str(tmp_path / "child"))
    zerolm("carve", str(parent), *WEIGHTS, "--like", "llama", *out).refused(
        "does not know model_type 'nobodys' and opens no child",
        "if it is a llama, let a copy of its config.json say model_type llama",
    )
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ("lama", "family 'lama' is not known; did you mean 'llama'?"),
        ("vit", "family 'vit' is not known"),
        ("gpt2", "tensor 'transformer.wte.weight' is missing"),
        ("qwen3", "tensor 'model.layers.0.self_attn.q_norm.weight' is missing"),
    ],
)
def test_a_family_that_misfits(like: str, message: str, zerolm: Zerolm, parent: Path, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "child"))
    zerolm("carve", str(parent), *WEIGHTS, "--like", like, *out).refused(message)
    assert current() is None


def test_a_type_that_is_known_is_read_as_it_is(zerolm: Zerolm, tmp_path: Path) -> None:
    random_model("qwen2").save_pretrained(tmp_path)
    told = "model_type 'qwen2' is known: it is not read like llama"
    zerolm("ledger", str(tmp_path), "--like", "llama").refused(told)
