"""Folders that are not read as they lie: the cause and the remedy of each, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.folder import read_object
from zerolm.checkpoints.headers import FLOATS, TensorInfo
from zerolm.families.family import Family
from zerolm.families.known import families
from zerolm.settings import shown

ADAPTER: Final = "adapter_config.json"
ADAPTED: Final = {
    "CAUSAL_LM": "CausalLM",
    "SEQ_CLS": "SequenceClassification",
    "TOKEN_CLS": "TokenClassification",
    "QUESTION_ANS": "QuestionAnswering",
    "FEATURE_EXTRACTION": "FeatureExtraction",
}
"""The classes of peft that merge an adapter, by its task."""
OTHER_HEADS: Final = ("ForTokenClassification", "ForQuestionAnswering", "ForSequenceClassification")
PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")
BITSANDBYTES: Final = (".absmax", ".SCB", ".quant_map", ".nested_absmax")
"""The endings of names that only weights packed by bitsandbytes have."""
QUANTISED: Final = "its weights are quantized; weights in BF16, F16 or F32 can be read"
OF_EXPERTS: Final = "experts alone can be taken out of it as it is: zerolm carve --keep-experts"


def check_complete(folder: Path) -> None:
    """Raise ``ValueError`` for a folder that holds an adapter, or nothing of a checkpoint."""
    if (folder / ADAPTER).exists():
        raise ValueError(adapter(folder))
    if not any(folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is an empty folder; a checkpoint has config.json and safetensors")


def adapter(folder: Path) -> str:
    """Return how to merge an adapter into the weights that it belongs to."""
    settings = read_object(folder, ADAPTER)
    base, task = settings.get("base_model_name_or_path"), settings.get("task_type")
    of_base = f" of {shown(base)}" if isinstance(base, str) else ""
    name = ADAPTED.get(task, "CausalLM") if isinstance(task, str) else "CausalLM"
    return (
        f"{str(folder)!r} holds an adapter{of_base} (adapter_config.json) without its weights; merge it "
        f"first, in Python: peft.AutoPeftModelFor{name}.from_pretrained({str(folder)!r}).merge_and_unload()"
        ".save_pretrained('merged')"
    )


def pickled(folder: Path) -> str:
    """Return how to convert the pickles of a folder; empty where it has none."""
    names = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not names:
        return ""
    return (
        f"its weights are a pickle ({names[0][:80]}), which is not opened; convert it to safetensors, "
        f"in Python: {_loaded(folder)}.save_pretrained('converted')"
    )


def _loaded(folder: Path) -> str:
    """Return the Python that loads the model in a folder with its head."""
    if (folder / "modules.json").exists():
        return f"sentence_transformers.SentenceTransformer({str(folder)!r})"
    try:
        classes = read_object(folder, "config.json").get("architectures")
    except ValueError:
        classes = None
    name = classes[0] if isinstance(classes, list) and classes else None
    is_class = isinstance(name, str) and name.isidentifier() and len(name) <= 80
    return f"transformers.{name if is_class else 'AutoModel'}.from_pretrained({str(folder)!r})"


def check_stored(
    folder: Path,
    config: Mapping[str, Any],
    quantisation: Any,
    tensors: Mapping[str, TensorInfo],
    *,
    packed: bool,
) -> None:
    """Raise ``ValueError`` for weights that are quantised where they are not read ``packed``.

    And for those that are not, though the configuration has a ``quantisation``.
    """
    if any(name.endswith(BITSANDBYTES) for name in tensors):
        raise ValueError(
            f"its weights are packed by bitsandbytes; dequantise them first, in Python: {_loaded(folder)}"
            ".dequantize().save_pretrained('dequantised')"
        )
    types = {tensor.dtype for tensor in tensors.values()}
    if types and types <= set(FLOATS):
        method = quantisation.get("quant_method") if isinstance(quantisation, Mapping) else quantisation
        raise ValueError(
            f"its quantization_config asks for {shown(method)} when it is loaded, but its weights are stored "
            f"in {', '.join(sorted(types))}: remove quantization_config from its config.json to carve these"
        )
    if not packed:
        raise ValueError(quantised(config))


def quantised(config: Mapping[str, Any]) -> str:
    """Return why quantised weights are not read, and what else can be done."""
    family = families().get(str(config.get("model_type")))
    has_experts = family is not None and "experts" in family.config.sizes
    return f"{QUANTISED}, and {OF_EXPERTS}" if has_experts else f"{QUANTISED}: dequantise them first"


def other_head(family: Family, config: Mapping[str, Any]) -> str:
    """Return the end of a refusal of a decoder whose class has another head; empty of all others."""
    classes = config.get("architectures")
    names = classes if isinstance(classes, list) else []
    name = next((name for name in names if isinstance(name, str) and name.endswith(OTHER_HEADS)), None)
    if family.task != "next" or name is None:
        return ""
    return f"; {shown(name)} has another head, and of decoders language models alone are carved"
