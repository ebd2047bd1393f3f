"""A page for each command, from what it declares."""

from __future__ import annotations

import re

from zerolm.settings import REQUIRED, Setting
from zerolm.settings.output import OUTPUT
from zerolm.settings.request import PLACED, Request
from zerolm.verbs import VERBS


def pages() -> dict[str, str]:
    """Return the pages by name: ``index``, and one for each command."""
    lines = [
        "# Commands",
        "",
        "Every command has a Python function with the same settings as keywords. Every command that computes "
        "takes `--out DIR` and writes there `report.html`, `result.json` and `run.yaml`; "
        "`--config DIR/run.yaml` repeats the run.",
        "",
        "| command | |",
        "|---|---|",
    ]
    lines += [f"| [`zerolm {name}`]({place(name)}) | {verb.summary} |" for name, verb in VERBS.items()]
    lines += ["", *_table("Wherever a command writes a result", OUTPUT), ""]
    written = {place(name).removesuffix(".md"): page(verb.request) for name, verb in VERBS.items()}
    return {"index": "\n".join(lines), **written}


def verbs() -> str:
    """Return the rows of a table of commands and their functions."""
    rows = [f"| [`zerolm {name}`](commands/{place(name)}) | `zerolm.{function(name)}` |" for name in VERBS]
    return "\n".join(rows)


def function(name: str) -> str:
    """Return the function of a command, as a call of the package names it."""
    return VERBS[name].function or name.replace(" ", ".")


def place(name: str) -> str:
    """Return the file of a command's page."""
    return f"{name.replace(' ', '-')}.md"


def page(request: type[Request]) -> str:
    """Return the page of one command."""
    name, groups = request.name, request.groups()
    usage = " ".join(["zerolm", name, *(_argument(setting) for setting in groups[PLACED])])
    lines = [f"# zerolm {name}", "", _html(VERBS[name].summary), "", "```text", f"{usage} [OPTIONS]", "```"]
    if request.examples:
        lines += ["", "## Examples", ""]
        for example, what in request.examples:
            lines += [f"{what[:1].upper()}{what[1:]}:", "", "```text", example, "```", ""]
    for heading, settings in groups.items():
        if settings:
            lines += ["", *_table(heading, settings, flags=heading != PLACED)]
    if request.notes:
        lines += ["", "## Notes", "", _html(request.notes)]
    lines += [
        *("", "## From Python", ""),
        f"`zerolm.{function(name)}` takes the same settings: see [the API](../api.md).",
    ]
    return "\n".join([*lines, ""])


def _argument(setting: Setting) -> str:
    return setting.placeholder if setting.default is REQUIRED else f"[{setting.placeholder}]"


def _table(heading: str, settings: tuple[Setting, ...], flags: bool = True) -> list[str]:
    lines = [f"## {heading}", "", "| setting | default | |", "|---|---|---|"]
    return lines + [_row(setting, flags) for setting in settings]


def _row(setting: Setting, flag: bool) -> str:
    name = f"{setting.flag} {setting.placeholder}" if flag else setting.placeholder
    default = setting.default_text
    help_ = setting.help[:1].upper() + setting.help[1:]
    return f"| `{_cell(name.strip())}` | {f'`{_cell(default)}`' if default else ''} | {_html(_cell(help_))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _html(text: str) -> str:
    """Return text whose angle brackets Markdown leaves alone."""
    return re.sub(r"<", "&lt;", text)
