"""The settings of a search, from flags and from a YAML file, checked in one place."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zerolm.cli.units import MAX_ALPHA, parse_amount, parse_integers, parse_interval, parse_numbers
from zerolm.costs import COSTS, CostModel
from zerolm.groundtruth.reader import read_text
from zerolm.scores import make_score
from zerolm.solvers import METHODS
from zerolm.spaces import SearchSpace, make_space, space_class, space_settings

MAX_CONFIG_BYTES: Final = 1 << 20
INTEGER_RANGES: Final = (
    "depth",
    "hidden",
    "head_size",
    "heads_per_kv",
    "heads",
    "ffn",
    "stacks",
    "d_embed",
    "div_val",
    "base_dim",
    "depth1",
    "depth2",
    "depth3",
)
INTERVALS: Final = ("hidden_per_depth", "ffn_per_hidden")
NUMBERS: Final = ("mlp_ratio",)
COUNTS: Final = ("vocab", "positions", "classes")
PLAIN: Final = ("tied", "per_layer", "view", "corpus", "size")
RANGES: Final = (*INTEGER_RANGES, *INTERVALS, *NUMBERS, *COUNTS, *PLAIN)
SWITCHES: Final = ("tied", "per_layer", "force", "json")
BUDGETS: Final = tuple(f"{side}_{cost}" for side in ("max", "min") for cost in COSTS)


class RunSettings(BaseModel):
    """How a network is run."""

    model_config = ConfigDict(extra="forbid")

    context: Annotated[int, Field(ge=1, le=1 << 24)] = 1024
    batch: Annotated[int, Field(ge=1, le=1 << 10)] = 1
    kv_bits: Annotated[int, Field(ge=1, le=32)] = 16
    bits: Annotated[int, Field(ge=1, le=32)] = 16
    group_size: Annotated[int, Field(ge=1, le=1 << 20)] = 128

    @property
    def costs(self) -> CostModel:
        return CostModel(self.context, self.batch, self.kv_bits, self.bits, self.group_size)


class SearchSettings(RunSettings):
    """Everything that ``zerolm search`` can be told; names are the flags' with underscores."""

    space: str
    score: str = "geo"
    labels: str | None = None
    calibration: str | None = None
    alpha: Annotated[float | None, Field(ge=-MAX_ALPHA, le=MAX_ALPHA)] = None
    init: str | None = None
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    method: str = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    out: str | None = None
    force: bool = False
    json_output: Annotated[bool, Field(alias="json")] = False
    budgets: dict[str, int] = {}
    ranges: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The score's options."""
        given = {"alpha": self.alpha, "init": self.init}
        return {name: value for name, value in given.items() if value is not None}

    def make_space(self) -> SearchSpace:
        return make_space(self.space, **self.ranges)


Settings = TypeVar("Settings", bound=BaseModel)


def load_settings(config: Path | None, flags: Mapping[str, Any]) -> SearchSettings:
    """Settings of a YAML file with the flags (None: not given) in front of it; ``ValueError`` if unsound."""
    given = {**(read_yaml(config) if config else {}), **{k: v for k, v in flags.items() if v is not None}}
    if not given.get("space"):
        raise ValueError("no space is named; `zerolm spaces` lists them")
    space = str(given["space"])
    known = space_settings(space)
    values: dict[str, Any] = {"budgets": {}, "ranges": {}}
    for name, value in given.items():
        if isinstance(value, bool) and name not in SWITCHES:
            raise ValueError(f"{name} cannot be {str(value).lower()}: it is no switch")
        if name in BUDGETS:
            values["budgets"][name] = parse_amount(name, value)
        elif name in RANGES:
            if name not in known:
                raise ValueError(f"space {space!r} has no setting {name!r}; it has {', '.join(known)}")
            values["ranges"][name] = _range(space, name, value)
        elif name in ("budgets", "ranges"):
            raise ValueError(f"setting {name!r} is not known")
        else:
            values[name] = value
    settings = checked(SearchSettings, values)
    if settings.method not in METHODS:
        raise ValueError(f"method {settings.method!r} is not known; there are {', '.join(METHODS)}")
    sources = [name for name in ("score", "labels", "calibration") if name in given]
    if len(sources) > 1:
        raise ValueError(f"{' and '.join(sources)} each say what to maximise; give one of them")
    if settings.labels is None and settings.calibration is None:
        make_score(settings.score, settings.costs, **settings.options)
    elif settings.options:
        name = next(iter(settings.options))
        raise ValueError(f"{name} is an option of a score; labels and a calibration bring their own")
    return settings


def checked(model: type[Settings], values: Mapping[str, Any]) -> Settings:
    """The settings of these values; ``ValueError`` names the first that is not possible."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ValueError(_first(error)) from None


class PlainLoader(yaml.SafeLoader):
    """YAML without its numbers of base 60 (``4:32`` is a range, not 272) and without repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"{key!r} is given twice")
        return super().construct_mapping(node, deep)


PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"(?:[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|nan))$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping with dashes or underscores in its names."""
    try:
        document = yaml.load(read_text(path, MAX_CONFIG_BYTES), PlainLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"configuration {str(path)!r} cannot be read: {reason}") from None
    if not isinstance(document, dict):
        raise ValueError(f"configuration {str(path)!r} must be a mapping of settings to values")
    names = [str(name).replace("-", "_") for name in document]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ValueError(f"configuration {str(path)!r} gives {twice!r} twice")
    return dict(zip(names, document.values(), strict=True))


def _range(space: str, name: str, value: Any) -> Any:
    if name in INTERVALS:
        return parse_interval(name, value)
    if name in NUMBERS:
        return value if isinstance(value, list) else parse_numbers(name, str(value).split(","))
    if name in COUNTS:
        return parse_amount(name, value)
    if name in PLAIN:
        return value
    default = inspect.signature(space_class(space).__init__).parameters[name].default
    return parse_integers(name, value, default.step if isinstance(default, range) else 1)


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        fields = [n for n in SearchSettings.model_fields if n not in ("budgets", "ranges", "json_output")]
        known = [*fields, "json", *BUDGETS, *RANGES]
        return f"setting {name!r} is not known; there are {', '.join(known)}"
    return f"{name} {problem['input']!r} is not possible: {problem['msg'].lower()}"
