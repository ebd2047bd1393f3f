"""Settings in a YAML file: plain values and flat lists, nothing that unfolds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from zerolm.io.files import read_text
from zerolm.settings import shown

MAX_CONFIG_BYTES: Final = 1 << 20


class PlainLoader(yaml.SafeLoader):
    """YAML without its numbers of base 60 (``4:32`` is a range, not 272), repeated keys, or nested lists."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if isinstance(node, yaml.MappingNode):
            flat = set[int]()
            for key, value in node.value:
                if isinstance(value, yaml.CollectionNode) and id(value) not in flat:
                    flat.add(id(value))  # an alias may name it again
                    if any(not isinstance(item, yaml.ScalarNode) for item in value.value):
                        raise yaml.YAMLError(f"{shown(key.value)} is more than a list of plain values")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"{shown(key.value)} is given twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]{0,40})$"), list("-+0123456789")
)
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"(?:[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|nan))$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML mapping, the dashes in its names as underscores; ``ValueError`` where it is none."""
    try:
        document = yaml.load(read_text(path, MAX_CONFIG_BYTES), PlainLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error)[:500].split())
        raise ValueError(f"configuration {str(path)!r} cannot be read: {reason}") from None
    if not isinstance(document, dict):
        raise ValueError(f"configuration {str(path)!r} must be a mapping of settings to values")
    values: dict[str, Any] = {}
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if name in values:
            raise ValueError(f"configuration {str(path)!r} gives {shown(name)} twice")
        values[name] = value
    return values
