"""Which runtimes open a checkpoint, and why not."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.folder import inside, read_object
from zerolm.checkpoints.gguf.header import GgufHeader, read_gguf_header
from zerolm.checkpoints.gguf.parts import read_gguf
from zerolm.checkpoints.weight_types import BY_NUMBER
from zerolm.diagnosis.evidence import Evidence, gather, tried
from zerolm.diagnosis.opening import TOKENIZER, Opened, attempt, is_installed
from zerolm.diagnosis.result import OPENS, REFUSES, UNKNOWN, Diagnosis, RuntimeVerdict
from zerolm.diagnosis.rules import UNSEEN_TOKENIZER, by_rules
from zerolm.diagnosis.runtimes import LLAMA_CPP, SERVERS, TRANSFORMERS
from zerolm.io.files import parse_json, read_text
from zerolm.io.memory import free_memory
from zerolm.progress import Progress, silent
from zerolm.settings.messages import plural
from zerolm.text.defaults import TOKENIZER_FILES

OPENING_ROOM: Final = 1.5
"""Memory that opening takes, in sizes of the weights."""
EXPORTING_ROOM: Final = 4
"""The same of an export to ONNX, in sizes of the weights in float32."""
MODULES: Final = ("Transformer", "Pooling", "Normalize", "Dense", "Dropout")
MAX_GGUFS: Final = 8
DROPS_ATTENTION: Final = "deci"
"""The architecture of GGUF whose readers take a layer without FFN for one without attention."""


def diagnose(path: Path, progress: Progress = silent) -> Diagnosis:
    """Examine any folder or GGUF file, sound or not, opening no pickle and running none of its code.

    What is installed of transformers, llama.cpp and onnxruntime really opens it, in a process of its own;
    the other runtimes are judged by their rules. Raises ``ValueError`` where there is no
    checkpoint.
    """
    evidence = gather(path)
    of_files = [_gguf(evidence, name, progress) for name in evidence.ggufs[:MAX_GGUFS]]
    if evidence.is_gguf or path.is_file():
        return Diagnosis(str(path), of_files, **facts_of_file(evidence), advice=[])
    stock = _transformers(evidence, progress)
    verdicts = [stock, *(by_rules(runtime, evidence) for runtime in SERVERS)]
    read = _tokenizer(evidence, progress)
    verdicts += of_files or [_llama_cpp(evidence, read)]
    if is_installed("onnx"):
        verdicts.append(_onnx(evidence, stock, progress))
    masked = evidence.family is not None and evidence.family.task == "masked"
    if masked or (path / "modules.json").exists():
        verdicts.append(_sentences(evidence, stock))
    advice = list(_advice(evidence))
    if read is not None:
        reasons = "; ".join(read.reasons).removeprefix(f"{TOKENIZER}: ")
        advice.append(f"{TOKENIZER}: {'' if read.verdict == OPENS else 'not written: '}{reasons}")
    return Diagnosis(str(path), verdicts, **facts_of(evidence), advice=advice)


def _transformers(evidence: Evidence, progress: Progress) -> RuntimeVerdict:
    """By opening it, unless it is unsound, does not fit into memory, or nothing is installed."""
    ruled = by_rules(TRANSFORMERS, evidence)
    if evidence.flaws.config or not evidence.tensors or not is_installed("transformers"):
        return ruled
    if evidence.bottomless:
        untried = "not opened: its configuration asks for more layers than there are tensors"
        return RuntimeVerdict.ruled("transformers", REFUSES, *ruled.reasons, untried)
    progress("opening it with transformers")
    if evidence.size * OPENING_ROOM > free_memory():
        read = attempt("configuration", evidence.folder)
        if read.verdict != OPENS:
            return RuntimeVerdict("transformers", read.verdict, "opened", read.reasons)
        large = f"too large to be opened here ({evidence.size:,} bytes)"
        return RuntimeVerdict.ruled("transformers", ruled.verdict, *ruled.reasons, *read.reasons, large)
    attempted = attempt("transformers", evidence.folder)
    clearer = ruled.reasons if attempted.verdict == ruled.verdict == REFUSES else ()
    return RuntimeVerdict("transformers", attempted.verdict, "opened", (*clearer, *attempted.reasons))


def _onnx(evidence: Evidence, stock: RuntimeVerdict, progress: Progress) -> RuntimeVerdict:
    """ONNX Runtime, by an export of what transformers opens, unless that does not fit into memory."""
    name, floats = "ONNX Runtime", 4 * sum(tensor.count for tensor in evidence.tensors.values())
    if (stock.verdict, stock.known) != (OPENS, "opened"):
        return RuntimeVerdict.ruled(name, UNKNOWN, "not exported: transformers has not opened it here")
    if floats * EXPORTING_ROOM > free_memory():
        return RuntimeVerdict.ruled(name, UNKNOWN, f"too large to be exported here ({floats:,} bytes)")
    progress("exporting it to ONNX")
    attempted = attempt("onnx", evidence.folder)
    return RuntimeVerdict(name, attempted.verdict, "opened", attempted.reasons)


def _tokenizer(evidence: Evidence, progress: Progress) -> Opened | None:
    """Return whether a GGUF file can have the tokenizer; None where no file can be written."""
    family = evidence.family
    is_written = family is not None and family.gguf is not None and evidence.layout is not None
    if not (is_written and evidence.has(*TOKENIZER_FILES) and is_installed(TOKENIZER)):
        return None
    progress("reading texts with its tokenizer and llama.cpp")
    return attempt(TOKENIZER, evidence.folder)


def _llama_cpp(evidence: Evidence, read: Opened | None) -> RuntimeVerdict:
    """llama.cpp, which opens a folder as the GGUF file that ``zerolm`` writes of it."""
    ruled = by_rules(LLAMA_CPP, evidence)
    if ruled.reasons != (UNSEEN_TOKENIZER,) or read is None or read.verdict != OPENS:
        return ruled
    command = f"zerolm carve {shlex.quote(str(evidence.folder))} --keep 1 --format gguf --out DIR"
    reason = f"as the file that `{command}` writes; llama.cpp has read its tokenizer"
    return RuntimeVerdict.ruled(LLAMA_CPP.name, OPENS, reason)


def _gguf(evidence: Evidence, name: str, progress: Progress) -> RuntimeVerdict:
    """A GGUF file: its header checked by hand, then opened by llama.cpp where that is installed."""
    runtime, file = f"llama.cpp: {name}", evidence.folder / name
    try:
        inside(evidence.folder, name)
        header = read_gguf_header(file)
    except ValueError as error:
        return RuntimeVerdict.ruled(runtime, REFUSES, str(error))
    wrong = tuple(_silent_errors(header))
    if not is_installed("llama.cpp") or file.stat().st_size * OPENING_ROOM > free_memory():
        untried = f"its header is sound ({header.architecture}), and it was not opened here"
        return RuntimeVerdict.ruled(runtime, UNKNOWN, untried, *wrong)
    progress(f"opening {name} with llama.cpp")
    attempted = attempt("llama.cpp", file)
    return RuntimeVerdict(runtime, attempted.verdict, "opened", (*attempted.reasons, *wrong))


def _silent_errors(header: GgufHeader) -> Iterator[str]:
    """Yield what llama.cpp opens, and computes wrongly."""
    heads, ffn = header.of_layers("attention.head_count"), header.of_layers("feed_forward_length")
    if header.architecture == DROPS_ATTENTION and heads and ffn:
        bare = [layer for layer, (h, f) in enumerate(zip(heads, ffn, strict=True)) if h and not f]
        if bare:
            yield f"wrong results: llama.cpp drops the attention of layers without FFN, such as {bare[0]}"


def _sentences(evidence: Evidence, stock: RuntimeVerdict) -> RuntimeVerdict:
    """sentence-transformers, by what ``modules.json`` names."""
    ruled = partial(RuntimeVerdict.ruled, "sentence-transformers")
    if stock.verdict != OPENS:
        return ruled(stock.verdict, "it opens what transformers opens", *stock.reasons)
    if not evidence.has("modules.json"):
        return ruled(OPENS, "there is no modules.json: it then pools by the mean")
    try:
        flaws = list(_module_flaws(evidence))
    except ValueError as error:
        return ruled(REFUSES, str(error))
    if flaws:
        return ruled(UNKNOWN, *flaws)
    return ruled(OPENS, "transformers opens it, and the modules of modules.json are there")


def _module_flaws(evidence: Evidence) -> Iterator[str]:
    """Yield what is odd about the modules; ``ValueError`` for what cannot be read."""
    modules = parse_json(read_text(evidence.folder / "modules.json", 1 << 20))
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError("modules.json is not a list of modules")
    for module in modules:
        kind, path = str(module.get("type")), str(module.get("path"))
        if not kind.startswith("sentence_transformers.") or kind.rpartition(".")[2] not in MODULES:
            yield f"modules.json names {kind[:80]!r}, which is none of its usual modules"
        elif path:
            if ".." in Path(path).parts or Path(path).is_absolute():
                raise ValueError(f"modules.json names {path[:80]!r}, which leads out of the folder")
            if kind.endswith((".Pooling", ".Dense")):
                read_object(evidence.folder, f"{path}/config.json")
            if kind.endswith(".Dense") and not evidence.has(f"{path}/model.safetensors"):
                yield f"{path} has no safetensors; a pickle is not opened here"


def facts_of(evidence: Evidence) -> dict[str, Any]:
    layout, tensors = evidence.layout, evidence.tensors.values()
    weights = Counter[str]()
    for tensor in tensors:
        weights[tensor.dtype] += tensor.count
    return {
        "model_type": evidence.kind or None,
        "architectures": list(evidence.classes),
        "tensors": len(evidence.tensors),
        "weights": sum(weights.values()),
        "bytes": evidence.size,
        "dtypes": dict(weights),
        "tied": evidence.ties,
        "tensor_parallel": ways(math.gcd(layout.kv_heads, layout.ffn)) if layout else None,
        "pickles": list(evidence.pickles),
        "gguf": list(evidence.ggufs),
    }


def facts_of_file(evidence: Evidence) -> dict[str, Any]:
    """Return the facts about the first GGUF file, with its parts; zeros where it is not sound."""
    model, _ = tried(partial(read_gguf, evidence.folder / evidence.ggufs[0]))
    if model is None:
        return facts_of(evidence)
    header, weights = model.header, Counter[str]()
    for name, shape in header.tensors.items():
        kind = BY_NUMBER.get(header.types[name])
        weights[kind.name if kind else f"type {header.types[name]}"] += math.prod(shape)
    return facts_of(evidence) | {
        "model_type": header.architecture,
        "tensors": len(header.tensors),
        "weights": sum(weights.values()),
        "bytes": sum(end - start for start, end in header.places.values()),
        "dtypes": dict(weights),
    }


def ways(sharable: int) -> list[int]:
    """The powers of two that divide a number."""
    return [1 << power for power in range((sharable & -sharable).bit_length())]


def _advice(evidence: Evidence) -> Iterator[str]:
    layout = evidence.layout
    if evidence.tensors and evidence.pickles:
        yield f"{', '.join(evidence.pickles[:4])}: pickles next to the safetensors, not opened; delete them"
    if layout is None:
        return
    ties = {None: "", True: "; head and embedding are tied", False: "; head and embedding are not tied"}
    yield (
        f"{layout.depth} layers, {layout.heads} heads in {plural(layout.kv_heads, 'KV group')} of "
        f"{layout.head_size}, hidden {layout.hidden}, FFN {layout.ffn}{ties[evidence.ties]}"
    )
    for note in layout.notes:
        yield f"{note}; a runtime that goes by the configuration drops the head: let it say untied"
    possible = ", ".join(map(str, ways(math.gcd(layout.kv_heads, layout.ffn))))
    yield f"tensor-parallel ways that divide KV groups and FFN: {possible}"
    sizes = {"hidden": layout.hidden, "FFN": layout.ffn, "heads x head size": layout.heads * layout.head_size}
    for multiple, what in ((256, "K-quants of GGUF"), (128, "4-bit groups of 128")):
        odd = [f"{name} {size}" for name, size in sizes.items() if size % multiple]
        fits = f"not {', '.join(odd)}: such matrices get another type" if odd else "all sizes are"
        yield f"multiples of {multiple}, for {what}: {fits}"
    if evidence.has("recipe.json") and evidence.config:
        recipe, _ = tried(partial(read_object, evidence.folder, "recipe.json"))
        if recipe and recipe.get("written_as") == "padded":
            yield "carved and padded with zeros: as large as its largest layer, for evaluation"
