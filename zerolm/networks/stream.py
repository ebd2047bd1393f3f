"""All batches on their way through a network, layer after layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor, nn

from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import Seen, watching
from zerolm.networks.roles import StockLayer, layer_of, places_of
from zerolm.networks.states import HiddenStates


class Stream:
    """The hidden states of all batches, (b, t, d) each, on their way from the first layer to the last.

    ``module(layer)`` stands in the place of a layer, else the model's own does; ``embed(index)`` is what the
    first layer gets of a batch, else what the model's does. Nothing is run before it is asked for; then the
    states pass through the layers below first.
    """

    def __init__(
        self,
        blocks: Blocks,
        module: Callable[[int], nn.Module] | None = None,
        embed: Callable[[int], Tensor] | None = None,
    ) -> None:
        self.blocks, self.embed = blocks, embed or blocks.embed
        self.module = module or (lambda number: blocks.layer(number).module)
        self.hidden = blocks.states()
        self.layer = 0

    def before(self, layer: int) -> HiddenStates:
        """Return the inputs of this layer; where they are behind it already they begin again."""
        if layer < self.layer:
            self.hidden, self.layer = self.blocks.states(), 0
        for index in range(len(self.hidden), len(self.blocks.batches)):
            self.hidden.append(self.embed(index))
        while self.layer < layer:
            for _ in self.through(self.layer):
                pass
        return self.hidden

    def through(
        self, layer: int, watched: Callable[[StockLayer], Mapping[str, nn.Module]] | None = None
    ) -> Iterator[tuple[int, Tensor, Seen]]:
        """Send batch after batch through this layer: its index, what the layer got, what was seen within.

        ``watched`` names the modules of the layer that are looked at.
        """
        hidden, module = self.before(layer), self.module(layer)
        modules = watched(layer_of(places_of(self.blocks.model), module)) if watched else {}
        for index, states in enumerate(hidden):
            with watching(modules, states) as seen:
                hidden[index] = self.blocks.call(index, layer, states, module)
            yield index, states, seen
        self.layer = layer + 1
