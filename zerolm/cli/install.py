"""The script that lets the Tab key complete: shown, or written where the user's shell reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from click.shell_completion import get_completion_class

from zerolm.cli.complete import VARIABLE
from zerolm.cli.parser import Commands
from zerolm.settings import nearest

PLACES: Final = {
    "bash": (".local/share/zerolm/complete.bash", ".bashrc"),
    "zsh": (".local/share/zerolm/complete.zsh", ".zshrc"),
    "fish": (".config/fish/completions/zerolm.fish", ""),
}
"""Where the script of a shell is written, and the file that reads it; fish needs none."""


def script_of(shell: str) -> str:
    """Return the script for a shell, as click has it."""
    kind = get_completion_class(shell)
    assert kind is not None
    return str(kind(Commands("zerolm"), {}, "zerolm", VARIABLE).source())


def install() -> str:
    """Write the script to the place where the user's shell reads it, and return a sentence on it."""
    shell = user_shell()
    place, reader = PLACES[shell]
    script = Path.home() / place
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(script_of(shell), encoding="utf-8")
    if reader:
        _append(Path.home() / reader, f"source '{script}'\n")
    return f"{shell} completes zerolm from its next start on"


def _append(file: Path, line: str) -> None:
    """Add a line to a file, unless it holds it."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text:
        end = "\n" if text and not text.endswith("\n") else ""
        file.write_text(f"{text}{end}{line}", encoding="utf-8")


def user_shell() -> str:
    """Return the name of the user's shell; ``ValueError`` where it is none that is known."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in PLACES:
        raise ValueError(f"the shell {name!r} in SHELL is not known{nearest(name, PLACES)}")
    return name
