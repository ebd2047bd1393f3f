"""The names of a GGUF file for the tensors of a family, and the order of their rows there.

Readers of some architectures rotate neighbouring elements of queries and keys where transformers rotates the
two halves of a head, so these rows change places.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.families.family import Family

ROTATED: Final = ("q", "k", "q_bias", "k_bias")


def roles_in(family: Family) -> dict[str, str]:
    """Return the names of a file's tensors by role, with ``{layer}``: those of the document, or llama.cpp's.

    ``ValueError`` where llama.cpp has no name for a tensor of a layer; ``ModuleNotFoundError`` without gguf.
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
    for prefix, patterns in ((before.body, family.tensors.body), (before.head, family.tensors.head)):
        for pattern in patterns:
            stored = f"{prefix}{pattern.name}".replace("{layer}", "0")
            name = pattern.gguf or mapped.get_name(stored, try_suffixes=(".weight", ".bias"))
            if name is None and pattern.in_layer:
                raise ValueError(
                    f"llama.cpp has no {pattern.role} in its architecture {family.gguf.architecture}"
                )
            if name is not None:
                names[pattern.role] = name.replace("blk.0.", "blk.{layer}.")
    return names


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
