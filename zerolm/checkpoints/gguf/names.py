"""The names of a GGUF file for the tensors of a family, and the order of their rows there.

Readers of some architectures rotate neighbouring elements of queries and keys where transformers rotates the
two halves of a head, so these rows change places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.families.config import has
from zerolm.families.family import BIAS, Family, InFile

ADDED: Final = ("positions", "types")
"""Embeddings that are added to those of tokens. Readers have them in float32, whatever type matrices have."""
ROTATED: Final = ("q", "k", "q_bias", "k_bias")
SUFFIXES: Final = (".weight", ".bias")
PREFIXES: Final = ("model.", "")
"""Prefixes of names in the gguf package, whatever the prefix of the stored names."""


def roles_in(family: Family, config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the names of a file's tensors by role, with ``{layer}``: those of the document, or llama.cpp's.

    Roles that llama.cpp has no name for are left out, and so is what stands behind an encoder. Where several
    tensors have a role, those of a model with this ``config``. ``ModuleNotFoundError`` without gguf.
    """
    try:
        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a gguf file needs the package gguf: pip install 'zerolm[gguf]'") from None

    assert family.gguf is not None
    architecture = next(
        (key for key, name in MODEL_ARCH_NAMES.items() if name == family.gguf.architecture), None
    )
    if architecture is None:
        raise ValueError(f"llama.cpp has no architecture {family.gguf.architecture!r}")
    mapped, names = get_tensor_name_map(architecture, 1), {}
    before = family.tensors.prefixes[0]
    head = family.tensors.head if family.task == "next" else ()
    for prefix, patterns in ((before.body, family.tensors.body), (before.head, head)):
        for pattern in patterns:
            plain = pattern.name.replace("{layer}", "0").replace(".{expert}", "")
            suffix = SUFFIXES[pattern.role.endswith(BIAS)]
            tried = (_mapped(mapped, before + plain, suffix) for before in (prefix, *PREFIXES))
            name = pattern.gguf.name or next(filter(None, tried), None)
            if name is not None and (
                config is None or pattern.role not in names or has(family, pattern, config, True)
            ):
                names[pattern.role] = name.replace("blk.0.", "blk.{layer}.")
    for role in (pattern.role for layout in family.tensors.layouts for pattern in layout):
        if role not in names and names.keys() >= set(role.split("+")):
            names[role] = "+".join(map(names.__getitem__, role.split("+")))
    return names


def held_in_file(family: Family) -> Callable[[str], bool]:
    """Return the test whether a file has the tensors of a role: those after an encoder are omitted."""
    if family.task == "next":
        return lambda role: True
    return roles_in(family).__contains__


def form_in(family: Family, role: str) -> InFile:
    """Return the form of the tensors of a role in a file."""
    tensors = family.tensors
    return next(
        (pattern.gguf for pattern in (*tensors.body, *tensors.head) if pattern.role == role), InFile()
    )


def _mapped(mapped: Any, stored: str, suffix: str) -> str | None:
    """Return llama.cpp's name of a tensor, with a suffix also where none is stored."""
    name: str | None = mapped.get_name(stored, try_suffixes=SUFFIXES)
    if name is None and stored.endswith(BIAS):
        name = mapped.get_name(stored.removesuffix(BIAS) + SUFFIXES[1], try_suffixes=SUFFIXES)
    return name if name is None or name.endswith(SUFFIXES) else name + suffix


def is_rearranged(family: Family) -> bool:
    """Return whether a file has other matrices than the checkpoint: split, turned, by expert, computed."""
    axes, body = family.config.axes, family.tensors.body
    for pattern in body:
        fused = len(pattern.roles) > 1 and any(len(axes[a].parts) > 1 for a in pattern.axes if a in axes)
        if pattern.of_experts or fused or "+" in (pattern.gguf.name or "") or "+" in pattern.parameter:
            return True
        form = pattern.gguf
        is_changed = pattern.transposed or form.key or form.values or form.shape or form.times
        if len(pattern.axes) > 1 and is_changed:
            return True
    return False


def in_class_order(family: Family, role: str, values: NDArray[Any], head_size: int) -> NDArray[Any]:
    """Return the rows of a file's tensor in the order of the stock class."""
    if not changes_places(family, role):
        return values
    order = np.empty(len(values), np.int64)
    order[neighbouring(len(values), head_size)] = np.arange(len(values))
    return values[order]


def changes_places(family: Family, role: str) -> bool:
    """Return whether a file has the rows of a tensor in another order than the stock class."""
    return role in ROTATED and not (family.gguf and family.gguf.halves)


def neighbouring(rows: int, head_size: int) -> Ints:
    """Return the order of rows of heads of size e with rotated pairs together: 0, e/2, 1, e/2 + 1, ..."""
    return np.arange(rows).reshape(-1, 2, head_size // 2).swapaxes(1, 2).ravel()
