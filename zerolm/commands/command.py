"""A command, declared once: its flags, YAML keys, Python keywords and its page follow from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from zerolm.settings import REQUIRED, Setting, nearest, shown

OUTPUT: Final = (
    Setting("out", "path", None, "folder to write the results to", metavar="DIR"),
    Setting("force", "flag", False, "replace that folder if it holds an earlier result"),
    Setting("json", "flag", False, "print one JSON object for machines"),
    Setting("config", "path", None, "YAML file with any of these settings, as a run.yaml", metavar="FILE"),
    Setting("quiet", "flag", False, "print no progress"),
    Setting("verbose", "integer", 0, "say what is read, reused and chosen; -vv says more", low=0, high=9),
)
"""Where results go; the same for every command that computes."""
LISTING: Final = tuple(setting for setting in OUTPUT if setting.name in ("json", "quiet", "verbose"))
"""The same for commands that only list: there is nothing to save or to repeat."""


@dataclass(frozen=True)
class Command:
    """The name of a command, one sentence on it, what it takes, and examples with what each does.

    ``arguments`` are given by place, ``groups`` by flag, under the heading of their group. ``verb`` is
    ``module:function`` of the public function. ``owners`` name the kinds of plug-ins whose settings are
    further flags (``spaces``, ``scores``); ``repeated`` where a flag of theirs takes several values.
    ``output`` is ``OUTPUT`` or ``LISTING``, or less where the verb has a setting ``out`` of its own. A name
    may be of two words (``bench run``).
    """

    name: str
    summary: str
    verb: str
    arguments: tuple[Setting, ...] = ()
    groups: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    notes: str = ""
    owners: tuple[str, ...] = ()
    repeated: bool = False
    output: tuple[Setting, ...] = OUTPUT

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return all that the verb takes: arguments, then flags."""
        return (*self.arguments, *(setting for group in self.groups.values() for setting in group))

    def values(
        self, given: Mapping[str, Any], objects: Mapping[str, tuple[type, ...]] | None = None
    ) -> dict[str, Any]:
        """Return the value of every setting of the verb, given (None: not) or by default.

        ``objects`` are the types that a setting takes in the place of a path: what a file of it would hold.
        ``ValueError`` names an unknown setting, a wrong value, or one that is missing.
        """
        self.check(given)
        values = {}
        for setting in self.settings:
            name, value = setting.name, given.get(setting.name)
            if value is None or isinstance(value, (objects or {}).get(name, ())):
                values[name] = setting.default if value is None else value
            else:
                values[name] = setting.parse(value)
        return values

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` for a setting that nobody has, and where one without a default is missing."""
        known = {setting.name: setting for setting in self.settings}
        for name in given:
            if name not in known and not self.owners:
                raise ValueError(f"{self.name} has no setting {shown(name)}{nearest(name, known)}")
        for name, setting in known.items():
            if setting.default is REQUIRED and given.get(name) is None:
                raise ValueError(f"{self.name} needs {name}: {setting.help}")
