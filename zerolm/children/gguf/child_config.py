"""The configuration of a child as completed by its stock class, and its use in a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from transformers import CONFIG_MAPPING, PreTrainedConfig

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import form_in
from zerolm.children.folder import configuration, lists_by_layer
from zerolm.families.rule import value
from zerolm.families.values import short
from zerolm.io.brief import one_line
from zerolm.units.kept_units import Cut

NOT_IN_JSON: Final = "__float__"
MISSING: Final = object()


def child_config(checkpoint: Checkpoint, cut: Cut) -> PreTrainedConfig:
    """Return the configuration of a child's text part as completed by transformers."""
    config, at = configuration(checkpoint, cut), checkpoint.family.config.at
    lists = lists_by_layer(checkpoint, cut)
    names = checkpoint.family.module_names
    fields = dict(config if at is None else config[at]) | lists | names.text_fields
    kind = names.text_type or str(fields.get("model_type"))
    with one_line("the configuration of the child"):
        stock: PreTrainedConfig = CONFIG_MAPPING[kind].from_dict(_decoded(fields) | {"model_type": kind})
    return stock


def _decoded(stored: Any) -> Any:
    """Return the content of a ``config.json`` with numbers that JSON lacks: ``{"__float__": "Infinity"}``."""
    if isinstance(stored, Mapping):
        if stored.keys() == {NOT_IN_JSON}:
            return float(stored[NOT_IN_JSON])
        return {name: _decoded(value) for name, value in stored.items()}
    return [_decoded(value) for value in stored] if isinstance(stored, list) else stored


def attribute(config: PreTrainedConfig, path: str) -> Any:
    """Return an attribute of a configuration, or of a part of it: ``rope_parameters.type``, ``scales.0``."""
    result: Any = config
    for name in path.split("."):
        if isinstance(result, list | tuple):
            result = result[int(name)] if name.isdigit() and int(name) < len(result) else MISSING
        elif isinstance(result, Mapping):
            result = result.get(name, MISSING)
        else:
            result = getattr(result, name, MISSING)
    return result


def factors_by_row(checkpoint: Checkpoint, cut: Cut, role: str) -> Floats:
    """Return the factors of the rows of a tensor in a file, (rows,), or (1,) for a common factor."""
    form, factor = form_in(checkpoint.family, role), np.ones(1)
    if not form.times:
        return factor
    config = child_config(checkpoint, cut)
    for path in form.times:
        present = attribute(config, path)
        try:
            factors = np.asarray(1.0 if present is None else present, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise ValueError(f"the configuration has {path} {short(present)}; numbers are possible") from None
        if len(factors) not in (1, len(form.parts)):
            raise ValueError(f"the configuration has {len(factors)} {path}; {len(form.parts)} are possible")
        if len(factors) > 1:
            factors = np.repeat(factors, [value(part, checkpoint.layout.size) for part in form.parts])
        factor = factor * factors
    return factor
