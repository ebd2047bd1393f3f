# mypy: disallow-untyped-calls=False
"""A path as a model of transformers: ``save_pretrained``, ``from_pretrained``, and the automatic classes.

Importing this module makes its type known to transformers; no code of a folder runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)

from zerolm.architecture import Architecture
from zerolm.lab.spaces.elastic import Elastic, ElasticCausal
from zerolm.networks.build import DEVIATION, network_function
from zerolm.networks.modules.layer import Stack
from zerolm.training.losses import labelled, next_token

TYPE: Final = "zerolm_elastic"


class ElasticConfig(PreTrainedConfig):
    """The settings of the space, and the choices of each layer: ``block``, ``share``, ``ffn``, ``heads``."""

    model_type = TYPE

    causal: bool = False
    layers: list[dict[str, Any]] | None = None
    hidden_size: int = 528
    num_attention_heads: int = 12
    embedding_size: int = 128
    vocab_size: int = 30522
    max_position_embeddings: int = 512
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = False

    @classmethod
    def of(cls, space: Elastic, architecture: Architecture, **more: Any) -> ElasticConfig:
        """Return the configuration of an architecture of a space."""
        return cls(
            causal=isinstance(space, ElasticCausal),
            layers=architecture.choices["layers"],
            hidden_size=space.hidden,
            num_attention_heads=space.heads,
            embedding_size=space.embedding,
            vocab_size=space.vocab,
            max_position_embeddings=space.positions,
            **more,
        )

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layers or ())

    @property
    def architecture(self) -> Architecture:
        """Return the architecture; ``ValueError`` where the configuration makes none."""
        layers = [layer if isinstance(layer, dict) else {} for layer in self.layers or ()]
        named = dict.fromkeys(str(layer.get("block")) for layer in layers)
        space = (ElasticCausal if self.causal else Elastic)(
            depth=len(layers),
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            embedding=self.embedding_size,
            vocab=self.vocab_size,
            positions=self.max_position_embeddings,
            blocks=list(named),
            shares=["none"],
        )
        return space.read({"layers": self.layers})


def stack_of(config: ElasticConfig) -> Stack:
    """Return the network of a configuration, its weights not drawn yet."""
    architecture = config.architecture
    return network_function(architecture.space)(architecture)


class ElasticPreTrainedModel(PreTrainedModel):
    """The base of all classes: how weights begin, and where the embeddings are."""

    config_class = ElasticConfig
    base_model_prefix = "network"
    config: ElasticConfig

    def _init_weights(self, module: nn.Module) -> None:
        from transformers import initialization

        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1:
                initialization.normal_(parameter, 0.0, DEVIATION)
            elif name == "bias":
                initialization.zeros_(parameter)
            else:
                initialization.ones_(parameter)

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.get_submodule("embeddings.tokens")


class ElasticModel(ElasticPreTrainedModel):
    """Embeddings and layers: hidden states behind the last norm, if there is one."""

    def __init__(self, config: ElasticConfig, stack: Stack | None = None) -> None:
        super().__init__(config)
        stack = stack or stack_of(config)
        self.embeddings, self.layers, self.final = stack.embeddings, stack.layers, stack.final
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutput:
        """Return hidden states (b, t, d); ``attention_mask`` (b, t) is 0 on padding, on the right."""
        hidden = self.embeddings(input_ids, attention_mask, token_type_ids)
        states = [hidden]
        for layer in self.layers:
            hidden = layer(hidden, attention_mask)
            states.append(hidden)
        states[-1] = self.final(hidden)
        return BaseModelOutput(
            last_hidden_state=states[-1], hidden_states=tuple(states) if output_hidden_states else None
        )


class _Headed(ElasticPreTrainedModel):
    """The network with a head; each class says what the head is, what its loss is, and what it returns."""

    output: ClassVar[Callable[..., Any]]
    loss: ClassVar[Any] = staticmethod(cross_entropy)

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        stack = stack_of(config)
        self.network = ElasticModel(config, stack)
        self.add_head(config, stack)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **unused: Any,
    ) -> Any:
        """Return ``logits``, the ``loss`` of labels, and ``hidden_states`` where they are asked for.

        The labels of an answer (b, 2) are where it starts and ends.
        """
        if start_positions is not None and end_positions is not None:
            labels = torch.stack([start_positions, end_positions], dim=1)
        outputs = self.network(input_ids, attention_mask, token_type_ids, output_hidden_states)
        logits = self.logits(outputs.last_hidden_state, attention_mask)
        loss = None if labels is None else self.loss(logits.float(), labels)
        return self.output(loss=loss, logits=logits, hidden_states=outputs.hidden_states)

    def add_head(self, config: ElasticConfig, stack: Stack) -> None:
        self.head: nn.Module = stack.head

    def logits(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        """Return logits of hidden states (b, t, d); ``padding`` (b, t) is 0 where there is no token."""
        logits: Tensor = self.head(hidden)
        return logits


class _WithWords(_Headed):
    """Logits of words (b, t, v), by the head that the architecture has; labels (b, t), -100 left out."""

    _tied_weights_keys = {"head.tokens.weight": "network.embeddings.tokens.weight"}  # noqa: RUF012
    causal: ClassVar[bool]

    def __init__(self, config: ElasticConfig) -> None:
        if config.causal != self.causal:
            kind = "a decoder" if config.causal else "an encoder"
            raise ValueError(f"the configuration is of {kind}, which {type(self).__name__} is not")
        super().__init__(config)


class ElasticForMaskedLM(_WithWords):
    """An encoder that predicts masked words."""

    causal, output, loss = False, MaskedLMOutput, staticmethod(labelled)


class ElasticForCausalLM(_WithWords, GenerationMixin):
    """A decoder that predicts the next token; it keeps no keys and values."""

    causal, output, loss = True, CausalLMOutput, staticmethod(next_token)

    def prepare_inputs_for_generation(self, input_ids: Tensor, *unused: Any, **more: Any) -> dict[str, Any]:
        """Return all tokens so far: there is no cache."""
        return {"input_ids": input_ids, "attention_mask": more.get("attention_mask")}


class ElasticForSequenceClassification(_Headed):
    """A class for each sequence (b, classes), of the first token of an encoder, of the last of a decoder."""

    output = SequenceClassifierOutput

    def add_head(self, config: ElasticConfig, stack: Stack) -> None:
        self.dropout, self.classifier = nn.Dropout(0.1), nn.Linear(config.hidden_size, config.num_labels or 2)

    def logits(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        rows = torch.arange(len(hidden), device=hidden.device)
        places = torch.zeros_like(rows)
        if self.config.causal:
            places = places + hidden.shape[1] - 1 if padding is None else padding.sum(1) - 1
        logits: Tensor = self.classifier(self.dropout(hidden[rows, places]))  # of (b, d)
        return logits


class ElasticForQuestionAnswering(_Headed):
    """The first and the last token of an answer: logits (b, t) of each, and their mean cross-entropy."""

    def add_head(self, config: ElasticConfig, stack: Stack) -> None:
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def logits(self, hidden: Tensor, padding: Tensor | None) -> Tensor:
        logits: Tensor = self.qa_outputs(hidden)  # (b, t, 2)
        return logits

    @staticmethod
    def output(loss: Tensor | None, logits: Tensor, hidden_states: Any) -> QuestionAnsweringModelOutput:
        start, end = logits.unbind(-1)
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start, end_logits=end, hidden_states=hidden_states
        )


AutoConfig.register(TYPE, ElasticConfig, exist_ok=True)
for maker, model in (
    (AutoModel, ElasticModel),
    (AutoModelForMaskedLM, ElasticForMaskedLM),
    (AutoModelForCausalLM, ElasticForCausalLM),
    (AutoModelForSequenceClassification, ElasticForSequenceClassification),
    (AutoModelForQuestionAnswering, ElasticForQuestionAnswering),
):
    maker.register(ElasticConfig, model, exist_ok=True)
