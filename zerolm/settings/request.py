"""Requests: dataclasses whose fields declare the settings of a command, with defaults, help and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self

from zerolm.progress import Progress, silent
from zerolm.settings.setting import REQUIRED, KindName, Setting, setting_of

PLACED: Final = "Arguments"
"""The heading of settings that are given by place."""
WITHIN: Final = "Settings"
OUTPUT: Final = (
    Setting("out", "path", None, "folder to write the results to", metavar="DIR"),
    Setting("force", "flag", False, "replace that folder if it holds an earlier result"),
    Setting("json", "flag", False, "print one JSON object for machines"),
    Setting("config", "path", None, "YAML file with any of these settings, as a run.yaml", metavar="FILE"),
    Setting("quiet", "flag", False, "print no progress"),
    Setting("verbose", "integer", 0, "say what is read, reused and chosen; -vv says more", low=0, high=9),
)
"""Those of a command that computes."""
LISTING: Final = tuple(setting for setting in OUTPUT if setting.name in ("json", "quiet", "verbose"))
"""Those of one that only lists: there is nothing to save or to repeat."""


@dataclass(frozen=True)
class Declared:
    """A setting of a request: under which heading help lists it, and whether Python takes it by place."""

    setting: Setting
    group: str
    by_place: bool


def setting(
    kind: KindName,
    default: Any,
    help: str,
    *,
    group: str = "",
    by_place: bool = False,
    name: str = "",
    **more: Any,
) -> Any:
    """Return a field that declares a setting; it stands under ``group``, else under that of the one before.

    Its ``name`` is that of the field unless another is given. ``more`` are the other fields of a ``Setting``:
    choices, bounds, what stands for a value.
    """
    declared = Declared(Setting(name, kind, default, help, **more), group, by_place)
    value = MISSING if default is REQUIRED else default
    return field(default=value, metadata={"declared": declared})


def argument(kind: KindName, default: Any, help: str, **more: Any) -> Any:
    """Return a field that declares a setting which is given by place."""
    return setting(kind, default, help, group=PLACED, by_place=True, **more)


def part(kind: type, *, group: str = "", **defaults: Any) -> Any:
    """Return a field for a dataclass whose fields declare settings: they are those of the request, too.

    ``defaults`` take the place of its own; the settings stand under ``group`` unless they name one.
    """
    value = MISSING if any(item.default is REQUIRED for item in settings_of(kind)) else kind(**defaults)
    return field(default=value, metadata={"part": kind, "group": group, "defaults": defaults})


def declared_by(kind: Any) -> tuple[Declared, ...]:
    """Return the settings that a dataclass declares, those of its parts in their place."""
    rows: list[Declared] = []
    group = WITHIN
    for item in fields(kind):
        if "part" in item.metadata:
            group = item.metadata["group"] or group
            defaults = item.metadata["defaults"]
            for row in declared_by(item.metadata["part"]):
                heading = group if row.group == WITHIN else row.group
                group = group if heading == PLACED else heading
                name = row.setting.name
                changed = replace(row.setting, default=defaults.get(name, row.setting.default))
                rows.append(replace(row, setting=changed, group=heading))
        elif "declared" in item.metadata:
            row = item.metadata["declared"]
            heading = row.group or group
            group = group if heading == PLACED else heading  # only what says so is given by place
            rows.append(replace(row, setting=replace(row.setting, name=name_of(item)), group=heading))
    return tuple(rows)


def name_of(item: Field[Any]) -> str:
    return item.metadata["declared"].setting.name or item.name


def settings_of(kind: Any) -> tuple[Setting, ...]:
    return tuple(row.setting for row in declared_by(kind))


def build(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a dataclass, with its parts, of the checked values of its settings by name."""
    arguments = {}
    for item in fields(kind):
        if "part" in item.metadata:
            arguments[item.name] = build(item.metadata["part"], values)
        elif "declared" in item.metadata:
            arguments[item.name] = values[name_of(item)]
    return kind(**arguments)


def values_of(request: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in fields(request):
        value = getattr(request, item.name)
        if "part" in item.metadata:
            values |= values_of(value)
        elif "declared" in item.metadata:
            values[name_of(item)] = value
    return values


@dataclass(frozen=True, kw_only=True)
class Request:
    """The settings of a command: each field declares one, or is a part that declares several.

    ``name`` is that of the command. ``objects`` names the types that a setting takes for a path: what a file
    of it would hold. Where ``owners`` name kinds of plug-ins (``spaces``, ``scores``), their settings can be
    given too and arrive in ``further`` as they were given; ``is_repeated`` where each takes several values.
    """

    name: ClassVar[str]
    examples: ClassVar[tuple[tuple[str, str], ...]] = ()
    notes: ClassVar[str] = ""
    owners: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()
    """Settings of its own that owners declare, too, and are given."""
    is_repeated: ClassVar[bool] = False
    places: ClassVar[tuple[str, ...]] = ("out", "force")
    """Settings that say where a result goes, not what it is."""
    completes: ClassVar[Mapping[str, str]] = {}
    """Where names for the Tab key are, ``module:attribute`` by setting, for settings of plug-ins."""
    writes_no_result: ClassVar[bool] = False
    takes_progress: ClassVar[bool] = True

    further: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def objects(cls) -> Mapping[str, tuple[type, ...]]:
        """Return the types that settings take for a path, by the name of the setting."""
        return {}

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        return settings_of(cls)

    @classmethod
    def groups(cls) -> dict[str, tuple[Setting, ...]]:
        """Return the settings by the heading that they stand under, arguments first."""
        rows = declared_by(cls)
        headings = dict.fromkeys([PLACED, *(row.group for row in rows)])
        return {name: tuple(row.setting for row in rows if row.group == name) for name in headings}

    @classmethod
    def output(cls) -> tuple[Setting, ...]:
        """Return the settings of every command that the request does not declare itself."""
        names = {item.name for item in cls.settings()}
        return tuple(item for item in (LISTING if cls.writes_no_result else OUTPUT) if item.name not in names)

    @classmethod
    def by_place(cls) -> tuple[Setting, ...]:
        """Return the settings that Python takes by place."""
        return tuple(row.setting for row in declared_by(cls) if row.by_place)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the request that values of text, YAML or Python make; None stands for one not given.

        ``ValueError`` names an unknown setting, one that is missing, or says what its value can be.
        """
        declared = {item.name: item for item in cls.settings()}
        further = {name: value for name, value in values.items() if name not in declared}
        for name in () if cls.owners else further:
            setting_of(cls.name, cls.settings(), name)
        objects, checked = cls.objects(), {}
        for name, item in declared.items():
            value = values.get(name)
            if value is None:
                if item.default is REQUIRED:
                    raise ValueError(f"{cls.name} needs {item.called}: {item.help}")
                checked[name] = item.default
            else:
                checked[name] = value if isinstance(value, objects.get(name, ())) else item.parse(value)
        request: Self = build(cls, checked)
        return replace(request, further=further) if further else request

    def run(self, progress: Progress = silent) -> Any:
        raise NotImplementedError

    def configuration(self) -> dict[str, Any]:
        """Return the settings by name as a file of them holds them, so that the run can be repeated anywhere.

        Left out are those without a value, and ``places``.
        """
        values = values_of(self)
        declared = {item.name: item for item in self.settings() if item.name not in self.places}
        repeatable = {name: item.repeatable(values[name]) for name, item in declared.items()}
        return {name: value for name, value in repeatable.items() if value is not None}
