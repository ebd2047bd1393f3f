"""Chat templates as folders have them go into a GGUF child, and come back from one that is a parent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="gguf is not installed")
llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf import GGUFReader  # noqa: E402
from made_tokenizers import byte_level  # noqa: E402
from made_vocabularies import TEMPLATE, decoder  # noqa: E402

from zerolm.carving.carve import carve  # noqa: E402
from zerolm.carving.request import Destination, Methods  # noqa: E402
from zerolm.checkpoints import Checkpoint  # noqa: E402
from zerolm.networks.opener import stock_tokenizer  # noqa: E402
from zerolm.planning.size_request import SizeRequest  # noqa: E402

TOOLS = f"{{{{ tools }}}} {TEMPLATE}"
RAG = f"{{{{ documents }}}} {TEMPLATE}"
KEY = "tokenizer.chat_template"


def in_config(folder: Path, value: object) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": value}))


def as_list(folder: Path) -> dict[str, str]:
    named = {"default": TEMPLATE, "tool_use": TOOLS, "rag": RAG}
    in_config(folder, [{"name": name, "template": text} for name, text in named.items()])
    return named


def as_object(folder: Path) -> dict[str, str]:
    named = {"default": TEMPLATE, "tool_use": TOOLS}
    in_config(folder, named)
    return named


def as_files(folder: Path) -> dict[str, str]:
    in_config(folder, None)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(TOOLS)
    return {"default": TEMPLATE, "tool_use": TOOLS}


def as_one_file(folder: Path) -> dict[str, str]:
    in_config(folder, None)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return {"default": TEMPLATE}


def none(folder: Path) -> dict[str, str]:
    in_config(folder, None)
    return {}


@pytest.mark.parametrize("arrange", [as_list, as_object, as_files, as_one_file, none])
def test_templates_go_into_a_file_and_come_back(arrange, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    parent = decoder(tmp_path / "parent", byte_level("qwen2"))
    named = arrange(parent)
    carve(parent, SizeRequest.of(keep={"ffn": 0.5}), Methods(), Destination(tmp_path / "child", "gguf"))
    file = next((tmp_path / "child").glob("*.gguf"))
    fields = {name: field.contents() for name, field in GGUFReader(file).fields.items() if KEY in name}
    wanted: dict[str, object] = {
        KEY if name == "default" else f"{KEY}.{name}": text for name, text in named.items()
    }
    assert sorted(fields.pop(f"{KEY}s", [])) == sorted(named.keys() - {"default"})
    assert fields == wanted
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert reader.metadata.get(KEY) == named.get("default")
    read = stock_tokenizer(Checkpoint.open(file).folder).chat_template
    assert ({"default": read} if isinstance(read, str) else read or {}) == named


def test_templates_that_lie_beside_a_file(tmp_path: Path) -> None:
    parent = decoder(tmp_path / "parent", byte_level("qwen2"))
    carve(parent, SizeRequest.of(keep={"ffn": 0.5}), Methods(), Destination(tmp_path / "child", "gguf"))
    named = as_files(parent)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (parent / name).rename(tmp_path / "child" / name)
    (parent / "additional_chat_templates").rename(tmp_path / "child" / "additional_chat_templates")
    file = next((tmp_path / "child").glob("*.gguf"))
    assert stock_tokenizer(Checkpoint.open(file).folder).chat_template == named
