"""Reading checkpoints: sound ones in every layout, and such as were made to harm."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changed_folders import configured, replaced, with_a_pickle
from safetensors.torch import load_file, save_file
from tiny import saved

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.headers import read_shard
from zerolm.families.known import family_of


def file_of(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(start: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


def test_headers_equal_those_of_the_library(tmp_path: Path) -> None:
    tensors = {"b": torch.ones(3, 2), "a": torch.zeros(4).bfloat16()}
    tensors |= {"none": torch.zeros(0, 5), "one": torch.ones(())}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    found = read_shard(tmp_path / "x.safetensors").tensors
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} == {
        "b": ("F32", (3, 2)), "a": ("BF16", (4,)), "none": ("F32", (0, 5)), "one": ("F32", ()),
    }  # fmt: skip
    content = (tmp_path / "x.safetensors").read_bytes()
    assert content[found["b"].start : found["b"].end] == tensors["b"].numpy().tobytes()


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": entry(0, 4)}, b"123", "cut off: its tensors end at byte"),
        ({"a": entry(0, 4)}, b"12345", "bytes that belong to no tensor"),
        ({"a": entry(0, 4), "b": entry(2, 6)}, b"123456", "tensor 'b' overlaps another"),
        ({"a": entry(0, 2), "b": entry(4, 6)}, b"123456", "tensor 'b' leaves a gap"),
        ({"a": entry(2, 4)}, b"1234", "tensor 'a' leaves a gap"),
        ({"a": entry(0, 4, [1, 2])}, b"1234", r"has 4 bytes, but U8 \[1, 2\] needs 2"),
        ({"a": entry(0, 4, [-2, -2])}, b"1234", r"has shape \[-2, -2\]"),
        ({"a": entry(0, 4, [1 << 60])}, b"1234", "has shape"),
        ({"a": entry(0, 4, [1] * 9 + [4])}, b"1234", "has shape"),
        ({"a": entry(0, 4, [True, 4])}, b"1234", "has shape"),
        ({"a": entry(4, 0, [4])}, b"1234", "has -4 bytes"),
        ({"a": entry(0, 4, [2], "F13")}, b"1234", "dtype 'F13'; known are"),
        ({"a": entry(0, 4) | {"data_offsets": [0]}}, b"1234", r"data_offsets \[0\]"),
        ({"a": entry(0, 4) | {"more": 1}}, b"1234", "is not described by"),
        ({"a": 5}, b"", "is not described by"),
        *(
            ({"__metadata__": metadata}, b"", "its __metadata__ is not an object of texts")
            for metadata in ({"format": 1}, [1], "pt", {"format": "pt", "x": None}, {"format": {}}, False)
        ),
        ([], b"", "its header is not an object"),
        (b'{"a": ', b"", "its header is no JSON"),
        (b"[" * 100_000, b"", "its header is no JSON"),
        (b'{"a": {"shape": [' + b"1" * 5000 + b"]}}", b"", "sound"),
        (b'{"a": 1, "a": 2}', b"", "field 'a' is given twice"),
        (b"\xff\xfe{}", b"", "utf-8"),
    ],
)
def test_headers_that_lie(header: Any, data: bytes, message: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.safetensors", header, data)
    with pytest.raises(ValueError, match=message) as caught:
        read_shard(path)
    assert "x.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [1 << 62, 100_000_001, 99, 0])
def test_lengths_of_headers_that_lie(length: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"claims {length} bytes"):
        read_shard(file_of(tmp_path / "x.safetensors", {}, length=length))


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"123")
    for path in (tmp_path / "short", tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match="is not a sound safetensors file"):
            read_shard(path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_numbers_are_exact(dtype: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path, "llama", dtype=dtype))
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        assert np.array_equal(checkpoint.read(name), tensor.float().numpy())
        assert np.array_equal(checkpoint.read(name, slice(3, 9)), tensor[3:9].float().numpy())
        assert not checkpoint.raw(name).flags.writeable


def edited(folder: Path, change: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return folder


def moved(to: Any) -> Any:
    def change(index: dict[str, Any]) -> dict[str, Any]:
        index["weight_map"][next(iter(index["weight_map"]))] = to
        return index

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved("../outside.safetensors"), "into '../outside.safetensors', no safetensors file next to it"),
        (moved("/etc/passwd"), "no safetensors file next to it"),
        (moved("..\\outside.safetensors"), "no safetensors file next to it"),
        (moved("config.json"), "no safetensors file next to it"),
        (moved(7), "no safetensors file next to it"),
        (moved("absent.safetensors"), "names absent.safetensors, which is missing"),
        (lambda index: {"weight_map": {}}, "has no weight_map"),
        (lambda index: [], "it is not a JSON object"),
    ],
)
def test_indexes_that_lie(change: Any, message: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", "llama", shard="20KB")
    (tmp_path / "outside.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=re.escape(message)):
        Checkpoint.open(edited(tmp_path / "model", change))


def test_tensors_are_where_the_index_says(tmp_path: Path) -> None:
    saved(tmp_path, "llama", shard="20KB")
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    with pytest.raises(ValueError, match="is missing from model-00002"):
        Checkpoint.open(edited(tmp_path, moved(names[1])))

    def forget(index: dict[str, Any]) -> dict[str, Any]:
        index["weight_map"].popitem()
        return index

    saved(tmp_path / "more", "llama", shard="20KB")
    with pytest.raises(ValueError, match=r"which model.safetensors.index.json does not put there"):
        Checkpoint.open(edited(tmp_path / "more", forget))


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "llama")
    secret = tmp_path / "LICENSE"
    secret.write_text("secret")
    (folder / "LICENSE").symlink_to(secret)
    (folder / "README.md").write_text("mine")
    assert Checkpoint.open(folder).other_files() == [Path("README.md"), Path("generation_config.json")]
    (folder / "model.safetensors").rename(tmp_path / "x.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="is a link that leads out of its folder"):
        Checkpoint.open(folder)


def test_what_a_child_takes_over(tmp_path: Path) -> None:
    folder = saved(tmp_path, "bert")
    kept = ["LICENSE.txt", "chat_template.jinja", "tokenizer.json", "vocab.txt"]
    pickles = ("chat_template.pkl", "pytorch_model.bin", "2_Dense/pytorch_model.bin", "optimizer.pt")
    others = ("modeling_evil.py", "tokenizer.py", ".env")
    for name in (*kept, *pickles, *others, "1_Pooling/config.json"):  # no modules.json names the last
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    assert [str(path) for path in Checkpoint.open(folder).other_files()] == kept


def test_a_pickle_is_refused_unopened(here: Path) -> None:
    saved(here, "llama")
    (here / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"there is no model.safetensors and no model.safetensors.index"):
        Checkpoint.open(here)
    with_a_pickle(here)
    words = (
        r"its weights are a pickle \(pytorch_model\.bin\), which is not opened; convert it to safetensors, "
        r"in Python: transformers\.LlamaForCausalLM\.from_pretrained\('.*'\)\.save_pretrained\('converted'\)$"
    )
    with pytest.raises(ValueError, match=words):
        Checkpoint.open(here)
    assert not Path("opened").exists()


def test_wrong_types_of_weights(tmp_path: Path) -> None:
    replaced(saved(tmp_path, "llama"), {"model.layers.1.mlp.up_proj.weight": torch.zeros(40, 48).char()})
    with pytest.raises(ValueError, match=r"up_proj.weight' is I8; read are BF16, F16, F32, nothing quanti"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "a/b/c", "../x"])
def test_folders_that_are_not_there(name: str, here: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        Checkpoint.open(name)


@pytest.mark.parametrize(
    ("problem", "reason"), [("", "no connection at all"), ("the hub cannot be reached",) * 2]
)
def test_the_hub_is_asked_for_what_is_no_folder(
    problem: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its cache, where it does not answer."""
    import huggingface_hub

    asked: list[dict[str, Any]] = []

    def download(name: str, **settings: Any) -> str:
        asked.append(settings)
        if name == "some/gone":
            raise OSError("no connection\nat all")
        return str(saved(tmp_path, "llama"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr("zerolm.checkpoints.folder.hub_problem", lambda ask: problem)
    assert Checkpoint.open("someone/model").layout.depth == 3
    patterns = asked[0]["allow_patterns"]
    assert "*.safetensors" in patterns
    assert not any("bin" in pattern or "py" in pattern for pattern in patterns)
    assert asked[0]["local_files_only"] is bool(problem)
    with pytest.raises(ValueError, match=f"'some/gone', and no model of the hub: {reason}$"):
        Checkpoint.open("some/gone")


def test_names_the_hub_cannot_have_are_not_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(ask: Any) -> str:
        raise AssertionError

    monkeypatch.setattr("zerolm.checkpoints.folder.hub_problem", never)
    with pytest.raises(ValueError, match="no folder 'absent'; a model of the hub is called owner/name"):
        Checkpoint.open("absent")


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    folder = saved(tmp_path, "llama")
    for text, message in (
        ("[]", "not a JSON object"),
        ("{", "it is not JSON: expecting .*, line 1, column 2"),
        ("[" * 100_000, "recursion"),
    ):
        (folder / "config.json").write_text(text)
        with pytest.raises(ValueError, match=f"config.json' cannot be read: .*{message}"):
            Checkpoint.open(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="there is no such file"):
        Checkpoint.open(folder)


def test_the_four_kinds_of_axes(tmp_path: Path) -> None:
    layout = Checkpoint.open(saved(tmp_path, "qwen3")).layout
    sizes = {"q": 96, "kv": 32, "head": 16, "ffn": 40, "hidden": 48, "vocab": 64, "positions": 32768}
    assert layout.sizes == sizes
    axes = {role: layout.slots[name].axes for role, name in layout.layer(2).items()}
    assert (axes["q"], axes["v"], axes["o"]) == (("q", "hidden"), ("kv", "hidden"), ("hidden", "q"))
    assert (axes["q_norm"], axes["down"]) == (("head",), ("hidden", "ffn"))
    assert layout.name("q", 3) is None
    assert layout.name("head") == "lm_head.weight"


def test_fused_and_transposed_projections(tmp_path: Path) -> None:
    layout = Checkpoint.open(saved(tmp_path, "gpt2")).layout
    name = layout.name("q+k+v", 1)
    assert name
    assert layout.slots[name].transposed
    assert layout.slots[name].axes == ("hidden", "q+kv+kv")
    parts = {part.role: (part.axis, part.along, part.axes) for part in layout.slots[name].parts}
    assert parts["q"] == (1, slice(0, 48), ("hidden", "q"))
    assert parts["k"] == (1, slice(48, 96), ("hidden", "kv"))
    assert parts["v"] == (1, slice(96, 144), ("hidden", "kv"))
    assert layout.part("k", 1) == (name, layout.slots[name].parts[1])
    bias = "transformer.h.1.attn.c_attn.bias"
    assert layout.part("k_bias", 1) == (bias, layout.slots[bias].parts[1])
    assert layout.ffn == 192
    assert layout.slots["transformer.wte.weight"].transposed is False


def test_buffers_of_old_gpt2s(tmp_path: Path) -> None:
    file = saved(tmp_path, "gpt2") / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    save_file(bare | {f"h.{layer}.attn.bias": torch.ones(1, 1, 32, 32) for layer in range(3)}, file)
    layout = Checkpoint.open(tmp_path).layout
    assert layout.slots.keys() == bare.keys()
    assert layout.name("down", 2) == "h.2.mlp.c_proj.weight"


def test_names_of_old_berts(tmp_path: Path) -> None:
    saved(tmp_path, "bert_masked")
    file = tmp_path / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = load_file(file)
    for new, name in old.items():
        renamed = {tensor.replace(new, name): value for tensor, value in renamed.items()}
    renamed["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(renamed, file)
    layout = Checkpoint.open(tmp_path).layout
    assert layout.name("ffn_post_norm", 0) == "bert.encoder.layer.0.output.LayerNorm.gamma"


def test_a_family_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="model_type 'rwkv' is not known; there are afmoe, apertus, arcee"):
        family_of({"model_type": "rwkv"})
    with pytest.raises(ValueError, match="has no model_type"):
        family_of({})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 4}, "tensor 'model.layers.3.input_layernorm.weight' is missing"),
        ({"num_hidden_layers": 2}, "'model.layers.2.* is none of a llama model"),
        ({"intermediate_size": 41}, r"shape \[40, 48\], the configuration implies 41 \(ffn\) x 48"),
        ({"num_key_value_heads": 4}, "num_attention_heads 6 is not divisible by num_key_value_heads 4"),
        ({"num_key_value_heads": None}, r"implies 48 \(kv\) x 48 \(hidden\)"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers 1000000000000; 1 to"),
        ({"attention_bias": True}, "q_proj.bias' is missing"),
    ],
)
def test_configurations_that_do_not_fit(change: dict[str, object], message: str, tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    configured(tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        Checkpoint.open(tmp_path)


def test_trained_models(models_folder: Path) -> None:
    decoder = Checkpoint.open(models_folder / "pydec")
    assert sum(tensor.count for tensor in decoder.tensors.values()) == 7_344_384
    assert (decoder.layout.kv_heads, decoder.layout.ffn, decoder.layout.tied) == (4, 768, True)
    encoder = Checkpoint.open(models_folder / "pyenc")
    assert sum(tensor.count for tensor in encoder.tensors.values()) == 6_869_504
    assert {"1_Pooling/config.json", "modules.json"} <= {str(path) for path in encoder.other_files()}
