"""A path of a supernet as models of transformers, which save and open themselves.

Importing this module makes them known to the Auto classes of transformers.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
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
    initialization,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)

from zerolm.architecture import Architecture
from zerolm.networks.build import DEVIATION, network_function
from zerolm.networks.modules.layer import Stack
from zerolm.spaces import make_space

MODEL_TYPE: Final = "zerolm_elastic"
CAUSAL: Final = "elastic-causal"
TIED: Final = {"head.tokens.weight": "elastic.embeddings.tokens.weight"}


class ElasticConfig(PreTrainedConfig):
    """The architecture of a path: a ``space`` with its ``space_settings``, and the choice of each layer."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        space: str = "elastic",
        space_settings: Mapping[str, Any] | None = None,
        layers: list[dict[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        self.space, self.space_settings = space, dict(space_settings or {})
        own = make_space(space, **self.space_settings)
        first = {"block": own.blocks[0], "share": own.shares[0], "ffn": own.step}  # type: ignore[attr-defined]
        read = own.read({"layers": layers or [first]})
        self.layers = read.choices["layers"]
        sizes = own.settings
        self.vocab_size, self.hidden_size = sizes["vocab"], sizes["hidden"]
        self.num_hidden_layers, self.num_attention_heads = len(self.layers), sizes["heads"]
        self.max_position_embeddings = sizes["positions"]
        more = {"tie_word_embeddings": True, "use_cache": False, **more}
        super().__init__(**more)

    @classmethod
    def of(cls, architecture: Architecture, settings: Mapping[str, Any], **more: Any) -> ElasticConfig:
        """Return the configuration of an architecture of a space with these settings."""
        return cls(architecture.space, settings, architecture.choices["layers"], **more)

    @property
    def architecture(self) -> Architecture:
        """Return the architecture."""
        return make_space(self.space, **self.space_settings).read({"layers": self.layers})

    @property
    def is_causal(self) -> bool:
        return self.space == CAUSAL


def stack_of(config: ElasticConfig) -> Stack:
    """Return the network of a configuration, its weights not drawn yet."""
    return network_function(config.space)(config.architecture)


class ElasticPreTrainedModel(PreTrainedModel):
    """The configuration of a path, and how its weights are drawn."""

    config_class = ElasticConfig
    base_model_prefix = "elastic"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            initialization.normal_(module.weight, 0.0, DEVIATION)
        bias = getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter):
            initialization.zeros_(bias)


class ElasticModel(ElasticPreTrainedModel):
    """The hidden states of a path."""

    def __init__(self, config: ElasticConfig, stack: Stack | None = None) -> None:
        super().__init__(config)
        stack = stack or stack_of(config)
        self.embeddings, self.layers, self.final = stack.embeddings, stack.layers, stack.final
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.get_submodule("tokens")

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.add_module("tokens", value)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        **more: Any,
    ) -> BaseModelOutput:
        """Return hidden states (b, t, d) of token ids (b, t); ``attention_mask`` is 0 where there is none.

        ``hidden_states`` are those of the embeddings and behind each layer, the last after the last norm.
        """
        padding = None if attention_mask is None or bool(attention_mask.all()) else attention_mask
        hidden = self.embeddings(input_ids, padding, token_type_ids)
        states = [hidden]
        for layer in self.layers:
            hidden = layer(hidden, padding)
            states.append(hidden)
        states[-1] = self.final(hidden)
        told = tuple(states) if output_hidden_states else None
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=told)


class _WithHead(ElasticPreTrainedModel):
    """A path with the head that its supernet has."""

    _tied_weights_keys = TIED

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        stack = stack_of(config)
        self.elastic, self.head = ElasticModel(config, stack), stack.head
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.head.get_submodule("tokens")

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.head.add_module("tokens", value)

    def _predicted(self, given: dict[str, Any]) -> tuple[Tensor, Any]:
        outputs = self.elastic(**given)
        return self.head(outputs.last_hidden_state), outputs.hidden_states


class ElasticForMaskedLM(_WithHead):
    """An encoder that predicts masked words."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **more: Any) -> MaskedLMOutput:
        """Return logits (b, t, v), and the cross-entropy of ``labels`` (b, t), -100 where there are none."""
        logits, states = self._predicted({"input_ids": input_ids, **more})
        loss = None if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=states)


class ElasticForCausalLM(_WithHead, GenerationMixin):
    """A decoder; it keeps no cache of keys and values."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **more: Any) -> CausalLMOutput:
        """Return logits (b, t, v), and the mean cross-entropy of each next of the ``labels`` (b, t)."""
        logits, states = self._predicted({"input_ids": input_ids, **more})
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits, hidden_states=states)

    def prepare_inputs_for_generation(self, input_ids: Tensor, *given: Any, **more: Any) -> dict[str, Any]:
        """Return all tokens so far: there is no cache."""
        return {"input_ids": input_ids, "attention_mask": more.get("attention_mask")}


class ElasticForSequenceClassification(ElasticPreTrainedModel):
    """A path with a linear classifier.

    It reads the mean over the tokens of an encoder, of a decoder the last of them.
    """

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        self.elastic = ElasticModel(config)
        self.dropout, self.classifier = (
            nn.Dropout(0.1),
            nn.Linear(config.hidden_size, int(config.num_labels or 2)),
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **more: Any,
    ) -> SequenceClassifierOutput:
        """Return logits (b, classes), and the cross-entropy of ``labels`` (b,), of one class their MSE."""
        outputs = self.elastic(input_ids, attention_mask, **more)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        pooled = self._pooled(outputs.last_hidden_state, mask)
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None and self.config.num_labels == 1:
            loss = functional.mse_loss(logits[:, 0], labels.to(logits))
        elif labels is not None:
            loss = functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)

    def _pooled(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.config.is_causal:
            places = torch.arange(mask.shape[1], device=mask.device)
            last = (mask.long() * (places + 1)).argmax(1)
            return hidden[torch.arange(len(hidden), device=hidden.device), last]
        weights = mask[..., None].to(hidden)
        return (hidden * weights).sum(1) / weights.sum(1).clamp_min(1.0)


class ElasticForQuestionAnswering(ElasticPreTrainedModel):
    """A path that says where an answer begins and ends."""

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        self.elastic, self.qa_outputs = ElasticModel(config), nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **more: Any,
    ) -> QuestionAnsweringModelOutput:
        """Return logits (b, t) of the first and the last token, and the mean of their cross-entropies."""
        outputs = self.elastic(input_ids, **more)
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            first = functional.cross_entropy(start, start_positions)
            loss = (first + functional.cross_entropy(end, end_positions)) / 2
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start, end_logits=end, hidden_states=outputs.hidden_states
        )


def language_model(config: ElasticConfig) -> ElasticForMaskedLM | ElasticForCausalLM:
    """Return a path with its head, its weights drawn."""
    return (ElasticForCausalLM if config.is_causal else ElasticForMaskedLM)(config)


AutoConfig.register(MODEL_TYPE, ElasticConfig)
AutoModel.register(ElasticConfig, ElasticModel)
AutoModelForMaskedLM.register(ElasticConfig, ElasticForMaskedLM)
AutoModelForCausalLM.register(ElasticConfig, ElasticForCausalLM)
AutoModelForSequenceClassification.register(ElasticConfig, ElasticForSequenceClassification)
AutoModelForQuestionAnswering.register(ElasticConfig, ElasticForQuestionAnswering)
