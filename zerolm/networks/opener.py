"""Stock models of a folder: in memory, over their mapped files, or at random initialisation.

No code of a folder runs and no pickle is opened.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.checkpoint import check_format
from zerolm.checkpoints.folder import read_object
from zerolm.checkpoints.shards import read_shards
from zerolm.families.config import size_of, sizes_of
from zerolm.families.family import Family
from zerolm.families.known import family_named
from zerolm.families.reading import current
from zerolm.io.brief import one_line
from zerolm.io.memory import free_memory
from zerolm.networks.huggingface import HEADS, stock_network
from zerolm.networks.mapped import in_memory, map_parameters, shapes_only
from zerolm.networks.network import Network
from zerolm.networks.roles import places_in
from zerolm.settings import shown

STORED: Final = ("*.safetensors*", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.gguf")
"""Files by which a folder holds weights; where only others than safetensors are there, it is refused."""
PASSES_ROOM: Final = 4
"""The weights, their gradients and what a pass keeps: memory needed, in units of the weights."""
COMMON: Final = {"local_files_only": True, "trust_remote_code": False}


def check_stock_class(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of a type that transformers does not know, of which no child could be opened."""
    kind = str(checkpoint.config.get("model_type"))
    if kind not in CONFIG_MAPPING:
        version, other = transformers.__version__, current()
        raise ValueError(
            f"transformers {version} does not know model_type {shown(kind)} and opens no child: "
            f"if it is a {other}, let a copy of its config.json say model_type {other}"
        )


def is_decoder(checkpoint: Checkpoint) -> bool:
    """Return whether the model predicts the next token."""
    return checkpoint.family.task == "next"


def stock_config(folder: Path) -> PreTrainedConfig:
    """Return the configuration as transformers completes it."""
    with one_line(f"the configuration of {str(folder)!r}"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, **COMMON)
        return config


def stock_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer as transformers reads it."""
    with one_line(f"the tokenizer of {str(folder)!r}"):
        return AutoTokenizer.from_pretrained(folder, **COMMON)


def differing_tokens(tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> set[str]:
    """Return the tokens that only one of two tokenizers has, or that have other ids in them."""
    return {token for token, _ in set(tokenizer.get_vocab().items()) ^ set(other.get_vocab().items())}


def stored_model(folder: Path, maker: Any, **options: Any) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Return the model in a folder, from safetensors, and what its loader reports: ``missing_keys`` ...

    ``maker`` is a stock class or one of transformers' automatic ones. What the loader raises is raised.
    """
    quiet()
    model, report = maker.from_pretrained(
        folder,
        **COMMON,
        use_safetensors=True,
        output_loading_info=True,
        **{"dtype": torch.float32, **options},
    )
    return model, report


def without(wrapper: str) -> dict[str, Any]:
    """Return the option of stock loaders that removes a wrapper from the names of tensors."""
    return {"key_mapping": {f"^{re.escape(wrapper)}": ""}} if wrapper else {}


def load_model(folder: Path, decoder: bool, wrapper: str = "") -> PreTrainedModel:
    """Return a model in memory, in float32: a decoder with its head, an encoder without.

    The ``wrapper`` before the names of all tensors is removed. Raises ``ValueError`` where weights are
    missing or of another shape.
    """
    maker = AutoModelForCausalLM if decoder else AutoModel
    with one_line(f"the model in {str(folder)!r}"):
        model, report = stored_model(folder, maker, **without(wrapper))
    odd = [
        name
        for key in ("missing_keys", "mismatched_keys")
        for name in report[key]
        if "pooler" not in str(name)
    ]
    if odd:
        raise ValueError(f"{str(folder)!r} lacks {odd[0]!r}, or has it in another shape")
    model.train(False)
    return model


def open_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return the model of a checkpoint in float32, in memory: of one that sees or hears, the text part."""
    if checkpoint.family.config.at is None and checkpoint.fewer is None and checkpoint.source is None:
        return load_model(checkpoint.folder, is_decoder(checkpoint), checkpoint.wrapper)
    model: PreTrainedModel = in_memory(mapped_model(checkpoint))
    nn.Module.float(model)
    model.tie_weights()
    model.train(False)
    return model


def text_config(checkpoint: Checkpoint) -> PreTrainedConfig:
    """Return the configuration of the text model, as transformers completes it."""
    config = stock_config(checkpoint.folder)
    names = checkpoint.family.module_names
    if checkpoint.family.config.at is not None:
        config = config.get_text_config()
        if names.text_type is not None:
            fields = {name: value for name, value in config.to_dict().items() if name != "model_type"}
            config = AutoConfig.for_model(names.text_type, **fields | names.text_fields)
    config.tie_word_embeddings = checkpoint.layout.tied
    return config


def mapped_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return the stock model over the mapped files of a checkpoint; its weights take no memory of their own.

    It is for passes layer by layer (``Blocks``), which give the same results as with a model in memory; as a
    whole it does not run. A decoder has its head, an encoder no pooler. Raises ``ValueError`` where a weight
    is missing.
    """
    places_in(checkpoint.family.name)
    with one_line(f"the model in {str(checkpoint.folder)!r}"):
        model = blank_model(text_config(checkpoint), decoder=is_decoder(checkpoint))
    map_parameters(model, checkpoint)
    return model


def blank_model(config: PreTrainedConfig, *, decoder: bool) -> PreTrainedModel:
    """Return the stock model of a configuration without memory for its weights: a decoder with its head.

    An encoder has no pooler.
    """
    kind: Any = AutoModelForCausalLM if decoder else AutoModel
    stock: Any = MODEL_MAPPING[type(config)]
    pools = not decoder and "add_pooling_layer" in signature(stock).parameters
    more = {"add_pooling_layer": False} if pools else {}
    with no_init_weights(), shapes_only():
        model: PreTrainedModel = kind.from_config(
            config, trust_remote_code=False, dtype=torch.float32, **more
        )
    model.tie_weights()  # no_init_weights() leaves that out, too
    model.train(False)
    return model


def load_network(folder: Path | str, seed: int = 0) -> tuple[Network, bool]:
    """Return the network in a local folder in float32, and whether its weights are those of the folder.

    A folder with a ``config.json`` and no weights gives the network at random initialisation under ``seed``.
    Raises ``ValueError``, in one line, for a folder that is not sound, a family that is not known, weights
    that are missing, and too little memory.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}")
    config = read_object(folder, "config.json")
    stored = any(any(folder.glob(pattern)) for pattern in STORED)
    try:
        family = family_named(config.get("model_type"))
        places_in(family.name)
        check_format(folder, config)
        _check_sizes(family, config)
        if stored and not family.tensors.body:
            read_shards(folder)
    except ValueError as error:
        raise ValueError(f"{str(folder)!r}: {error}") from None
    wrapper = Checkpoint.open(folder).wrapper if stored and family.tensors.body else ""
    return stock_network(_network_model(folder, HEADS[family.task], stored, seed, wrapper)), stored


def _network_model(folder: Path, maker: Any, stored: bool, seed: int, wrapper: str) -> PreTrainedModel:
    quiet()
    options: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32}
    config = stock_config(folder)
    with one_line(f"the model in {str(folder)!r}"), torch.device("meta"):
        blank = maker.from_config(config, trust_remote_code=False, **options)
    needed = 4 * PASSES_ROOM * sum(parameter.numel() for parameter in blank.parameters())
    if needed > free_memory():
        sizes = [f"{size / 1e9:.3g} GB" for size in (needed, free_memory())]
        raise ValueError(
            f"{str(folder)!r} needs {sizes[0]} of memory ({PASSES_ROOM} times its weights), "
            f"{sizes[1]} are free"
        )
    with one_line(f"the model in {str(folder)!r}"):
        if not stored:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return maker.from_config(config, trust_remote_code=False, **options)  # type: ignore[no-any-return]
        model, report = stored_model(folder, maker, config=config, **options, **without(wrapper))
    if report["missing_keys"]:
        lacking = min(map(str, report["missing_keys"]))
        raise ValueError(
            f"{str(folder)!r} lacks {lacking!r}, which {type(model).__name__} needs: save it with its head, "
            f"or leave config.json alone there for random weights"
        )
    return model


def quiet() -> None:
    """Keep transformers from writing to the terminal."""
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Within, libraries may use names that transformers has deprecated, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def _check_sizes(family: Family, config: Mapping[str, Any]) -> None:
    """Sizes beyond reason would keep the stock class busy before it has any weights."""
    if family.tensors.body:
        sizes_of(family, config)
        return
    for label in family.config.sizes:
        size_of(family, config, label)
