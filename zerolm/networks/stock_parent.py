"""A checkpoint as transformers loads it, without a part for zerolm's documents of families.

One layer is in memory at a time. The loader of ``from_pretrained`` gets the tensors whose names have the
layer's number first, and renames, joins and ties them by its own rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig

from zerolm.checkpoints import Checkpoint
from zerolm.io.brief import one_line
from zerolm.networks.blocks import Blocks, Inputs
from zerolm.networks.mapped import STORED, put
from zerolm.networks.opener import blank_model, is_decoder, quiet, stock_config
from zerolm.networks.roles import layer_list


class StockParent:
    """The stock model of a folder of safetensors files as a function of one batch, layer after layer.

    Raises ``ValueError``, in one line, for what transformers does not load or does not find in the files.
    """

    def __init__(self, checkpoint: Checkpoint, batch: Inputs) -> None:
        quiet()
        self.folder = checkpoint.folder
        with one_line(f"the model in {str(self.folder)!r}"):
            self.model = blank_model(stock_config(self.folder), decoder=is_decoder(checkpoint))
        self.files = sorted({info.file for info in checkpoint.tensors.values()})
        self.batch, self.wrapper = batch, checkpoint.wrapper

    @torch.no_grad()
    def states(self) -> Iterator[Any]:
        """Yield the hidden states (b, t, d) before each layer and behind the last, then the output."""
        with self._opened() as tensors:
            self._keep_ends_as_stored(tensors[None])
            missing = self._load(tensors[None])
            self.model.tie_weights(missing_keys=missing, recompute_mapping=False)
            layers = layer_list(self.model)
            inside = {id(parameter) for parameter in layers.parameters()}
            self._check((name, x) for name, x in self.model.named_parameters() if id(x) not in inside)
            blocks = Blocks(self.model, [self.batch])
            hidden = blocks.embed(0)
            for number, layer in enumerate(layers):
                yield hidden
                self._load(tensors[number])
                self._check((f"layers.{number}.{name}", x) for name, x in layer.named_parameters())
                hidden = blocks.call(0, number, hidden)
                for name, parameter in list(layer.named_parameters()):
                    put(layer, name, parameter.to("meta"))
            yield hidden
            yield blocks.finish(0, hidden)

    def _keep_ends_as_stored(self, tensors: Mapping[str, Any]) -> None:
        """Let embedding and head stay in their files where all matrices outside the layers have one type."""
        types = {tensor.get_dtype() for tensor in tensors.values() if len(tensor.get_shape()) == 2}
        if len(types) != 1 or not types <= STORED.keys():
            return
        dtype = STORED[types.pop()][1]
        both = self.model.get_input_embeddings(), self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        ends = {id(end.weight) for end in both if end is not None}
        for name, parameter in list(self.model.named_parameters(remove_duplicate=False)):
            if id(parameter) in ends:
                put(self.model, name, parameter.to(dtype))

    @contextmanager
    def _opened(self) -> Iterator[Mapping[int | None, dict[str, Any]]]:
        """Open the files; their tensors, by the number in their names, are read when they are loaded."""
        tensors: defaultdict[int | None, dict[str, Any]] = defaultdict(dict)
        with ExitStack() as stack:
            for file in self.files:
                opened = stack.enter_context(safe_open(file, framework="pt"))
                for stored in opened.keys():  # noqa: SIM118
                    name = stored.removeprefix(self.wrapper)
                    number = next((int(part) for part in name.split(".") if part.isdecimal()), None)
                    tensors[number][name] = opened.get_slice(stored)
            yield tensors

    @cached_property
    def _loading(self) -> LoadStateDictConfig:
        return LoadStateDictConfig(
            dtype=torch.float32,
            weight_mapping=[*get_model_conversion_mapping(self.model)],  # type: ignore[list-item]
        )

    def _load(self, tensors: dict[str, Any]) -> set[str]:
        """Give the model these tensors in float32; return the names of those that it still lacks."""
        with one_line(f"the model in {str(self.folder)!r}"):
            load = convert_and_load_state_dict_in_model
            takes_plan = "tp_plan" in signature(load).parameters  # transformers before 5.16
            plan: dict[str, Any] = {"tp_plan": None} if takes_plan else {}
            report, _ = load(self.model, tensors, self._loading, **plan)
        problems = [*report.mismatched_keys, *report.conversion_errors, *report.error_msgs]
        if problems:
            raise ValueError(f"transformers cannot load {str(problems[0])[:200]} of {str(self.folder)!r}")
        return set(report.missing_keys)

    def _check(self, parameters: Iterator[tuple[str, Tensor]]) -> None:
        for name, parameter in parameters:
            if parameter.is_meta:
                raise ValueError(f"transformers finds no {name!r} in {str(self.folder)!r}")
