"""A page for each command, from what it declares."""

from __future__ import annotations

import re

from zerolm.commands import COMMANDS, OUTPUT, Command
from zerolm.settings import REQUIRED, Setting


def pages() -> dict[str, str]:
    """Return the pages by name: ``index``, and one for each command."""
    lines = [
        "# Commands",
        "",
        "Every command has a Python function with the same settings as keywords. Every command that computes "
        "takes `--out DIR` and writes there `report.html`, `result.json` and `run.yaml`; "
        "`--config DIR/run.yaml` repeats the run.",
        "",
        "| command | from Python | what it does |",
        "|---|---|---|",
    ]
    lines += [
        f"| [`zerolm {c.name}`]({place(c)}) | [`{function(c)}`](../api.md#{function(c)}) | {c.summary} |"
        for c in COMMANDS.values()
    ]
    lines += ["", *_table("Wherever a command writes a result", OUTPUT), ""]
    written = {place(command).removesuffix(".md"): page(command) for command in COMMANDS.values()}
    return {"index": "\n".join(lines), **written}


def function(command: Command) -> str:
    """Return the Python function of a command."""
    return f"zerolm.{command.verb.partition(':')[2]}"


def place(command: Command) -> str:
    """Return the file of a command's page."""
    return f"{command.name.replace(' ', '-')}.md"


def page(command: Command) -> str:
    """Return the page of one command."""
    usage = " ".join(["zerolm", command.name, *(_argument(setting) for setting in command.arguments)])
    lines = [
        f"# zerolm {command.name}",
        "",
        _html(command.summary),
        "",
        "```text",
        f"{usage} [OPTIONS]",
        "```",
    ]
    if command.examples:
        lines += ["", "## Examples", ""]
        for example, what in command.examples:
            lines += [f"{what[:1].upper()}{what[1:]}:", "", "```text", example, "```", ""]
    for heading, settings in [("Arguments", command.arguments), *command.groups.items()]:
        if settings:
            lines += ["", *_table(heading, settings, flags=heading != "Arguments")]
    if command.notes:
        lines += ["", "## Notes", "", _html(command.notes)]
    name = function(command)
    lines += ["", "## From Python", "", f"[`{name}`](../api.md#{name}) takes the same settings."]
    return "\n".join([*lines, ""])


def _argument(setting: Setting) -> str:
    return setting.placeholder if setting.default is REQUIRED else f"[{setting.placeholder}]"


def _table(heading: str, settings: tuple[Setting, ...], flags: bool = True) -> list[str]:
    lines = [f"## {heading}", "", "| setting | default | what it sets |", "|---|---|---|"]
    return lines + [_row(setting, flags) for setting in settings]


def _row(setting: Setting, flag: bool) -> str:
    name = f"--{setting.name.replace('_', '-')} {setting.placeholder}" if flag else setting.placeholder
    default = setting.default_text
    help_ = setting.help[:1].upper() + setting.help[1:]
    return f"| `{_cell(name.strip())}` | {f'`{_cell(default)}`' if default else ''} | {_html(_cell(help_))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _html(text: str) -> str:
    """Return text whose angle brackets Markdown leaves alone."""
    return re.sub(r"<", "&lt;", text)
