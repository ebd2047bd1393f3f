"""Run ``zerolm carve`` and count the tokens that run through layers: ``python joint_hooks.py OUT FLAGS``.

``OUT`` gets the tokens of all calls of attention and of FFNs, forward and backward, by the classes' names.
It imports whatever package ``PYTHONPATH`` names, which may be an earlier one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from torch import Tensor, nn

ENDS = ("Attention", "MLP")


def main() -> int:
    counts = dict.fromkeys([f"{way} {end}" for way in ("forward", "backward") for end in ENDS], 0)

    def note(module: nn.Module, arguments: Any, out: Any) -> None:
        end = next((end for end in ENDS if type(module).__name__.endswith(end)), None)
        states = out[0] if isinstance(out, tuple) else out
        if end is None or not isinstance(states, Tensor) or states.is_meta:
            return
        if "forward" in module.__dict__:  # stood in for by what it output before
            return
        tokens = states.numel() // states.shape[-1]
        counts[f"forward {end}"] += tokens
        if states.requires_grad:

            def count(gradient: Tensor) -> None:
                counts[f"backward {end}"] += tokens

            states.register_hook(count)

    nn.modules.module.register_module_forward_hook(note)
    from zerolm.cli import main as command

    start = time.process_time()
    status = command(sys.argv[2:])
    seconds = time.process_time() - start
    gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    Path(sys.argv[1]).write_text(json.dumps({**counts, "seconds": seconds, "gb": gb}), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
