"""Repair: new output matrices for a carved network, from calibration tokens and without training.

The kept columns of o_proj and down_proj are refitted by least squares, layer after layer. Their inputs come
from the carved layers before; their target is the parent's residual stream. The target of o_proj (or
down_proj) is the parent's sum after that sub-block minus the carved network's residual before it. It has two
parts with a ridge each: the output of the same matrix in the parent, and the error of earlier layers
(``zerolm.repairing.ridge``). In post-norm networks the sum is taken before its norm. Where a norm stands
between the matrix and the sum (gemma2, olmo2), the target is the first part alone.

A token's errors count relative to the root mean square of its residual stream, which norms divide by.
Otherwise the few tokens with massive activations (arXiv 2402.17762) would dominate.

With a narrower stream the target is in the child's coordinates, and the factors of the matrices that read the
stream are fitted too: one regression for all matrices behind a norm predicts the norm's output in the parent
from that in the child.

Where quantisation types are set, the carved network is the child as read back: its other matrices are rounded
before an output matrix is solved, and that matrix before the next. So the repair corrects rounding errors
together with those of cutting.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.families.known import family_named
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import Seen, stand_ins, watching
from zerolm.networks.roles import (
    BEHIND_NORMS,
    StockLayer,
    as_stored,
    bias,
    final_norm,
    matrix,
    norm_gain,
    places_of,
    residual_factor,
    set_matrix,
)
from zerolm.networks.stream import Stream
from zerolm.passes.fisher import Fisher
from zerolm.passes.token_weights import token_weights
from zerolm.progress import Progress, silent
from zerolm.repairing.ridge import Fit
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import CarvedNetwork, Repaired
from zerolm.units.ridges import Place, Ridges
from zerolm.units.stream.in_memory import put
from zerolm.units.within_layers import UNITS

BATCH_TOKENS: Final = 1 << 11
SHARED_STATES: Final = 12
"""What walks read of one layer of the parent, at most, in units of its hidden states: activations of its FFN
are wide."""
NOT_SOLVED: Final = "layers of several kinds with a narrower stream are not repaired"


ReadingBack = Callable[[Blocks, Repaired], CarvedNetwork]
"""Returns a child as read back with the matrices repaired so far, on the batches of some blocks."""


def repair(
    model: PreTrainedModel,
    cut: Cut,
    tokens: Tokens,
    method: str = "least-squares",
    *,
    progress: Progress = silent,
    held: Tokens | None = None,
    fisher: Fisher | None = None,
    ridges: Mapping[Place, Ridges] | None = None,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
    reading_back: ReadingBack | None = None,
) -> Repaired:
    """Return new output matrices for the units that ``cut`` keeps of ``model``, by a method of ``REPAIRS``.

    With ``reading_back`` they are those of a child with quantisation types. With ``fisher`` first tokens are
    weighted by their gradients. Ridges are chosen for each matrix on ``held`` tokens, which are not fitted
    to; without any they are ``UNTRIED``. ``ridges``, if given, must contain every matrix, else ``ValueError``
    is raised. Layers in the ``cache`` are not refitted.
    """
    if method == "none":
        return Repaired()
    if cut.narrowing and places_of(model).varied:
        return Repaired(note=NOT_SOLVED)
    sets = [tokens] if held is None else [tokens, held]
    batches = [[*each.filled(each.at_once(BATCH_TOKENS))] for each in sets]
    parent = Stream(Blocks(model, [*chain(*batches)]))
    walk = Walk(parent, cut, len(batches[0]), ridges, reading_back, fisher)
    for place, layer in enumerate(walk.layers):
        progress(f"repairing, {method}", place, len(walk.layers))
        arrays = cache.get(f"layer-{layer}")
        if arrays is None:
            walk.solve_layer(layer)
            cache.put(f"layer-{layer}", walk.arrays(layer))
        else:
            walk.take(layer, arrays)
    return walk.repaired


def repair_together(
    model: PreTrainedModel,
    cuts: Sequence[Cut],
    tokens: Tokens,
    method: str = "least-squares",
    *,
    fisher: Fisher | None = None,
) -> list[Repaired]:
    """Return the repairs of several cuts, each as ``repair`` returns it; the parent runs once for all.

    Memory holds all that the cuts read of one layer of the parent; where that is too much, it runs for each.
    """
    blocks = Blocks(model, tokens.filled(tokens.at_once(BATCH_TOKENS)))
    held = (SHARED_STATES + 2 * len(cuts)) * sum(blocks.state_bytes)
    varied = places_of(model).varied and any(cut.narrowing for cut in cuts)
    if method == "none" or varied or len(cuts) < 2 or held > blocks.compute.limit:
        return [repair(model, cut, tokens, method, fisher=fisher) for cut in cuts]
    parent = SharedStream(blocks, inputs_and_outputs if any(cut.narrowing for cut in cuts) else parts)
    walks = [Walk(parent, cut, len(blocks.batches), None, fisher=fisher) for cut in cuts]
    for layer in range(cuts[0].parent.depth + 1):
        for walk in walks:
            if layer in walk.layers:
                walk.solve_layer(layer)
    return [walk.repaired for walk in walks]


def columns_of(cut: Cut) -> int:
    """Return the columns of the widest output matrix of a cut."""
    rows = [unit.row(cut.parent, unit.writer) for unit in UNITS]
    return max(count * row for sizes in cut.sizes.values() for count, row in zip(sizes, rows, strict=True))


class Walk:
    """The parent and the carved network together, layer after layer.

    ``layers`` are those to solve; the input of an untied head has the number of the parent's layers. Matrices
    are fitted to the first ``fitted`` batches; the others are held out. Memory holds five hidden states of
    all tokens (six where the stream is narrower), one carved layer, and the moments of its output matrices.
    """

    def __init__(
        self,
        parent: Stream,
        cut: Cut,
        fitted: int,
        ridges: Mapping[Place, Ridges] | None,
        reading_back: ReadingBack | None = None,
        fisher: Fisher | None = None,
    ) -> None:
        self.parent, self.blocks, self.model = parent, parent.blocks, parent.blocks.model
        self.cut, self.fitted, self.ridges = cut, fitted, ridges
        self.reading_back, self.fisher = reading_back, fisher
        reads_head = cut.narrowing is not None and not cut.narrowing.width.tied
        self.layers = [*(kept.layer for kept in cut.layers), *([cut.parent.depth] if reads_head else [])]
        self.factor = residual_factor(self.model)
        self.repaired = Repaired()
        self.plain = CarvedNetwork(self.blocks, cut, self.repaired)
        embed = self._network().embed  # does not change with the repair
        self.child = Stream(self.blocks, lambda layer: self._network().module(layer), embed)

    def _network(self) -> CarvedNetwork:
        """Return the child as repaired so far, read back if ``reading_back`` is set."""
        return self.reading_back(self.blocks, self.repaired) if self.reading_back else self.plain

    def carved(self, layer: int) -> StockLayer:
        """Return a kept layer of the child as repaired so far."""
        return self._network().layer(layer)

    def solve_layer(self, layer: int) -> None:
        """Repair a layer, or the input of the head, on the outputs of the carved layers before it."""
        if layer == self.cut.parent.depth:
            self._solve_head()
            return
        if self.cut.narrowing:
            self._solve_narrow_layer(layer)
            return
        carved, child = self.carved(layer), self.child.before(layer)
        roles = carved.writers

        # The output of down_proj in the parent, and the residual that it is added to, where that counts.
        outputs, before = self.blocks.states(), self.blocks.states()
        weights: list[Tensor] = []
        fits = {role: self._output_fit(module) for role, module in roles.items()}
        others = [role for role in roles if role not in ("o", "down")]
        for i, hidden, seen in self.parent.through(layer, parts):
            if "down" in roles:
                outputs.append(seen.outputs["down"])
                before.append(self._before_ffn(carved, hidden, seen))
                weights.append(self._weights((layer, "down"), carved, i, hidden, before[i], outputs[i]))
            for role in others:
                inputs = self._input_of(carved, role, i, layer, child[i])
                self._add(fits[role], i, inputs, seen.outputs[role], None)
            if "o" not in roles:
                continue
            target = seen.outputs["o"]
            earlier_error = None if carved.norm in BEHIND_NORMS else (hidden - child[i]) / self.factor
            with watching(parts(carved), child[i], until="o") as seen:
                self.blocks.call(i, layer, child[i], carved.module)
            weight = self._weights((layer, "o"), carved, i, hidden, hidden / self.factor, target)
            self._add(fits["o"], i, seen.inputs["o"], target, earlier_error, weight)
        for role in (role for role in roles if role != "down"):
            self.solve((layer, role), roles[role], fits[role])
        if "down" not in roles:
            return
        if self.reading_back is not None:
            carved = self.carved(layer)

        attention = Attention(self.blocks, layer)
        for i, hidden in enumerate(child):
            seen = attention.seen(i, hidden, carved, "down")
            earlier_error = (
                None if carved.norm in BEHIND_NORMS else before[i] - self._before_ffn(carved, hidden, seen)
            )
            self._add(fits["down"], i, seen.inputs["down"], outputs[i], earlier_error, weights[i])
        self.solve((layer, "down"), carved.writers["down"], fits["down"])
        self._pass_on(attention, carved)

    def _weights(
        self, place: Place, layer: StockLayer, index: int, stream: Tensor, before: Tensor, output: Tensor
    ) -> Tensor:
        """Return the weights (b, t) of squared errors of an output (b, t, d); 0 for padding.

        The norm that follows divides by the root mean square of the sum of ``before`` and the output. A norm
        behind the output divides by that of the output, and the next norm by that of the stream.
        """
        following = stream if layer.norm in BEHIND_NORMS else before + output
        first = None if self.fisher is None else self.fisher.first_token(*place)
        return token_weights(self.blocks, index, layer, following, output, first)

    def _add(
        self,
        fit: Fit,
        index: int,
        x: Tensor,
        output: Tensor,
        earlier_error: Tensor | None,
        weights: Tensor | None = None,
    ) -> None:
        """Add the inputs (b, t, k) and targets (b, t, d) of a batch to a fit."""
        weights = self.blocks.tokens(index).float() if weights is None else weights
        with self.blocks.compute.wide():  # rounding is small compared with the tokens' noise
            fit.add(x, output, earlier_error, weights, is_held=index >= self.fitted)

    def _before_ffn(self, layer: StockLayer, hidden: Tensor, seen: Seen) -> Tensor:
        """Return the residual that the FFN's output is added to, (b, t, d), in the scale of that output.

        It is 0, (), where the target excludes it.
        """
        if layer.norm in BEHIND_NORMS:
            return hidden.new_zeros(())
        if layer.norm == "post":
            return seen.inputs["ffn"]
        if "o" not in seen.outputs:
            return seen.inputs["between"] / self.factor
        return hidden / self.factor + seen.outputs["o"]

    def _solve_narrow_layer(self, layer: int) -> None:
        """Repair a layer of a narrower stream, norm by norm: its reading matrices, then its output matrix."""
        child = self.child.before(layer)
        # The parent's, (b, t, k), (b, t, k), (b, t, d), (b, t, k), (b, t, k).
        stream, attention, reads, middle, written = (self.blocks.states() for _ in range(5))
        weights: list[Tensor] = []
        carved = self.carved(layer)
        fit = self._reading_fit()
        for i, hidden, seen in self.parent.through(layer, inputs_and_outputs):
            middles = hidden / self.factor + seen.outputs["o"]
            weights.append(self._weights((layer, "down"), carved, i, hidden, middles, seen.outputs["down"]))
            stream.append(self._kept(hidden))
            attention.append(self._kept(seen.outputs["o"]))
            middle.append(self._kept(middles))
            written.append(self._kept(seen.outputs["down"]))
            reads.append(seen.inputs["ffn"])
            inputs = self._input_of(carved, "attention", i, layer, child[i])
            self._add(fit, i, inputs, seen.inputs["attention"], None)
        self._solve_reading((layer, "attention_norm"), fit)

        carved = self.carved(layer)
        fit = self._output_fit(carved.writers["o"])
        for i, hidden in enumerate(child):
            inputs = self._input_of(carved, "o", i, layer, hidden)
            self._add(fit, i, inputs, attention[i], (stream[i] - hidden) / self.factor, weights[i])
        self.solve((layer, "o"), carved.writers["o"], fit)
        del stream, attention  # have served

        fit, once = self._reading_fit(), Attention(self.blocks, layer)
        for i, hidden in enumerate(child):
            self._add(fit, i, once.seen(i, hidden, carved, "ffn").inputs["ffn"], reads[i], None)
        self._solve_reading((layer, "ffn_norm"), fit)
        del reads

        carved = self.carved(layer)
        fit = self._output_fit(carved.writers["down"])
        for i, hidden in enumerate(child):
            seen = once.seen(i, hidden, carved, "down")
            if "o" not in seen.outputs:  # attention was not run again
                seen.outputs["o"] = once.outputs[i]
            earlier_error = middle[i] - self._before_ffn(carved, hidden, seen)
            self._add(fit, i, seen.inputs["down"], written[i], earlier_error, weights[i])
        self.solve((layer, "down"), carved.writers["down"], fit)
        self._pass_on(once, carved)

    def _pass_on(self, attention: Attention, carved: StockLayer) -> None:
        """Send the child through a layer whose matrices are solved, unless nothing follows."""
        layer = attention.layer
        if layer == self.layers[-1]:
            return
        carved = carved if self.reading_back is None else self.carved(layer)
        for i, hidden in enumerate(self.child.before(layer)):
            self.child.hidden[i] = attention.behind(i, hidden, carved)
        self.child.layer = layer + 1

    def _solve_head(self) -> None:
        """Fit the head's input of a narrower stream, behind all layers."""
        depth = self.cut.parent.depth
        norm = copy.deepcopy(final_norm(self.model)).to(self.blocks.device, torch.float32)
        unit = copy.deepcopy(norm)
        fit = self._reading_fit()
        shift = family_named(str(self.model.config.model_type)).tensors.factors.shift
        put(unit, "weight", torch.ones(self.cut.hidden, device=self.blocks.device) - shift)
        pairs = zip(self.parent.before(depth), self.child.before(depth), strict=True)
        with torch.no_grad():
            for i, (parent, child) in enumerate(pairs):
                self._add(fit, i, unit(child), norm(parent), None)
        self._solve_reading((depth, "final_norm"), fit)

    def _kept(self, stream: Tensor) -> Tensor:
        """Return the parent's stream (b, t, d) in the coordinates of the child, (b, t, k)."""
        narrowing = self.cut.narrowing
        return stream if narrowing is None else stream @ torch.from_numpy(narrowing.basis).to(stream)

    def _reading_fit(self) -> Fit:
        sizes = self.cut.hidden, self.cut.parent.hidden
        return Fit.empty(*sizes, bias=False, device=self.blocks.compute.sums)

    def _output_fit(self, module: nn.Module) -> Fit:
        outputs, inputs = matrix(module).shape
        is_biased = bias(module) is not None
        return Fit.empty(inputs, outputs, bias=is_biased, device=self.blocks.compute.sums)

    def _input_of(self, carved: StockLayer, role: str, i: int, layer: int, hidden: Tensor) -> Tensor:
        """Return the input of a carved layer's module for a batch with the states ``hidden`` before it."""
        with watching(inputs_and_outputs(carved), hidden, until=role) as seen:
            self.blocks.call(i, layer, hidden, carved.module)
        return seen.inputs[role]

    def _solve_reading(self, place: Place, fit: Fit) -> None:
        """Fit the input of the parent's matrices, (d,), from the output of the child's norm, (k,)."""
        layer, norm = place
        assert self.cut.narrowing is not None
        gain = norm_gain(self.model, norm, None if norm == "final_norm" else layer).double().cpu().numpy()
        start = torch.from_numpy(self.cut.narrowing.input_map(norm, gain).T).to(fit.fitted.inputs)  # (k, d)
        columns, self.repaired.ridges[place] = fit.best(start, self.ridge(place))
        self.repaired.arrays[place] = columns.T.float().cpu().contiguous().numpy()

    def solve(self, place: Place, module: nn.Module, fit: Fit) -> None:
        """Solve an output matrix of the carved network, put it into its place, and record it."""
        if self.reading_back is not None:  # a ridge pulls towards unrounded columns
            module = self.plain.layer(place[0]).writers[place[1]]
        start = matrix(module).T.to(fit.fitted.inputs)  # (k, d)
        columns, self.repaired.ridges[place] = fit.best(start, self.ridge(place))
        offset = fit.fitted.offset(columns) if fit.fitted.bias else None
        set_matrix(module, columns.T, offset)
        number, role = place
        solved = {role: as_stored(module, columns.T)}
        solved |= {} if offset is None else {f"{role}_bias": offset}
        for tensor, values in solved.items():
            self.repaired.arrays[number, tensor] = values.float().cpu().contiguous().numpy()

    def ridge(self, place: Place) -> Ridges | None:
        """Return the ridges of a matrix, or None where none are given."""
        if self.ridges is None:
            return None
        if place not in self.ridges:
            raise ValueError(f"no ridge is given for {place[1]} of layer {place[0]}; name all or none")
        return self.ridges[place]

    def arrays(self, layer: int) -> Arrays:
        """Return the repaired matrices of a layer, and their ridges."""
        arrays: Arrays = {role: x for (at, role), x in self.repaired.arrays.items() if at == layer}
        shares = {role: x for (at, role), x in self.repaired.ridges.items() if at == layer}
        return arrays | {f"ridge-{role}": np.array(pair) for role, pair in shares.items()}

    def take(self, layer: int, arrays: Arrays) -> None:
        """Record the matrices and ridges of a layer that was repaired before."""
        for name, x in arrays.items():
            if name.startswith("ridge-"):
                self.repaired.ridges[layer, name.removeprefix("ridge-")] = Ridges(*x.tolist())
            else:
                self.repaired.arrays[layer, name] = x


class Attention:
    """The attention of one layer of a child: it is run once for each batch, since no FFN changes its output.

    ``outputs`` are its outputs, (b, t, d) each, without what else it returns (``others``).
    """

    def __init__(self, blocks: Blocks, layer: int) -> None:
        self.blocks, self.layer, self.outputs = blocks, layer, blocks.states()
        self.others: tuple[None, ...] | None = None

    def seen(self, index: int, hidden: Tensor, carved: StockLayer, until: str) -> Seen:
        """Return inputs and outputs of modules of a carved layer up to ``until``, for a batch (b, t, d)."""
        with self._run_once(index, carved), watching(parts(carved), hidden, until=until) as seen:
            self.blocks.call(index, self.layer, hidden, carved.module)
        return seen

    def behind(self, index: int, hidden: Tensor, carved: StockLayer) -> Tensor:
        """Return the states behind a carved layer for a batch (b, t, d)."""
        with self._run_once(index, carved):
            return self.blocks.call(index, self.layer, hidden, carved.module)

    @contextmanager
    def _run_once(self, index: int, carved: StockLayer) -> Iterator[None]:
        """Within, attention outputs what it did before for this batch, else its output is noted."""
        if carved.attention is None or self.blocks.keys.heads:  # later layers may read its keys
            yield
        elif index < len(self.outputs):
            output = self.outputs[index].clone()  # some classes add to it in place
            out = output if self.others is None else (output, *self.others)
            with stand_ins([carved.attention], [lambda *_, **__: out]):
                yield
        else:
            handle = carved.attention.register_forward_hook(self._note)
            try:
                yield
            finally:
                handle.remove()

    def _note(self, _: nn.Module, __: Any, out: Any) -> None:
        self.others = (None,) * (len(out) - 1) if isinstance(out, tuple) else None
        self.outputs.append((out[0] if isinstance(out, tuple) else out).clone())


class SharedStream(Stream):
    """A parent that several walks look at: what the last layer got and output is in memory for all of them.

    ``watched`` names the modules that any of them looks at.
    """

    def __init__(self, blocks: Blocks, watched: Callable[[StockLayer], Mapping[str, nn.Module]]) -> None:
        super().__init__(blocks)
        self.watched, self.passed, self.passed_layer = watched, list[tuple[int, Tensor, Seen]](), -1

    def through(
        self, layer: int, watched: Callable[[StockLayer], Mapping[str, nn.Module]] | None = None
    ) -> Iterator[tuple[int, Tensor, Seen]]:
        if layer != self.passed_layer:
            self.passed.clear()  # not two layers at a time
            self.passed, self.passed_layer = [*super().through(layer, self.watched)], layer
        return iter(self.passed)


def parts(layer: StockLayer) -> dict[str, nn.Module]:
    """Return the modules of a layer that a repair observes."""
    reads = {"ffn": layer.ffn_in[0]} if layer.ffn_in else {}
    between = {"between": layer.between} if layer.between is not None and "o" not in layer.writers else {}
    return {**layer.writers, **reads, **between}


def inputs_and_outputs(layer: StockLayer) -> dict[str, nn.Module]:
    return {**({"attention": layer.attention_in[0]} if layer.attention_in else {}), **parts(layer)}
