"""Hugging Face models as networks: stock classes, random or with the weights of a folder."""

from __future__ import annotations

from typing import Any, Final, Literal

import transformers
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    PreTrainedModel,
)

from zerolm.families.family import Task
from zerolm.families.known import family_named
from zerolm.networks.network import Linear, Network, Tap, matrices_of
from zerolm.networks.roles import StockLayer, body_of, layer_of, matrix, places_of

HEADS: Final[dict[Task, Any]] = {
    "next": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "image": AutoModelForImageClassification,
}
"""The automatic class that makes a model with a head for the task."""


Side = Literal["input", "output"]


class Stock(nn.Module):
    """A stock model as ``Network.module``: logits of token ids (b, t) or images (b, 3, h, w)."""

    def __init__(self, model: PreTrainedModel, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        """``ValueError`` where sequences are longer than the model has positions."""
        if self.task == "image":
            arguments: dict[str, Any] = {"pixel_values": inputs}
        else:
            most = int(self.model.config.max_position_embeddings)
            if inputs.shape[1] > most:
                raise ValueError(f"the network reads at most {most} tokens, not {inputs.shape[1]}")
            arguments = {"input_ids": inputs} | ({"use_cache": False} if self.task == "next" else {})
        logits: Tensor = self.model(**arguments).logits
        return logits[..., :classes]


def stock_network(model: PreTrainedModel) -> Network:
    """Return a model as a network; it is the network's from then on: in evaluation mode, its attention eager.

    Decoders predict the next token, ``BertForMaskedLM`` masked ones, ``ViTForImageClassification`` classes.
    Attention is the stock eager one, matrix products and a softmax, so it can be derived twice; its
    probabilities show as the output of an identity below each attention module. Raises ``ValueError`` for
    another family and for a class without such a head.
    """
    places, kind = places_of(model), str(model.config.model_type)
    if places.varied:
        raise ValueError(f"the layers of a {kind} are of several kinds, and cannot be read as a network yet")
    task, head = family_named(kind).task, family_named(kind).head_classes[0]
    classes = int(getattr(model.config, "num_labels" if task == "image" else "vocab_size"))
    if type(model).__name__ != head or classes < 1:
        raise ValueError(f"{type(model).__name__} predicts no classes; a {head} does")
    model.train(False).set_attn_implementation("eager")
    base, names = body_of(model), places.modules
    side: Side = "output" if places.norm == "post" else "input"
    try:
        layers = [layer_of(places, module) for module in base.get_submodule(names.layers).children()]
        between = [layer.module.get_submodule(names.between) for layer in layers]
        final = base.get_submodule(names.final) if names.final else layers[-1].module
    except AttributeError as error:
        version = transformers.__version__
        raise ValueError(f"transformers {version} builds {kind} of other modules: {error}") from None
    stream = [
        tap
        for layer, norm in zip(layers, between, strict=True)
        for tap in (Tap(norm, side), Tap(layer.module))
    ]
    roles = list(names.projections)
    return Network(
        module=Stock(model, task),
        task=task,
        layers=tuple(layer.module for layer in layers),
        linears=tuple(
            linear for number, layer in enumerate(layers) for linear in _linears(number, layer, roles)
        ),
        attentions=tuple(Tap(_probabilities(layer.attention)) for layer in layers if layer.attention),
        stream=tuple(stream),
        final=Tap(final),
        norms=tuple(module for module in model.modules() if "Norm" in type(module).__name__),
        classes=classes,
    )


def _linears(number: int, layer: StockLayer, roles: list[str]) -> list[Linear]:
    """Return the matrices of a layer in the order of use, as ``roles`` are; a fused module has several."""
    modules = (*layer.attention_in, layer.writers["o"], *layer.ffn_in, layer.writers["down"])
    linears: list[Linear] = []
    for place, (role, module) in enumerate(zip(roles, modules, strict=True)):
        activated = role.split("+")[:1] if module is layer.ffn_in[0] else []
        linears += matrices_of(
            module,
            number,
            "attention" if place <= len(layer.attention_in) else "ffn",
            _outputs(role, module, layer),
            activated,
        )
    return linears


def _outputs(role: str, module: nn.Module, layer: StockLayer) -> dict[str, int]:
    names = role.split("+")
    rows, q = matrix(module).shape[0], matrix(layer.writers["o"]).shape[1]
    if names[0] != "q" or len(names) == 1:
        return dict.fromkeys(names, rows // len(names))
    return dict(zip(names, [q, *[(rows - q) // 2] * 2], strict=True))


def _probabilities(attention: nn.Module) -> nn.Module:
    """The identity that passes on the attention probabilities, put below the module that computes them."""
    if not hasattr(attention, "probabilities"):
        attention.probabilities = nn.Identity()
        attention.register_forward_hook(_show)
    return attention.get_submodule("probabilities")


def _show(attention: nn.Module, _: Any, outputs: tuple[Tensor, Tensor]) -> None:
    attention.get_submodule("probabilities")(outputs[1])
