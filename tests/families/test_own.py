"""Families of a user's own: fused matrices, mixtures of experts, plug-ins, and broken files."""

import json
import re
import warnings
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from zerolm.cli import main
from zerolm.families import known
from zerolm.families.config import cut_of
from zerolm.families.document import read_family
from zerolm.families.known import families
from zerolm.networks.huggingface import stock_network
from zerolm.registry import PluginWarning

OWN = Path(__file__).parent / "own"
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 32, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": SIZES | {"num_local_experts": 4, "head_dim": 16},
    "granitemoe": SIZES | {"num_local_experts": 4, "attention_bias": True},
    "qwen2_moe": SIZES | {"num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                          "shared_expert_intermediate_size": 20},
    "phi3": SIZES,
}  # fmt: skip
EXPERTS = ("mixtral", "granitemoe", "qwen2_moe")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(known.FOLDER, str(OWN))


@pytest.fixture
def unread() -> Iterator[None]:
    """Families are read within the test, for there are other plug-ins; and again after it."""
    known._families.cache_clear()
    yield
    known._families.cache_clear()


def model(kind: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **KINDS[kind])).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_ledgers_weigh_every_matrix(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = model(kind)
    network.save_pretrained(tmp_path)
    assert main(["ledger", str(tmp_path), "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    layers = network.model.layers
    for number, layer in enumerate(ledger["layers"]):
        inside = dict(layers[number].named_parameters())
        for part, is_attention in (("attention", True), ("ffn", False)):
            weights = [
                w for n, w in inside.items()
                if w.ndim > 1 and ("self_attn" in n) is is_attention
            ]  # fmt: skip
            assert layer[part]["weights"] == sum(w.numel() for w in weights)
            energy = sum(float(w.detach().double().square().sum()) for w in weights)
            assert layer[part]["energy"] == pytest.approx(energy, rel=1e-9)
        assert (layer["ffn"]["strongest_half"] is None) is (kind in EXPERTS)
    assert main(["ledger", str(tmp_path)]) == 0
    assert "all" in capsys.readouterr().out


@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_are_no_network_yet(kind: str) -> None:
    with pytest.raises(ValueError, match="of several kinds"):
        stock_network(model(kind))


def test_phi3_as_a_network(tmp_path: Path) -> None:
    """Its fused matrices, with the logical ones in them."""
    linears = [linear for linear in stock_network(model("phi3")).linears if linear.layer == 1]
    assert [linear.name for linear in linears] == ["q", "k", "v", "o", "gate", "up", "down"]
    shapes = [tuple(linear.matrix(linear.parameter).shape) for linear in linears]
    assert shapes == [(48, 48), (16, 48), (16, 48), (48, 48), (40, 48), (40, 48), (48, 40)]
    assert [linear.name for linear in linears if linear.activated] == ["gate"]
    assert len({id(linear.module) for linear in linears}) == 4


DOCUMENT = json.loads((OWN / "phi3_mine.json").read_text())
BROKEN: list[tuple[Any, str]] = [
    ([], "a family is a JSON object"),
    ({**DOCUMENT, "model_type": 3}, "family.model_type is '3', not a text"),
    ({**DOCUMENT, "model_type": "llama"}, "'llama' is registered already"),
    ({**DOCUMENT, "task": "sort"}, "family.task is 'sort', not one of next, masked, image"),
    ({**DOCUMENT, "extra": 1}, "family has an unknown entry 'extra'; known: model_type, task"),
    ({name: value for name, value in DOCUMENT.items() if name != "cut"}, "family lacks 'cut'"),
    ({**DOCUMENT, "cut": {"layers": 1}}, "family.cut lacks 'heads'"),
    ({**DOCUMENT, "tensors": {}}, "describes neither tensors nor modules"),
    ({**DOCUMENT, "tensors": []}, "family.tensors is .*, not an object"),
]


def changed(where: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(DOCUMENT))
    *path, last = where.split(".")
    part: Any = copy
    for name in path:
        part = part[int(name) if isinstance(part, list) else name]
    part[int(last) if isinstance(part, list) else last] = value
    return copy


FILE: dict[str, Any] = {"architecture": "phi3", "activations": ["silu"]}
BROKEN += [
    (changed("config.sizes.ffn", {"default": "4*width"}), "config.sizes.ffn has the default '4.width'"),
    (changed("config.sizes.ffn", {"default": 2.5}), "which is no size"),
    (changed("config.sizes.heads", {"default": "kv_heads"}), "follow from each other"),
    (changed("config.sizes.ffn", 3), "family.config.sizes.ffn is '3', not an object"),
    (changed("tensors.body.2.axes", ["q+kv", "hidden"]), r"role 'q\+k\+v', which does not fit its axes"),
    (changed("tensors.body.2.axes", ["q+kv+kv", "depths"]), "an axis 'depths', which config.sizes lacks"),
    (changed("tensors.body.2.role", "other"), "does not fit its axes"),
    (changed("tensors.body.3.role", "ffn_norm"), "which another tensor has"),
    (changed("tensors.body.3.axes", ["1"] * 4), "has 4 axes"),
    (changed("tensors.body.3.when", "sometimes"), "which is no flag"),
    (changed("tensors.body.6.role", "sideways"), "no tensor in the layers has the role 'down'"),
    (changed("tensors.body.6.name", "layers.{layer}.x.{expert}"), "lacks 'experts' and 'active'"),
    (changed("gguf", FILE | {"by_kind": {"head_count": {"odd": "0"}}}), "of the kind 'odd', which"),
    (changed("gguf", FILE | {"by_kind": {"head_count": {"no ffn": "x"}}}), "head_count has 'x' in a gguf"),
    (changed("gguf", FILE | {"flagged": {"some.key": ["odd"]}}), "flagged.some.key is of the kind 'odd'"),
    (changed("gguf", FILE | {"tiled": {"ffn": "odd"}}), "gguf.tiled has 'ffn' by 'odd', which config.sizes"),
    (changed("gguf", FILE | {"sizes": {"key_length": "odd"}}), "gguf.sizes has 'odd' in a gguf file"),
    (changed("tensors.body.0.gguf", {"values": "2*w"}), r"gguf.values is '2\*w', not one of"),
    (
        changed("gguf", FILE) | {"tensors": changed("tensors.body.0.gguf", {"shape": ["odd"]})["tensors"]},
        "has 'odd' in a gguf file, which is no size",
    ),
    (changed("tensors.body.0.gguf", 3), r"tensors.body\[0\].gguf is '3', not an object"),
    (changed("tensors.body.0.transposed", "no"), r"tensors.body\[0\].transposed is 'no', not true or false"),
]


@pytest.mark.parametrize(("document", "message"), BROKEN)
def test_a_broken_file_is_named_in_one_line(
    document: Any,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(document))
    monkeypatch.setenv(known.FOLDER, str(tmp_path))
    (tmp_path / "config.txt").write_text(json.dumps({"model_type": "llama"}))
    assert main(["score", str(tmp_path / "config.txt")]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "mine.json" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1, "a": 2}'])
def test_what_is_no_json_is_named(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.json").write_bytes(content)
    monkeypatch.setenv(known.FOLDER, str(tmp_path))
    with pytest.raises(ValueError, match=r"family '.*mine.json' cannot be read: .") as caught:
        families()
    assert "\n" not in str(caught.value)
    monkeypatch.setenv(known.FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"ZEROLM_FAMILIES names .*nowhere', which is no folder"):
        families()


def installed(folder: Path, **points: str) -> None:
    """Write a package with entry points, as an installer leaves it."""
    (folder / "myfamilies.py").write_text(
        "import json, pathlib\n"
        f"TEXT = pathlib.Path({str(OWN / 'phi3_mine.json')!r})\n"
        "DOCUMENT = json.loads(TEXT.read_text())\n"
        "OTHER = DOCUMENT | {'model_type': 'phi3_like'}\n"
        "BROKEN = {'model_type': 'nothing'}\n"
        "NUMBER = 3\n"
    )
    info = folder / "myfamilies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: myfamilies\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[zerolm.families]\n{lines}\n")


@pytest.mark.usefixtures("unread")
def test_families_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(known.FOLDER)
    installed(
        tmp_path, file="myfamilies:TEXT", document="myfamilies:OTHER", broken="myfamilies:BROKEN",
        number="myfamilies:NUMBER", missing="myfamilies:MISSING",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = list(families())
    assert {"phi3_mine", "phi3_like", "llama"} <= set(names)
    assert "nothing" not in names
    messages = sorted(str(warning.message) for warning in caught if warning.category is PluginWarning)
    assert [message.split("'")[1] for message in messages] == ["broken", "missing", "number"]
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize("q_bias", [False, True])
@pytest.mark.parametrize("mlp_bias", [False, True])
def test_a_cut_is_refused_where_all_of_its_conditions_hold(q_bias: bool, mlp_bias: bool) -> None:
    document = json.loads((files("zerolm.families") / "llama.json").read_text("utf-8"))
    unless = {"cuts": ["heads"], "when": "attention_bias and no mlp_bias", "note": "a reason"}
    family = read_family({**document, "cut": {**document["cut"], "unless": [unless]}})
    cut = cut_of(family, {**SIZES, "attention_bias": q_bias, "mlp_bias": mlp_bias})
    assert cut.heads == (not q_bias or mlp_bias)
    assert (cut.note == "a reason") == (not cut.heads)
    assert (cut.layers, cut.ffn) == (True, True)
