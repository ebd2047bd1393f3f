"""Types of weights beside cuts: ``python benchmarks/bits.py --model pydec --model pyenc``.

Writes ``bits.md``. The models are folders that ``benchmarks/train_models.py`` makes. Of each: types alone at
the bytes of single types and of llama.cpp's own mixes, cuts and types together, and how well losses of such
plans are foretold; of an encoder also what llama.cpp makes of unseen sentences. One thread.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from bits_page import page
from bits_ways import CACHES, cache, cut_alone, healed, kl_of, plain_file, sent_by
from carving import texts
from parts import Parts
from timing import one_thread

from zerolm.carving.bits.options import All, Options, least_loss
from zerolm.carving.bits.plan import TypedPlan
from zerolm.carving.bits.planner import TypePlanner
from zerolm.carving.bits.typed_child import ReadBack, TypedChild, WrittenChild
from zerolm.carving.bits.weighed_child import Types, WeighedChild
from zerolm.carving.carve import carve
from zerolm.carving.loss import Loss
from zerolm.carving.request import Destination, Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER, WeightType, types_named
from zerolm.children.gguf.network import network_in
from zerolm.children.gguf.write import write
from zerolm.io.plain import as_plain
from zerolm.networks.blocks import Blocks
from zerolm.passes.matrix_moments import Place
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import silent
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Repaired

PLACE: Final = Path(__file__).with_suffix(".md")
RESULTS: Final = PLACE.with_suffix("") / "parts.jsonl"
"""What was measured, a part a line: it is not measured again. A part that is to be is taken out of it."""
LENGTH: Final = 256
SENTENCES: Final = 8
"""So many sentences are calibrated on in the place of one sequence."""
SINGLE: Final = ("Q6_K", "Q5_K", "Q4_K", "Q3_K")
OF_ENCODERS: Final = ("Q8_0", *SINGLE)
MIXES: Final = {"Q5_K_M": 17, "Q4_K_M": 15, "IQ4_XS": 30, "Q3_K_M": 12}
"""llama.cpp's own mixes, and the numbers of their files."""
OTHERS: Final = (*(f"single {kind}" for kind in SINGLE), *(f"mix {name}" for name in MIXES))
K_TYPES: Final = "Q8_0,Q6_K,Q5_K,Q4_K,Q3_K,Q2_K"
SHARES: Final = (3.1 / 7.34, 2.4 / 7.34, 2.0 / 7.34)
"""Bytes a parameter of the parent at which cuts and types are planned together."""
LONE: Final = (0.38, 0.345)
"""Bytes a parameter at which types alone are measured, too."""
CUT: Final = (0.75, 0.6, 0.5, 0.4)
"""Shares of the parameters at which cuts alone are."""
HEALED: Final = f"{SHARES[1]:.3f}"


@dataclass(frozen=True)
class Scale:
    """Sequences that are calibrated on and judged on; joint plans, and the sequences that judge these.

    ``healed`` are the tokens that a child learns from.
    """

    calibrated: int = 128
    judged: int = 250
    joint: int = 60
    glanced: int = 24
    healed: int = 1_000_000


@dataclass(frozen=True, eq=False)
class Parent:
    """A trained model on the bench."""

    folder: Path
    seen: Path
    unseen: Path
    scale: Scale
    work: Path
    parts: Parts

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.open(self.folder)

    @cached_property
    def params(self) -> int:
        return sum(info.count for name, info in self.checkpoint.tensors.items())

    @cached_property
    def methods(self) -> Methods:
        sequences = self.scale.calibrated * (SENTENCES if self.encodes else 1)
        return Methods(
            "surgeon", "prices", str(self.seen), sequences=sequences, length=LENGTH, repair="least-squares"
        )

    @cached_property
    def session(self) -> Session:
        return Session(self.checkpoint, self.methods, silent)

    def tokens(self, count: int) -> Tokens:
        return tokens_of(self.checkpoint, str(self.unseen), sequences=count, length=LENGTH)

    def loss(self, count: int) -> Loss:
        blocks = Blocks(self.session.model, self.tokens(count).batches(4))
        return Loss(blocks, self.session.pooling)

    @cached_property
    def judged(self) -> Loss:
        return self.loss(self.scale.judged)

    @cached_property
    def weighed(self) -> WeighedChild:
        """The whole parent."""
        return self.session.weighed(Cut.whole(dimensions(self.checkpoint)), Repaired())

    @property
    def encodes(self) -> bool:
        """Whether embeddings are what it sends."""
        return self.checkpoint.family.task != "next"

    def lost(self, typed: TypedChild, repaired: Repaired, file: Path | None = None) -> dict[str, Any]:
        """Return the bytes of a child and what it loses as it is read back; of an encoder also as it is sent.

        That is by llama.cpp, of a ``file`` or of one that is written.
        """
        lost = {
            "bytes": typed.bytes,
            "kl": self.judged.of_network(ReadBack(self.judged.blocks, typed, repaired)),
        }
        if self.encodes:
            with tempfile.TemporaryDirectory(dir=self.work) as scratch:
                if file is None:
                    file = Path(scratch) / "typed.gguf"
                    write(typed.weighed.child, file, typed)
                lost["sent"] = sent_by(self, file)
        return lost

    def plain(self) -> dict[str, Any]:
        """Return what llama.cpp loses of an encoder in float32."""
        return {"bytes": 4 * self.params, "sent": sent_by(self, plain_file(self))}

    def sizes(self) -> dict[str, Any]:
        layout = self.checkpoint.layout
        shape = (
            f"{layout.depth} x {layout.hidden}, {layout.heads} heads, {layout.kv_heads} KV, FFN {layout.ffn}"
        )
        return {"params": self.params, "shape": shape, "vocab": layout.vocab, "tied": layout.tied}

    @cached_property
    def losses(self) -> dict[Place, Options]:
        """What each matrix of the parent loses by each of all types."""
        types = types_named("all", with_importances=True)
        return {place: self.options(place, types) for place in self.weighed.matrices}

    def options(self, place: Place, types: Sequence[WeightType]) -> Options:
        """Return the bytes and losses of a matrix of the parent by type, infinite where it does not fit."""
        fits = [all(kind.holds(each.columns) for each in self.weighed.matrices[place]) for kind in types]
        losses = np.where(fits, self.weighed.losses(place, types).sum((0, 1)), np.inf)
        return Options(place, self.weighed.sizes(place, types), losses)

    def repaired(self, part: str) -> dict[str, Any]:
        """Return types alone at the bytes of another part, with what they lose paid back by least squares."""
        budget = self.parts.stored(f"{self.name}: {part}")["bytes"]
        return {"bytes": None} if budget is None else self.alone(budget, is_repaired=True)

    def alone(self, budget: int, names: str = "all", *, is_repaired: bool = False) -> dict[str, Any]:
        """Return the exact plan of types alone within these bytes, of some types or all, if there is one."""
        every = types_named("all", with_importances=True)
        wanted = set(types_named(names, with_importances=True))
        rows = np.array([place for place, kind in enumerate(every) if kind in wanted])
        tables = (Options(place, one.bytes[rows], one.loss[rows]) for place, one in self.losses.items())
        best = least_loss(All(tuple(tables)), budget - self.weighed.plain_bytes)
        if best is None:
            return {"bytes": None}
        typed = TypedChild(self.weighed, {place: every[rows[row]].name for place, row in best.picks.items()})
        if is_repaired:
            repaired = self.session.repaired(self.weighed.cut, None, typed.types)
            weighed = self.session.weighed(self.weighed.cut, repaired)
            return self.lost(TypedChild(weighed, typed.types), repaired)
        return {**self.lost(typed, Repaired()), "foretold": best.loss}

    def single(self, kind: str) -> dict[str, Any]:
        """Return what one type everywhere loses with importances, and types alone at its bytes."""
        types: Types = dict.fromkeys(self.weighed.matrices, kind)
        if not self.weighed.holds(BY_NAME[kind]):
            return {"bytes": None}
        typed = TypedChild(self.weighed, types)
        lost = {**self.lost(typed, Repaired()), "alone": self.alone(typed.bytes)}
        return lost if self.encodes else {**lost, "k_types": self.alone(typed.bytes, K_TYPES)}

    def mix(self, mix: str) -> dict[str, Any]:
        """Return what a mix of llama.cpp loses with importances, and types alone at its bytes."""
        from llama_cpp import llama_cpp as lib

        source, target = plain_file(self), self.work / f"{self.name}-{mix}.gguf"
        importances = dict(self.weighed.by_column())
        rows = (lib.llama_model_imatrix_data * (len(importances) + 1))()
        for place, (name, values) in enumerate(importances.items()):
            rows[place].name, rows[place].size = name.encode(), values.size
            rows[place].data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        settings = lib.llama_model_quantize_default_params()
        settings.nthread, settings.ftype = 1, MIXES[mix]
        settings.imatrix = ctypes.cast(rows, type(settings.imatrix))
        done = lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings))
        assert done == 0
        header, matrices = read_gguf_header(target), self.weighed.matrices
        types = {place: BY_NUMBER[header.types[every[0].name]].name for place, every in matrices.items()}
        typed = WrittenChild(self.weighed, types, target)
        told = sum(
            float(self.weighed.losses(place, [BY_NAME[kind]]).sum()) for place, kind in typed.types.items()
        )
        lost = self.lost(typed, Repaired(), target)
        return {**lost, "told": told, "alone": self.alone(typed.bytes)}

    def together(self, share: float, shape: str) -> dict[str, Any]:
        """Return a child with cuts and types as ``zerolm carve`` writes it, its file opened again."""
        budget, out = int(share * self.params), self.work / f"{self.name}-{share:.3f}-{shape}"
        size = SizeRequest.of(budgets={"max_weight_bytes": budget}, shape=shape)
        carved = carve(self.folder, size, self.methods, Destination(out, "gguf", force=True))
        file = next(out.glob("*.gguf"))
        lost = {"kl": kl_of(self, network_in(file, self.checkpoint))}
        if self.encodes:
            lost["sent"] = sent_by(self, file)
        hidden = carved.stream.hidden if carved.stream else self.checkpoint.layout.hidden
        spans = {kind: sorted({getattr(row, kind) for row in carved.widths}) for kind in ("kv_heads", "ffn")}
        return {
            "bytes": carved.costs["child"]["weight_bytes"], **lost, "losses": carved.losses,
            "layers": len(carved.widths), "hidden": hidden, **spans,
            "equal_bytes": as_plain(carved.equal_bytes),
        }  # fmt: skip

    def healed(self) -> dict[str, Any]:
        """Return what healing before types leaves, of the shape that these bytes chose."""
        joint = self.parts.stored(f"{self.name}: together {HEALED} uniform") or self.together(
            SHARES[1], "uniform"
        )
        return healed(self, joint, int(SHARES[1] * self.params), f"shape-{HEALED}")

    @cached_property
    def glance(self) -> Loss:
        return self.loss(self.scale.glanced)

    def joint(self, number: int) -> dict[str, Any]:
        """Return what a plan within drawn bytes loses unrepaired, foretold and measured."""
        rng = np.random.default_rng(number)
        share = float(np.exp(rng.uniform(np.log(0.28), np.log(0.85))))
        shape = ("uniform", "per-layer")[number % 2]
        size = SizeRequest.of(budgets={"max_weight_bytes": int(share * self.params)}, shape=shape)
        planner = TypePlanner(self.checkpoint, size, self.session, StoredCosts(), silent)
        by = self.session.table(self.session.importance(), ["groups", "ffn"], with_stream=True)
        plans = planner.predicted(by)
        plan: TypedPlan = plans[number % len(plans)]
        cut = planner.narrowed(plan)
        weighed = self.session.weighed(cut, Repaired())
        typed = TypedChild(weighed, plan.types)
        measured = self.glance.of_network(ReadBack(self.glance.blocks, typed, Repaired()))
        return {"share": share, "foretold": plan.loss, "measured": measured}


def parts_of(parent: Parent) -> dict[str, Callable[[], Any]]:
    """Return the parts of a model by their names, in their order."""
    if parent.encodes:
        return {
            "sizes": parent.sizes,
            "plain": parent.plain,
            **{f"single {kind}": partial(parent.single, kind) for kind in OF_ENCODERS},
            **{f"mix {name}": partial(parent.mix, name) for name in MIXES},
            **{
                f"together {share:.3f} uniform": partial(parent.together, share, "uniform")
                for share in SHARES
            },
        }
    return {
        "sizes": parent.sizes,
        **{f"single {kind}": partial(parent.single, kind) for kind in SINGLE},
        **{f"mix {name}": partial(parent.mix, name) for name in MIXES},
        **{
            f"together {share:.3f} {shape}": partial(parent.together, share, shape)
            for shape in ("uniform", "per-layer")
            for share in SHARES
        },
        **{f"repaired {part}": partial(parent.repaired, part) for part in OTHERS},
        **{f"alone {share}": partial(parent.alone, int(share * parent.params)) for share in LONE},
        **{f"cut {share}": partial(cut_alone, parent, share) for share in CUT},
        **{f"cache {kind}": partial(cache, parent, kind) for kind in CACHES},
        f"healed {HEALED}": parent.healed,
        **{f"joint {number}": partial(parent.joint, number) for number in range(parent.scale.joint)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, action="append", default=[], help="its folder")
    parser.add_argument("--work", type=Path, help="folder in which a part that was killed goes on")
    parser.add_argument("--only", action="append", help="measure only parts with this in their names")
    parser.add_argument("--stored", action="store_true", help="write the page of what is stored alone")
    parser.add_argument("--quick", action="store_true", help="few sequences, printed and not written")
    wish = parser.parse_args()
    one_thread()
    torch.set_grad_enabled(False)
    scale = Scale(8, 4, 2, 2, 20_000) if wish.quick else Scale()
    with tempfile.TemporaryDirectory() as scratch:
        work = wish.work or Path(scratch)
        work.mkdir(exist_ok=True)
        os.environ["ZEROLM_CACHE"] = str(work / "cache")
        stored, measures = Parts(work / "parts.jsonl" if wish.quick else RESULTS), {}
        for folder in wish.model:
            files = texts(folder, work)
            parent = Parent(folder, files.seen, files.unseen, scale, work, stored)
            measures |= {f"{parent.name}: {name}": part for name, part in parts_of(parent).items()}
        for name, measure in measures.items() if not wish.stored else ():
            if wish.only is None or any(word in name for word in wish.only):
                stored.measured(name, measure)
        text = StringIO()
        with redirect_stdout(text):
            page(stored.every(), list(measures))
    content = text.getvalue().strip() + "\n"
    print(content) if wish.quick else PLACE.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
