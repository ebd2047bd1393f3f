"""Parents that are misread in ten ways: no child of them passes as proven.

Each misreading is put in where zerolm reads a parent; stock software reads the folder as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve
from made_tokenizers import byte_level
from made_vocabularies import decoder
from safetensors.torch import load_file, save_file
from saved_mixtures import mixture
from tiny_families import saved

from zerolm.carving.vocabulary import fewer_tokens
from zerolm.checkpoints import tying
from zerolm.children import parent_proof
from zerolm.families import known
from zerolm.networks import mapped, opener

TOKENS: dict[str, Any] = {"text": "random", "sequences": 8, "length": 12}
Patch = pytest.MonkeyPatch
OUTPUT = "read this parent differently: the output differs by"
REFLECTED = "hidden size of this parent cannot be reduced"
FEWER = "with fewer tokens the parent's outputs differ by"


def untied_file(folder: Path) -> Path:
    """A parent whose configuration ties a head that is stored with other numbers than the embedding."""
    saved(folder, "llama", tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].flip(0) * 1.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def small(kind: str, **changes: Any) -> Callable[[Path], Path]:
    return lambda folder: saved(folder, kind, **changes)


def with_text(folder: Path) -> Path:
    (folder.parent / "text.txt").write_text("def mean(values):\n    return sum(values) / len(values)\n" * 40)
    return decoder(folder, byte_level())


def parameters_as(change: Callable[[str], str]) -> Callable[[Patch], None]:
    """Place each tensor where another one belongs."""
    before = mapped.parameters

    def misread(*given: Any) -> dict[str, tuple[str, ...]]:
        return {name: tuple(map(change, names)) for name, names in before(*given).items()}

    return lambda patch: patch.setattr(mapped, "parameters", misread)


def exchanged(name: str) -> str:
    return name.replace("gate_proj", "x").replace("up_proj", "gate_proj").replace("x", "up_proj")


def tensors_as(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Patch], None]:
    """Read the tensors whose names hold this part as others."""
    before = mapped.mapped_tensor
    return lambda patch: patch.setattr(
        mapped, "mapped_tensor", lambda info: change(before(info)) if part in info.name else before(info)
    )


def configured_as(change: Callable[[Any], None]) -> Callable[[Patch], None]:
    """Read another configuration of the text model."""
    before = opener.text_config

    def misread(checkpoint: Any) -> Any:
        config = before(checkpoint)
        change(config)
        return config

    return lambda patch: patch.setattr(opener, "text_config", misread)


def as_tied(patch: Patch) -> None:
    patch.setattr(tying, "same_numbers", lambda *_: True)


def without_offset(patch: Patch) -> None:
    """Read the norms of a Gemma as if they multiplied by their weights, without the 1 that is added."""
    by_name = known._families("")
    family = by_name["gemma"]
    factors = replace(family.tensors.factors, gain="w")
    patch.setitem(by_name, "gemma", replace(family, tensors=replace(family.tensors, factors=factors)))


def wrong_rows(patch: Patch) -> None:
    before = fewer_tokens._outgoing
    patch.setattr(
        fewer_tokens, "_outgoing", lambda info, axis, kept: before(info, axis, np.arange(len(kept)))
    )


def wrong_experts(patch: Patch) -> None:
    """Assemble the experts of a layer in the opposite order."""
    before = mapped._experts
    patch.setattr(mapped, "_experts", lambda *given: before(*given).flip(0))


@dataclass(frozen=True)
class Misreading:
    """A parent, how it is misread, and what is carved."""

    parent: Callable[[Path], Path]
    patch: Callable[[Patch], None]
    flags: dict[str, Any]
    refusal: str = "zerolm and transformers .* read this parent differently: the output of layer 0 differs by"


FFN = {"keep_ffn": 0.5, **TOKENS}
MISREADINGS: dict[str, Misreading] = {
    "tied though the file is not": Misreading(untied_file, as_tied, {"keep_hidden": 0.5, **TOKENS}, OUTPUT),
    "gate and up exchanged": Misreading(small("llama"), parameters_as(exchanged), FFN),
    "norm offset": Misreading(small("gemma"), without_offset, {"keep_hidden": 0.5, **TOKENS}, REFLECTED),
    "factor forgotten": Misreading(
        small("granite"), configured_as(lambda config: setattr(config, "residual_multiplier", 1.0)), FFN
    ),
    "matrix transposed": Misreading(
        small("qwen3", head_dim=8), tensors_as("o_proj.weight", lambda stored: stored.T.contiguous()), FFN
    ),
    "rope": Misreading(
        small("qwen2"), configured_as(lambda config: config.rope_parameters.update(rope_theta=100.0)), FFN
    ),
    "bias dropped": Misreading(small("qwen2"), tensors_as("q_proj.bias", torch.zeros_like), FFN),
    "head": Misreading(
        small("llama", tie_word_embeddings=False),
        configured_as(lambda config: setattr(config, "tie_word_embeddings", True)),
        FFN,
        OUTPUT,
    ),
    "rows of the vocabulary": Misreading(with_text, wrong_rows, {"keep_vocab": "used"}, FEWER),
    "order of experts": Misreading(
        lambda folder: mixture(folder, "qwen3_moe"), wrong_experts, {"keep_experts": "0.5", **TOKENS}
    ),
}


@pytest.mark.parametrize("name", MISREADINGS)
def test_a_misread_parent_is_refused(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    misreading = MISREADINGS[name]
    parent, flags = misreading.parent(tmp_path / "parent"), dict(misreading.flags)
    if "keep_vocab" in flags:
        flags["text"] = str(tmp_path / "text.txt")
    assert carve(parent, tmp_path / "right", **flags).verified is not None
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))  # nothing of the parent as it is
    misreading.patch(monkeypatch)
    with pytest.raises(ValueError, match=misreading.refusal):
        carve(parent, tmp_path / "wrong", **flags)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("name", ["pipeline", "AutoConfig", "no_such_class", ""])
def test_a_configuration_opens_models_alone(name: str) -> None:
    """What else transformers has under the name of a class is not called."""
    family = SimpleNamespace(config=SimpleNamespace(at="text_config"))
    parent: Any = SimpleNamespace(family=family, config={"architectures": [name]})
    assert parent_proof._opener(parent) is None
    parent.config = {"architectures": ["Gemma3ForConditionalGeneration"]}
    assert parent_proof._opener(parent) is transformers.Gemma3ForConditionalGeneration
