"""Children of real models by commands as a user types them: those that the documentation shows."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from parts import Parts
from real_judging import judged, written
from real_models import Parent, Sizes, text_file
from real_ours import WORK, ran, sizes_of

from zerolm.checkpoints import Checkpoint


@dataclass(frozen=True)
class Command:
    """A command of ``zerolm`` that makes a child; of ``heal``, from the child of the command before.

    ``words`` are those between the models, or the child, and ``--text``.
    """

    name: str
    verb: str
    words: tuple[str, ...]
    has_text: bool = True

    def line(self, parent: Parent, child: str) -> list[str]:
        """Return the command without ``--out``, for a parent and a child by their names or folders."""
        models = [child, "--parent", str(parent.folder)] if self.verb == "heal" else [str(parent.folder)]
        text = ["--text", str(text_file(parent.calibrated, "cal"))] if self.has_text else []
        return [self.verb, *models, *self.words, *text]

    def shown(self, parent: str, text: str, child: str) -> str:
        """Return the command as pages show it, by the names of models and of a text."""
        models = [child, "--parent", parent] if self.verb == "heal" else [parent]
        return " ".join([self.verb, *models, *self.words, *(["--text", text] if self.has_text else [])])


HALF: Final = Command("half", "carve", ("--keep-ffn", ".5"))
QUARTER: Final = Command("quarter", "carve", ("--keep-ffn", ".75"))
HEALED: Final = Command("healed", "heal", ("--for", "25m"))
COMMANDS: Final = {
    "minilm": (HALF, Command("healed", "heal", ("--for", "10m"))),
    "mpnet": (HALF,),
    "gemma270": (QUARTER, HEALED),
    "qwen05": (QUARTER, HEALED, Command("no text", "carve", ("--keep-ffn", ".9"), has_text=False)),
    "qwen15": (Command("quarter", "carve", ("--keep-ffn", ".75", "--sequences", "64", "--memory", "8GB")),),
}


def command_rows(parent: Parent, store: Parts) -> None:
    """Make what is missing of a model's children, and judge each on an unseen text."""
    store.measured("sizes", lambda: asdict(Sizes.of(parent)))
    earlier = ""
    for command in COMMANDS[parent.name]:
        child, name = WORK / parent.name / command.name.replace(" ", "-"), name_of(command)
        if store.stored(name) is None:
            line = [*command.line(parent, earlier), "--out", str(child)]
            took = store.measured(f"{name} took", partial(ran, line))
            store.measured(name, partial(of_child, parent, child, took))
        if command.has_text and command.verb == "carve" and child.exists():
            store.measured(f"{name} unread", partial(of_unread, parent, child))
        earlier = str(child)


def name_of(command: Command) -> str:
    return f"command {command.name}"


def of_child(parent: Parent, child: Path, took: dict[str, Any]) -> dict[str, Any]:
    """Return what a child loses on an unseen text, its parameters, and what it ``took`` to make."""
    checkpoint = Checkpoint.open(child)
    (figures,) = judged(parent, parent.unseen(parent.calibrated), [written(parent, checkpoint)])
    return {**figures, "params": sizes_of(parent, checkpoint).params, **took}


def of_unread(parent: Parent, child: Path) -> dict[str, float]:
    """Return what a child loses on parts of its calibration text that its command did not read."""
    read = json.loads((child / "recipe.json").read_text("utf-8"))["calibration"]
    tokens = parent.unread(read["sequences"], read["length"])
    (figures,) = judged(parent, tokens, [written(parent, Checkpoint.open(child))])
    return figures


def printed_losses(row: dict[str, Any]) -> list[float]:
    """Return the losses that a command printed: as cut and repaired, or before and after healing."""
    number = r"(\d*\.?\d+(?:e-\d+)?)"
    patterns = rf"()measured {number}, repaired {number}", rf"(kl|cosine) {number} to {number}"
    for line in row["printed"]:
        for pattern in patterns:
            match = re.search(pattern, line)
            if match:
                losses = map(float, match.groups()[1:])
                return [1.0 - loss for loss in losses] if match[1] == "cosine" else [*losses]
    return []
