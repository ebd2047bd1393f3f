"""The proof that the written child, opened by stock software, computes the same as the carved parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint, TensorInfo
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.children.child_tensors import Child
from zerolm.children.products import ROUNDING_STEPS, check_outside, checked_layer
from zerolm.children.verification import Verification
from zerolm.families.config import is_of
from zerolm.networks.blocks import Blocks
from zerolm.networks.mapped import parameters
from zerolm.networks.opener import mapped_model
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, carved_layer, masked_layer
from zerolm.units.stream.maps import StreamMaps
from zerolm.units.stream.narrowing import WRITERS

OUTPUT_TOLERANCE: Final = 1e-4
"""Largest difference of outputs that rounding may explain, relative to their largest magnitude."""
ROUNDED: Final = 1e-3
"""The same where weights are products, which may round to either of two neighbours."""
ROUNDINGS: Final = 8
"""Allowed difference in roundings of a weight where the ends of a network are products that were not
rounded."""
BLOCK_TOLERANCE: Final = 1e-5
"""The same for one layer, with all weights as stored."""
COMPARED_BYTES: Final = 16 << 20
"""Bytes to compare at a time."""
Axes = tuple[str, ...]


@dataclass(frozen=True)
class Verified(Verification):
    """A proof with ``notes``, which give the reason where a comparison was possible but omitted."""

    notes: tuple[str, ...] = ()

    def of(self, parent: Verified | None) -> Verified:
        """Return the proof combined with the comparison of the parent with stock software."""
        if parent is None:
            return self
        distance = None if parent.notes else parent.difference
        return replace(self, parent=distance, notes=(*parent.notes, *self.notes))

    def after(self, earlier: Verified | None) -> Verified:
        """Return the proof of a child whose parent was made and compared before: the larger differences."""
        if earlier is None:
            return self
        difference = max(self.difference, earlier.difference)
        return replace(self, difference=difference, relative=max(self.relative, earlier.relative))

    @property
    def distances(self) -> Verification:
        """Return the distances and the method of comparison."""
        return Verification(**{name: value for name, value in vars(self).items() if name != "notes"})


@torch.no_grad()
def compare(
    child: PreTrainedModel, reference: PreTrainedModel, ids: Tensor, *, tolerance: float = OUTPUT_TOLERANCE
) -> Verified:
    """Run both on the same tokens, (b, t); ``ValueError`` where they differ by more than rounding."""
    output, reference_output = (outputs(model(input_ids=ids)) for model in (child, reference))
    return within_rounding(distance_of(output, reference_output), tolerance)


def within_rounding(proof: Verified, tolerance: float = OUTPUT_TOLERANCE) -> Verified:
    """Return the proof; ``ValueError`` where outputs differ by more than ``tolerance`` of the largest."""
    if not proof.relative <= tolerance:
        raise ValueError(
            f"the written child differs from the carved parent by {proof.difference:.3g} "
            f"({proof.relative:.2g} of the largest output)"
        )
    return proof


@torch.no_grad()
def compare_blocks(
    child: Checkpoint, parent: Checkpoint, cut: Cut, repaired: Repaired | None = None
) -> Verified:
    """Compare layer by layer, for models that do not fit into memory: two layers are in memory at a time.

    Each layer of the child, opened in the stock class, must have the weights of the parent's layer, carved in
    memory, and zeros beyond them. For random hidden states it must have the output of the parent's whole
    layer whose output matrices ignore the removed units (``masked_layer``). Tensors outside the layers are
    compared byte by byte. With a narrower stream products are probed (``products``). ``ValueError`` names the
    layer or the tensor that differs.
    """
    stored = as_stored(child, cut, repaired or Repaired())
    _same_outside(child, parent, Child(parent, cut, stored).maps)
    length = min(64, parent.layout.sizes.get("positions", 64))
    batch = {"input_ids": torch.zeros(2, length, dtype=torch.long)}
    child_blocks, parent_blocks = (Blocks(mapped_model(opened), [batch]) for opened in (child, parent))
    _same_kinds(child_blocks.model, parent_blocks.model, [kept.layer for kept in cut.layers])
    generator, worst = torch.Generator().manual_seed(0), Verified(0.0, 0.0)
    for place, kept in enumerate(cut.layers):
        width = cut.hidden + child_blocks.keys.width
        hidden = torch.randn(2, length, width, generator=generator)
        axes = _axes(parent, kept.layer)

        def written(
            name: str, place: int = place, kept: LayerCut = kept, axes: Mapping[str, Axes] = axes
        ) -> Tensor:
            parameter = child_blocks.layer(place).module.get_parameter(name)
            return _corner(parameter.detach(), [cut.places(kept, label) for label in axes.get(name, ())])

        if cut.narrowing:
            carved = checked_layer(parent_blocks, cut, kept, stored, written, coarseness(child))
        else:
            carved = carved_layer(parent_blocks.model, cut, kept, stored)
        differs = f"layer {place} of the written child differs from layer {kept.layer} of the carved parent"
        kept_in_child = child_blocks.layer(place).module.state_dict()
        for name, weight in carved.module.state_dict().items():
            places = [cut.places(kept, label) for label in axes.get(name, ("",) * weight.dim())]
            padded = kept_in_child[name]
            is_same = torch.equal(_corner(padded, places), weight)
            if not is_same or padded.count_nonzero() != weight.count_nonzero():
                raise ValueError(f"{differs} in {name!r}")
        if not cut.narrowing:
            del carved  # at most two at a time
            carved = masked_layer(parent_blocks.model, cut, kept, stored)
        wanted = parent_blocks.call(0, kept.layer, hidden, carved.module)
        proof = distance_of(child_blocks.call(0, place, hidden), wanted)
        if not proof.relative <= BLOCK_TOLERANCE:
            share = f"{proof.relative:.2g} of the largest output"
            raise ValueError(f"{differs} by {proof.difference:.3g} ({share})")
        worst = max(worst, proof, key=lambda distance_of: distance_of.relative)
        del carved  # at most one at a time
    return worst


def _axes(parent: Checkpoint, layer: int) -> dict[str, Axes]:
    """Return the labels of the axes of the parameters of a layer, by name."""
    kinds = parent.layout.kinds[layer]
    inside = (pattern for pattern in parent.family.tensors.body if pattern.in_layer and is_of(pattern, kinds))
    alone = (pattern for pattern in inside if "{expert}" not in pattern.name)
    named = (each for pattern in alone for each in pattern.parameters)
    return {name.partition(".{layer}.")[2]: labels for name, labels in named}


def compare_outputs(child: Checkpoint, carved: Callable[[Tensor], Tensor], ids: Tensor) -> Verified:
    """Compare a child's outputs with ``carved``, a function of ids (b, t), one layer in memory at a time.

    The child runs in the stock class. A comparison block by block proves equal weights; this one proves that
    the blocks are connected alike. Raises ``ValueError`` where outputs differ by more than rounding.
    """
    tolerance = max(ROUNDED, ROUNDINGS * coarseness(child))
    return within_rounding(distance_of(output_of(child, ids), carved(ids)), tolerance)


@torch.no_grad()
def output_of(checkpoint: Checkpoint, ids: Tensor) -> Tensor:
    """Return the outputs of a checkpoint for ids (b, t), one layer in memory at a time."""
    *_, out = states_of(checkpoint, ids)
    return outputs(out)


@torch.no_grad()
def states_of(checkpoint: Checkpoint, ids: Tensor) -> Iterator[Any]:
    """Yield the hidden states (b, t, d) before each layer and behind the last, then the output."""
    blocks = Blocks(mapped_model(checkpoint), [{"input_ids": ids}])
    hidden = blocks.embed(0)
    for layer in range(checkpoint.layout.depth):
        yield hidden
        hidden = blocks.call(0, layer, hidden)
    yield hidden
    out = blocks.finish(0, hidden)
    blocks.let_go()  # at most one head at a time
    yield out


def fits(checkpoint: Checkpoint, memory: int) -> bool:
    """Return whether the parent, the carved parent and the child fit into ``memory`` bytes in float32."""
    return 3 * 4 * sum(checkpoint.tensors[name].count for name in checkpoint.layout.slots) <= memory


def _same_kinds(child: PreTrainedModel, parent: PreTrainedModel, kept: list[int]) -> None:
    """Raise ``ValueError`` where a layer's attention, full or within a window, differs from the parent's.

    Short sequences do not show this.
    """
    kinds, parent_kinds = (getattr(model.config, "layer_types", None) for model in (child, parent))
    if kinds and parent_kinds and list(kinds) != [parent_kinds[layer] for layer in kept]:
        raise ValueError(f"the written child's layer_types differ from the parent's: {', '.join(kinds)}")


def _same_outside(child: Checkpoint, parent: Checkpoint, maps: StreamMaps | None) -> None:
    """Raise ``ValueError`` where a tensor outside the layers is not a copy of the parent's, byte for byte.

    With a narrower stream, where it is not the expected product.
    """
    carried = [("carried", name) for name in parent.layout.carried]
    for role, name in [*parent.layout.layer(None).items(), *carried]:
        if maps and role != "carried" and "hidden" in parent.layout.slots[name].axes:
            if not (role == "head" and parent.layout.tied):
                check_outside(child, name, parent, name, role, maps)
            continue
        if name not in child.tensors:
            raise ValueError(f"the written child lacks {name!r}")
        tensor, parent_tensor = child.tensors[name], parent.tensors[name]
        same = (tensor.dtype, tensor.shape) == (parent_tensor.dtype, parent_tensor.shape)
        for start in range(0, parent_tensor.end - parent_tensor.start, COMPARED_BYTES):
            same = same and _bytes(tensor, start) == _bytes(parent_tensor, start)
        if not same:
            raise ValueError(f"{name!r} of the written child differs from the parent's")

    head, embedding = (opened.layout.name(role) for opened, role in ((child, "head"), (parent, "embedding")))
    if maps and parent.layout.tied and head and embedding:
        check_outside(child, head, parent, embedding, "head", maps)


def _bytes(tensor: TensorInfo, start: int) -> bytes:
    with tensor.file.open("rb") as file:
        file.seek(tensor.start + start)
        return file.read(min(COMPARED_BYTES, tensor.end - tensor.start - start))


def as_stored(child: Checkpoint, cut: Cut, repaired: Repaired) -> Repaired:
    """Return the repaired matrices, rounded to the child's stored types."""
    places = {kept.layer: place for place, kept in enumerate(cut.layers)}
    stored = Repaired()
    for (layer, role), values in repaired.arrays.items():
        if role not in WRITERS:
            stored.arrays[layer, role] = values
            continue
        name = child.layout.name(role, places[layer])
        dtype = child.tensors[name].dtype if name else "F32"
        stored.arrays[layer, role] = widened(narrowed(values, dtype), dtype)
    return stored


def _corner(values: Tensor, places: Sequence[Ints | None]) -> Tensor:
    """Return the values at these places along each axis."""
    for axis, index in enumerate(places):
        if index is not None:
            values = values.index_select(axis, torch.as_tensor(index))
    return values


def coarseness(child: Checkpoint) -> float:
    """Return the rounding of the coarsest stored type; quantised weights are copied and do not count."""
    return max(ROUNDING_STEPS.get(child.tensors[name].dtype, 0.0) for name in child.layout.slots)


def rounded(reference: PreTrainedModel, child: Checkpoint) -> PreTrainedModel:
    """Return the carved parent with its weights rounded to the child's types, in place."""
    every = parameters(child).items()
    types = {name: child.tensors[stored].dtype for stored, names in every for name in names}
    prefix = f"{reference.base_model_prefix}."
    for name, parameter in reference.named_parameters():
        dtype = types.get(name, types.get(name.removeprefix(prefix), "F32"))
        parameter.data = torch.from_numpy(widened(narrowed(parameter.detach().numpy(), dtype), dtype))
    return reference


def distance_of(output: Tensor, reference: Tensor) -> Verified:
    """Return the distance of two outputs, without judging it."""
    difference = float((output - reference).abs().max())
    return Verified(difference, difference / max(float(reference.abs().max()), 1e-12))


def outputs(result: object) -> Tensor:
    """Return logits, or the last hidden states of a model without a head."""
    logits = getattr(result, "logits", None)
    value = logits if logits is not None else getattr(result, "last_hidden_state")  # noqa: B009
    assert isinstance(value, Tensor)
    return value
