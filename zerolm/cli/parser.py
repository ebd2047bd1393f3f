"""Commands of click from what requests declare: flags in, the verb, its result shown and saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from zerolm.cli.complete import completion, words
from zerolm.cli.help import SHORT, command_help
from zerolm.settings import Setting, nearest
from zerolm.settings.messages import called_as
from zerolm.settings.request import OUTPUT, PLACED, Request
from zerolm.verbs import beginning, commands, verb_of

CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
LONGEST: Final = 3
"""Words of the longest name of a command."""
BEGUN: Final = "zerolm.begun"
"""Where a context keeps the words of a command's name that are typed already."""
NEAR: Final = 0.7
"""The least similarity of a mistyped flag; unrelated flags with one initial stay below it."""
WHOLE: Final = 4
"""Letters that suffice to mean a longer flag, which begins or ends with them."""
LISTED: Final = 3
"""Commands that a message lists, at most."""


class Commands(click.Group):
    """All commands by their names, of one word to ``LONGEST``; the named one is made with its flags."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the words that may come next: these are completed."""
        return list(words(ctx.meta.get(BEGUN, [])))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return a command for its help alone."""
        return click.Command(cmd_name, help=words(ctx.meta.get(BEGUN, [])).get(cmd_name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command whose name the arguments begin with, the longest, and the other arguments."""
        completing = ["--help"] if ctx.resilient_parsing else []
        verbs = commands(args[0])
        for count in range(LONGEST, 0, -1):
            name = " ".join(args[:count])
            if name in verbs:
                return name, DeclaredCommand(name, [*args[count:], *completing]), args[count:]
        if not completing:
            raise ValueError(unknown_command(args))
        ctx.meta[BEGUN] = args
        return None, None, args


def unknown_command(typed: Sequence[str]) -> str:
    """Return the message for arguments that begin with no command."""
    words = list(typed[:LONGEST])
    while words and not beginning(words):
        words.pop()
    name = " ".join(typed[: len(words) + 1])
    return f"no command {name!r}{nearest(name, beginning(words))}"


class DeclaredCommand(click.Command):
    """A command whose options are declared by its request; ``typed`` says which plug-ins are named."""

    def __init__(self, name: str, typed: Sequence[str]) -> None:
        self.request = verb_of(name).request
        self.further = _further(self.request, typed)
        super().__init__(name, {**CONTEXT}, callback=self.call, params=self._params())

    def _params(self) -> list[click.Parameter]:
        params: list[click.Parameter] = []
        for title, settings in self.request.groups().items():
            params += [self._argument(one) if title == PLACED else self._option(one) for one in settings]
        params += [self._option(one) for one in self.request.output()]
        repeats = self.request.is_repeated
        return params + [self._option(one, repeats) for group in self.further.values() for one in group]

    def _argument(self, setting: Setting) -> click.Argument:
        several = -1 if setting.takes_several else 1
        return click.Argument(
            [setting.name], required=False, nargs=several, shell_complete=self._completion(setting)
        )

    def _option(self, setting: Setting, is_repeated: bool = False) -> click.Option:
        """Return an option, always optional: the request knows what is missing, whoever makes it."""
        names = [setting.name, *([SHORT[setting.name]] if setting.name in SHORT else [])]
        if setting.name == "verbose":
            return click.Option([*names, setting.flag], count=True)
        if setting.kind == "flag":
            flag = f"{setting.flag}/--{setting.off}" if setting.off else setting.flag
            return click.Option([*names, flag], is_flag=True, default=None)
        several = setting.takes_several
        return click.Option(
            [*names, setting.flag],
            multiple=is_repeated or several,
            callback=_separated if several else None,
            shell_complete=self._completion(setting),
        )

    def _completion(self, setting: Setting) -> Any:
        return completion(setting, self.request.completes.get(setting.name, ""))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(command_help(self.request, self.further))

    def call(self, **typed: Any) -> None:
        try:
            lists = {name: list(value) or None for name, value in typed.items() if isinstance(value, tuple)}
            run_command(self.request, typed | lists)
        except SystemExit as error:  # no command raises it
            message = f"a plug-in has ended zerolm {self.name} by SystemExit"
            raise ValueError(message if error.code is None else f"{message}: {error.code}") from error


def unknown_option(command: str, option: str) -> str:
    """Return the message for an option that the command of this name does not have."""
    option = option[:80]
    word = option.removeprefix("--")
    others = [name for name in commands() if option in flags(name)]
    if placed := [one for one in verb_of(command).request.groups()[PLACED] if one.name == word]:
        cure = f"give {placed[0].placeholder} without it"
    elif near := nearest_flag(word, flags(command)):
        cure = f"did you mean {near!r}?"
    elif others:
        more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
        cure = f"zerolm {', '.join(others[:LISTED])}{more} {'have' if others[1:] else 'has'} it"
    else:
        cure = f"zerolm {command} --help lists all"
    return f"{command} has no option {option}; {cure}"


def flags(name: str) -> list[str]:
    """Return the flags of a command that begin with two dashes, with those of all spaces and scores."""
    params: list[click.Parameter] = DeclaredCommand(name, [name]).params
    both = [flag for param in params for flag in (*param.opts, *param.secondary_opts)]
    return [flag for flag in both if flag.startswith("--")]


def nearest_flag(word: str, possible: Iterable[str]) -> str | None:
    """Return the flag that a word is a misspelling of, or that begins or ends with it; None without one."""
    names = [flag.removeprefix("--") for flag in possible]
    near = get_close_matches(word, [name for name in names if name[0] == word[:1]], 1, NEAR)
    if not near and len(word) >= WHOLE:
        near = [name for name in names if name.startswith(word) or name.endswith(f"-{word}")]
    return f"--{near[0]}" if near else None


def _further(request: type[Request], typed: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """Return the settings of spaces and scores: of those that are named for help, else of all."""
    if not request.owners or not typed or list(typed) in (["--help"], ["-h"]):
        return {}
    from zerolm.cli.plugin_flags import further_settings

    return further_settings(request, typed)


def _separated(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Return names that were typed with commas between them, or each with its flag."""
    return tuple(name for text in texts for name in text.split(","))


def run_command(request: type[Request], typed: dict[str, Any]) -> None:
    """Run a verb with the typed settings and those of its configuration file; show and save the result."""
    from zerolm.verbs.run_file import configured

    declared = {setting.name: setting for setting in request.output()}
    config = typed.pop("config", None)
    names = _typed_names(request, typed)
    with called_as(names):
        file = None if config is None else declared["config"].parse(config)
        values = configured(request.name, file, typed)
    of_file = {name for name in values if typed.get(name) is None}
    with called_as({name: word for name, word in names.items() if name not in of_file}):
        _run_and_show(request, values)


def _typed_names(request: type[Request], further: Iterable[str]) -> dict[str, str]:
    """The spelling of each setting by its name: its flag, or the capitals of an argument."""
    placed = {setting.name for setting in request.groups()[PLACED]}
    settings = (*request.settings(), *request.output())
    names = {name: f"--{name.replace('_', '-')}" for name in further}
    return names | {one.name: one.placeholder if one.name in placed else one.flag for one in settings}


def _run_and_show(request: type[Request], values: dict[str, Any]) -> None:
    from zerolm.cli.progress import Steps, logged
    from zerolm.io.folders import check_new

    declared = {setting.name: setting for setting in request.output()}
    output = {setting.name: setting.default for setting in OUTPUT}
    output |= {name: one.parse(values.pop(name)) for name, one in declared.items() if name in values}
    question = request.parse(values)
    folder = None if output["out"] is None else Path(output["out"])
    if folder is not None:
        check_new(folder, output["force"])
    with logged(output["verbose"]), Steps(output["quiet"]) as progress:
        result = question.run(progress)
        if folder is not None:
            result.save(folder, force=output["force"])
    if _is_first():
        _show(result, output["json"], folder or getattr(question, "out", None))


def _is_first() -> bool:
    """Return whether this process is the first of those that ``accelerate launch`` started, or alone."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not distributed.is_initialized() or distributed.get_rank() == 0


def _show(result: Any, as_json: bool, folder: object) -> None:
    from zerolm.show.terminal import result_lines, terminal_width

    for remark in result.remarks:
        print(f"zerolm: {remark}", file=sys.stderr)
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        for line in result_lines(result.lines(), result.sheets(), terminal_width()):
            print(line)
    if folder is not None:
        print(f"wrote {folder}: {', '.join(result.written)}", file=sys.stderr)
