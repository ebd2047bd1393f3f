"""The modules of a sentence-transformers folder: a transformer, and what makes an embedding of its tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.folder import MAX_JSON, inside, is_plain, read_object
from zerolm.checkpoints.headers import FLOATS, TensorInfo, read_shard
from zerolm.checkpoints.sentence_settings import SETTINGS_FILE, SentenceSettings
from zerolm.checkpoints.shards import SINGLE
from zerolm.io.files import parse_json, read_text
from zerolm.settings import shown

MODULES_FILE: Final = "modules.json"
PACKAGE: Final = "sentence_transformers."
KINDS: Final = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")
MODES: Final = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The ways of pooling, in the order in which several are joined, with their flags of older folders."""
ACTIVATIONS: Final = ("Tanh", "Identity", "ReLU", "GELU", "Sigmoid")
"""What may follow a ``Dense``, the usual one first."""
EMBEDDING: Final = "sentence_embedding"
TORCH: Final = "torch.nn."
MAX_MODULES: Final = 16
MAX_WIDTH: Final = 1 << 20


@dataclass(frozen=True)
class SentenceModule:
    """A module behind the transformer: its ``kind``, its folder, and the file and the fields in it.

    ``tensors`` are the weights of a ``Dense``, empty else.
    """

    kind: str
    path: str
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways that a ``Pooling`` pools, whose embeddings are joined; ``ValueError`` for others."""
        modes = self.config.get("pooling_mode")
        if modes is None:
            flags = {mode: self.config.get(flag, False) for mode, flag in MODES.items()}
            odd = next((value for value in flags.values() if not isinstance(value, bool)), None)
            stated = [name for name in self.config if name.startswith("pooling_mode_")]
            unknown = [name for name in stated if name not in MODES.values()]
            if odd is not None or unknown:
                raise ValueError(f"{self.path} pools by {shown(unknown[0] if unknown else odd)}; {_MODES}")
            return tuple(mode for mode, on in flags.items() if on) or ("mean",)
        listed = modes if isinstance(modes, list) else [modes]
        for mode in listed:
            if not isinstance(mode, str) or mode not in MODES:
                raise ValueError(f"{self.path} pools by {shown(mode)}; {_MODES}")
        if not 0 < len(listed) <= len(MODES):
            raise ValueError(f"{self.path} pools in {len(listed)} ways; 1 to {len(MODES)} can be")
        return tuple(listed)

    @property
    def pools_prompt(self) -> Any:
        """Whether a ``Pooling`` pools the tokens of a prompt, too."""
        return self.config.get("include_prompt", True)

    @property
    def activation(self) -> str:
        """The name of the activation of a ``Dense``, as a message shows it where it is none of torch."""
        name = self.config.get("activation_function", f"{TORCH}{ACTIVATIONS[0]}")
        return name.rpartition(".")[2] if isinstance(name, str) and name.startswith(TORCH) else shown(name)

    def width(self, before: int) -> int:
        """Return the size of embeddings behind it; ``ValueError`` where it does not take those before it."""
        for name in ("module_input_name", "module_output_name"):
            value = self.config.get(name)
            if value not in (None, EMBEDDING):
                raise ValueError(f"{self.path} has {name} {shown(value)}; {EMBEDDING} can be")
        if self.kind == "Pooling":
            size = self.config.get("embedding_dimension", self.config.get("word_embedding_dimension"))
            if type(size) is not int or size != before:
                raise ValueError(
                    f"{self.path} pools tokens of {shown(size)} dimensions, but the hidden size is {before}"
                )
            if not isinstance(self.pools_prompt, bool):
                raise ValueError(
                    f"{self.path} has include_prompt {shown(self.pools_prompt)}; a boolean can be"
                )
            return before * len(self.modes)
        return self._projected(before) if self.kind == "Dense" else before

    def _projected(self, before: int) -> int:
        size, after = (self.config.get(name) for name in ("in_features", "out_features"))
        if type(size) is not int or size != before:
            raise ValueError(
                f"{self.path} takes embeddings of {shown(size)} dimensions, but those before it have {before}"
            )
        if type(after) is not int or not 0 < after <= MAX_WIDTH:
            raise ValueError(f"{self.path} has out_features {shown(after)}; 1 to {MAX_WIDTH} can be")
        if self.config.get("use_residual", False):
            raise ValueError(f"{self.path} has a residual connection (use_residual), which is not known")
        shapes: dict[str, tuple[int, ...]] = {"linear.weight": (after, size)}
        if self.config.get("bias", True):
            shapes["linear.bias"] = (after,)
        if {name: tensor.shape for name, tensor in self.tensors.items()} != shapes:
            wanted = " and ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise ValueError(f"{self.path}/{SINGLE} does not hold {wanted}, which its config.json says")
        if any(tensor.dtype not in FLOATS for tensor in self.tensors.values()):
            raise ValueError(f"{self.path}/{SINGLE} holds other types than {', '.join(FLOATS)}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"{self.path} has activation {self.activation}; {', '.join(ACTIVATIONS)} can be")
        return after

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that it may have, relative to the folder of the modules."""
        names = ("config.json", SINGLE) if self.kind == "Dense" else ("config.json",)
        return tuple(f"{self.path}/{name}" for name in names) if self.path else ()


_MODES: Final = f"{', '.join(MODES)} can be"


@dataclass(frozen=True)
class SentenceModules:
    """The modules that ``modules.json`` names: the folder of the ``transformer`` ("" at the root), and those
    ``behind`` it in their order, a ``Pooling`` first; and the ``settings`` of the folder."""

    transformer: str
    behind: tuple[SentenceModule, ...]
    settings: SentenceSettings = SentenceSettings()  # noqa: RUF009

    @classmethod
    def of(cls, folder: Path) -> SentenceModules | None:
        """Return the modules of a folder, None where it has no ``modules.json`` and of a cross-encoder.

        Raises ``ValueError``, in one line, for modules that are not known, and paths out of the folder.
        """
        if not (folder / MODULES_FILE).exists():
            return None
        try:
            return None if is_cross_encoder(folder) else cls._read(folder)
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{str(folder / MODULES_FILE)!r} cannot be used: {error}") from None

    @classmethod
    def _read(cls, folder: Path) -> SentenceModules:
        document = _entries(folder)
        if len(document) > MAX_MODULES:
            raise ValueError(f"it names {len(document)} modules; {MAX_MODULES} are the most")
        kinds = [_kind(entry.get("type")) for entry in document]
        paths = [_path(entry.get("path"), kind, folder) for entry, kind in zip(document, kinds, strict=True)]
        if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= set(KINDS[2:]):
            order = ", ".join(kinds) or "nothing"
            raise ValueError(
                f"it names {order}; a Transformer, a Pooling, and then {', '.join(KINDS[2:])} can be"
            )
        behind = [_module(folder, *one) for one in zip(kinds[1:], paths[1:], strict=True)]
        return cls(paths[0], tuple(behind), SentenceSettings.of(folder))

    def check(self, hidden: int) -> None:
        """Raise ``ValueError`` where the sizes of the modules contradict the hidden size, or one another."""
        for module in self.behind:
            hidden = module.width(hidden)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files of the modules behind the transformer."""
        return tuple(name for module in self.behind for name in module.files)


def longest_of(folder: Path) -> int | None:
    """Return the tokens that a transformer's folder cuts sentences to (``max_seq_length``), if it says so."""
    for file in sorted(folder.glob("sentence_*_config.json")):
        longest = read_object(folder, file.name).get("max_seq_length")
        if longest is not None and (type(longest) is not int or longest < 2):
            raise ValueError(f"{str(file)!r} has max_seq_length {shown(longest)}; a number of tokens can be")
        return longest
    return None


def is_cross_encoder(folder: Path) -> bool:
    """Return whether a folder is a cross-encoder (a reranker): a transformer at its root, with its head."""
    if not inside(folder, SETTINGS_FILE):
        return False
    kind = read_object(folder, SETTINGS_FILE).get("model_type")
    alone = [(_kind(entry.get("type")), entry.get("path")) for entry in _entries(folder)]
    return kind == "CrossEncoder" and alone == [("Transformer", "")]


def _entries(folder: Path) -> list[dict[str, Any]]:
    inside(folder, MODULES_FILE)
    document = parse_json(read_text(folder / MODULES_FILE, MAX_JSON))
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ValueError("it is not a list of modules")
    return document


def _kind(name: Any) -> str:
    """Return the kind of a module from its class; ``ValueError`` for code that is not the package's."""
    kind = name.rpartition(".")[2] if isinstance(name, str) and name.startswith(PACKAGE) else ""
    if kind not in KINDS:
        raise ValueError(f"it names a module of type {shown(name)}; {', '.join(KINDS)} of {PACKAGE}* can be")
    return kind


def _path(path: Any, kind: str, folder: Path) -> str:
    """Return the folder of a module; ``ValueError`` for one that is not in the folder of ``modules.json``."""
    if path == "" and kind not in ("Pooling", "Dense"):
        return ""
    if not isinstance(path, str) or not is_plain(path):
        raise ValueError(f"it puts a {kind} into {shown(path)}, which is no folder next to it")
    if not Path(os.path.realpath(folder / path)).is_relative_to(folder.resolve()):
        raise ValueError(f"it puts a {kind} into {path!r}, a link that leads out of its folder")
    return path


def _module(folder: Path, kind: str, path: str) -> SentenceModule:
    needs_config = kind in ("Pooling", "Dense")
    has_config = bool(path) and (needs_config or inside(folder, f"{path}/config.json"))
    config = read_object(folder, f"{path}/config.json") if has_config else {}
    if kind == "Dense" and not inside(folder, f"{path}/{SINGLE}"):
        raise ValueError(f"{path} has no {SINGLE}; a pickle is not opened, convert it to safetensors")
    tensors = read_shard(folder / path / SINGLE).tensors if kind == "Dense" else {}
    return SentenceModule(kind, path, config, tensors)
