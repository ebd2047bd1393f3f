"""Hugging Face models as networks: stock classes, random or with the weights of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import transformers
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    PreTrainedModel,
)

from zerolm.families.family import families
from zerolm.networks.network import Linear, Network, Tap, Task, matrices_of
from zerolm.networks.roles import Layer, Names, layer_of, matrix

TASKS: Final[dict[str, Task]] = {"bert": "masked", "vit": "image"}
"""What is not here predicts the next token."""
HEADS: Final[dict[Task, tuple[Any, tuple[str, ...]]]] = {
    "next": (AutoModelForCausalLM, ("ForCausalLM", "LMHeadModel")),
    "masked": (AutoModelForMaskedLM, ("ForMaskedLM",)),
    "image": (AutoModelForImageClassification, ("ForImageClassification",)),
}
"""What makes a model with a head for the task, and how the names of such classes end."""


@dataclass(frozen=True)
class Places:
    """Where a family keeps what a network shows.

    ``between`` is the norm of a layer that has the stream after attention on this ``side``; ``final`` is the
    norm below the base model that the head reads, None where it reads the last layer.
    """

    names: Names
    between: str
    side: Literal["input", "output"]
    final: str | None


VIT: Final = Places(
    names=Names(
        layers="layers",
        attention="attention",
        attention_in=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        attention_out="attention.o_proj",
        ffn_in=("mlp.fc1",),
        ffn_out="mlp.fc2",
        norm="pre",
    ),
    between="layernorm_after",
    side="input",
    final="layernorm",
)


class Stock(nn.Module):
    """A stock model as ``Network.module``: logits of token ids (b, t) or images (b, 3, h, w)."""

    def __init__(self, model: PreTrainedModel, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        """``ValueError`` where sequences are longer than the model has positions."""
        if self.task == "image":
            given: dict[str, Any] = {"pixel_values": inputs}
        else:
            most = int(self.model.config.max_position_embeddings)
            if inputs.shape[1] > most:
                raise ValueError(f"the network reads at most {most} tokens, not {inputs.shape[1]}")
            given = {"input_ids": inputs} | ({"use_cache": False} if self.task == "next" else {})
        logits: Tensor = self.model(**given).logits
        return logits[..., :classes]


def stock_network(model: PreTrainedModel) -> Network:
    """A model as a network; it is the network's from then on: in evaluation mode, its attention eager.

    Decoders predict the next token, ``BertForMaskedLM`` masked ones, ``ViTForImageClassification`` classes.
    Attention is the stock eager one, matrix products and a softmax, so it can be derived twice; its
    probabilities show as the output of an identity below each attention module. Raises ``ValueError`` for
    another family and for a class without such a head.
    """
    kind = str(model.config.model_type)
    places, task = places_of(kind), TASKS.get(kind, "next")
    ends = HEADS[task][1]
    classes = int(getattr(model.config, "num_labels" if task == "image" else "vocab_size"))
    if not type(model).__name__.endswith(ends) or classes < 1:
        raise ValueError(
            f"{type(model).__name__} predicts no classes; a class named ...{' or ...'.join(ends)} does"
        )
    model.train(False).set_attn_implementation("eager")
    base = model.base_model
    try:
        layers = [
            layer_of(places.names, module) for module in base.get_submodule(places.names.layers).children()
        ]
        between = [layer.module.get_submodule(places.between) for layer in layers]
        final = base.get_submodule(places.final) if places.final else layers[-1].module
    except AttributeError as error:
        version = transformers.__version__
        raise ValueError(f"transformers {version} builds {kind} of other modules: {error}") from None
    stream = [
        tap
        for layer, norm in zip(layers, between, strict=True)
        for tap in (Tap(norm, places.side), Tap(layer.module))
    ]
    return Network(
        module=Stock(model, task),
        task=task,
        layers=tuple(layer.module for layer in layers),
        linears=tuple(linear for index, layer in enumerate(layers) for linear in _linears(index, layer)),
        attentions=tuple(Tap(_probabilities(layer.attention)) for layer in layers),
        stream=tuple(stream),
        final=Tap(final),
        norms=tuple(module for module in model.modules() if "Norm" in type(module).__name__),
        classes=classes,
    )


def places_of(kind: str) -> Places:
    """``ValueError`` says which families there are."""
    if kind == "vit":
        return VIT
    if kind not in families():
        raise ValueError(
            f"the modules of model_type {kind!r} are not known; known are {', '.join(families())}, vit"
        )
    family = families()[kind]
    modules = {p.role: p.name.rpartition("{layer}.")[2].removesuffix(".weight") for p in family.body}
    post = family.norm == "post"
    return Places(
        names=Names.of(family),
        between=modules["attention_post_norm" if post else "ffn_norm"],
        side="output" if post else "input",
        final=modules.get("final_norm"),
    )


def _linears(index: int, layer: Layer) -> list[Linear]:
    """The matrices of a layer; those of a fused module are as high as what reads their outputs is wide."""
    heads, neurons = (matrix(module).shape[1] for module in (layer.attention_out, layer.ffn_out))
    attention, ffn = ("q", "k", "v"), ("gate", "up")
    linears: list[Linear] = []
    if layer.fused:
        (module,) = layer.attention_in
        rest = (len(matrix(module)) - heads) // 2
        linears += matrices_of(module, index, "attention", {"q": heads, "k": rest, "v": rest})
    else:
        linears += [
            Linear(m, index, "attention", name) for name, m in zip(attention, layer.attention_in, strict=True)
        ]
    linears.append(Linear(layer.attention_out, index, "attention", "o"))
    if len(layer.ffn_in) == 1 and len(matrix(layer.ffn_in[0])) == 2 * neurons:
        linears += matrices_of(layer.ffn_in[0], index, "ffn", dict.fromkeys(ffn, neurons), ("gate",))
    else:
        names = ffn if len(layer.ffn_in) == 2 else ffn[1:]
        linears += [
            Linear(m, index, "ffn", name, activated=m is layer.ffn_in[0])
            for name, m in zip(names, layer.ffn_in, strict=True)
        ]
    return [*linears, Linear(layer.ffn_out, index, "ffn", "down")]


def _probabilities(attention: nn.Module) -> nn.Module:
    """The identity that passes on the attention probabilities, put below the module that computes them."""
    if not hasattr(attention, "probabilities"):
        attention.probabilities = nn.Identity()
        attention.register_forward_hook(_show)
    return attention.get_submodule("probabilities")


def _show(attention: nn.Module, _: Any, outputs: tuple[Tensor, Tensor]) -> None:
    attention.get_submodule("probabilities")(outputs[1])
