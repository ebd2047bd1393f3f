"""The one registry: what is known by name, built in or from plug-ins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zerolm.settings import Setting, check_known

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Value = TypeVar("Value")


class PluginWarning(UserWarning):
    """A plug-in cannot be loaded, and is left out."""


@dataclass(frozen=True)
class Entry(Generic[Value]):
    """A registered value: where it comes from, what it needs (tokens, gradients, torch), its options."""

    name: str
    value: Value
    source: str = ""
    needs: tuple[str, ...] = ()
    options: tuple[Setting, ...] = ()


class Registry(Generic[Value]):
    """Values of one kind by name. Those of plug-ins are loaded when an unknown name, or all, are asked for.

    ``group`` is the group of entry points of third parties. A plug-in that cannot be loaded costs a
    ``PluginWarning`` and nothing else. What is loaded registers itself, or is a value that
    ``receive(registry, name of the entry point, value)`` registers.
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        receive: Callable[[Registry[Value], str, Any], None] | None = None,
    ) -> None:
        self.kind, self.group, self._receive = kind, group, receive
        self._entries: dict[str, Entry[Value]] = {}
        self._is_loaded = group is None

    def add(self, entry: Entry[Value]) -> None:
        """Register an entry; ``ValueError`` where the name is taken."""
        if entry.name in self._entries:
            raise ValueError(f"a {self.kind} named {entry.name!r} is registered already")
        self._entries[entry.name] = entry

    def entry(self, name: str) -> Entry[Value]:
        """Return the entry of a name; ``ValueError`` suggests the nearest and says which there are."""
        if name not in self._entries:
            self.load_plugins()
        check_known(self.kind, name, self._entries)
        return self._entries[name]

    def __getitem__(self, name: str) -> Value:
        return self.entry(name).value

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self.load_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Return all names, in the order of registration."""
        self.load_plugins()
        return list(self._entries)

    def entries(self, plugins: bool = True) -> list[Entry[Value]]:
        """Return all entries; without ``plugins`` those that are there already."""
        if plugins:
            self.load_plugins()
        return list(self._entries.values())

    def load_plugins(self) -> None:
        """Load the entry points of the group, once."""
        if self._is_loaded or self.group is None:
            return
        self._is_loaded = True
        for point in entry_points(group=self.group):
            before = dict(self._entries)
            try:
                value = point.load()
                if self._receive:
                    self._receive(self, point.name, value)
            except (Exception, SystemExit) as error:  # a plug-in raises what it will
                self._entries = before
                reason = " ".join(str(error).split()) or type(error).__name__
                warnings.warn(
                    f"plug-in {point.name!r} of {self.group} is left out: {reason}",
                    PluginWarning,
                    stacklevel=2,
                )


def is_own(function: Callable[..., object]) -> bool:
    """Return whether a function is zerolm's; those of a string that was executed have no module."""
    return str(function.__module__).startswith("zerolm.")


@contextmanager
def plugged(what: str, function: Callable[..., object], *but: type[Exception]) -> Iterator[None]:
    """Within, an error of a plug-in is a ``ValueError`` that names its ``function`` by what it is.

    This includes ``SystemExit``, which would end the program. Errors of zerolm's own functions, and those
    that are of the types ``but``, stay what they are.
    """
    try:
        yield
    except but:
        raise
    except (Exception, SystemExit) as error:  # a plug-in raises what it will
        if is_own(function):
            raise
        reason = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
        message = f"{what} of {function.__module__} fails with {reason}"
        lacks = isinstance(error, KeyError | AttributeError | TypeError)
        raise ValueError(f"{message}; does it name all its needs?" if lacks else message) from error


def entry_points(*, group: str) -> EntryPoints:
    from importlib import metadata  # takes some milliseconds, which --help need not wait for

    return metadata.entry_points(group=group)
