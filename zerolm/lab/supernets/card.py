"""The model card of a path: what it is, where it comes from, and how to open it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.children.card import plain
from zerolm.spaces import SPACES

CARD: Final = """---
library_name: transformers
tags: [zerolm, elastic]
---

# A path of the supernet {supernet}

{params:,} parameters: {words}.

{lines}

```python
import zerolm.lab.supernets.model
from transformers import {auto}

model = {auto}.from_pretrained(".")
```

The first import makes the type `zerolm_elastic` known to transformers. `path.json` has all of it.
"""


def card(document: Mapping[str, Any], auto: str) -> str:
    """Return the card of a path from the content of ``path.json``; ``auto`` is the class that opens it."""
    request = document["request"]
    weights = "those of the supernet" if request["starts"] == "supernet" else "new random ones"
    lines = [f"weights: {weights}", f"heads: {request['heads']}"]
    if request["training"]:
        run, teacher = request["training"], request["teaching"]["teacher"]
        by = f"by the teacher {plain(teacher)}" if teacher else "without a teacher"
        lines += [f"then trained {by}: {run['tokens']:,} tokens, rate {run['schedule']['rate']:g}"]
    lines += [f"loss on text held out, {when}: {loss:.4g}" for when, loss in document["losses"].items()]
    lines += [f"made with zerolm {document['zerolm']}"]
    return CARD.format(
        supernet=plain(document["supernet"]),
        params=document["costs"]["params"],
        words=SPACES[document["space"]].words(document["architecture"]),
        lines="\n".join(f"- {line}" for line in lines),
        auto=auto,
    )
