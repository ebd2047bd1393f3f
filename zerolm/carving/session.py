"""One carving's network: the loaded parent, its calibration tokens, and everything computed with them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

import zerolm
from zerolm.architecture import Floats
from zerolm.carving.bits.file_moments import GradientMoments, file_moments, of_matrices
from zerolm.carving.bits.typed_child import LastLayer, ReadBack, TypedChild
from zerolm.carving.bits.weighed_child import Types, WeighedChild
from zerolm.carving.loss import FINAL_TOKENS, LOSS_BATCH, Loss
from zerolm.carving.pace import FISHER, PACED_TOKENS, SCORING, Pace, inputs_of, measured_pace
from zerolm.carving.recipe import to_layers
from zerolm.carving.request import Methods
from zerolm.carving.result import stream
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import is_rearranged
from zerolm.checkpoints.identity import fingerprint
from zerolm.children.child_tensors import Child
from zerolm.children.verify import outputs
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.io.memory import give_back
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import compute, computed, held_of
from zerolm.networks.opener import mapped_model, open_model
from zerolm.networks.pooling import TokenPooling
from zerolm.networks.stream import Stream
from zerolm.networks.threads import use_idle_processors
from zerolm.passes.fisher import Fisher
from zerolm.passes.loss_moments import MOMENT_BATCH, MOMENT_TOKENS, LossMoments, loss_moments
from zerolm.planning.estimates import ESTIMATE_TOKENS, calibrated, estimated_losses
from zerolm.planning.loss_table import LossTable
from zerolm.progress import Progress
from zerolm.registry import is_own
from zerolm.repairing.walk import ReadingBack, columns_of, repair, repair_together
from zerolm.settings.compute import ComputeRequest
from zerolm.text.calibration import longest_line, tokens_of
from zerolm.text.defaults import GENERATED
from zerolm.text.generated import generated_tokens
from zerolm.text.tokens import DividedTokens, Tokens, random_tokens
from zerolm.units.importance.criteria import CRITERIA, needs_gradients, needs_tokens
from zerolm.units.importance.criterion import Additive, Criterion
from zerolm.units.importance.sinks import sink_neurons
from zerolm.units.importance.token_pass import check_statistics, importances
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import CarvedNetwork, Repaired, apply_in_memory
from zerolm.units.ridges import Place, Ridges
from zerolm.units.stream.in_memory import loss_basis
from zerolm.units.stream.narrowing import Basis

BASIS: Final = ("vectors", "energy", "last", "gain")
TYPED_TOKENS: Final = 4 * FINAL_TOKENS
"""Number of tokens that repair a plan with types: a poor repair would look like a loss compared with an uncut
plan."""
SINK_TOKENS: Final = 1 << 10
SINK_BATCH: Final = 4
"""Tokens, and sequences of a batch, that are searched for massive activations: nearly all windows have
them."""
PER_COLUMN: Final = 2
"""Tokens for each column of the widest output matrix in the repair of plans before the choice."""
FEWER: Final = 4
"""For a short text, one in ``FEWER`` of its tokens gives the second point of the learning curve."""
CACHE_FORMAT: Final = 10
"""Increased whenever cached values are computed, or stored, differently."""


class Session:
    """A parent with the tokens of some methods; long results are cached for interrupted runs to resume."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        methods: Methods,
        progress: Progress,
        request: ComputeRequest = ComputeRequest(),
        *,
        types: bool = False,
    ) -> None:
        """Open the session; ``types``: matrices get quantisation types, so their moments are needed too."""
        self.checkpoint, self.methods, self.progress = checkpoint, methods, progress
        self._with_types = types
        self.compute = compute(request, checkpoint.layout.hidden)
        _check_room(checkpoint, request.memory)
        use_idle_processors(sum(tensor.count for tensor in checkpoint.tensors.values()))
        self._spent: list[ArrayCache] = []

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.checkpoint, progress=self.progress)

    @cached_property
    def tokens(self) -> Tokens:
        """The calibration tokens of the methods' text, or those that the parent generates."""
        methods = self.methods
        assert methods.text is not None
        if methods.text == GENERATED:
            return generated_tokens(
                self.checkpoint,
                methods.count,
                methods.length,
                seed=methods.seed,
                compute=self.compute,
                cache=ArrayCache.of("generated text", *self._parent_as_run, methods.length, methods.seed),
                progress=self.progress,
            )
        self.progress("tokenizing")
        return tokens_of(
            self.checkpoint,
            methods.text,
            sequences=methods.count,
            length=methods.length,
            seed=methods.seed,
        )

    @cached_property
    def divided(self) -> DividedTokens:
        """The calibration tokens in a set for fitting and two held-out ones."""
        return self.tokens.divided()

    @property
    def calibration(self) -> dict[str, object] | None:
        """Return the description of the tokens in a recipe, None without."""
        methods = self.methods
        if methods.text is None:
            return None
        return {
            "text": self.tokens.text,
            "seed": self.tokens.seed,
            "sequences": min(methods.count, len(self.tokens)),
            "length": methods.length,
            **({"generated": self.tokens.digest()} if methods.text == GENERATED else {}),
        }

    @cached_property
    def model(self) -> PreTrainedModel:
        """The parent, with its weights memory-mapped from their files."""
        self.progress("opening the parent")
        return computed(mapped_model(self.checkpoint), self.compute)

    @cached_property
    def pace(self) -> Pace:
        """The measured times of the parent on this machine."""
        self.progress("timing a layer")
        tokens = self._paced
        sequences = max(1, PACED_TOKENS // tokens.ids.shape[1])
        blocks = Blocks(self.model, tokens.spread(sequences).batches(sequences))
        return measured_pace(blocks, inputs_of(dimensions(self.checkpoint)))

    @property
    def _paced(self) -> Tokens:
        """The tokens that a layer is timed on: random ones where the text has to be sampled first."""
        if self.methods.text != GENERATED:
            return self.tokens
        length = longest_line(self.checkpoint, self.methods.length)
        return random_tokens(self.checkpoint.layout.vocab, PACED_TOKENS, length)

    @cached_property
    def pooling(self) -> TokenPooling:
        return TokenPooling.of(self.checkpoint)

    @cached_property
    def _measured_on(self) -> tuple[object, ...]:
        """All that results depend on: the parent as run, and tokens by text, tokenizer, number and seed."""
        return *self._parent_as_run, self.tokens.digest()

    @cached_property
    def _parent_as_run(self) -> tuple[object, ...]:
        """The parent, the definition of its family, and the compute settings."""
        parent = self.checkpoint
        config = repr(sorted(parent.config.items()))
        versions = CACHE_FORMAT, zerolm.__version__
        running = sorted(self.compute.to_json().items())
        return *versions, running, self.fingerprint, config, repr(parent.family)

    def cache(self, kind: str, *options: object) -> ArrayCache:
        """Return the cache of a part that depends only on these additional options."""
        return ArrayCache.of(kind, *self._measured_on, *options)

    @cached_property
    def fisher(self) -> Fisher:
        """The Fisher information of all outputs, and of a stream that can be narrowed."""
        return self._loss_moments.fisher

    @cached_property
    def _loss_moments(self) -> LossMoments:
        moments = loss_moments(
            self.model,
            self.divided.fitted,
            with_stream=self.checkpoint.family.cut.hidden,
            with_matrices=self._with_types,
            pooling=self.pooling,
            cache=self._moments_cache,
            progress=self.progress,
        )
        give_back()
        return moments

    @property
    def _moments_cache(self) -> ArrayCache:
        return self.cache("loss moments", self.pooling, self._with_types)

    @property
    def _weighing(self) -> Fisher | None:
        """The Fisher information for the weights of first tokens, where the criterion needs it anyway."""
        by_loss = needs_gradients(self.methods.criterion) and Blocks(self.model, []).predicts
        return self.fisher if by_loss else None

    def check_criterion(self) -> None:
        """Raise ``ValueError`` for a plug-in's criterion that fails on made-up tokens: before all work."""
        name = self.methods.criterion
        if name in CRITERIA and needs_tokens(name) and not is_own(CRITERIA[name]):
            check_statistics(self.model, name)

    def importance(self) -> Criterion:
        """Return the criterion from the units' outputs on the tokens."""
        name = self.methods.criterion
        fisher = self.fisher if needs_gradients(name) else None
        tokens, cache = self.divided.fitted, self._scores_cache
        scores = importances(self.model, tokens, name, fisher=fisher, cache=cache, progress=self.progress)
        return Additive(self._with_sinks(scores) if fisher else scores)

    @property
    def _scores_cache(self) -> ArrayCache:
        name = self.methods.criterion
        if not is_own(CRITERIA[name]):
            return ArrayCache()  # a plug-in may have changed
        return self.cache("importances", name, self.pooling if needs_gradients(name) else None)

    def stored_shares(self) -> dict[str, float]:
        """Return the shares of passes that an earlier run has left in the cache, by name in ``CarvingWork``.

        A text that the parent generates is not sampled for it: nothing counts as stored then.
        """
        if self.methods.text == GENERATED:
            return {}
        scores, depth = self._scores_cache, dimensions(self.checkpoint).depth
        layers = sum(scores.get(f"layer-{layer}", only=()) is not None for layer in range(depth))
        sums = self._moments_cache.get("sums", only=("batches",))
        batches = self.divided.fitted.most(MOMENT_TOKENS).filled(MOMENT_BATCH)
        done = 0 if sums is None else int(sums["batches"])
        return {SCORING: layers / depth, FISHER: done / len(batches)}

    def _with_sinks(self, scores: dict[str, list[Floats]]) -> dict[str, list[Floats]]:
        """Return scores of units in which the neurons that write massive activations rank first.

        By their own output few tokens need them, but these are attention sinks.
        """

        def neurons() -> Arrays:
            some = self.divided.fitted.most(SINK_TOKENS)
            stream = Stream(Blocks(self.model, some.filled(SINK_BATCH)))
            by_layer = sink_neurons(stream, progress=self.progress)
            return {str(layer): each for layer, each in enumerate(by_layer)}

        arrays = self.cache("sinks").once("neurons", neurons)
        ffn = [each.copy() for each in scores["ffn"]]
        for layer, each in enumerate(ffn):
            each[arrays[str(layer)]] = each.max() if len(each) else 0.0
        return {**scores, "ffn": ffn}

    @cached_property
    def basis(self) -> Basis:
        """The basis of the stream, from the Fisher information on the tokens."""

        def arrays() -> Arrays:
            basis = loss_basis(self.model, self.fisher)
            return {name: getattr(basis, name) for name in BASIS}

        return Basis("loss", **self.cache("basis").once("loss", arrays))

    def table(self, by: Criterion, kinds: list[str], *, with_stream: bool) -> LossTable:
        """Return predicted losses of cutting a layer or narrowing the stream, if possible after repair."""
        after_repair = self.predicts_repair
        table = estimated_losses(
            self.model,
            self.divided.compared.most(ESTIMATE_TOKENS),
            by,
            kinds,
            basis=self.basis if with_stream else None,
            tied=self.checkpoint.layout.tied,
            repaired=self.fisher if after_repair else None,
            pooling=self.pooling,
            cache=self.cache("prices of cuts", self.pooling, after_repair),
            progress=self.progress,
        )
        give_back()
        without_layer = calibrated(table.without_layer, self._without)
        repaired = None if table.repaired is None else replace(table.repaired, without_layer=without_layer)
        return replace(table, without_layer=without_layer, repaired=repaired)

    @property
    def predicts_repair(self) -> bool:
        """Whether losses after repair can be predicted: not of an encoder, whose loss is by sequence."""
        by_loss = needs_gradients(self.methods.criterion) and self.methods.repair == "least-squares"
        return by_loss and Blocks(self.model, []).predicts

    def _without(self, layers: Sequence[int]) -> dict[int, float]:
        cache = self.cache("without", self.pooling)
        rows = {layer: cache.get(f"layer-{layer}") for layer in layers}
        losses = {layer: float(row["loss"]) for layer, row in rows.items() if row is not None}
        left = [layer for layer in layers if layer not in losses]
        if left:
            self.progress(f"measuring the loss without layer {', '.join(map(str, left))}")
            for layer, loss in self._few_loss.without(left).items():
                losses[layer] = loss
                cache.put(f"layer-{layer}", {"loss": np.array(loss)})
        return losses

    def repaired(
        self, cut: Cut, ridges: Mapping[Place, Ridges] | None = None, types: Types | None = None
    ) -> Repaired:
        """Return output matrices by these ridges or chosen ones; with ``types`` they correct rounding too."""
        rule = self.methods.repair
        if rule == "none" or (types is None and cut.keeps_all):
            return Repaired()
        fixed = sorted((ridges or {}).items())
        cache = self.cache("repair", rule, self._weighing is None, *_options(cut), fixed, _listed(types))
        self._spent.append(cache)
        repaired = repair(
            self.model,
            cut,
            self.divided.fitted,
            rule,
            held=self.divided.compared,
            fisher=self._weighing,
            ridges=ridges,
            cache=cache,
            progress=self.progress,
            reading_back=None if types is None else self._reading_back(cut, types),
        )
        give_back()
        return repaired

    @property
    def repairs_types(self) -> bool:
        """Whether repair corrects rounding errors: not with experts, which take too long to round again."""
        return self.methods.repair == "least-squares" and not _experts(self.checkpoint)[0]

    def _reading_back(self, cut: Cut, types: Types) -> ReadingBack:
        last = LastLayer()

        def reading_back(blocks: Blocks, repaired: Repaired) -> ReadBack:
            return ReadBack(blocks, replace(self.typed(cut, repaired, types), last=last), repaired)

        return reading_back

    def finals(self, cuts: Sequence[Cut]) -> list[float]:
        """Return the losses of whole cuts, repaired on some sequences and measured on others.

        All have the same ridge, which hardly affects which plan is best.
        """
        caches = [self.cache("finals", self.methods.repair, self.pooling, *_options(cut)) for cut in cuts]
        rows = {number: row for number, cache in enumerate(caches) if (row := cache.get("loss")) is not None}
        left = [number for number in range(len(cuts)) if number not in rows]
        self.progress("measuring the best plans, repaired", len(rows), len(cuts))
        repaired = self._repaired_by(self._few_fitted(cuts), [cuts[number] for number in left])
        for number, each in zip(left, repaired, strict=True):
            self.progress("measuring the best plans, repaired", len(rows), len(cuts))
            rows[number] = {"loss": np.array(self._compared_loss.of_cut(cuts[number], each))}
            caches[number].put("loss", rows[number])
            give_back()
        return [float(rows[number]["loss"]) for number in range(len(cuts))]

    def loss_by_fewer(self, cut: Cut, ridges: Mapping[Place, Ridges]) -> float:
        """Return the loss of a cut repaired on one in ``FEWER`` of the tokens to fit to.

        ``ridges`` are those with all of them: noise, and with it the best ridge, is larger by the factor
        ``FEWER``.
        """
        rule, more = self.methods.repair, sorted(ridges.items())
        cache = self.cache("fewer", rule, self.pooling, self._weighing is None, *_options(cut), more)

        def loss() -> Arrays:
            self.progress("repairing on fewer tokens, for the learning curve")
            fitted = self.divided.fitted
            few = fitted.most(fitted.count // FEWER)
            larger = {place: Ridges(*(FEWER * share for share in each)) for place, each in ridges.items()}
            repaired = repair(self.model, cut, few, rule, fisher=self._weighing, ridges=larger)
            give_back()
            return {"loss": np.array(self._loss.of_cut(cut, repaired))}

        row = cache.once("loss", loss)
        give_back()
        return float(row["loss"])

    @cached_property
    def moments(self) -> dict[str, list[GradientMoments]]:
        """Second moments of the gradients of every matrix in the file of an uncut child."""
        child = self._whole
        if not is_rearranged(self.checkpoint.family):
            return of_matrices(child, self._loss_moments.matrices)
        sums = self.cache("file moments", self.pooling)
        tokens, pooling = self.divided.fitted, self.pooling
        moments = file_moments(self.model, child, tokens, pooling=pooling, cache=sums, progress=self.progress)
        give_back()
        return moments

    def weighed(self, cut: Cut, repaired: Repaired) -> WeighedChild:
        """Return a child with the moments of its matrices, where there are tokens."""
        uncut, child = self._uncut, Child(self.checkpoint, cut, repaired)
        fisher = self.fisher if uncut.moments is not None and cut.narrowing else None
        return replace(uncut, child=child, fisher=fisher, uncut=uncut)

    @cached_property
    def _uncut(self) -> WeighedChild:
        """The parent with the moments of its matrices, where there are tokens."""
        moments = self.moments if self.methods.text is not None else None
        return WeighedChild(self._whole, moments, threads=torch.get_num_threads())

    @property
    def _whole(self) -> Child:
        return Child(self.checkpoint, Cut.whole(dimensions(self.checkpoint)))

    def typed(self, cut: Cut, repaired: Repaired, types: Types) -> TypedChild:
        """Return a child with types."""
        return TypedChild(self.weighed(cut, repaired), types)

    def typed_final(self, cut: Cut, types: Types, repaired: Repaired | None = None) -> float:
        """Return the loss as in ``finals``, read back with these types.

        Without ``repaired`` the child is repaired on few tokens, and errors of rounding are corrected too
        where they can be.
        """
        key = self.methods.repair, self.pooling, repaired is None, *_options(cut), _listed(types)

        def loss() -> Arrays:
            child = self._typed_repair(cut, types) if repaired is None else repaired
            compared = self._compared_loss
            network = ReadBack(compared.blocks, self.typed(cut, child, types), child)
            return {"loss": np.array(compared.of_network(network))}

        row = self.cache("typed finals", *key).once("loss", loss)
        give_back()
        return float(row["loss"])

    def _typed_repair(self, cut: Cut, types: Types) -> Repaired:
        if not self.repairs_types:
            return self.few_repaired(cut)
        fitted, reading_back = self._few_fitted([cut], TYPED_TOKENS), self._reading_back(cut, types)
        repaired = repair(
            self.model, cut, fitted, self.methods.repair, fisher=self._weighing, reading_back=reading_back
        )
        give_back()
        return repaired

    def few_repaired(self, cut: Cut) -> Repaired:
        """Return the repair on the tokens of ``typed_final`` of a cut whose weights are not rounded."""
        (repaired,) = self._repaired_by(self._few_fitted([cut], TYPED_TOKENS), [cut])
        return repaired

    def _repaired_by(self, fitted: Tokens, cuts: Sequence[Cut]) -> list[Repaired]:
        """Return the repairs of cuts on few tokens, empty where all units are kept."""
        some = [cut for cut in cuts if not cut.keeps_all]
        solved = iter(repair_together(self.model, some, fitted, self.methods.repair, fisher=self._weighing))
        repaired = [Repaired() if cut.keeps_all else next(solved) for cut in cuts]
        give_back()
        return repaired

    def typed_loss(self, typed: TypedChild, repaired: Repaired) -> float:
        """Return the loss of a child as read back, on the tokens of all other losses."""
        self.progress("measuring the child, quantised")
        return self._loss.of_network(ReadBack(self._loss.blocks, typed, repaired))

    def _few_fitted(self, cuts: Sequence[Cut], least: int = FINAL_TOKENS) -> Tokens:
        return self.divided.fitted.most(max(least, *(PER_COLUMN * columns_of(cut) for cut in cuts)))

    def done(self) -> None:
        """Delete the caches that only an unfinished run needs."""
        for cache in self._spent:
            cache.forget()

    def loss(self, cut: Cut, repaired: Repaired | None = None) -> float:
        """Return the loss of the whole cut on tokens that were used for neither fitting nor choosing."""
        self.progress("measuring the plan")
        loss = self._loss.of_cut(cut, repaired)
        give_back()
        return loss

    @cached_property
    def _loss(self) -> Loss:
        return self._loss_against_whole(self.divided.judged)

    @cached_property
    def _compared_loss(self) -> Loss:
        """The loss of whole plans, on the tokens that compare them."""
        if self._has_all_experts:
            return self._few_loss
        return self._loss_against_whole(self.divided.compared.most(FINAL_TOKENS))

    @cached_property
    def _few_loss(self) -> Loss:
        """The same, compared with the parent to be carved."""
        return self._loss_on(self.divided.compared.most(FINAL_TOKENS))

    @property
    def _has_all_experts(self) -> bool:
        """Whether the parent to be carved has all experts: fewer tokens alone change no other prediction."""
        return _experts(self.checkpoint.whole) == _experts(self.checkpoint)

    def _loss_against_whole(self, tokens: Tokens) -> Loss:
        """Return the loss compared with the parent with all experts, by its predictions of kept tokens."""
        if self._has_all_experts:
            return self._loss_on(tokens)
        whole, kept, batches = self.checkpoint.whole, self.checkpoint.kept_tokens, tokens.filled(LOSS_BATCH)
        blocks = Blocks(self.model, batches)
        rows = None if kept is None else torch.from_numpy(kept)
        if rows is not None:
            batches = [{**batch, "input_ids": rows[batch["input_ids"]]} for batch in batches]
        parent = Blocks(computed(mapped_model(whole), self.compute), batches)
        return Loss(blocks, self.pooling, parent=parent, rows=rows)

    def _loss_on(self, tokens: Tokens) -> Loss:
        return Loss(Blocks(self.model, tokens.filled(LOSS_BATCH)), self.pooling)

    def output_of(self, network: Callable[[Blocks], CarvedNetwork]) -> Callable[[Tensor], Tensor]:
        """Return the output of a ``network`` of the parent's blocks, as a function of ids (b, t).

        The output is (b, t, v), without a head (b, t, d). It runs on the CPU in float32; the session's copy
        of the parent is released.
        """
        held_of(self.model, self.compute).let_go()
        give_back()
        model = mapped_model(self.checkpoint)

        def output(ids: Tensor) -> Tensor:
            running = network(Blocks(model, [{"input_ids": ids}]))
            return outputs(running.finish(0, running.states()[0]))

        return output

    def carved(self, cut: Cut, repaired: Repaired | None = None) -> PreTrainedModel:
        return apply_in_memory(open_model(self.checkpoint), cut, repaired)


def _check_room(checkpoint: Checkpoint, memory: int | None) -> None:
    """Raise ``ValueError`` where the largest part does not fit into memory in float32 twice."""
    sizes = Counter[object]()
    for name, slot in checkpoint.layout.slots.items():
        sizes[slot.role if slot.layer is None else slot.layer] += 8 * checkpoint.tensors[name].count
    part, least = max(sizes.items(), key=lambda size: size[1])
    if memory is not None and memory < least:
        what = f"layer {part}" if isinstance(part, int) else f"the {part}"
        raise ValueError(
            f"--memory {memory} is too little: {what} is computed in float32, with what comes of it; give at "
            f"least {math.ceil(least / 1e6)}MB"
        )


def _experts(checkpoint: Checkpoint) -> tuple[int, int]:
    """Return the number of experts of a layer, and of neurons of each."""
    sizes = checkpoint.layout.sizes
    return sizes.get("experts", 0), sizes.get("expert_ffn", 0)


def _listed(types: Types | None) -> list[tuple[str, str]]:
    """Return types in an order that identifies them."""
    return sorted((str(place), name) for place, name in (types or {}).items())


def _options(cut: Cut) -> tuple[object, ...]:
    """Return a key that identifies a cut of a parent; the tokens determine the stream's basis."""
    return to_layers(cut), stream(cut)
