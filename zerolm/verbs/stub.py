"""The types of the public functions, from the settings: python -m zerolm.verbs.stub > zerolm/__init__.pyi

Functions are made when they are first used, which type checkers cannot see. They read this file; a test holds
it up to date. The settings of spaces and scores that come with zerolm are in it, those of plug-ins are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from zerolm.registry import Entry
from zerolm.scores import SCORES
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.kinds import KINDS
from zerolm.settings.request import Request
from zerolm.spaces import SPACES
from zerolm.verbs import VERBS, Verb
from zerolm.verbs.call import public_names

HEAD: Final = '''"""Types of the public functions, written by python -m zerolm.verbs.stub."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, Protocol

'''
HELPERS: Final = """from zerolm.groundtruth.labels import read_labels as read_labels
from zerolm.progress import Progress as Progress
from zerolm.scores import make_score as make_score
from zerolm.spaces import make_space as make_space
from zerolm.verbs.load import load as load
"""
TAIL: Final = "\n__version__: Final[str]\n"


def stub() -> str:
    """Return the text of the stub."""
    reports = sorted({(verb.report.__module__, verb.report.__name__) for verb in VERBS.values()})
    objects = sorted({(kind.__module__, kind.__name__) for verb in VERBS.values() for kind in _objects(verb)})
    homes = dict.fromkeys(reports + objects)
    imports = [f"from {module} import {name} as {name}" for module, name in homes]
    names = public_names()
    groups = sorted({name.split()[0] for name in VERBS if " " in name} | {n for n in names if not names[n]})
    parts = [HEAD + "\n".join(sorted([*HELPERS.splitlines(), *imports])) + "\n"]
    parts += [_group(group) for group in groups]
    plain = {name: command for name, command in names.items() if command and name not in groups}
    parts += [_function(name, command) for name, command in sorted(plain.items())]
    parts += [f"{group}: Final[_{group.capitalize()}]\n" for group in groups]
    return "\n".join(parts) + TAIL


def _group(group: str) -> str:
    """Return the class of an object whose attributes are functions; some can be called themselves."""
    lines = [f"class _{group.capitalize()}(Protocol):"]
    main = public_names()[group]
    if main:
        lines += _lines("__call__", main, "    ", is_method=True)
    for name in VERBS:
        first, _, second = name.partition(" ")
        if first == group and second:
            lines += ["    @staticmethod", *_lines(second, name, "    ")]
    return "\n".join(lines) + "\n"


def _function(name: str, command: str) -> str:
    return "\n".join(_lines(name, command, "")) + "\n"


def _lines(name: str, command: str, indent: str, is_method: bool = False) -> list[str]:
    verb = VERBS[command]
    return [
        f"{indent}def {name}(",
        *([f"{indent}    self,"] if is_method else []),
        *(f"{indent}    {parameter}," for parameter in _parameters(verb)),
        f"{indent}) -> {verb.report.__name__}: ...",
    ]


def _parameters(verb: Verb) -> Iterator[str]:
    request = verb.request
    placed = request.by_place()
    extra = {name: [_typed(kind) for kind in kinds] for name, kinds in request.objects().items()}
    has_default = False
    for setting in placed:
        text = _parameter(setting, extra)
        yield text if text.endswith("= ...") or not has_default else f"{text} = ..."
        has_default |= text.endswith("= ...")
    others = [setting for setting in request.settings() if setting not in placed]
    further = _further(request)
    if others or further or request.takes_progress:
        yield "*"
    for setting in others:
        yield _parameter(setting, extra)
    for setting in further:
        yield _optional(setting, request.is_repeated)
    if request.takes_progress:
        yield "progress: Progress = ..."


def _parameter(setting: Setting, extra: dict[str, list[str]]) -> str:
    kinds = " | ".join([KINDS[setting.kind].annotation.replace('"', ""), *extra.get(setting.name, [])])
    if setting.default is REQUIRED:
        return f"{setting.name}: {kinds}" if setting.name not in extra else f"{setting.name}: {kinds} = ..."
    return f"{setting.name}: {kinds}{' | None' if setting.default is None else ''} = ..."


def _optional(setting: Setting, is_repeated: bool) -> str:
    kinds = KINDS[setting.kind].annotation
    several = f" | Sequence[{kinds}]" if is_repeated else ""
    return f"{setting.name}: {kinds}{several} | None = ..."


def _further(request: type[Request]) -> Sequence[Setting]:
    """Return the settings of spaces and scores that a verb takes in addition to its own, each name once."""
    taken = {setting.name for setting in (*request.settings(), *request.output())}
    entries: list[Entry[Any]] = [
        *(SPACES.entries(plugins=False) if "spaces" in request.owners else []),
        *(SCORES.entries(plugins=False) if "scores" in request.owners else []),
    ]
    by_name = {setting.name: setting for entry in entries for setting in entry.options}
    return [setting for name, setting in by_name.items() if name not in taken]


def _typed(kind: type) -> str:
    return f"{kind.__name__}[str, Any]" if kind.__module__ == "collections.abc" else kind.__name__


def _objects(verb: Verb) -> Iterator[type]:
    for kinds in verb.request.objects().values():
        yield from (kind for kind in kinds if kind.__module__ != "collections.abc")


if __name__ == "__main__":
    print(stub(), end="")
