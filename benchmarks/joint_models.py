"""The models of ``joint.py``: stored in 16 bits, with a text to calibrate on and one to judge by."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import torch
from carving import texts
from joint_plans import OF_EXPERTS, OF_REAL, PLANS, Plan
from safetensors.torch import load_file, save_file
from small_text import divided

from zerolm.checkpoints import Checkpoint
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.networks.opener import is_decoder
from zerolm.units.kept_units import Cut, dimensions

CALIBRATED: Final = 4_000_000
"""Characters at most of the text of a mixture of experts."""


@dataclass(frozen=True)
class Model:
    """A parent in ``folder``, whose copy at 16 bits, texts and children are kept in ``work``."""

    folder: Path
    work: Path

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def parent(self) -> Path:
        """The parent at 16 bits: as published models are stored."""
        place = self.work / "parents" / self.name
        if not place.exists():
            making = place.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            shutil.copytree(self.folder, making, copy_function=shutil.copyfile)
            making.chmod(0o755)
            config = json.loads((making / "config.json").read_text("utf-8")) | {"dtype": "bfloat16"}
            for file in making.glob("*.safetensors"):
                halved = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
                file.unlink()
                save_file(halved, file, {"format": "pt"})
            (making / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
            making.rename(place)
        return place

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.open(self.parent)

    @property
    def is_decoder(self) -> bool:
        return is_decoder(self.checkpoint)

    @property
    def is_real(self) -> bool:
        """Whether it is a published model, with texts next to it."""
        return (self.folder.parent / "texts").is_dir()

    @property
    def plans(self) -> tuple[Plan, ...]:
        if self.checkpoint.family.has_experts:
            return OF_EXPERTS
        return OF_REAL if self.is_real else PLANS

    @cached_property
    def file(self) -> Path:
        """The parent as one GGUF file in its stored types."""
        file = self.work / "parents" / f"{self.name}.gguf"
        if not file.exists():
            write(Child(self.checkpoint, Cut.whole(dimensions(self.checkpoint))), file)
        return file

    @cached_property
    def bytes(self) -> int:
        """Bytes of the weights at 16 bits."""
        layout = self.checkpoint.layout
        return 2 * sum(self.checkpoint.tensors[name].count for name in layout.slots)

    @cached_property
    def texts(self) -> tuple[Path, Path]:
        """The text to calibrate on and the unseen one, which share no document."""
        if self.is_real:
            real = self.folder.parent / "texts"
            return real / "en_cal.txt", real / "en_unseen.txt"
        if not self.checkpoint.family.has_experts:
            found = texts(self.parent, self.work)
            return found.seen, found.unseen
        places = self.work / "seen-mixture", self.work / "unseen-mixture"
        for place, sides in zip(places, divided(), strict=True):
            if not place.exists():
                place.write_text(_alternating([[file for _, file in side] for side in sides]), "utf-8")
        return places


def _alternating(sides: Iterable[list[Path]]) -> str:
    """Return the documents of both kinds in turn, ``CALIBRATED`` characters at most."""
    parts, size = list[str](), 0
    for pair in zip(*sides, strict=False):
        for file in pair:
            parts.append(file.read_text("utf-8", errors="replace").replace("\0", ""))
            size += len(parts[-1])
        if size > CALIBRATED:
            break
    return "\n".join(parts)
