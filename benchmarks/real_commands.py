"""Children of real models by commands as a user types them: those that the documentation shows."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from parts import Parts
from real_judging import identity, judged, written
from real_models import SENTENCES, Parent, Sizes, text_file
from real_ours import WORK, ran, sizes_of

import zerolm
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
IN_BYTES: Final = Command("in bytes", "carve", ("--format", "gguf", "--max-weight-bytes", "12MB"))
QUARTER: Final = Command("quarter", "carve", ("--keep-ffn", ".75"))
HEALED: Final = Command("healed", "heal", ("--for", "25m"))
COMMANDS: Final = {
    "minilm": (HALF, Command("healed", "heal", ("--for", "10m")), IN_BYTES),
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
        if command.has_text and command.verb == "carve" and (child / "config.json").exists():
            store.measured(f"{name} unread", partial(of_unread, parent, child))
        earlier = str(child)


def name_of(command: Command) -> str:
    return f"command {command.name}"


def of_child(parent: Parent, child: Path, took: dict[str, Any]) -> dict[str, Any]:
    """Return what a child loses on an unseen text, its parameters, and what it ``took`` to make."""
    if next(child.glob("*.gguf"), None):
        return {**of_file(parent, child), **took}
    checkpoint = Checkpoint.open(child)
    (figures,) = judged(parent, parent.unseen(parent.calibrated), [written(parent, checkpoint)])
    return {**figures, "params": sizes_of(parent, checkpoint).params, **took}


def of_file(parent: Parent, child: Path) -> dict[str, Any]:
    """Return what the GGUF file of an encoder loses on unseen sentences, and its parameters."""
    tokens, text = parent.unseen(parent.calibrated), text_file(parent.calibrated, "unseen")
    evaluated = zerolm.eval(child, parent=parent.folder, text=str(text), sequences=SENTENCES, length=128)
    row = evaluated.networks[0]
    return {"distance": row.values["distance"], "params": row.params, "text": identity(tokens)}


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
