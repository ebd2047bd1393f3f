"""Opening a checkpoint with installed stock software, in a process of its own.

What was made to harm may crash, hang or ask for all memory there, and does no more than that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from zerolm.diagnosis.result import OPENS, REFUSES, UNKNOWN, Outcome
from zerolm.io.memory import free_memory

OPENING_SECONDS: Final = 120
BYTES_A_SECOND: Final = 20 << 20
"""How long opening may take: this, and the time to read the weights at that speed."""
OPENING_MEMORY: Final = 4 << 30
"""Bytes that opening may take in addition to three times the weights."""
NEEDED: Final = {
    "transformers": ("torch", "transformers"),
    "configuration": ("torch", "transformers"),
    "onnx": ("torch", "transformers", "onnxruntime", "onnxscript"),
}
TOKENIZER: Final = "GGUF tokenizer"
NEEDED_BY_GGUF: Final = ("llama_cpp",)
ONNX_ROUNDING: Final = 1e-3
"""The difference of outputs that rounding explains, of the largest one."""
QUIET: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Opened:
    """The outcome of opening, and what was seen."""

    verdict: Outcome
    reasons: tuple[str, ...]


def is_installed(how: str) -> bool:
    """Whether the software for one of the ways to open is there."""
    return all(find_spec(name) is not None for name in NEEDED.get(how, NEEDED_BY_GGUF))


def attempt(how: str, path: Path, seconds: float = OPENING_SECONDS) -> Opened:
    """Open a folder by ``transformers`` (or its ``configuration`` or ``TOKENIZER``), a file by ``llama.cpp``.

    By ``onnx`` a folder is exported to a file that is then deleted.

    It may take this number of ``seconds``, and more where there is much to read.
    """
    seconds += _size(path) // BYTES_A_SECOND
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-P", "-m", "zerolm.diagnosis.opening", how, str(path.absolute())]
    try:
        ran = subprocess.run(
            command,
            env={**os.environ, **QUIET, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Opened(UNKNOWN, (f"{how} was still opening it after {seconds:g} s",))
    if ran.returncode < 0 and -ran.returncode != signal.SIGKILL:
        return Opened(REFUSES, (f"{how} crashed with {signal.Signals(-ran.returncode).name}",))
    try:
        answer = json.loads(ran.stdout.splitlines()[-1])
        return Opened(answer["verdict"], tuple(answer["reasons"]))
    except (IndexError, ValueError, KeyError, TypeError):
        return Opened(UNKNOWN, (f"{how} ended without a word (status {ran.returncode})",))


def with_transformers(folder: Path) -> Opened:
    """The stock class, from safetensors, running no code of the folder."""
    import transformers

    from zerolm.networks.opener import stored_model

    config = _configuration(folder)
    name = next(iter(config.architectures or ()), "AutoModel")
    kind = getattr(transformers, name, None) if name.isidentifier() else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        kind, name = transformers.AutoModel, "AutoModel"
    model, report = stored_model(folder, kind, config=config, dtype="auto")
    missing = [*report["missing_keys"], *report["mismatched_keys"]]
    of_head = [key for key in missing if not str(key).startswith(f"{model.base_model_prefix}.")]
    if not of_head or len(of_head) < len(missing) or not _serves_as_body(folder, kind):
        return judged(f"{name} of transformers {transformers.__version__}", report)
    del model
    _, report = stored_model(folder, transformers.AutoModel, config=config, dtype="auto")
    body = judged(f"AutoModel of transformers {transformers.__version__}", report)
    lacking = f"{name}, which architectures names, finds no {min(map(str, of_head))} and makes its head up"
    return Opened(body.verdict, (*body.reasons, lacking))


def _serves_as_body(folder: Path, kind: type) -> bool:
    """Return whether the body is what users open: a sentence-transformers folder, or an encoder."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    masked: list[Any] = list(MODEL_FOR_MASKED_LM_MAPPING.values())
    return (folder / "modules.json").exists() or kind in masked


def judged(what: str, report: Mapping[str, Any]) -> Opened:
    """A verdict on what a loader says was missing, misshapen or left over."""
    misshapen, unexpected = sorted(map(str, report["mismatched_keys"])), sorted(report["unexpected_keys"])
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    notes = []
    if unexpected:
        notes.append(f"{len(unexpected)} tensors are left over, such as {unexpected[0]}")
    if len(missing) < len(report["missing_keys"]):
        notes.append("the pooler is missing and gets random weights; mean and max pooling do without it")
    if missing or misshapen:
        odd = [*missing, *misshapen]
        reason = f"{what} finds {len(odd)} tensors missing or misshapen, such as {odd[0]}, and makes them up"
        return Opened(REFUSES, (reason, *notes))
    return Opened(OPENS, (f"loaded by {what}, no tensor missing", *notes))


def with_configuration(folder: Path) -> Opened:
    return Opened(
        OPENS, (f"transformers reads the configuration as {type(_configuration(folder)).__name__}",)
    )


def _configuration(folder: Path) -> Any:
    from zerolm.networks.opener import quiet, stock_config

    quiet()
    return stock_config(folder)


def with_tokenizer(folder: Path) -> Opened:
    """The tokenizer, compared with its form in a GGUF child as read by llama.cpp."""
    from zerolm.checkpoints import Checkpoint
    from zerolm.children.gguf.tokenizer import check_reading, opened, vocabulary

    checkpoint = Checkpoint.open(folder)
    tokenizer = opened(checkpoint)
    if tokenizer is None:
        return Opened(UNKNOWN, ("the folder has none",))
    written = vocabulary(checkpoint, tokenizer)
    return Opened(OPENS, (f"written as {written.pieces.title}", *check_reading(written, tokenizer)))


def with_llama_cpp(file: Path) -> Opened:
    """A GGUF file, and one token through it."""
    import llama_cpp

    from zerolm.children.gguf.check import is_encoder, open_encoder, states_of

    if is_encoder(file):
        states_of(open_encoder(file, n_gpu_layers=0), [0])
    else:
        llama_cpp.Llama(str(file), n_ctx=32, n_gpu_layers=0, verbose=False).eval([0])
    return Opened(OPENS, (f"loaded by llama-cpp-python {llama_cpp.__version__}, one token run through it",))


def with_onnx(folder: Path) -> Opened:
    """An export to ONNX by torch, whose outputs in ONNX Runtime are compared with torch's."""
    import onnxruntime
    import torch

    from zerolm.diagnosis.onnx_export import NotExported, difference
    from zerolm.networks.opener import load_model

    classes = _configuration(folder).architectures or ()
    predicts = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in classes)
    exporter = f"torch {torch.__version__}"
    try:
        far = difference(load_model(folder, predicts))
    except NotExported as error:
        return Opened(UNKNOWN, (f"{exporter} does not export it: {error}",))
    done = f"exported by {exporter}; outputs of onnxruntime {onnxruntime.__version__}"
    if not far <= ONNX_ROUNDING:
        return Opened(REFUSES, (f"{done} differ from those of torch by {far:.2g} of the largest",))
    return Opened(OPENS, (f"{done} are those of torch within {far:.2g} of the largest",))


OPENERS: Final[dict[str, Callable[[Path], Opened]]] = {
    "transformers": with_transformers,
    "configuration": with_configuration,
    TOKENIZER: with_tokenizer,
    "llama.cpp": with_llama_cpp,
    "onnx": with_onnx,
}


def opened(how: str, path: Path) -> Opened:
    """Open it in this process; what it raises becomes a verdict."""
    try:
        return OPENERS[how](path)
    except (ImportError, MemoryError) as error:
        return Opened(UNKNOWN, (f"{how}: {_short(error)}",))
    except Exception as error:  # whatever foreign software raises for foreign files
        return Opened(REFUSES, (f"{how}: {_short(error)}",))


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _size(path: Path) -> int:
    return sum(
        file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()) if file.is_file()
    )


def _limit_memory(size: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = min(free_memory(), OPENING_MEMORY + 3 * size)
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    _limit_memory(_size(Path(sys.argv[2])))
    print("\n" + json.dumps(asdict(opened(sys.argv[1], Path(sys.argv[2])))))
