"""Losses between a student's features and a teacher's: relational ones, and the classical for comparison.

ELM, arXiv 2510.27037: of the embeddings, of every attention and of every layer, and of the predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.io.brief import one_line
from zerolm.lab.spaces.elastic import NARROW, Elastic
from zerolm.lab.supernets.model import ElasticPreTrainedModel
from zerolm.lab.supernets.request import Kind, Teaching
from zerolm.lab.supernets.text import ElasticText
from zerolm.lab.zero_cost.passes.taps import looking
from zerolm.networks.huggingface import HEADS
from zerolm.networks.modules.layer import part
from zerolm.networks.network import Tap
from zerolm.networks.opener import differing_tokens, stock_tokenizer, stored_model
from zerolm.networks.roles import layer_list, layer_of, places_of
from zerolm.training.losses import dist, forward_kl, relative_mse, standardised
from zerolm.training.randomness import seeded
from zerolm.training.request import TrainingRequest
from zerolm.training.teacher import half_precision

OF_FEATURES: Final = {"relational": standardised, "classical": relative_mse}
OF_PREDICTIONS: Final[Mapping[str, Callable[[Tensor, Tensor, float], Tensor]]] = {
    "relational": dist,
    "classical": forward_kl,
}


@dataclass(frozen=True, eq=False)
class Features:
    """Features of one network for one batch, (b, t, d) each: the embeddings, the attention outputs of its
    layers (of their last matrix, before they are added to anything; none where these are not compared), and
    the outputs of its layers."""

    embedding: Tensor
    attention: Sequence[Tensor]
    layers: Sequence[Tensor]


class FeatureDistillation(nn.Module):
    """The loss of a student's features, each brought to the teacher's width by a matrix that is learned.

    ``hidden`` are the widths of student and teacher, ``attention`` the student's widths of attention outputs
    by the kind of block: one matrix serves all layers, one each kind of block. Relational losses compare
    standardised features, classical ones squared differences over the teacher's mean square.
    """

    def __init__(self, kind: Kind, hidden: tuple[int, int], attention: Mapping[str, int]) -> None:
        super().__init__()
        ours, theirs = hidden
        self.kind = kind
        self.layers = nn.Linear(ours, theirs)
        self.attention = nn.ModuleDict(
            {block: nn.Linear(width, theirs) for block, width in attention.items()}
        )

    def forward(self, ours: Features, theirs: Features, blocks: Sequence[str]) -> dict[str, Tensor]:
        """Return the losses by name, each the sum over layers; ``blocks`` are the kinds of the student's.

        The teacher's features are those of the layers that the student's are compared with.
        """
        loss = OF_FEATURES[self.kind]
        attention = [self.attention[block](x) for block, x in zip(blocks, ours.attention, strict=True)]
        layers = [self.layers(x) for x in ours.layers]
        losses = {"embedding": loss([self.layers(ours.embedding)], [theirs.embedding])}
        if attention:
            losses["attention"] = len(attention) * loss(attention, theirs.attention)
        return losses | {"layers": len(layers) * loss(layers, theirs.layers)}


def compared(depth: int, teacher: int) -> list[int]:
    """Return the teacher's layer, from 0, that each of the student's is compared with: at the same height.

    Layer i of L with (i + 1) T / L - 1 of T, rounded; the last with the last.
    """
    return [max(1, round((i + 1) * teacher / depth)) - 1 for i in range(depth)]


class FeatureTeacher:
    """A model of transformers that runs together with a student of ``depth`` layers: a stock one, or a path.

    Its signals are ``theirs``, the ``Features`` of the layers that are compared, and, where ``predictions``
    are asked for, ``logits``.
    """

    def __init__(
        self, model: PreTrainedModel, depth: int, *, predictions: bool = False, bfloat16: bool = False
    ) -> None:
        self.model, self.predictions, self.bfloat16 = model, predictions, bfloat16
        self.outputs = attention_outputs(model)
        self.layers = compared(depth, len(self.outputs))
        model.train(False).requires_grad_(False)

    @torch.no_grad()
    def signals(self, ids: Tensor, numbers: Tensor) -> dict[str, Any]:
        """Return the signals for sequences (b, t), of which no token is padding."""
        if self.model.device != ids.device:
            self.model.to(ids.device)  # type: ignore[arg-type]
        with half_precision(ids.device, self.bfloat16), watched(self.outputs) as attention:
            outputs: Any = self.model(input_ids=ids, output_hidden_states=True)
        embedding, *layers = outputs.hidden_states
        at = self.layers
        theirs = Features(embedding, [attention[i] for i in at], [layers[i] for i in at])
        return {"theirs": theirs} | ({"logits": outputs.logits} if self.predictions else {})


def attention_outputs(model: PreTrainedModel) -> list[nn.Module]:
    """Return of each layer of a model, a stock one or a path, the module of its attention's last matrix."""
    if isinstance(model, ElasticPreTrainedModel):
        layers = model.base_model.get_submodule("layers")
        return [part(layer, "attention").get_submodule("o") for layer in layers.children()]
    places = places_of(model)
    return [layer_of(places, layer).writers["o"] for layer in layer_list(model)]


@contextmanager
def watched(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Within, a list gets what these modules return, in the order in which they do."""
    outputs: list[Tensor] = []
    with looking([Tap(module) for module in modules], lambda _, output: outputs.append(output)):
        yield outputs


def teacher_in(
    folder: Path, text: ElasticText, depth: int, request: TrainingRequest, *, predictions: bool
) -> FeatureTeacher:
    """Return the teacher in a folder for students of ``depth`` layers.

    It is a stock model, or a path that was handed over. ``ValueError`` where there is none, its tokenizer is
    not the text's, it reads shorter sequences, or its attention is narrower than its hidden states.
    """
    differing = differing_tokens(text.tokenizer, stock_tokenizer(folder))
    if differing:
        raise ValueError(
            f"the teacher {str(folder)!r} has another tokenizer: {len(differing)} tokens differ, "
            f"{min(differing)!r} among them; leave --tokenizer out to take the teacher's"
        )
    with one_line(f"the teacher in {str(folder)!r}"):
        model, report = stored_model(folder, HEADS[text.task])
    lacking = [name for name in map(str, report["missing_keys"]) if "pooler" not in name]
    if lacking:
        raise ValueError(f"the teacher {str(folder)!r} lacks {min(lacking)!r}")
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and request.length > positions:
        raise ValueError(f"the teacher reads {positions} tokens at most, not sequences of {request.length}")
    if any(layer["block"] == "mobile" for layer in getattr(model.config, "layers", None) or ()):
        raise ValueError(
            f"the teacher {str(folder)!r} has blocks mobile, whose attention is narrower than its hidden "
            "states; bert and llama can teach"
        )
    return FeatureTeacher(model, depth, predictions=predictions, bfloat16=request.execution.bfloat16)


def taught(
    teaching: Teaching, text: ElasticText, space: Elastic, depth: int, request: TrainingRequest
) -> tuple[FeatureTeacher | None, FeatureDistillation | None]:
    """Return the teacher, if any, and the comparison of its features with those of a space's blocks."""
    if teaching.teacher is None:
        return None, None
    predictions = bool(teaching.predictions)
    teacher = teacher_in(Path(teaching.teacher), text, depth, request, predictions=predictions)
    widths = {block: space.hidden // NARROW if block == "mobile" else space.hidden for block in space.blocks}
    hidden = (space.hidden, int(teacher.model.config.hidden_size))
    with seeded(request.seed):
        return teacher, FeatureDistillation(teaching.distillation, hidden, widths)
