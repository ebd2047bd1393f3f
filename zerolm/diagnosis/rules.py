"""Verdicts of a runtime on a folder with safetensors, by rules; nothing is run here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerolm.diagnosis.evidence import Evidence
from zerolm.diagnosis.result import OPENS, REFUSES, UNKNOWN, RuntimeVerdict
from zerolm.diagnosis.runtimes import LLAMA_CPP, TRANSFORMERS, UNREAD, Runtime
from zerolm.text.defaults import TOKENIZER_FILES

UNSEEN_TOKENIZER: Final = (
    "its converter recognises a tokenizer.json by its tokens of a text, which were not computed"
)
NEEDS_CODE: Final = "auto_map names code of its own, which stock software runs only with trust_remote_code"


def by_rules(runtime: Runtime, evidence: Evidence) -> RuntimeVerdict:
    """Return a verdict from the configuration, and the names and shapes of the tensors."""
    flaws, doubts = list(_flaws(runtime, evidence)), list(_doubts(runtime, evidence))
    if flaws:
        return RuntimeVerdict.ruled(runtime.name, REFUSES, *flaws)
    if doubts:
        return RuntimeVerdict.ruled(runtime.name, UNKNOWN, *doubts)
    reason = f"{runtime.dated} lists it; configuration, names and shapes are those of its class"
    return RuntimeVerdict.ruled(runtime.name, OPENS, reason)


def _flaws(runtime: Runtime, evidence: Evidence) -> Iterator[str]:
    layout, family = evidence.layout, evidence.family
    if evidence.flaws.config and not (runtime.gguf and evidence.ggufs):
        yield evidence.flaws.config
    if evidence.flaws.config:
        return
    if evidence.flaws.weights and (runtime.only_safetensors or not _unread(evidence)):
        yield evidence.flaws.weights
    if evidence.needs_code and runtime is TRANSFORMERS:
        yield NEEDS_CODE
    if runtime.by == "class" and not evidence.classes:
        yield "the configuration names no class in architectures"
    is_said_so = family is not None and any(choice.by_number for choice in family.config.kinds)
    if evidence.config.get("per_layer_config") and not is_said_so:
        yield "per_layer_config: sizes that differ between layers have no stock class"
    if family and evidence.flaws.layout and evidence.tensors:
        yield evidence.flaws.layout + _missing_head_size(evidence)
    if layout and family:
        indivisible = layout.hidden % layout.heads
        if runtime.checks_heads and indivisible and family.cut.indivisible != "kept":
            other = f"; a {family.cut.indivisible} may" if family.cut.written_as else ""
            yield (
                f"{layout.heads} heads do not divide the hidden size {layout.hidden}, which transformers "
                f"asks of a {family.name}{other}"
            )
        if runtime.head_size(family) == "derived" and not _is_derived(evidence):
            yield _head_size(evidence, f"{runtime.dated} takes")
        if runtime.derives_ffn(family) and layout.ffn != 4 * layout.hidden:
            yield (
                f"{runtime.dated} takes the FFN width of a {family.name} as 4 x {layout.hidden}, not "
                f"{layout.ffn}"
            )
    if runtime is LLAMA_CPP and not evidence.has(*TOKENIZER_FILES):
        yield "its converter needs a tokenizer, and the folder has none"
    is_mlx = runtime.by == "model_type" and runtime is not TRANSFORMERS
    if is_mlx and listed(runtime, evidence) and layout and not _is_language_model(evidence):
        yield "its class has a language-model head, and these tensors are of another one"


def _doubts(runtime: Runtime, evidence: Evidence) -> Iterator[str]:
    family = evidence.family
    if not evidence.tensors:
        yield f"{_unread(evidence)} are not examined, for nothing but safetensors is opened here"
    if evidence.needs_code:
        yield NEEDS_CODE
    if not listed(runtime, evidence):
        names = evidence.kind if runtime.by == "model_type" else ", ".join(evidence.classes)
        yield f"{names[:80] or 'a model without a name'} is not in the list of {runtime.dated}"
    elif family is None:
        yield f"names and shapes of a {evidence.kind or 'model without model_type'} are not known here"
    if evidence.config.get("quantization_config"):
        yield "quantization_config: its packed weights are not examined"
    if family and evidence.layout and not _is_derived(evidence):
        head_size = runtime.head_size(family)
        if head_size == "either":
            yield _head_size(evidence, "some of its versions take")
        if head_size == UNREAD:
            yield (
                f"whether {runtime.dated} takes {evidence.layout.heads} heads of {evidence.layout.head_size} "
                f"with a hidden size of {evidence.layout.hidden} is not examined"
            )
    if runtime is LLAMA_CPP and not evidence.has("tokenizer.model", "vocab.txt"):
        yield UNSEEN_TOKENIZER


def listed(runtime: Runtime, evidence: Evidence) -> list[str]:
    """Return which names of a folder a runtime lists: of its classes, or its model type."""
    names = (evidence.kind,) if runtime.by == "model_type" else evidence.classes
    return runtime.lists(names, evidence.family)


def _is_language_model(evidence: Evidence) -> bool:
    layout, family = evidence.layout, evidence.family
    names = layout.layer(None) if layout else {}
    before = tuple(prefix.body for prefix in family.tensors.prefixes if prefix.body) if family else ()
    is_body = bool(before) and not names.get("embedding", "").startswith(before)
    return "classifier" not in names and not is_body


def _unread(evidence: Evidence) -> str:
    """Weights in files that are named but not opened."""
    return ", ".join((*evidence.pickles, *evidence.ggufs, *evidence.stray)[:4])


def _is_derived(evidence: Evidence) -> bool:
    layout = evidence.layout
    return layout is None or layout.heads * layout.head_size == layout.hidden


def _head_size(evidence: Evidence, who: str) -> str:
    layout = evidence.layout
    assert layout is not None
    return (
        f"{who} the head size of a {evidence.kind} as hidden size / heads: {layout.heads} heads of "
        f"{layout.head_size} are not {layout.hidden}"
    )


def _missing_head_size(evidence: Evidence) -> str:
    """A hint where the tensors would fit if the configuration spelt out the size of a head."""
    family = evidence.family
    field = family.config.sizes["head_size"].field if family else None
    attention = any(f"{part}_proj" in evidence.flaws.layout for part in "qkvo")
    absent = field is not None and evidence.config.get(field) is None
    return f"; it may lack an explicit {field}" if attention and absent else ""
