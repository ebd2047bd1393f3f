"""The help of a command, from its declaration: what it does, examples, its settings in panels."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Final

from rich.box import ROUNDED
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import PLACED, Request
from zerolm.verbs import MORE, PANELS, SUMMARY, VERBS, beginning, verb_of

WIDEST: Final = 100
"""Columns that help takes at most: longer lines are hard to read."""
LEFT: Final = 27
"""Columns of flags and of what they take."""
FLAG, WORD, QUIET = "cyan", "green", "dim"


def command_help(request: type[Request], further: Mapping[str, tuple[Setting, ...]]) -> str:
    """Return the help of a command; ``further`` are the settings of plug-ins by heading."""
    groups = request.groups()
    arguments = groups.pop(PLACED)
    usage = " ".join((f"zerolm {request.name}", *(_placed(setting) for setting in arguments), "[OPTIONS]"))
    summary = verb_of(request.name).summary
    parts = [Text.assemble(("Usage: ", "bold"), usage), Text(""), Text(summary)]
    if request.notes:
        parts += [Text(""), Text(request.notes)]
    pages: list[Text | Panel | Padding] = [Padding(Group(*parts), (0, 1, 1, 1))]
    if request.examples:
        lines = [
            Group(Text(line, style=FLAG), Padding(Text(what, style=QUIET), (0, 0, 0, 2)))
            for line, what in request.examples
        ]
        pages.append(_panel("Examples", Group(*lines)))
    if arguments:
        rows = [(Text(_placed(setting), style=WORD), _described(setting)) for setting in arguments]
        pages.append(_panel(PLACED, _rows(rows)))
    for title, settings in {**groups, **further, "Output": request.output()}.items():
        if settings:
            pages.append(_panel(title, _rows((_flags(setting), _described(setting)) for setting in settings)))
    return _rendered(pages)


def program_help(words: Sequence[str]) -> str:
    """Return the commands in panels: those of zerolm itself, or those whose names begin with these words."""
    usage = " ".join(["zerolm", *words, "COMMAND", "[OPTIONS]"])
    verbs = beginning(list(words)) if words else VERBS
    parts = [
        Text.assemble(("Usage: ", "bold"), usage),
        Text(""),
        Text(MORE.get(" ".join(words), f"The commands of {' '.join(words)}.") if words else SUMMARY),
    ]
    pages: list[Text | Panel | Padding] = [Padding(Group(*parts), (0, 1, 1, 1))]
    for title in dict.fromkeys([*PANELS, *(verb.panel for verb in verbs.values())]):
        rows = [
            (Text(name, style=FLAG), Text(verb.summary))
            for name, verb in verbs.items()
            if verb.panel == title
        ]
        if rows:
            pages.append(_panel(title, _rows(rows, max(16, *(len(name) for name, _ in rows)))))
    if not words:
        rows = [(Text(name, style=FLAG), Text(summary)) for name, summary in MORE.items()]
        pages.append(_panel("Research", _rows(rows, 16)))
        options = {
            "-h, --help": "This help; `zerolm COMMAND --help` for that of a command.",
            "--version": "The version, and which extras are installed.",
            "--install-completion": "Let the Tab key complete commands, flags and names in this shell.",
            "--show-completion": "Print the script that does it.",
        }
        rows = [(Text(flag, style=FLAG), Text(text)) for flag, text in options.items()]
        pages.append(_panel("Options", _rows(rows)))
    return _rendered(pages)


def _placed(setting: Setting) -> str:
    several = "..." if setting.takes_several else ""
    word = setting.placeholder.removesuffix("...")
    return f"{word}{several}" if setting.default is REQUIRED else f"[{word}{several}]"


def _flags(setting: Setting) -> Text:
    flag = Text(setting.flag, style=FLAG)
    if setting.name in SHORT:
        return Text(f"{SHORT[setting.name]}, {setting.flag}", style=FLAG)
    if setting.kind == "flag":
        return flag.append(f" / --{setting.off}" if setting.off else "")
    taken = setting.placeholder if len(setting.placeholder) <= LEFT - len(flag) else "NAME"
    return flag.append(f" {taken}", style=WORD)


SHORT: Final = {"quiet": "-q", "verbose": "-v"}
"""Switches with a letter; that of ``verbose`` counts."""


def _described(setting: Setting) -> Text:
    text = Text(f"{setting.sentence}.")
    if setting.choices and "|" in setting.placeholder and len(setting.placeholder) > LEFT:
        text.append(f" One of {', '.join(map(str, setting.choices))}.")
    if setting.default is REQUIRED:
        text.append(" [required]", style=QUIET)
    elif setting.default_text and setting.kind != "flag" and setting.name not in SHORT:
        text.append(f" [{setting.default_text}]", style=QUIET)
    return text


def _rows(rows: Iterable[tuple[Text, Text]], left: int = LEFT) -> Table:
    """Return two columns, in which nothing is cut."""
    table = Table.grid(padding=(0, 2))
    table.add_column(width=left, overflow="fold")
    table.add_column(overflow="fold")
    for word, text in rows:
        table.add_row(word, text)
    return table


def _panel(title: str, content: Table | Group) -> Panel:
    return Panel(content, box=ROUNDED, title=title, title_align="left", border_style=QUIET)


def _rendered(pages: Iterable[Text | Panel | Padding]) -> str:
    text = StringIO()
    console = Console(
        file=text, force_terminal=sys.stdout is not None and sys.stdout.isatty(), highlight=False
    )
    console.width = min(console.width, WIDEST)
    for page in pages:
        console.print(page)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
