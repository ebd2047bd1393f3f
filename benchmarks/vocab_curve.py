"""The curve of a decoder's bits a byte against its vocabulary, repaired or not, beside cuts of equal size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from parts import Parts
from torch import Tensor

from zerolm.architecture import Ints
from zerolm.carving.carve import carve
from zerolm.carving.request import MethodRequest, Methods, methods_of
from zerolm.carving.session import Session
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.fewer_tokens import shaped
from zerolm.carving.vocabulary.text_use import TokenUse, use_of
from zerolm.checkpoints import Checkpoint
from zerolm.io.plain import as_plain
from zerolm.networks.opener import open_model
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest, VocabularyRequest
from zerolm.planning.sizes import costs_of
from zerolm.progress import silent
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.stream.narrowing import Width

SHARES: Final = (0.94, 0.88, 0.75, 0.62, 0.5, 0.38, 0.25, 0.12)
BESIDE: Final = (0.88, 0.5, 0.12)
"""Shares of tokens beside which the FFN and the stream are cut to as many parameters."""
BUDGETS: Final = (0.98, 0.93, 0.87)
"""Shares of the parameters that plans keep."""
LENGTH: Final = 256


@dataclass(frozen=True)
class Curve:
    """A parent, the text that tokens are counted on and what is fitted on, and another that judges."""

    folder: Path
    seen: Path
    unseen: Path

    @cached_property
    def parent(self) -> Checkpoint:
        return Checkpoint.open(self.folder)

    @cached_property
    def use(self) -> TokenUse:
        return use_of(self.parent, str(self.seen), progress=silent).whole

    @cached_property
    def losses(self) -> TokenLosses:
        return TokenLosses.on(self.parent, open_model(self.parent), str(self.unseen), LENGTH)

    def kept(self, share: float) -> Ints:
        size = max(self.use.least, round(share * self.use.table.rows))
        return self.use.kept(size)

    def params(self, size: int | None = None, cut: Cut | None = None) -> int:
        checkpoint = self.parent if size is None else shaped(self.parent, size)
        return costs_of(checkpoint, StoredCosts(), cut)["params"]

    def whole(self) -> dict[str, Any]:
        losses = self.losses
        return {
            "rows": self.use.table.rows,
            "used": self.use.used,
            "least": self.use.least,
            "params": self.params(),
            "bits": losses.bits(None),
            "tokens": losses.tokens,
            "bytes": losses.bytes,
        }

    def cut(self, share: float) -> dict[str, Any]:
        kept = self.kept(share)
        rows = self.losses._read(kept)
        return {
            "size": len(kept),
            "params": self.params(len(kept)),
            "bits": self.losses.bits(kept),
            "tokens": sum(map(len, rows)),
        }

    @cached_property
    def session(self) -> Session:
        methods = Methods(
            "surgeon", "prices", str(self.seen), sequences=64, length=LENGTH, repair="least-squares"
        )
        return Session(self.parent, methods, silent)

    def ffn(self, params: int) -> dict[str, Any]:
        """Return what an FFN of so few neurons in all layers loses, that the child has so many parameters."""
        whole, by = dimensions(self.parent), self.session.importance()

        def cut_to(count: int) -> Cut:
            return Cut.of(whole, range(whole.depth), lambda layer: (whole.kv_heads, count), by.choose)

        count = min(range(8, whole.ffn + 1, 8), key=lambda n: abs(self.params(cut=cut_to(n)) - params))
        return {"ffn": count, **self._judged(cut_to(count))}

    def hidden(self, params: int) -> dict[str, Any]:
        """Return what a narrower stream loses, that the child has so many parameters."""
        whole = Cut.whole(dimensions(self.parent))
        sizes = range(16, self.parent.layout.hidden + 1, 4)

        def cut_to(size: int) -> Cut:
            return replace(
                whole, narrowing=self.session.basis.narrowing(Width(size, self.parent.layout.tied))
            )

        size = min(sizes, key=lambda n: abs(self.params(cut=cut_to(n)) - params))
        return {"hidden": size, **self._judged(cut_to(size))}

    def planned(self, share: float) -> dict[str, Any]:
        """Return the sizes that a plan within a share of the parameters tried, and the one that it took."""
        text = MethodRequest(text=str(self.seen), sequences=16, length=LENGTH)
        size = SizeRequest.of(
            None, {"max_params": f"{share}x"}, shape="uniform", vocabulary=VocabularyRequest("auto")
        )
        carved = carve(self.folder, size, methods_of(size, text))
        assert carved.vocabulary is not None
        return {"child": carved.vocabulary.child, "sizes": as_plain(carved.vocabulary.sizes)}

    def _judged(self, cut: Cut) -> dict[str, Any]:
        repaired = self.session.repaired(cut)
        plain, whole = (self.session.carved(cut, part) for part in (None, repaired))
        bits = [replace(self.losses, model=model).bits(None) for model in (plain, whole)]
        return {"params": self.params(cut=cut), "bits": bits[0], "repaired": bits[1]}

    def solved(self, share: float) -> dict[str, Any]:
        """Return bits a byte where the rows of tokens that begin others are fitted, by least squares.

        A kept token is to be as probable as itself and all gone tokens that begin with it.
        """
        kept = self.kept(share)
        model = open_model(self.parent)
        head, rows = model.get_output_embeddings().weight, self._read_rows()
        groups = self._first_parts(kept)
        reads: list[Tensor] = []
        hook = model.get_output_embeddings().register_forward_pre_hook(
            lambda _, given: reads.append(given[0])
        )
        with torch.no_grad():
            for row in rows:
                model(input_ids=row[None], use_cache=False)
        hook.remove()
        states = torch.cat([read[0] for read in reads])  # (n, d)
        with torch.no_grad():
            logits = states @ head.T
            places = torch.tensor(sorted(groups))
            wanted = torch.stack(
                [logits[:, [place, *groups[place]]].logsumexp(-1) for place in places.tolist()], 1
            )
            second = states.T @ states
            ridge = 1e-2 * second.diagonal().mean() * torch.eye(len(second))
            change = torch.linalg.solve(second + ridge, states.T @ (wanted - logits[:, places])).T
        bits = {}
        for name, scale in (("whole step", 1.0), ("half a step", 0.5)):
            moved = open_model(self.parent)
            with torch.no_grad():
                moved.get_output_embeddings().weight[places] += scale * change
            bits[name] = replace(self.losses, model=moved).bits(kept)
        return {"size": len(kept), "rows": len(places), **bits}

    def _read_rows(self, count: int = 48) -> list[Tensor]:
        tokens = self.session.tokens
        return list(tokens.spread(count).ids)

    def _first_parts(self, kept: Ints) -> dict[int, list[int]]:
        """Return by kept token the gone ones that begin with it."""
        stays, table = set(kept.tolist()), self.use.table
        groups: dict[int, list[int]] = {}
        for token in set(table.ids.values()) - stays:
            first = token
            while first not in stays:
                first = table.parts[first][0]
            groups.setdefault(first, []).append(token)
        return groups

    def averaged(self, share: float) -> dict[str, Any]:
        """Return bits a byte where a kept row is the mean of itself and gone ones that end with it, by use.

        That is least squares towards what the tokens did in the stream, where each last part stands for its
        token.
        """
        kept = self.kept(share)
        stays, table, counts = set(kept.tolist()), self.use.table, self.use.counts
        moved = open_model(self.parent)
        weight = moved.get_input_embeddings().weight
        sums: dict[int, tuple[float, Tensor]] = {}
        for token in set(table.ids.values()) - stays:
            last = token
            while last not in stays:
                last = table.parts[last][1]
            count, total = sums.get(last, (0.0, torch.zeros(weight.shape[1])))
            sums[last] = count + float(counts[token]), total + float(counts[token]) * weight[token].detach()
        with torch.no_grad():
            for row, (count, total) in sums.items():
                weight[row] = (float(counts[row]) * weight[row] + total) / max(
                    1.0, float(counts[row]) + count
                )
        return {"size": len(kept), "rows": len(sums), "bits": replace(self.losses, model=moved).bits(kept)}

    def healed(self, share: float, steps: int = 60, batch: int = 4) -> dict[str, Any]:
        """Return bits a byte where the embedding alone, and the head that it is, were trained for a while."""
        kept = self.kept(share)
        model = open_model(self.parent)
        model.requires_grad_(False)
        weight = model.get_input_embeddings().weight
        weight.requires_grad_(True)
        seen = TokenLosses.on(self.parent, model, str(self.seen), LENGTH * 8)
        stretches = [row for row in seen._read(kept) if len(row) > LENGTH]
        gone = torch.ones(len(weight), dtype=torch.bool)
        gone[torch.from_numpy(kept)] = False
        best = torch.optim.Adam([weight], lr=3e-4, betas=(0.9, 0.99))
        drawn = np.random.default_rng(0)
        for step in range(steps):
            rows = [stretches[drawn.integers(len(stretches))] for _ in range(batch)]
            firsts = [int(drawn.integers(len(row) - LENGTH + 1)) for row in rows]
            ids = torch.from_numpy(
                np.stack([row[f : f + LENGTH] for row, f in zip(rows, firsts, strict=True)])
            )
            logits = model(input_ids=ids, use_cache=False).logits.masked_fill(gone, -torch.inf)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            for group in best.param_groups:
                group["lr"] = 3e-4 * min(1.0, (step + 1) / 5) * (1 - step / steps)
            best.zero_grad()
            loss.backward()
            best.step()
        weight.requires_grad_(False)
        bits = replace(self.losses, model=model).bits(kept)
        return {"size": len(kept), "tokens": steps * batch * LENGTH, "bits": bits}


def measure(parts: Parts, curve: Curve) -> None:
    """Measure all of a curve, cheap parts first."""
    parts.measured("curve whole", curve.whole)
    for share in SHARES:
        parts.measured(f"curve {share}", lambda share=share: curve.cut(share))
    for share in BUDGETS:
        parts.measured(f"planned {share}", partial(curve.planned, share))
    for share in BESIDE:
        params = curve.params(len(curve.kept(share)))
        parts.measured(f"ffn {share}", lambda params=params: curve.ffn(params))
        parts.measured(f"hidden {share}", lambda params=params: curve.hidden(params))
    for share in (0.88, 0.5):
        parts.measured(f"averaged {share}", lambda share=share: curve.averaged(share))
        parts.measured(f"solved {share}", lambda share=share: curve.solved(share))
    for share in (1.0, 0.88, 0.5):
        parts.measured(f"healed {share}", lambda share=share: curve.healed(share))
