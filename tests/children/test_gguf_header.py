"""GGUF headers: sound ones are read as the library wrote them, lies are refused in one line."""

import importlib.util
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NUMBER
from zerolm.diagnosis.examine import diagnose

gguf: Any = pytest.importorskip("gguf")
needs_llama_cpp = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def written(file: Path, kind: str, heads: int, *, ffn: list[int] | int = 64, size: int = 16) -> Path:
    writer = gguf.GGUFWriter(file, kind)
    widths = ffn if isinstance(ffn, list) else [ffn, ffn]
    writer.add_block_count(len(widths))
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count([heads] * len(widths) if kind == "deci" else heads)
    writer.add_head_count_kv([1] * len(widths) if kind == "deci" else 1)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(300)
    writer.add_tokenizer_model("no_vocab")
    writer.add_array("test.long", list(range(5000)))
    writer.add_array("test.words", [f"w{i}" for i in range(5000)])
    generator = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", generator.standard_normal(shape, np.float32) * 0.1)

    add("token_embd", 300, 64)
    add("output", 300, 64)
    add("output_norm", 64)
    for layer, width in enumerate(widths):
        for name, length in (("attn_q", heads * size), ("attn_k", size), ("attn_v", size)):
            add(f"blk.{layer}.{name}", length, 64)
            if kind == "qwen2":
                writer.add_tensor(f"blk.{layer}.{name}.bias", np.zeros(length, np.float32))
        add(f"blk.{layer}.attn_output", 64, heads * size)
        add(f"blk.{layer}.attn_norm", 64)
        if width:
            add(f"blk.{layer}.ffn_norm", 64)
            add(f"blk.{layer}.ffn_gate", width, 64)
            add(f"blk.{layer}.ffn_up", width, 64)
            add(f"blk.{layer}.ffn_down", 64, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_headers_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = written(tmp_path / "x.gguf", "llama", 3)
    header, theirs = read_gguf_header(file), gguf.GGUFReader(file)
    assert header.architecture == "llama"
    assert header.tensors == {tensor.name: tuple(map(int, tensor.shape)) for tensor in theirs.tensors}
    assert header.of_layers("attention.head_count") == (3, 3)
    assert header.of_layers("absent") is None
    assert header.metadata["test.long"] is header.metadata["test.words"] is None


def test_sizes_of_blocks_are_those_of_the_library() -> None:
    theirs = {int(kind): tuple(sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (kind.weights, kind.bytes) for number, kind in BY_NUMBER.items()}
    assert {number: theirs[number] for number in ours} == ours


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    file = written(tmp_path_factory.mktemp("gguf") / "x.gguf", "llama", 2, ffn=[16])
    return file.parent / "changed.gguf", file.read_bytes()


@given(st.data())
def test_whatever_is_cut_off_is_missed(sound: tuple[Path, bytes], data: st.DataObject) -> None:
    file, content = sound
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match="is not a sound GGUF file") as caught:
        read_gguf_header(file)
    assert "\n" not in str(caught.value)


@given(st.data())
def test_damage_is_survived(sound: tuple[Path, bytes], data: st.DataObject) -> None:
    """Any bytes within the header: read, or refused with a ``ValueError`` and nothing else."""
    file, content = sound
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, 1500))] = data.draw(st.integers(0, 255))
    file.write_bytes(changed)
    with suppress(ValueError):
        assert read_gguf_header(file).tensors


def head(version: int = 3, tensors: int = 0, entries: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


KEY = struct.pack("<Q", 1) + b"a"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGML" + bytes(60), "does not begin with GGUF"),
        (head(version=1), "version 1; read are 2 and 3"),
        (head(tensors=1 << 60), "tensors and 0 entries"),
        (head(entries=1) + struct.pack("<Q", 1 << 62), "ends within its header"),
        (head(entries=1) + KEY + struct.pack("<I", 99), "value of type 99"),
        (head(entries=1) + KEY + struct.pack("<IIQ", 9, 9, 1), "array of type 9"),
        (head(entries=1) + KEY + struct.pack("<IIQ", 9, 4, 1 << 61), "ends within its header"),
        (head(tensors=1) + KEY + struct.pack("<I", 77), "'a' has 77 axes"),
        (head(tensors=1) + KEY + struct.pack("<IQIQ", 1, 33, 2, 0), "rows of 33, not in blocks of 32"),
        (head(tensors=1) + KEY + struct.pack("<IQIQ", 1, 8, 0, 1), "multiple of 32"),
        (head(tensors=1) + KEY + struct.pack("<IQIQ", 1, 1 << 40, 0, 0), "is cut off: tensor 'a'"),
        (b"", "empty"),
    ],
)
def test_headers_that_lie(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.gguf' is not a sound GGUF file") as caught:
        read_gguf_header(file)
    assert words in str(caught.value)


@needs_llama_cpp
@pytest.mark.usefixtures("opened_here")
def test_llama_cpp_takes_any_heads_of_a_llama_and_not_of_a_qwen2(tmp_path: Path) -> None:
    """The rule by which qwen2 children with fewer heads are refused, seen in the library itself."""
    written(tmp_path / "llama.gguf", "llama", 3)
    written(tmp_path / "qwen2-cut.gguf", "qwen2", 3)
    written(tmp_path / "qwen2-whole.gguf", "qwen2", 4)
    (tmp_path / "rest.gguf").write_bytes(b"GGUF")
    found = {verdict.runtime: verdict for verdict in diagnose(tmp_path).runtimes}
    expected = {"llama": "opens", "qwen2-cut": "refuses", "qwen2-whole": "opens", "rest": "refuses"}
    assert {name: found[f"llama.cpp: {name}.gguf"].verdict for name in expected} == expected
    assert found["llama.cpp: llama.gguf"].known == "opened"
    assert found["llama.cpp: rest.gguf"].known == "rules"


@needs_llama_cpp
@pytest.mark.usefixtures("opened_here")
def test_what_llama_cpp_computes_wrongly_is_said(tmp_path: Path) -> None:
    written(tmp_path / "deci.gguf", "deci", 2, ffn=[16, 0, 16])
    found = diagnose(tmp_path).runtimes[-1]
    assert found.verdict == "opens"
    assert "wrong results" in found.reasons[-1]
    assert "such as 1" in found.reasons[-1]
