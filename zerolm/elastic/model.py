# mypy: disallow-untyped-calls=False
"""A path as a model of transformers: ``save_pretrained``, ``from_pretrained``, and the automatic classes.

Importing this module makes its type known to transformers; no code of a folder runs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from torch import Tensor, nn
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
from zerolm.networks.build import DEVIATION, network_function
from zerolm.networks.modules.layer import Stack
from zerolm.spaces.elastic import Elastic, ElasticCausal
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
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )


class _WithHead(ElasticPreTrainedModel):
    """The words' logits, by the head that the architecture has."""

    _tied_weights_keys = {"head.tokens.weight": "network.embeddings.tokens.weight"}  # noqa: RUF012
    causal: ClassVar[bool]

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        if config.causal != self.causal:
            kind = "a decoder" if config.causal else "an encoder"
            raise ValueError(f"the configuration is of {kind}, which {type(self).__name__} is not")
        stack = stack_of(config)
        self.network, self.head = ElasticModel(config, stack), stack.head
        self.post_init()

    def predicted(self, input_ids: Tensor, *given: Any) -> tuple[Tensor, Any]:
        """Return logits (b, t, v), and the hidden states of all layers where they are asked for."""
        outputs = self.network(input_ids, *given)
        return self.head(outputs.last_hidden_state), outputs.hidden_states


class ElasticForMaskedLM(_WithHead):
    """An encoder that predicts masked words."""

    causal = False

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> MaskedLMOutput:
        """Return logits (b, t, v), and the loss of ``labels`` (b, t), -100 where nothing is predicted."""
        logits, states = self.predicted(input_ids, attention_mask, token_type_ids, output_hidden_states)
        loss = None if labels is None else labelled(logits, labels)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=states)


class ElasticForCausalLM(_WithHead, GenerationMixin):
    """A decoder that predicts the next token; it keeps no keys and values."""

    causal = True

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> CausalLMOutput:
        """Return logits (b, t, v), and the loss of each next token of ``labels`` (b, t), -100 left out."""
        logits, states = self.predicted(input_ids, attention_mask, None, output_hidden_states)
        loss = None if labels is None else next_token(logits, labels)
        return CausalLMOutput(loss=loss, logits=logits, hidden_states=states)

    def prepare_inputs_for_generation(self, input_ids: Tensor, *given: Any, **more: Any) -> dict[str, Any]:
        """Return all tokens so far: there is no cache."""
        return {"input_ids": input_ids, "attention_mask": more.get("attention_mask")}


class ElasticForSequenceClassification(ElasticPreTrainedModel):
    """A class for each sequence, of the first token of an encoder, of the last one of a decoder."""

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        self.network = ElasticModel(config)
        self.dropout, self.classifier = nn.Dropout(0.1), nn.Linear(config.hidden_size, config.num_labels or 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> SequenceClassifierOutput:
        """Return logits (b, classes), and the cross-entropy of ``labels`` (b,)."""
        outputs = self.network(input_ids, attention_mask, token_type_ids, output_hidden_states)
        places = input_ids.new_zeros(len(input_ids))
        if self.config.causal:
            full = input_ids.shape[1] - 1
            places = places + full if attention_mask is None else attention_mask.sum(1) - 1
        rows = outputs.last_hidden_state[places.new_tensor(range(len(places))), places]  # (b, d)
        logits = self.classifier(self.dropout(rows))
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


class ElasticForQuestionAnswering(ElasticPreTrainedModel):
    """The first and the last token of an answer."""

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        self.network = ElasticModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> QuestionAnsweringModelOutput:
        """Return logits (b, t) of where the answer starts and ends, and their mean cross-entropy."""
        outputs = self.network(input_ids, attention_mask, token_type_ids, output_hidden_states)
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            pairs = ((start, start_positions), (end, end_positions))
            first, last = (nn.functional.cross_entropy(logits.float(), places) for logits, places in pairs)
            loss = (first + last) / 2
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start, end_logits=end, hidden_states=outputs.hidden_states
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
