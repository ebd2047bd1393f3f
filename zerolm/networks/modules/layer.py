"""A network as a stack of layers, and a layer as two steps of the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn

from zerolm import architecture as shapes


class Head(nn.Module):
    """Hidden states (..., d) to logits (..., v): ``head(hidden, n)`` gives the first n, ``classes`` is v."""

    classes: int


class Stack(nn.Module):
    """Embeddings, layers, what follows the last layer, and a head: (b, t) token ids to logits (b, t, v).

    ``before`` has what stands before some of the layers, by number.
    """

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[ResidualLayer],
        final: nn.Module,
        head: Head,
        before: Mapping[int, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.embeddings, self.layers, self.final, self.head = embeddings, nn.ModuleList(layers), final, head
        self.before = nn.ModuleDict({str(layer): module for layer, module in (before or {}).items()})

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        hidden = self.embeddings(inputs)  # (b, t, d)
        for index, layer in enumerate(self.layers):
            if str(index) in self.before:
                hidden = self.before[str(index)](hidden)
            hidden = layer(hidden)
        logits: Tensor = self.head(self.final(hidden), classes)
        return logits


class ResidualLayer(nn.Module):
    """Attention, or what stands in its place, then an FFN; each returns the residual stream, (b, t, d)."""

    def __init__(self, attention: nn.Module, ffn: nn.Module) -> None:
        super().__init__()
        self.attention, self.ffn = attention, ffn

    def forward(self, hidden: Tensor) -> Tensor:
        after: Tensor = self.ffn(self.attention(hidden))
        return after


class PreNorm(nn.Module):
    """x + factor inner(norm(x)), where the factor is 1 until it is set; ``inner`` may take further inputs."""

    def __init__(self, inner: nn.Module, norm: nn.Module, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm, self.inner, self.dropout = norm, inner, nn.Dropout(dropout)
        self.factor = 1.0

    def forward(self, hidden: Tensor, *more: Tensor | None) -> Tensor:
        branch: Tensor = self.dropout(self.inner(self.norm(hidden), *more))
        return hidden + (branch if self.factor == 1.0 else self.factor * branch)


class PostNorm(nn.Module):
    """norm(x + inner(x)); ``inner`` may take further inputs."""

    def __init__(self, inner: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.inner, self.dropout, self.norm = inner, nn.Dropout(0.1), norm

    def forward(self, hidden: Tensor, *more: Tensor | None) -> Tensor:
        after: Tensor = self.norm(hidden + self.dropout(self.inner(hidden, *more)))
        return after


class FeedForward(nn.Module):
    """Linear maps with biases from width to width, and a nonlinearity after all but the last."""

    def __init__(self, widths: Sequence[int], activation: Callable[[], nn.Module] = nn.GELU) -> None:
        super().__init__()
        self.up, *middle, self.down = (nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths))
        self.middle = nn.ModuleList(middle)
        self.activations = nn.ModuleList(activation() for _ in widths[2:])

    def forward(self, x: Tensor) -> Tensor:
        for dense, activation in zip((self.up, *self.middle), self.activations, strict=True):
            x = activation(dense(x))
        out: Tensor = self.down(x)
        return out


def ffn_widths(layer: shapes.Layer) -> list[int]:
    """The widths that an ungated FFN passes through: the residual stream's, its neurons', and back."""
    return [layer.width, *(matrix.rows for matrix in layer.matrices if matrix.role == "ffn")]


def part(block: nn.Module, step: str) -> nn.Module:
    """Return the modules of a step of a block, ``attention`` or ``ffn``, without the norm around them."""
    around = block.get_submodule(step)
    inner = getattr(around, "inner", around)
    assert isinstance(inner, nn.Module)
    return inner
