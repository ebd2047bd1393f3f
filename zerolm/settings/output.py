"""Settings of every command: where its result goes, and what is said meanwhile."""

from __future__ import annotations

from typing import Final

from zerolm.settings.setting import Setting

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
