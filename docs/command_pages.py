"""A page for each command, from what it declares."""

from __future__ import annotations

import inspect
import re
import textwrap

from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import OUTPUT, PLACED, Request
from zerolm.verbs import commands
from zerolm.verbs.call import function_of


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
    for name, verb in commands().items():
        call = function(name)
        lines.append(f"| [`zerolm {name}`]({place(name)}) | [`{call}`](../api.md#{call}) | {verb.summary} |")
    lines += ["", *_table("Wherever a command writes a result", OUTPUT), ""]
    written = {place(name).removesuffix(".md"): page(verb.request) for name, verb in commands().items()}
    return {"index": "\n".join(lines), **written}


def function(name: str) -> str:
    """Return the function of a command, as a call of the package names it."""
    return f"zerolm.{commands()[name].function or name.replace(' ', '.')}"


def described(call: str) -> str:
    """Return what the API says of a function by its call: its keywords, and what it returns."""
    name = next(name for name in commands() if function(name) == call)
    verb = commands()[name]
    signature = str(inspect.signature(function_of(name))).replace("further", "settings")
    lines = [
        *(f"## {call} {{ #{call} }}", "", "```python"),
        *textwrap.wrap(f"{call}{signature} -> {verb.report.__name__}", 90, subsequent_indent="    "),
        *("```", "", inspect.getdoc(verb.request) or "", ""),
        f"The keywords are the settings of [`zerolm {name}`](commands/{place(name)}).",
    ]
    return "\n".join(lines)


def place(name: str) -> str:
    """Return the file of a command's page."""
    return f"{name.replace(' ', '-')}.md"


def page(request: type[Request]) -> str:
    """Return the page of one command."""
    name, groups = request.name, request.groups()
    usage = " ".join(["zerolm", name, *(_argument(setting) for setting in groups[PLACED])])
    lines = [
        f"# zerolm {name}",
        "",
        _html(commands()[name].summary),
        "",
        "```text",
        f"{usage} [OPTIONS]",
        "```",
    ]
    if request.examples:
        lines += ["", "## Examples", ""]
        for example, what in request.examples:
            lines += [f"{what[:1].upper()}{what[1:]}:", "", "```text", example, "```", ""]
    for heading, settings in groups.items():
        if settings:
            lines += ["", *_table(heading, settings, flags=heading != PLACED)]
    if request.notes:
        lines += ["", "## Notes", "", _html(request.notes)]
    call = function(name)
    lines += ["", "## From Python", "", f"[`{call}`](../api.md#{call}) takes the same settings."]
    return "\n".join([*lines, ""])


def _argument(setting: Setting) -> str:
    return setting.placeholder if setting.default is REQUIRED else f"[{setting.placeholder}]"


def _table(heading: str, settings: tuple[Setting, ...], flags: bool = True) -> list[str]:
    lines = [f"## {heading}", "", "| setting | default | what it sets |", "|---|---|---|"]
    return lines + [_row(setting, flags) for setting in settings]


def _row(setting: Setting, flag: bool) -> str:
    name = f"{setting.flag} {setting.placeholder}" if flag else setting.placeholder
    default = setting.default_text
    cells = (
        f"`{_cell(name.strip())}`",
        f"`{_cell(default)}`" if default else "",
        _html(_cell(setting.sentence)),
    )
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _html(text: str) -> str:
    """Return text whose angle brackets Markdown leaves alone."""
    return re.sub(r"<", "&lt;", text)
