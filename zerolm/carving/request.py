"""A request for a child: its sizes, how units are chosen, planned and repaired, and where it is written.

The fields of ``SizeRequest`` and ``MethodRequest`` declare the settings of ``zerolm carve``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from zerolm.settings import nearest, shown
from zerolm.settings.budgets import budgets, limits
from zerolm.settings.domains import domains_of
from zerolm.settings.request import part, setting
from zerolm.text import defaults

SHAPES: Final = ("uniform", "per-layer")
PLANS: Final = ("weights", "prices", "measured", "heuristic")
BY_LOSS: Final = ("prices", "measured")
"""Plans by the losses of single cuts: foretold from one backward pass, or measured one by one."""
MEAN: Final = "mean"
WORST: Final = "worst"
NO_MERGE: Final = "none"
REAM: Final = "ream"
SUMMED: Final = "hope_moments"
"""The criterion of experts whose losses are squared lengths summed over tokens, as worths of neurons are."""
STORED: Final = "stored"
USED: Final = "used"
AUTO: Final = "auto"
ALL: Final = "all"
RANDOM: Final = defaults.RANDOM
GENERATED: Final = defaults.GENERATED
MAX_TOKENS: Final = 1 << 26
"""Calibration tokens, of whose hidden states three are in memory."""
Limits: Any = budgets(["max"], "amount", shares=", or 0.8x of the parent's")


@dataclass(frozen=True)
class KeptShares:
    """The shares of the parent's sizes that a child keeps; None where it is free, or whole."""

    ffn: float | None = setting(
        "number", None, "share of the FFN neurons to keep", name="keep_ffn", low=0, high=1
    )
    heads: float | None = setting(
        "number", None, "share of the KV groups of heads to keep", name="keep_heads", low=0, high=1
    )
    layers: float | None = setting(
        "number", None, "share of the layers to keep", name="keep_layers", low=0, high=1
    )
    hidden: float | None = setting(
        "number", None, "share of the hidden size to keep, in one basis", name="keep_hidden", low=0, high=1
    )
    all: float | None = setting(
        "number", None, "1 keeps all units: types of weights alone are chosen", name="keep", low=1, high=1
    )


@dataclass(frozen=True)
class ExpertsRequest:
    """The experts that each layer of a mixture keeps, and the neurons that each of these does; None: all."""

    keep: str | None = setting(
        "text",
        None,
        "experts of each layer to keep: a number, a share (0.5), auto (the most within the budgets), or all; "
        "by default a text and budgets weigh them against all else",
        name="keep_experts",
        metavar="N",
    )
    ffn: str | None = setting(
        "text",
        None,
        "neurons of each expert to keep: a number, a share (0.75), or auto (within the budgets; beside "
        "--keep-experts auto what loses least of both)",
        name="keep_expert_ffn",
        metavar="N",
    )
    domains: str = setting(
        "text",
        MEAN,
        "of texts of several domains: what experts are worth to all of them together, or where that is least",
        choices=(MEAN, WORST),
    )
    merge: str = setting(
        "text",
        NO_MERGE,
        "merge experts that leave into those that stay (ream), by what they do on a text, not a random one",
        choices=(NO_MERGE, REAM),
    )
    parallel: int = setting(
        "integer",
        1,
        "number that divides the experts that are kept, so that they spread over devices",
        name="expert_parallel",
        low=1,
        high=1 << 16,
    )

    @property
    def are_cut(self) -> bool:
        """Return whether experts, or neurons of them, may leave."""
        return self.keep not in (None, ALL) or self.ffn is not None

    @property
    def take_budgets(self) -> bool:
        """Return whether budgets say how many of them stay."""
        return AUTO in (self.keep, self.ffn)

    def check(self) -> None:
        """Raise ``ValueError`` for what is of experts that leave where none do, or goes with no neurons."""
        if self.keep is None and self.domains != MEAN:
            raise ValueError("--domains is of experts that are kept: give --keep-experts N too")
        if self.keep is None and self.merge != NO_MERGE:
            raise ValueError("--merge is of experts that leave: give --keep-experts N too")
        if self.keep is None and self.parallel != 1:
            raise ValueError("--expert-parallel is of experts that are kept: give --keep-experts N too")
        if self.ffn is not None and self.merge != NO_MERGE:
            raise ValueError(
                "experts are merged neuron by neuron, so that all of these stay: give no --keep-expert-ffn"
            )


@dataclass(frozen=True)
class VocabularyRequest:
    """The tokens that a child keeps: within budgets on a text ``auto`` where no size is given, else all."""

    size: str | None = setting(
        "text",
        None,
        "tokens to keep, those of fewest expected uses in the text leaving first: a number (64k), a share "
        "(0.5), used (those the text needs), auto (within budgets, default with --text FILE), or all",
        name="keep_vocab",
        metavar="SIZE",
    )
    tokens: str | None = setting(
        "path", None, "tokens that stay in any case: their ids, one a line or as JSON", name="keep_tokens"
    )

    @property
    def cuts(self) -> bool:
        """Return whether a size or a list of tokens is given, so that others leave."""
        return self.size not in (None, ALL) or (self.tokens is not None and self.size is None)

    @property
    def is_usual(self) -> bool:
        """Return whether nothing is given of tokens: a text and budgets choose."""
        return self.size is None and self.tokens is None

    def check(self, text: str | None, budgets: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` for a request that needs a text or budgets, and has none."""
        if self.size not in (None, ALL) and text in defaults.NO_FILES:
            raise ValueError(
                "which tokens leave is told by the text that the model is to serve: --keep-vocab needs "
                "--text FILE; --keep-tokens FILE alone names those that stay"
            )
        if self.size == AUTO and not budgets:
            raise ValueError(
                f"--keep-vocab {AUTO} chooses within budgets: give one such as --max-params 0.8x"
            )


@dataclass(frozen=True)
class WeightsRequest:
    """The types of weights in a gguf file, each matrix its own, within ``max_weight_bytes``."""

    types: str | None = setting(
        "text",
        None,
        "types of weights of a gguf file, each matrix its own, within max_weight_bytes: all, a list such as "
        "Q4_K,Q6_K, or stored (those of the parent alone)",
        metavar="NAMES",
    )
    max_bits: float | None = setting(
        "number",
        None,
        "bits a weight at most, over all weights of the parent: another way to say max_weight_bytes",
        low=0,
        high=32,
    )
    imatrix: bool = setting(
        "flag", False, "write what weighs the errors of types beside the child, as llama.cpp's tools read it"
    )
    requantize: bool = setting(
        "flag", False, "choose types for a parent that is quantised already; what that lost stays lost"
    )

    def limits(self, budgets: Mapping[str, int], params: int) -> dict[str, int]:
        """Return budgets with that of ``max_bits``, for a parent of so many parameters."""
        if self.max_bits is None:
            return dict(budgets)
        most = int(self.max_bits * params / 8)
        return {**budgets, "max_weight_bytes": min(most, budgets.get("max_weight_bytes", most))}

    def are_chosen(self, form: str, budgets: Mapping[str, Any]) -> bool:
        """Return whether weights get types: in a gguf file within bytes, unless they stay as stored."""
        return form == "gguf" and "max_weight_bytes" in budgets and self.types != STORED

    def check(self, form: str, budgets: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` where what is asked of types cannot be."""
        values = {
            "types": self.types,
            "max-bits": self.max_bits,
            "imatrix": self.imatrix,
            "requantize": self.requantize,
        }
        flags = [f"--{name}" for name, value in values.items() if value]
        if flags and form != "gguf":
            raise ValueError(f"{flags[0]} is of types of weights, which a gguf file has: --format gguf")
        if (
            self.imatrix or self.requantize or self.types not in (None, STORED)
        ) and "max_weight_bytes" not in budgets:
            raise ValueError(f"{flags[0]} is of types within bytes: give --max-weight-bytes, or --max-bits")

    def check_parent(self, quantised: Sequence[str], *, types_alone: bool) -> None:
        """Raise ``ValueError`` where a parent that is ``quantised`` is to be cut, or its types are unsaid."""
        if self.requantize and not quantised:
            raise ValueError("--requantize is for a quantised parent, and this one is not: leave it out")
        if quantised and not types_alone:
            raise ValueError(
                f"the parent is quantised ({', '.join(quantised)}), and units are cut of 16 or 32 bits; "
                "its types can be chosen anew: --keep 1 --format gguf --max-weight-bytes BYTES --requantize"
            )
        if quantised and not self.requantize:
            raise ValueError(
                f"the parent is quantised already ({', '.join(quantised)}), and what that lost stays lost: "
                "give --requantize, or a parent of 16 or 32 bits"
            )


@dataclass(frozen=True)
class SizeRequest:
    """The sizes of a child: widths outright (shares of the parent's), or within budgets.

    What has no share is free within budgets, whole without; tokens leave where that is asked for, and so do
    experts, alone. ``multiple_of`` holds for FFN widths, the stream's and the vocabulary. ``space`` names one
    of ``SIZE_SPACES``, whose sizes and whose costs then count.
    """

    limits: Any = part(Limits, group="How small")
    weights: WeightsRequest = part(WeightsRequest)
    shares: KeptShares = part(KeptShares)
    experts: ExpertsRequest = part(ExpertsRequest)
    vocabulary: VocabularyRequest = part(VocabularyRequest)
    shape: str | None = setting(
        "text",
        None,
        "one size for all layers, or each its own; uniform unless a space is named",
        group="Sizes that may be",
        choices=SHAPES,
    )
    space: str | None = setting(
        "text",
        None,
        "sizes, and how costs are counted, of a space of LoNAS: lonas-bert, lonas-llama-7b, lonas-llama-13b; "
        "heads-ffn, of any parent; or of a plug-in",
        metavar="NAME",
    )
    multiple_of: int | None = setting(
        "integer",
        None,
        "number that divides FFN widths, hidden size and, where tokens leave, their number",
        low=1,
        high=1 << 24,
    )
    tensor_parallel: int = setting(
        "integer", 1, "number that divides KV groups and FFN widths", low=1, high=1 << 16
    )
    least_groups: int = setting("integer", 1, "KV groups that every layer keeps", low=1, high=1 << 24)
    least_ffn: int = setting("integer", 1, "FFN neurons that every layer keeps", low=1, high=1 << 24)

    @classmethod
    def of(
        cls, keep: Mapping[str, float] | None = None, budgets: Mapping[str, Any] | None = None, **others: Any
    ) -> Self:
        """Return a request by shares (``ffn``, ``heads``, ``layers``, ``hidden``) and ``max_`` of costs."""
        return cls(Limits(**budgets or {}), shares=KeptShares(**keep or {}), **others)

    @property
    def keep(self) -> dict[str, float]:
        """Return the shares that are kept of ``ffn``, ``heads``, ``layers`` and ``hidden``, if any."""
        shares = {name: share for name, share in vars(self.shares).items() if share is not None}
        if shares.pop("all", None) is not None:
            shares = dict.fromkeys(("ffn", "heads", "layers", "hidden"), 1.0) | shares
        return shares

    def check(self) -> None:
        """Raise ``ValueError`` where shares contradict each other."""
        cut = next((name for name, share in self.keep.items() if share < 1), None)
        if self.shares.all is not None and cut is not None:
            flag = f"--keep-{cut} {self.keep[cut]:g}"
            raise ValueError(f"--keep 1 keeps all units and {flag} cuts some of them: leave one of them out")

    @property
    def budgets(self) -> dict[str, Any]:
        """Return ``max_`` of costs: an integer, or ``"0.8x"`` of the parent's."""
        return limits(self.limits)

    @property
    def layer_shape(self) -> str:
        """Return the shape, by default that of the space."""
        return self.shape or ("per-layer" if self.space else "uniform")

    @property
    def is_uniform(self) -> bool:
        """Return whether all layers have one size."""
        return self.layer_shape == "uniform"

    @property
    def cuts_layers(self) -> bool:
        """Return whether anything but tokens may be cut."""
        return bool(self.budgets or self.keep or self.space)

    @property
    def is_fixed(self) -> bool:
        """Return whether shares say all sizes, so that nothing has to be planned."""
        return not self._is_limited and "layers" not in self.keep

    @property
    def _is_limited(self) -> bool:
        return bool(self.budgets) or self.weights.max_bits is not None

    @property
    def chooses(self) -> bool:
        """Return whether units are chosen, or types of weights."""
        is_cut = any(share < 1 for share in self.keep.values())
        return is_cut or self._is_limited or self.space is not None

    def of_space(self) -> Self:
        """Return the same request without what a space says itself: sizes, and what they divide by."""
        return type(self)(self.limits, vocabulary=self.vocabulary, shape=self.shape, space=self.space)

    @property
    def beside_experts(self) -> SizeRequest:
        """Return what is asked of all other units, without the budgets that experts take."""
        rest = replace(self, experts=ExpertsRequest())
        if not self.experts.take_budgets:
            return rest
        return replace(rest, limits=Limits(), weights=replace(self.weights, max_bits=None))

    @property
    def cuts_experts_alone(self) -> bool:
        """Return whether experts leave, and nothing else but a number of tokens."""
        rest = self.beside_experts
        others = rest.cuts_layers or rest.weights != WeightsRequest() or rest.vocabulary.size == AUTO
        return self.experts.are_cut and not others

    def within(self, budgets: Mapping[str, int]) -> Self:
        """Return the same request within these budgets."""
        return replace(self, limits=Limits(**budgets))


@dataclass(frozen=True)
class MethodRequest:
    """How units are chosen, sizes planned, and the rest repaired; None is what suits the text."""

    criterion: str | None = setting(
        "text",
        None,
        "what a unit is worth; from weights alone, for research: capacity, zerolm, max_weight, "
        "max_weight_strict, magnitude, random, prefix; from tokens: surgeon (default), amp, output_energy, "
        "compact, two_ssp, minitron, flap; "
        "of experts: aimer (without text), random; by tokens sent to them: reap (with text), gated_norm, "
        "frequency, gate_mass, mean_norm, mean_square, total_norm; by pairs that leave: hope, hope_moments",
        group="What goes",
        metavar="NAME",
    )
    plan: str | None = setting(
        "text",
        None,
        "what plans the sizes: the criterion (weights); losses of single cuts, foretold from one backward "
        "pass (prices; default) or measured one by one (measured); or a space (heuristic)",
        choices=PLANS,
    )
    text: str | None = setting(
        "texts",
        None,
        "calibration text, like what the child will serve; without one, generated: a text sampled from the "
        "parent; or random tokens; of experts also texts of several domains: code=FILE,chat=FOLDER",
        group="Text",
        metavar="FILE|generated|random",
    )
    text_field: str | None = defaults.text_field()
    sequences: int | None = setting(
        "integer",
        None,
        "sequences taken from the text; by default as many as the widest output matrix needs",
        low=defaults.LEAST_SEQUENCES,
        high=1 << 26,
    )
    length: int = defaults.length()
    repair: str | None = setting(
        "text",
        None,
        "how the output matrices are solved again: none, bias, least-squares (default; of experts with a "
        "text that is not random)",
        metavar="NAME",
    )
    seed: int = setting(
        "integer", 0, "seed of generated and random tokens, and of criterion random", low=0, high=2**63 - 1
    )
    for_: float | None = setting(
        "duration",
        None,
        "take fewer sequences, so that it lasts about so long: 90s, 30m, 1.5h",
        name="for_",
        low=1,
        high=10**8,
    )


@dataclass(frozen=True)
class Methods(MethodRequest):
    """How units are chosen (``criterion``), sizes planned (``plan``), and the rest repaired (``repair``).

    ``text`` is a file, ``generated`` (sampled from the parent), ``random``, or None: by weights alone.
    ``sequences`` of ``length`` tokens are taken from it. ``seed`` is that of generated and random tokens and
    of the criterion ``random``. ``experts`` is the criterion of experts, empty where all stay.
    """

    criterion: str = "capacity"
    plan: str = "weights"
    repair: str = "none"
    experts: str = ""

    @property
    def count(self) -> int:
        """Return the number of sequences: that which is named, or the usual one."""
        return self.sequences or defaults.SEQUENCES

    def check(self) -> None:
        """Raise ``ValueError`` for what is not known, or does not go together."""
        from zerolm.carving.importance.criteria import needs_tokens
        from zerolm.carving.repair.rules import REPAIRS

        if not (
            self.count >= defaults.LEAST_SEQUENCES
            and self.length >= 2
            and self.count * self.length <= MAX_TOKENS
        ):
            least = defaults.LEAST_SEQUENCES
            raise ValueError(
                f"{self.count} sequences of {self.length} tokens cannot be: at least {least} of two tokens, "
                f"one to fit and two held out; at most {MAX_TOKENS} tokens in all"
            )
        if domains_of(self.text) and not self.experts:
            raise ValueError(
                "texts of several domains tell experts apart: give --keep-experts N, or one text, --text FILE"
            )
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"the seed must lie in 0 to 2^63 - 1, not {self.seed}")
        if self.for_ is not None and self.text is None:
            raise ValueError(
                f"--for chooses how much of a text is read, and {self.criterion} reads none: give --text FILE"
            )
        if self.plan not in PLANS:
            raise ValueError(f"plan {shown(self.plan)} is not known{nearest(self.plan, PLANS)}")
        of_experts = self.criterion == self.experts  # whose own criteria are checked with them
        needing = {
            self.criterion: not of_experts and needs_tokens(self.criterion),
            f"repair {self.repair}": "tokens" in REPAIRS.entry(self.repair).needs,
            f"plan {self.plan}": self.plan in BY_LOSS,
        }
        name = next((name for name, is_needed in needing.items() if is_needed), None)
        if self.text is None and name is not None:
            raise ValueError(
                f"{name} needs tokens: give --text FILE, or --text {GENERATED}, which needs no data"
            )


def usual_criterion_of_experts(experts: ExpertsRequest, text: str | None) -> str:
    """Return the criterion of experts where none is named: by pairs on a text, as lost least where measured.

    Worths of single experts are compared across domains, and merging is published with them.
    """
    if text is None:
        return "aimer"
    alone = text == RANDOM or experts.domains != MEAN or experts.merge != NO_MERGE
    return "reap" if alone else SUMMED


def methods_of(size: SizeRequest, request: MethodRequest) -> Methods:
    """Return the methods of a request; what it leaves open is as its text allows.

    Without a text the parent generates one, unless a criterion by weights alone is named. Where shares say
    all sizes, nothing is measured to plan them.
    """
    if size.experts.are_cut:
        return _methods_with_experts(size, request)
    usual: dict[str, Any] = {"criterion": "capacity", "plan": "weights", "repair": "none"}
    if request.text is not None or (size.chooses and not _is_by_weights(request)):
        plan = "weights" if size.is_fixed else "prices"
        usual = {"criterion": "surgeon", "plan": plan, "repair": "least-squares", "text": GENERATED}
    chosen = {name: value for name, value in vars(request).items() if value is not None}
    return Methods(**usual | chosen)


def _methods_with_experts(size: SizeRequest, request: MethodRequest) -> Methods:
    """Return the methods of a request for fewer experts: its criterion is of these, or of the other units."""
    from zerolm.carving.importance.criteria import CRITERIA

    rest, named = size.beside_experts, request.criterion
    if rest.chooses:
        methods = methods_of(rest, replace(request, criterion=named if named in CRITERIA else None))
        of_experts = named if named == RANDOM or named not in CRITERIA else None
        return replace(methods, experts=of_experts or usual_criterion_of_experts(size.experts, methods.text))
    usual: dict[str, Any] = {
        "criterion": usual_criterion_of_experts(size.experts, request.text),
        "repair": "none" if request.text in (None, RANDOM) else "least-squares",
    }
    methods = Methods(**usual | {name: value for name, value in vars(request).items() if value is not None})
    return replace(methods, experts=methods.criterion)


def _is_by_weights(request: MethodRequest) -> bool:
    """Return whether a criterion by weights alone is named, and nothing else needs tokens."""
    from zerolm.carving.importance.criteria import needs_tokens
    from zerolm.carving.repair.rules import REPAIRS

    if request.criterion is None or needs_tokens(request.criterion) or request.plan in BY_LOSS:
        return False
    return request.repair is None or "tokens" not in REPAIRS.entry(request.repair).needs


@dataclass(frozen=True)
class Destination:
    """Where a child is written and in which format, a name of ``FORMATS``; ``folder`` None: nowhere.

    ``form`` None is the usual one: of a healed child that of the child, of a recipe's its own, else ``hf``.
    ``finish(folder, result)`` writes the files of ``REPORT`` beside a child that was verified.
    """

    folder: Path | None = None
    form: str | None = None
    force: bool = False
    finish: Callable[[Path, Any], None] | None = None

    @property
    def place(self) -> Path:
        """Return the folder; ``ValueError`` where none is named."""
        if self.folder is None:
            raise ValueError("a folder has to be named for the child")
        return self.folder
