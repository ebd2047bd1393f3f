"""The types of the public functions, from the settings: python docs/stubs.py > zerolm/__init__.pyi

Those of the laboratory: python docs/stubs.py lab > zerolm/lab/__init__.pyi. Functions are made when
they are first used, which type checkers cannot see. They read these files; a test holds them up to date. The
settings of spaces and scores that come with zerolm are in them, those of plug-ins are not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zerolm.registry import Entry
from zerolm.scores import SCORES
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import Request
from zerolm.settings.setting import KINDS
from zerolm.spaces import SPACES
from zerolm.verbs import VERBS, Verb, beginning

HEAD: Final = '"""Types of the public functions, written by python docs/stubs.py."""\n\n'
STANDARD: Final = {
    "collections.abc": ("Mapping", "Sequence"),
    "os": ("PathLike",),
    "typing": ("Any", "Final", "Protocol"),
}
"""Names of the standard library that stubs use."""
HELPERS: Final = """from zerolm.groundtruth.labels import read_labels as read_labels
from zerolm.progress import Progress as Progress
from zerolm.scores import make_score as make_score
from zerolm.spaces import make_space as make_space
from zerolm.verbs.report import load as load
"""
PROGRESS: Final = "from zerolm.progress import Progress as Progress\n"
TAIL: Final = "\n__version__: Final[str]\n"


def stub(wing: str = "") -> str:
    """Return the text of the stub: of zerolm itself, or of the functions of a plug-in's commands."""
    verbs = _verbs(wing)
    reports = sorted({(verb.report.__module__, verb.report.__name__) for verb in verbs.values()})
    objects = sorted({(kind.__module__, kind.__name__) for verb in verbs.values() for kind in _objects(verb)})
    homes = dict.fromkeys(reports + objects)
    imports = [f"from {module} import {name} as {name}" for module, name in homes]
    helpers = PROGRESS if wing else HELPERS
    groups = sorted({path[0] for path in verbs if len(path) > 1})
    parts = [_group(group, verbs) for group in groups]
    parts += [_function(path[0], verbs[path]) for path in sorted(verbs) if path[0] not in groups]
    parts += [f"{group}: Final[_{group.capitalize()}]\n" for group in groups]
    text = "\n".join(parts) + ("" if wing else TAIL)
    package_imports = "\n".join(sorted([*helpers.splitlines(), *imports])) + "\n"
    return HEAD + "\n".join([*_standard_imports(text), "", package_imports, text])


def _standard_imports(text: str) -> Iterator[str]:
    """Yield the imports of the standard library that a text needs."""
    for module, names in STANDARD.items():
        used = [name for name in names if re.search(rf"\b{name}\b", text)]
        if used:
            yield f"from {module} import {', '.join(used)}"


def _verbs(wing: str) -> dict[tuple[str, ...], Verb]:
    """Return verbs by the names that lead to their functions."""
    verbs = beginning([wing]) if wing else VERBS
    paths = {tuple((verb.function or name).split()): verb for name, verb in verbs.items()}
    return {path[1:] if wing else path: verb for path, verb in paths.items()}


def _group(group: str, verbs: Mapping[tuple[str, ...], Verb]) -> str:
    """Return the class of an object whose attributes are functions; some can be called themselves."""
    lines = [f"class _{group.capitalize()}(Protocol):"]
    if (group,) in verbs:
        lines += _lines("__call__", verbs[group,], "    ", is_method=True)
    for path, verb in verbs.items():
        if path[0] == group and len(path) > 1:
            lines += ["    @staticmethod", *_lines(path[1], verb, "    ")]
    return "\n".join(lines) + "\n"


def _function(name: str, verb: Verb) -> str:
    return "\n".join(_lines(name, verb, "")) + "\n"


def _lines(name: str, verb: Verb, indent: str, is_method: bool = False) -> list[str]:
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
        *(filter(_is_own, SPACES.entries(plugins=False)) if "spaces" in request.owners else []),
        *(SCORES.entries(plugins=False) if "scores" in request.owners else []),
    ]
    by_name = {setting.name: setting for entry in entries for setting in entry.options}
    return [setting for name, setting in by_name.items() if name not in taken]


def _is_own(entry: Entry[Any]) -> bool:
    """Return whether a space is one of zerolm itself, not of a plug-in that is imported already."""
    return str(entry.value.__module__).startswith("zerolm.spaces.")


def _typed(kind: type) -> str:
    return f"{kind.__name__}[str, Any]" if kind.__module__ == "collections.abc" else kind.__name__


def _objects(verb: Verb) -> Iterator[type]:
    for kinds in verb.request.objects().values():
        yield from (kind for kind in kinds if kind.__module__ != "collections.abc")


if __name__ == "__main__":
    print(stub(*sys.argv[1:]), end="")
