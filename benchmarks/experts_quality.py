"""Which experts of a trained mixture leave, by what: KL to the parent on unseen code and English.

    python benchmarks/train_models.py MODELS --only moe --minutes 60
    python benchmarks/experts_quality.py MODELS/moe

Children are the parent whose routers cannot choose what has gone, which are the same networks. Calibration
texts are documents that the parent was trained on, judged are documents that it never saw. Rows that were
measured are kept in ``benchmarks/experts_quality``; the page is ``benchmarks/experts_quality.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from corpus import sources
from parts import Parts
from small_text import divided
from timing import machine
from torch import Tensor
from torch.nn import functional
from training.decoder import stream

import zerolm
from zerolm.carving.bits.kernels import rounded
from zerolm.carving.experts import expert_scores
from zerolm.carving.experts.expert_count import best_by_pairs, best_experts, best_of_rows, least_lost
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_use import OF_NEURONS, expert_use
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, ROUTER, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import as_child
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.evaluation.quantised_parent import matrices_of, quantised_parent
from zerolm.io.cache import Arrays
from zerolm.networks.opener import load_model, mapped_model, stock_tokenizer
from zerolm.networks.roles import layer_list
from zerolm.planning.sizes import EXPERTS_MULTIPLE
from zerolm.text.tokens import Tokens, random_tokens

SHARES: Final = (0.75, 0.5)
RANDOM: Final = "random"
CALIBRATIONS: Final = ("code", "English", "both", RANDOM)
REPAIRED: Final = ("reap", "frequency", "hope_moments")
OF_MEANS: Final = ("hope, repaired", "hope, repaired, healed", "hope, repaired, routers healed")
"""Stored rows of experts chosen by means of pairs, which is no criterion of ``carve``: they compare ways to
heal."""
DRAWS: Final = 3
LENGTH: Final = 256
SEQUENCES: Final = 64
JUDGED: Final = 24
STORED: Final = 2
"""Bytes of a weight in children that are not quantised."""
QUANTISED: Final = "Q4_K"
HEALED: Final = 1_000_000
"""Tokens that children are healed on."""
TEXT: Final = 2_000_000
"""Characters of a calibration text at most."""
PARTS: Final = Path(__file__).parent / "experts_quality" / "parts.jsonl"
PAGE: Final = Path(__file__).parent / "experts_quality.md"


@dataclass(frozen=True, eq=False)
class Mixture:
    """A trained mixture, calibration tokens by name, and unseen ones by domain."""

    checkpoint: Checkpoint
    calibrations: Mapping[str, Tokens]
    unseen: Mapping[str, Tensor]
    uses: dict[str, dict[int, Arrays]] = field(default_factory=dict)

    def use(self, text: str) -> dict[int, Arrays]:
        """What the tokens of a calibration make the experts of each layer do."""
        if text not in self.uses:
            tokens = self.calibrations[text]
            self.uses[text] = expert_use(self.checkpoint, mapped_model(self.checkpoint), tokens, neurons=True)
        return self.uses[text]

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

    def quantised(self, fewer: FewerExperts) -> dict[str, float]:
        """KL of such a child with all matrices in one type, by domain."""
        model, kind = load_model(self.checkpoint.folder, decoder=True), BY_NAME[QUANTISED]
        names = matrices_of(self.checkpoint, model)
        with ExitStack() as stack:
            for layer in fewer.by_layer:
                stack.enter_context(as_child(layer_list(model)[layer], fewer, layer))
            for name, weight in model.named_parameters():
                if name in names:
                    rows = weight.detach().numpy().reshape(-1, weight.shape[-1])
                    weight.data = torch.from_numpy(rounded(rows, kind, None)).reshape(weight.shape)
            return self.apart(model)

    def within(self, room: int) -> dict[str, float]:
        """KL of the parent with types of matrices that err least within so many bytes, by domain."""
        types = quantised_parent(self.checkpoint, self.model, room)
        return self.apart(types.applied(self.model)) | {"bytes": types.bytes}


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
    worth = expert_scores.EXPERT_CRITERIA[name]
    assert worth is not None
    if expert_scores.is_of_pairs(name):
        return best_by_pairs(worth(sums), count).kept
    return best_experts(worth(sums), count)


def fewer_of(mixture: Mixture, count: int, name: str, text: str, seed: int = 0) -> FewerExperts:
    """The child with so many experts a layer, chosen by a criterion on a text, unchanged."""
    checkpoint = mixture.checkpoint

    def kept(layer: int) -> Any:
        if text:
            return chosen(mixture.use(text)[layer], name, count)
        if name == RANDOM:
            worth = expert_scores.drawn(seed, layer, checkpoint.layout.sizes["experts"])
        else:
            worth = expert_scores.by_weights(checkpoint, layer, ledger_of(checkpoint))
        return best_experts(worth, count)

    return FewerExperts(checkpoint, {layer: kept(layer) for layer in expert_layers(checkpoint)})


def repaired(mixture: Mixture, fewer: FewerExperts, text: str) -> FewerExperts:
    """The child, repaired on a text."""
    tokens, checkpoint = mixture.calibrations[text], mixture.checkpoint
    return replace(fewer, changed=repaired_experts(fewer, mapped_model(checkpoint), tokens)[0])


def by_chance(mixture: Mixture, count: int) -> dict[str, float]:
    """Mean KL of children whose experts are drawn, by domain."""
    draws = [mixture.of(fewer_of(mixture, count, RANDOM, "", seed)) for seed in range(DRAWS)]
    return {name: float(np.mean([each[name] for each in draws])) for name in draws[0]}


def child(mixture: Mixture, count: int, name: str, text: str, ways: str) -> dict[str, float]:
    """KL of a child by domain."""
    fewer = fewer_of(mixture, count, name, text)
    return mixture.of(repaired(mixture, fewer, text) if ways else fewer)


def healed(mixture: Mixture, count: int, only: Mapping[str, str]) -> dict[str, float]:
    """KL of the child by HOPE's moments on both texts, repaired, then healed as a whole or in its routers."""
    trained, _ = divided()
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        files = []
        for name, side in zip(("code", "English"), trained, strict=True):
            files.append(place / f"{name}.txt")
            files[-1].write_text("\n".join(sources(file for _, file in side))[:TEXT], encoding="utf-8")
        both, parent = ",".join(f"{file.stem}={file}" for file in files), str(mixture.checkpoint.folder)
        flags: dict[str, Any] = {"repair": "least-squares", "sequences": SEQUENCES // 2, "text": both}
        flags |= {"criterion": "hope_moments", "keep_experts": str(count)}
        zerolm.carve(parent, out=str(place / "child"), **flags)
        zerolm.heal(
            str(place / "child"), parent=parent, text=[str(file) for file in files], tokens=HEALED,
            out=str(place / "healed"), **only,
        )  # fmt: skip
        return mixture.apart(load_model(place / "healed", decoder=True))


@dataclass(frozen=True)
class Narrower:
    """Children whose experts are narrower: as many neurons in all as ``count`` whole experts a layer have."""

    mixture: Mixture
    count: int
    text: str

    @property
    def whole(self) -> int:
        return self.mixture.checkpoint.layout.sizes[NEURONS]

    def most(self, experts: int) -> int:
        """The neurons of each of so many experts."""
        return min(self.whole, self.count * self.whole // experts // EXPERTS_MULTIPLE * EXPERTS_MULTIPLE)

    def narrowed(self, kept: Mapping[int, Any], worth: Callable[[int], Any]) -> FewerExperts:
        """The child with these experts, and the neurons of most worth (e, m) by layer of each of them."""
        width = self.most(len(next(iter(kept.values()))))
        neurons = {layer: best_of_rows(worth(layer)[each], width) for layer, each in kept.items()}
        return FewerExperts(self.mixture.checkpoint, kept, neurons=neurons)

    def alone(self, by: str) -> FewerExperts:
        """The child with all experts, neurons chosen by chance, by weights, or by the text."""
        checkpoint, sizes = self.mixture.checkpoint, self.mixture.checkpoint.layout.sizes
        worths: dict[str, Callable[[int], Any]] = {
            RANDOM: lambda layer: expert_scores.drawn_neurons(0, layer, sizes[AXIS], self.whole),
            "weights": lambda layer: expert_scores.neurons_by_weights(
                checkpoint, layer, ledger_of(checkpoint)
            ),
            "text": lambda layer: self.mixture.use(self.text)[layer][OF_NEURONS],
        }
        every = {layer: np.arange(sizes[AXIS]) for layer in expert_layers(checkpoint)}
        return self.narrowed(every, worths[by])

    def together(self) -> FewerExperts:
        """The child with as many experts and neurons as lose least of both on the text."""
        use, kept = self.mixture.use(self.text), dict[int, dict[int, Any]]()

        def by_experts(experts: int) -> float:
            chosen = {layer: best_by_pairs(sums["product"], experts) for layer, sums in use.items()}
            kept[experts] = {layer: each.kept for layer, each in chosen.items()}
            return sum(each.loss or 0.0 for each in chosen.values())

        def by_neurons(experts: int, width: int) -> float:
            return sum(
                expert_scores.losses_of_neurons(use[layer][OF_NEURONS])[each, width].sum()
                for layer, each in kept[experts].items()
            )

        counts = range(1, self.mixture.checkpoint.layout.sizes[AXIS] + 1)
        plan = least_lost([c for c in counts if c >= self.count], self.most, by_experts, by_neurons)
        return self.narrowed(kept[plan.experts], lambda layer: use[layer][OF_NEURONS])

    def measured(self, by: str, ways: str) -> dict[str, float]:
        """KL of such a child by domain, and how many stay of both."""
        fewer = self.together() if by == "both" else self.alone(by)
        fewer = repaired(self.mixture, fewer, self.text) if ways else fewer
        return self.mixture.of(fewer) | {"experts": fewer.count, "neurons": fewer.width}


def bytes_of(mixture: Mixture, count: int) -> tuple[int, int]:
    """The bytes of a child as stored, and quantised: matrices in one type, routers and others as float32."""
    first = {layer: np.arange(count) for layer in expert_layers(mixture.checkpoint)}
    shaped = FewerExperts(mixture.checkpoint, first).shaped()
    kind, slots, stored, quantised = BY_NAME[QUANTISED], shaped.layout.slots, 0, 0
    for name, info in shaped.tensors.items():
        stored += STORED * info.count
        is_plain = len(info.shape) == 1 or slots[name].role == ROUTER
        quantised += 4 * info.count if is_plain else info.count // info.shape[-1] * kind.size(info.shape[-1])
    return stored, quantised


Row = tuple[str, str, Callable[[], dict[str, float]]]


def rows(mixture: Mixture, count: int) -> list[Row]:
    """What is measured with so many experts a layer: by what they are chosen, on what text, and how."""
    makes: list[Row] = [
        (RANDOM, "", partial(by_chance, mixture, count)),
        ("aimer", "", partial(child, mixture, count, "aimer", "", "")),
    ]
    names = [name for name in expert_scores.EXPERT_CRITERIA if expert_scores.needs_tokens(name)]
    for text in CALIBRATIONS:
        for name in names:
            every = ["", "repaired"] if name in REPAIRED else [""]
            for ways in every:
                label = ", ".join(filter(None, [name, ways]))
                makes.append((label, text, partial(child, mixture, count, name, text, ways)))
    for label, only in (("healed", {}), ("routers healed", {"only": "router"})):
        makes.append((f"hope_moments, repaired, {label}", "both", partial(healed, mixture, count, only)))

    def small() -> dict[str, float]:
        return mixture.quantised(repaired(mixture, fewer_of(mixture, count, "hope_moments", "both"), "both"))

    for by in (RANDOM, "weights"):
        label = f"neurons alone, {'drawn' if by == RANDOM else 'by weights'}"
        makes.append((label, "", partial(Narrower(mixture, count, "").measured, by, "")))
    for text in ("both", "code", RANDOM):
        for label, by in (("neurons alone", "text"), ("hope_moments and neurons", "both")):
            for ways in ("", "repaired"):
                measure = partial(Narrower(mixture, count, text).measured, by, ways)
                makes.append((", ".join(filter(None, [label, ways])), text, measure))
    stored, quantised = bytes_of(mixture, count)
    alone = partial(mixture.within, stored), partial(mixture.within, quantised)
    makes.append(("none leave, quantised to the children's bytes", "", alone[0]))
    makes.append((f"hope_moments, repaired, in {QUANTISED}", "both", small))
    makes.append((f"none leave, quantised to the bytes of {QUANTISED} children", "", alone[1]))
    return makes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", action="append", help="measure only rows with this in their names")
    parser.add_argument("--without", help="measure no rows with this in their names")
    wish = parser.parse_args()
    mixture, stored = opened(wish.model), Parts(PARTS)
    digest = hashlib.sha256((wish.model / "model.safetensors").read_bytes()).hexdigest()
    if stored.measured("model", lambda: digest) != digest:
        raise SystemExit(f"{PARTS} is of another mixture: remove it, and all is measured again")
    experts = mixture.checkpoint.layout.sizes["experts"]
    lines = [
        "# Experts of a trained mixture\n",
        f"Written by `python benchmarks/experts_quality.py`. Machine: {machine()}, torch {version('torch')}.",
        f"KL to the parent in nats a token, on {JUDGED} sequences of {LENGTH} tokens of documents that were "
        f"never trained on; calibrated on {mixture.calibrations['both'].count:,} tokens. Random experts are "
        f"the mean of {DRAWS} draws. Healed on {HEALED:,} tokens. A parent of which none leave is quantised "
        "by types of llama.cpp whose errors of weights are the least within the bytes; children have "
        f"{8 * STORED} bits a weight but where a type is told. Narrower experts have as many neurons in all "
        "as the experts of a heading; their routers have more rows. Rows of `hope` are of experts chosen by "
        "means of pairs, which is no criterion of `carve`: they compare ways to heal.\n",
        *card_of(wish.model),
    ]
    for share in SHARES:
        count = int(share * experts)
        lines += [
            f"## {count} of {experts} experts stay\n",
            "| by | calibrated on | KL on code | KL on English |",
            "|---|---|---:|---:|",
        ]
        older: list[tuple[str, str, None]] = [(label, "both", None) for label in OF_MEANS]
        for label, text, measure in [*rows(mixture, count), *older]:
            name = f"{count}: {label}, {text}"
            wanted = wish.only is None or any(word in name for word in wish.only)
            if measure and wanted and not (wish.without and wish.without in name):
                stored.measured(name, measure)
            apart = stored.stored(name)
            cells = [f"{apart[domain]:.4g}" if apart else "-" for domain in ("code", "English")]
            if apart and "neurons" in apart:
                label += f": {apart['experts']} experts of {apart['neurons']} neurons"
            lines.append(f"| {label} | {text} | {' | '.join(cells)} |")
        part = (
            bytes_of(mixture, count)[0] / STORED / sum(t.count for t in mixture.checkpoint.tensors.values())
        )
        lines.append(f"\nThe children have {part:.1%} of the parent's bytes.\n")
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def card_of(folder: Path) -> list[str]:
    """The table of the parent's card: its type, its training, how well it predicts."""
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    return [*(line for line in lines if line.startswith("|")), ""]


if __name__ == "__main__":
    main()
