"""Architectures of a search as records: what a page shows of the one that is picked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from zerolm.costs import CostModel
from zerolm.report.page import command, data, folded
from zerolm.report.phrases import cost_label, show_cost, show_expected, show_score
from zerolm.report.strip import LayerSizes, labels, largest, sizes_of, strip, to_runs
from zerolm.scores import SCORES
from zerolm.solvers import SearchResult
from zerolm.solvers.result import Choice
from zerolm.spaces import shape_text
from zerolm.spaces.document import from_document, to_document

MOST: Final = 150
"""Points of the front that can be picked, evenly spread; the line is drawn of all."""
FILE: Final = "architecture.json"
CHOSEN: Final = "chosen by "


@dataclass(frozen=True, slots=True)
class Candidacy:
    """An architecture that a page shows, and its parts there: pick, best 3, chosen by params."""

    choice: Choice
    roles: list[str]

    @property
    def words(self) -> str:
        """Return its parts in one line, the baselines together."""
        chosen = [role.removeprefix(CHOSEN) for role in self.roles if role.startswith(CHOSEN)]
        others = [role for role in self.roles if not role.startswith(CHOSEN)]
        return ", ".join([*others, *([CHOSEN + ", ".join(chosen)] if chosen else [])])


def candidacies(result: SearchResult) -> list[Candidacy]:
    """Return every architecture that can be picked once, the pick first."""
    points = result.front.points
    count = min(len(points), MOST)
    front = [points[place * (len(points) - 1) // max(count - 1, 1)] for place in range(count)]
    named = [
        ("pick", result.pick),
        *([(f"baseline {result.baseline.name}", result.baseline.choice)] if result.baseline else []),
        *((f"best {rank}", choice) for rank, choice in enumerate(result.best, 1)),
        *((CHOSEN + baseline.name, baseline.choice) for baseline in result.baselines),
        *(("front", choice) for choice in front),
    ]
    shown: dict[str, Candidacy] = {}
    for role, choice in named:
        shown.setdefault(key(choice), Candidacy(choice, [])).roles.append(role)
    return list(shown.values())


def key(choice: Choice) -> str:
    """Return a text that is equal for equal architectures."""
    return json.dumps(choice.architecture.choices, sort_keys=True)


def detail(result: SearchResult, shown: Sequence[Candidacy]) -> str:
    """Return the panel with the pick, and all records for the script of the page."""
    strips = [sizes_of(entry.choice.architecture) for entry in shown]
    before, after = rebuilding(result)
    pick, most = shown[0], largest(strips)
    config = config_lines(result, pick.choice)
    facts = "".join(
        f'<div><dt>{escape(name)}</dt><dd data-slot="value{place}">{escape(value)}</dd></div>'
        for place, (name, value) in enumerate(values(result, pick.choice))
    )
    picked = before + quoted(choices(pick.choice)) + after
    document = {
        "before": before,
        "after": after,
        "config": config,
        "records": [
            _record(result, entry, layers, config) for entry, layers in zip(shown, strips, strict=True)
        ],
    }
    return (
        '<div class="detail" role="region" aria-label="The architecture that is picked" aria-live="polite">'
        f'<p class="roles" data-slot="roles">{escape(pick.words)}</p>'
        f'<h3 data-slot="words">{escape(shape_text(pick.choice.architecture))}</h3>'
        f'{strip(strips[0], most, slots=True)}<dl class="pairs">{facts}</dl>'
        f'<p class="caption">Its file, and its scores and costs:</p>{command(picked, "command")}'
        + (folded("config.json", "\n".join(config), "config") if config else "")
        + f"</div>{data(document, 'records')}"
    )


def _record(
    result: SearchResult, entry: Candidacy, layers: Sequence[LayerSizes], config: Sequence[str]
) -> dict[str, Any]:
    choice = entry.choice
    return {
        "roles": entry.words,
        "words": shape_text(choice.architecture),
        "values": [value for _, value in values(result, choice)],
        "runs": to_runs(layers),
        "sizes": list(labels(layers).values()),
        "choices": choices(choice),
        "config": _changed(config_lines(result, choice), config) if config else {},
    }


def values(result: SearchResult, choice: Choice) -> list[tuple[str, str]]:
    """Return score and costs of an architecture, and what labels expect of it, with their names."""
    rows = [(result.question.score, show_score(choice.score))]
    rows += [(cost_label(name), show_cost(name, choice.costs[name])) for name in result.cost_names]
    if result.calibration and result.pick.expected:
        shown = show_expected(choice.expected) if choice.expected else "not computed"
        rows.append((f"expected {result.calibration['metric']}", shown))
    return rows


def choices(choice: Choice) -> str:
    return json.dumps(choice.architecture.choices, separators=(",", ":"))


def quoted(text: str) -> str:
    """Return text for the inside of single quotes of a shell."""
    return text.replace("'", "'\"'\"'")


def rebuilding(result: SearchResult) -> tuple[str, str]:
    """Return the command that writes an architecture's file and scores it, before and behind its choices."""
    head = json.dumps(
        {"space": result.space.name, "settings": _settings(result), "architecture": 0}, separators=(",", ":")
    )
    question, usual = result.question, asdict(CostModel())
    flags = [f"--score {question.score}"] if question.score in SCORES else []
    given = {**question.options, **{n: v for n, v in question.conditions.items() if usual.get(n) != v}}
    flags += [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given.items()]
    tail = " ".join(["zerolm score", FILE, *flags])
    return f"printf %s '{quoted(head[:-2])}", f"}}' > {FILE} && {tail}"


def _settings(result: SearchResult) -> Mapping[str, Any]:
    """Return the settings that are not the space's own, all of them where those read the pick otherwise."""
    space, pick = result.space, result.pick.architecture
    try:
        usual = list(type(space)().settings.items())
        few = dict(item for item in space.settings.items() if item not in usual)
        read = from_document({**to_document(space, pick), "settings": few})
    except (TypeError, ValueError):
        return space.settings
    return few if read == pick else space.settings


def config_lines(result: SearchResult, choice: Choice) -> list[str]:
    """Return the lines of the configuration that stock software builds it from; none where there is none."""
    stock = result.space.config(choice.architecture)
    return [] if stock is None else json.dumps(stock, indent=2).splitlines()


def _changed(lines: Sequence[str], usual: Sequence[str]) -> dict[int, str] | str:
    """Return the lines that differ by their number; all of them where there are more or fewer."""
    if len(lines) != len(usual):
        return "\n".join(lines)
    return {place: line for place, line in enumerate(lines) if line != usual[place]}
