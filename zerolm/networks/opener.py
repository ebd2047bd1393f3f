"""The network in a folder: stock classes, with the weights of the folder or at random initialisation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.checkpoint import check_format
from zerolm.checkpoints.folder import read_object
from zerolm.checkpoints.layout import SIZES
from zerolm.checkpoints.shards import read_shards
from zerolm.families.family import families
from zerolm.io.memory import free_memory
from zerolm.networks.huggingface import HEADS, TASKS, places_of, stock_network
from zerolm.networks.mapped import one_line
from zerolm.networks.network import Network
from zerolm.spaces.choices import MAX_DEPTH, integer

STORED: Final = ("*.safetensors*", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.gguf")
"""Files by which a folder holds weights; where only others than safetensors are there, it is refused."""
ROOM: Final = 4
"""The weights, their gradients and what a pass keeps: memory needed, in units of the weights."""


def load_network(folder: Path | str, seed: int = 0) -> tuple[Network, bool]:
    """The network in a local folder in float32, and whether its weights are those of the folder.

    A folder with a ``config.json`` and no weights gives the network at random initialisation under ``seed``.
    No code of the folder runs and no pickle is opened. Raises ``ValueError``, in one line, for a folder that
    is not sound, a family that is not known, weights that are missing, and too little memory.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}")
    config = read_object(folder, "config.json")
    kind = str(config.get("model_type"))
    stored = any(any(folder.glob(pattern)) for pattern in STORED)
    try:
        places_of(kind)
        check_format(folder, config)
        _check_sizes(kind, config)
        if stored and kind == "vit":
            read_shards(folder)
    except ValueError as error:
        raise ValueError(f"{str(folder)!r}: {error}") from None
    if stored and kind != "vit":
        Checkpoint.open(folder)
    maker, _ = HEADS[TASKS.get(kind, "next")]
    return stock_network(_loaded(folder, maker, stored, seed)), stored


def _loaded(folder: Path, maker: Any, stored: bool, seed: int) -> PreTrainedModel:
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    common = {"trust_remote_code": False, "attn_implementation": "eager", "dtype": torch.float32}
    with one_line(f"the model in {str(folder)!r}"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            params = sum(parameter.numel() for parameter in maker.from_config(config, **common).parameters())
    if 4 * params * ROOM > free_memory():
        needed, free = (f"{size / 1e9:.3g} GB" for size in (4 * params * ROOM, free_memory()))
        raise ValueError(
            f"{str(folder)!r} needs {needed} of memory ({ROOM} times its weights), {free} are free"
        )
    with one_line(f"the model in {str(folder)!r}"):
        if not stored:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return maker.from_config(config, **common)  # type: ignore[no-any-return]
        model, found = maker.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **common,
        )
    if found["missing_keys"]:
        lacking = min(map(str, found["missing_keys"]))
        raise ValueError(
            f"{str(folder)!r} lacks {lacking!r}, which {type(model).__name__} needs: save it with its head, "
            f"or leave config.json alone there for random weights"
        )
    return model  # type: ignore[no-any-return]


def _check_sizes(kind: str, config: Mapping[str, Any]) -> None:
    """Sizes beyond reason would keep the stock class busy before it has any weights."""
    if kind == "vit":
        integer("num_hidden_layers", config.get("num_hidden_layers", 12), 1, MAX_DEPTH)
        return
    for label in SIZES:
        families()[kind].size(config, label)
