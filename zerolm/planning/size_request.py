"""The requested sizes of a child: explicit shares, or budgets, for every kind of unit.

The fields of ``SizeRequest`` declare the settings of ``zerolm carve``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from typing import Any, Final, Self

from zerolm.settings.budgets import budgets, limits
from zerolm.settings.request import part, setting
from zerolm.text import defaults
from zerolm.units.within_layers import UNITS

SHARES: Final = (*(unit.share for unit in UNITS), "layers", "hidden")
"""What a child may keep a share of."""
SHAPES: Final = ("uniform", "per-layer")
MEAN: Final = "mean"
WORST: Final = "worst"
STORED: Final = "stored"
USED: Final = "used"
AUTO: Final = "auto"
ALL: Final = "all"
Limits: Any = budgets(["max"], "amount", shares=", or 0.8x of the parent's")


SharesOfUnits: Any = make_dataclass(
    "SharesOfUnits", [(unit.share, float | None, unit.setting) for unit in reversed(UNITS)], frozen=True
)


@dataclass(frozen=True)
class KeptShares(SharesOfUnits):  # type: ignore[misc]
    """The shares of the parent's sizes that a child keeps; None for sizes chosen by budgets, or not cut.

    Those of units within layers are declared by the units.
    """

    layers: float | None = setting(
        "number", None, "share of layers to keep", name="keep_layers", low=0, high=1
    )
    hidden: float | None = setting(
        "number",
        None,
        "share of the hidden size to keep, after one rotation of the residual stream",
        name="keep_hidden",
        low=0,
        high=1,
    )
    all: float | None = setting(
        "number",
        None,
        "only 1 is allowed: prune nothing, choose quantisation types only",
        name="keep",
        low=1,
        high=1,
    )


@dataclass(frozen=True)
class ExpertsRequest:
    """The experts that each layer of a mixture of experts keeps, and the neurons of each; None: all."""

    keep: str | None = setting(
        "text",
        None,
        "experts of each layer to keep: a number, a share (0.5), auto (most within budgets), or all; "
        "default with --text and budgets: the least loss",
        name="keep_experts",
        metavar="N",
    )
    ffn: str | None = setting(
        "text",
        None,
        "neurons of each expert to keep: a number, a share (0.75), or auto (the most within the budgets; "
        "with --keep-experts auto the best combination)",
        name="keep_expert_ffn",
        metavar="N",
    )
    domains: str = setting(
        "text",
        MEAN,
        "with several --text domains, rank experts by their mean score or by their worst domain",
        choices=(MEAN, WORST),
    )
    parallel: int = setting(
        "integer",
        1,
        "keep a multiple of this number of experts, for expert parallelism",
        name="expert_parallel",
        low=1,
        high=1 << 16,
    )

    @property
    def are_cut(self) -> bool:
        """Return whether experts, or neurons of them, may be removed."""
        return self.keep not in (None, ALL) or self.ffn is not None

    @property
    def take_budgets(self) -> bool:
        """Return whether budgets determine the numbers of experts or of their neurons."""
        return AUTO in (self.keep, self.ffn)

    def check(self) -> None:
        """Raise ``ValueError`` for options on kept experts without a number of experts."""
        if self.keep is None and self.domains != MEAN:
            raise ValueError("--domains is of experts that are kept: give --keep-experts N too")
        if self.keep is None and self.parallel != 1:
            raise ValueError("--expert-parallel is of experts that are kept: give --keep-experts N too")


@dataclass(frozen=True)
class VocabularyRequest:
    """The tokens that a child keeps: without a size ``auto`` within budgets on a text, else all."""

    size: str | None = setting(
        "text",
        None,
        "tokens to keep, most frequent first: a number (64k), a share (0.5), used (by the text), auto "
        "(within budgets; default with --text FILE), or all",
        name="keep_vocab",
        metavar="SIZE",
    )
    tokens: str | None = setting(
        "path", None, "file of token ids to keep in any case, one per line or as JSON", name="keep_tokens"
    )

    @property
    def cuts(self) -> bool:
        """Return whether a size or a list of tokens is given, so that other tokens are removed."""
        return self.size not in (None, ALL) or (self.tokens is not None and self.size is None)

    @property
    def is_usual(self) -> bool:
        """Return whether neither a size nor a list of tokens is given, so that a text and budgets choose."""
        return self.size is None and self.tokens is None

    def check(self, text: str | None, budgets: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` for a request without the text or the budgets that it needs."""
        if self.size not in (None, ALL) and text in defaults.NO_FILES:
            raise ValueError(
                "--keep-vocab needs --text FILE, a sample of what the model will serve; to keep named tokens "
                "only, give --keep-tokens FILE alone"
            )
        if self.size == AUTO and not budgets:
            raise ValueError(
                f"--keep-vocab {AUTO} chooses within budgets: give one such as --max-params 0.8x"
            )


@dataclass(frozen=True)
class WeightsRequest:
    """The quantisation types of a gguf file, one for each matrix, within ``max_weight_bytes``."""

    types: str | None = setting(
        "text",
        None,
        "quantisation types of a gguf file, chosen per matrix within --max-weight-bytes: all, a list such "
        "as Q4_K,Q6_K, or stored (keep the parent's types)",
        metavar="NAMES",
    )
    max_bits: float | None = setting(
        "number", None, "mean bits per parent weight, at most: sets --max-weight-bytes", low=0, high=32
    )
    imatrix: bool = setting("flag", False, "also write an importance matrix (imatrix) for llama.cpp")
    requantize: bool = setting(
        "flag", False, "allow an already quantised parent; its existing error is not recovered"
    )

    def limits(self, budgets: Mapping[str, int], params: int) -> dict[str, int]:
        """Return the budgets with that of ``max_bits``, for a parent of ``params`` parameters."""
        if self.max_bits is None:
            return dict(budgets)
        most = int(self.max_bits * params / 8)
        return {**budgets, "max_weight_bytes": min(most, budgets.get("max_weight_bytes", most))}

    def are_chosen(self, form: str, budgets: Mapping[str, Any]) -> bool:
        """Return whether types are chosen: in a gguf file within bytes, unless the parent's are kept."""
        return form == "gguf" and "max_weight_bytes" in budgets and self.types != STORED

    def check(self, form: str, budgets: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` for options on types without a gguf file or without a budget of bytes."""
        flags = [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value]
        if flags and form != "gguf":
            raise ValueError(f"{flags[0]} is for quantisation types of gguf files: give --format gguf")
        needs_bytes = self.imatrix or self.requantize or self.types not in (None, STORED)
        if needs_bytes and "max_weight_bytes" not in budgets:
            raise ValueError(f"{flags[0]} is of types within bytes: give --max-weight-bytes, or --max-bits")

    def check_parent(self, quantised: Sequence[str], *, types_alone: bool) -> None:
        """Raise ``ValueError`` where a ``quantised`` parent is to be cut, or requantised without the flag.

        Also where ``requantize`` is set for a parent that is not quantised.
        """
        if self.requantize and not quantised:
            raise ValueError("--requantize is for a quantised parent, and this one is not: drop it")
        if quantised and not types_alone:
            raise ValueError(
                f"the parent is quantised ({', '.join(quantised)}), and only 16 or 32 bits can be cut; to "
                "change types: --keep 1 --format gguf --max-weight-bytes BYTES --requantize"
            )
        if quantised and not self.requantize:
            raise ValueError(
                f"the parent is quantised already ({', '.join(quantised)}), and its error is not recovered: "
                "give --requantize, or a parent of 16 or 32 bits"
            )


@dataclass(frozen=True)
class SizeRequest:
    """The sizes of a child: explicit widths (shares of the parent's), or within budgets.

    A size without a share is chosen within budgets, and whole without budgets. Tokens and experts are removed
    only on request. ``multiple_of`` applies to FFN widths, the stream's width and the vocabulary. ``space``
    names one of ``SIZE_SPACES``, which then defines sizes and costs. ``is_square``: the format has queries as
    wide as the stream.
    """

    limits: Any = part(Limits, group="How small")
    weights: WeightsRequest = part(WeightsRequest)
    shares: KeptShares = part(KeptShares)
    experts: ExpertsRequest = part(ExpertsRequest)
    vocabulary: VocabularyRequest = part(VocabularyRequest)
    shape: str | None = setting(
        "text",
        None,
        "uniform (one size for all layers) or per-layer; default uniform, with --space per-layer",
        group="Sizes that may be",
        choices=SHAPES,
    )
    space: str | None = setting(
        "text",
        None,
        "search space of layer sizes: heads-ffn (any parent), lonas-bert, lonas-llama-7b, lonas-llama-13b, "
        "or a plug-in's",
        metavar="NAME",
    )
    multiple_of: int | None = setting(
        "integer",
        None,
        "round FFN widths, hidden size and a smaller vocabulary to multiples of this number (default: 32 "
        "for FFNs of 1,536 neurons or more)",
        low=1,
        high=1 << 24,
    )
    tensor_parallel: int = setting(
        "integer",
        1,
        "make KV groups and FFN widths divisible by this number, for tensor parallelism",
        low=1,
        high=1 << 16,
    )
    is_square: bool = False

    @classmethod
    def of(
        cls, keep: Mapping[str, float] | None = None, budgets: Mapping[str, Any] | None = None, **others: Any
    ) -> Self:
        """Return a request from shares, which ``SHARES`` names, and ``max_`` budgets."""
        return cls(Limits(**budgets or {}), shares=KeptShares(**keep or {}), **others)

    @property
    def keep(self) -> dict[str, float]:
        """Return the shares to keep, by the names in ``SHARES``, where given."""
        shares = {name: share for name, share in vars(self.shares).items() if share is not None}
        if shares.pop("all", None) is not None:
            shares = dict.fromkeys(SHARES, 1.0) | shares
        return shares

    def check(self) -> None:
        """Raise ``ValueError`` where shares contradict each other, or the shape of layers."""
        cut = next((name for name, share in self.keep.items() if share < 1), None)
        if self.shares.all is not None and cut is not None:
            flag = f"--keep-{cut} {self.keep[cut]:g}"
            raise ValueError(f"--keep 1 keeps all units and {flag} cuts some of them: leave one of them out")
        if not self.is_uniform and self.keep.get("layers", 1) < 1:
            raise ValueError(
                "--keep-layers needs --shape uniform; with --shape per-layer, budgets choose the layers"
            )

    @property
    def budgets(self) -> dict[str, Any]:
        """Return the ``max_`` budgets of costs: an integer, or ``"0.8x"`` of the parent's."""
        return limits(self.limits)

    @property
    def layer_shape(self) -> str:
        """Return the shape, by default that of the space."""
        return self.shape or ("per-layer" if self.space else "uniform")

    @property
    def is_uniform(self) -> bool:
        """Return whether all layers have the same size."""
        return self.layer_shape == "uniform"

    @property
    def cuts_layers(self) -> bool:
        """Return whether anything except tokens and experts may be cut."""
        return bool(self.budgets or self.space) or any(share < 1 for share in self.keep.values())

    @property
    def is_fixed(self) -> bool:
        """Return whether shares determine all sizes, so that nothing has to be planned."""
        return not self._is_limited and "layers" not in self.keep

    @property
    def _is_limited(self) -> bool:
        return bool(self.budgets) or self.weights.max_bits is not None

    @property
    def chooses(self) -> bool:
        """Return whether units or quantisation types are chosen."""
        is_cut = any(share < 1 for share in self.keep.values())
        return is_cut or self._is_limited or self.space is not None

    def of_space(self) -> Self:
        """Return the same request without the settings that a space defines: sizes and divisors."""
        return type(self)(
            self.limits,
            vocabulary=self.vocabulary,
            shape=self.shape,
            space=self.space,
            is_square=self.is_square,
        )

    @property
    def weighs_experts(self) -> bool:
        """Return whether experts, or their neurons, share the budgets with tokens or quantisation types."""
        others = self.vocabulary.size == AUTO or self.weights.types not in (None, STORED)
        return self.experts.take_budgets and others

    @property
    def without_experts(self) -> SizeRequest:
        """Return the request for all other units, without the budgets that are used for experts."""
        rest = replace(self, experts=ExpertsRequest())
        if not self.experts.take_budgets or self.weighs_experts:
            return rest
        return replace(rest, limits=Limits(), weights=replace(self.weights, max_bits=None))

    @property
    def cuts_experts_alone(self) -> bool:
        """Return whether experts are removed, and nothing else but a number of tokens."""
        rest = self.without_experts
        others = rest.cuts_layers or rest.weights != WeightsRequest() or rest.vocabulary.size == AUTO
        return self.experts.are_cut and not others

    def within(self, budgets: Mapping[str, int]) -> Self:
        """Return the same request within these budgets."""
        return replace(self, limits=Limits(**budgets))
