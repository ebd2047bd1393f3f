"""Which experts of a trained mixture leave, by what: KL to the parent on unseen code and English.

    python benchmarks/train_models.py MODELS --only moe --minutes 60
    python benchmarks/experts_quality.py MODELS/moe [--heal TOKENS] > benchmarks/experts_quality.md

Children are the parent whose routers cannot choose what has gone, which are the same networks. Calibration
texts are documents that the parent was trained on, judged are documents that it never saw.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from corpus import sources
from expert_pairs import relaxed
from small_text import divided
from timing import machine, note
from torch import Tensor
from torch.nn import functional
from training.decoder import stream

import zerolm
from zerolm.carving.experts import expert_worth
from zerolm.carving.experts.expert_choice import best_by_pairs, best_experts
from zerolm.carving.experts.expert_merge import merged_experts
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_use import expert_use
from zerolm.carving.experts.fewer_experts import FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import as_child
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.networks.opener import load_model, mapped_model, stock_tokenizer
from zerolm.networks.roles import layer_list
from zerolm.text.tokens import Tokens, random_tokens

SHARES: Final = (0.75, 0.5)
RANDOM: Final = "random"
CALIBRATIONS: Final = ("code", "English", "both", RANDOM)
REPAIRED: Final = ("reap", "hope")
ROUNDED: Final = "hope, relaxed and rounded"
DRAWS: Final = 3
LENGTH: Final = 256
SEQUENCES: Final = 128
JUDGED: Final = 24
GROUP: Final = 32
TEXT: Final = 2_000_000
"""Characters of a calibration text at most."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A trained mixture, calibration tokens by name, and unseen ones by domain."""

    checkpoint: Checkpoint
    calibrations: Mapping[str, Tokens]
    unseen: Mapping[str, Tensor]

    @cached_property
    def model(self) -> Any:
        """The stock model in memory."""
        return load_model(self.checkpoint.folder, decoder=True)

    @cached_property
    def wanted(self) -> dict[str, Tensor]:
        """What the parent predicts for unseen tokens, ln p (n, t, v)."""
        return {name: predictions(self.model, ids) for name, ids in self.unseen.items()}

    def apart(self, model: Any) -> dict[str, float]:
        """KL of a network to the parent by domain, in nats a token."""
        return {
            name: float(
                functional.kl_div(
                    predictions(model, ids), self.wanted[name], log_target=True, reduction="sum"
                )
            )
            / ids.numel()
            for name, ids in self.unseen.items()
        }

    def of(self, fewer: FewerExperts) -> dict[str, float]:
        """KL of the child with these experts, changed or not, by domain."""
        _ = self.wanted  # of the parent, before its routers are masked
        with ExitStack() as stack:
            for layer in fewer.by_layer:
                module = layer_list(self.model)[layer]
                stack.enter_context(as_child(module, fewer, layer))
            return self.apart(self.model)


@torch.no_grad()
def predictions(model: Any, ids: Tensor) -> Tensor:
    """ln p of all tokens at all places, (n, t, v)."""
    return torch.cat(
        [
            torch.log_softmax(model(input_ids=rows, use_cache=False).logits.float(), -1)
            for rows in ids.split(8)
        ]
    )


def opened(folder: Path) -> Mixture:
    """The mixture with its texts."""
    checkpoint, tokenizer = Checkpoint.open(folder), stock_tokenizer(folder)
    trained, judged = divided()

    def rows(named: Any, count: int) -> Tensor:
        text = sources(file for _, file in named)
        ids = stream(text[:400], tokenizer)  # type: ignore[arg-type]
        starts = np.linspace(0, len(ids) - LENGTH, count).astype(int)
        return torch.stack([ids[start : start + LENGTH] for start in starts.tolist()])

    code, english = (rows(side, SEQUENCES) for side in trained)
    drawn = random_tokens(checkpoint.layout.vocab, SEQUENCES, LENGTH)
    texts = {"code": Tokens(code), "English": Tokens(english), "random": drawn}
    texts["both"] = Tokens(torch.cat([code[::2], english[::2]]))
    unseen = {name: rows(side, JUDGED) for name, side in zip(("code", "English"), judged, strict=True)}
    return Mixture(checkpoint, texts, unseen)


def chosen(sums: Any, name: str, count: int) -> Any:
    """The experts that stay in a layer by the sums of a text."""
    if name == ROUNDED:
        pairs = sums["product"] / np.maximum(sums["together"], 1)
        return np.setdiff1d(np.arange(len(pairs)), relaxed(pairs, len(pairs) - count))
    worth = expert_worth.EXPERT_CRITERIA[name]
    assert worth is not None
    if expert_worth.is_of_pairs(name):
        return best_by_pairs(worth(sums), count).kept
    return best_experts(worth(sums), count)


def children(mixture: Mixture, count: int) -> Iterator[tuple[str, str, list[FewerExperts]]]:
    """Criterion, calibration and children with so many experts a layer; of random ones several."""
    checkpoint, layers = mixture.checkpoint, expert_layers(mixture.checkpoint)
    ledger, experts = ledger_of(checkpoint), checkpoint.layout.sizes["experts"]

    def fewer(worths: Any) -> FewerExperts:
        return FewerExperts(checkpoint, {layer: best_experts(worths(layer), count) for layer in layers})

    yield "random", "", [fewer(lambda n, s=seed: expert_worth.drawn(s, n, experts)) for seed in range(DRAWS)]
    yield "aimer", "", [fewer(lambda layer: expert_worth.by_weights(checkpoint, layer, ledger))]
    names = [name for name in expert_worth.EXPERT_CRITERIA if expert_worth.needs_tokens(name)]
    for text in CALIBRATIONS:
        tokens = mixture.calibrations[text]
        use = expert_use(checkpoint, mapped_model(checkpoint), tokens)
        for name in [*names, ROUNDED]:
            kept = {layer: chosen(sums, name, count) for layer, sums in use.items()}
            plain = FewerExperts(checkpoint, kept)
            yield name, text, [plain]
            if name in REPAIRED:
                yield f"{name}, repaired", text, [repaired(plain, tokens)]
            if name == expert_worth.REAP and text != RANDOM:
                note(f"merging, {text}")
                changed, _ = merged_experts(plain, mapped_model(checkpoint), tokens)
                merged = replace(plain, changed=changed)
                yield "reap, merged by ream", text, [merged]
                yield "reap, merged by ream, repaired", text, [repaired(merged, tokens)]


def repaired(fewer: FewerExperts, tokens: Tokens) -> FewerExperts:
    """The child with new down projections."""
    note("repairing")
    changed, _ = repaired_experts(fewer, mapped_model(fewer.parent), tokens)
    return replace(fewer, changed=changed)


def rounded(mixture: Mixture, bits: int) -> dict[str, float]:
    """KL of the parent with all matrices rounded to nearest, in groups with a scale of 16 bits each."""
    model = load_model(mixture.checkpoint.folder, decoder=True)
    most = 2 ** (bits - 1) - 1
    for weight in model.parameters():
        if weight.ndim > 1 and weight.shape[-1] % GROUP == 0:
            groups = weight.data.unflatten(-1, (-1, GROUP))
            scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / most
            weight.data = ((groups / scale).round() * scale).flatten(-2)
    return mixture.apart(model)


def healed(mixture: Mixture, count: int, tokens: int) -> Iterator[tuple[str, dict[str, float]]]:
    """KL of children by HOPE on both texts, repaired and then healed, all of them or routers alone."""
    trained, _ = divided()
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        files = []
        for name, side in zip(("code", "English"), trained, strict=True):
            files.append(place / f"{name}.txt")
            files[-1].write_text("\n".join(sources(file for _, file in side))[:TEXT], encoding="utf-8")
        both = place / "both.txt"
        both.write_text("".join(file.read_text("utf-8")[: TEXT // 2] for file in files), encoding="utf-8")
        parent = str(mixture.checkpoint.folder)
        flags: dict[str, Any] = {"criterion": "hope", "repair": "least-squares", "sequences": SEQUENCES}
        zerolm.carve(parent, keep_experts=str(count), text=str(both), out=str(place / "child"), **flags)
        for name, only in (("healed", {}), ("routers healed", {"only": "router"})):
            out = place / name
            zerolm.heal(
                str(place / "child"), parent=parent, text=[str(file) for file in files], tokens=tokens,
                out=str(out), **only,
            )  # fmt: skip
            yield name, mixture.apart(load_model(out, decoder=True))


def table(mixture: Mixture, share: float, heal: int | None) -> list[str]:
    """The rows of one share of the experts."""
    experts = mixture.checkpoint.layout.sizes["experts"]
    count = int(share * experts)
    lines = [
        f"## {count} of {experts} experts stay\n",
        "| by | calibrated on | KL on code | KL on English |",
        "|---|---|---:|---:|",
    ]

    def row(name: str, text: str, apart: list[dict[str, float]]) -> None:
        code, english = (float(np.mean([each[domain] for each in apart])) for domain in ("code", "English"))
        lines.append(f"| {name} | {text} | {code:.4g} | {english:.4g} |")
        note(lines[-1])

    for name, text, each in children(mixture, count):
        row(name, text, [mixture.of(child) for child in each])
    if heal is not None:
        for name, apart in healed(mixture, count, heal):
            row(f"hope, repaired, {name} on {heal:,} tokens", "both", [apart])
    first = {layer: np.arange(count) for layer in expert_layers(mixture.checkpoint)}
    left = FewerExperts(mixture.checkpoint, first).shaped().tensors.values()
    part = sum(info.count for info in left) / sum(t.count for t in mixture.checkpoint.tensors.values())
    bits = max(2, min(8, int(16 * part - 16 / GROUP)))
    row(f"none leave; rounded to {bits} bits, groups of {GROUP}", "", [rounded(mixture, bits)])
    lines.append(f"\nThe children have {part:.1%} of the parent's bytes; the last row has at most as many.\n")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--heal", type=int, metavar="TOKENS", help="also heal children on so many tokens")
    parser.add_argument("--sequences", type=int, default=SEQUENCES, help="of calibration")
    asked = parser.parse_args()
    mixture = opened(asked.model)
    few = {name: tokens.spread(asked.sequences) for name, tokens in mixture.calibrations.items()}
    mixture = replace(mixture, calibrations=few)
    count = mixture.calibrations["both"].count
    lines = [
        "# Experts of a trained mixture\n",
        f"Written by `python benchmarks/experts_quality.py`. Machine: {machine()}, torch {version('torch')}.",
        f"KL to the parent in nats a token, on {JUDGED} sequences of {LENGTH} tokens of documents that were "
        f"never trained on; calibrated on {count:,} tokens. Random experts are the mean of {DRAWS} draws.\n",
    ]
    for share in SHARES:
        lines += table(mixture, share, asked.heal)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
