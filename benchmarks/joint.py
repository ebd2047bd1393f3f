"""One plan of all units beside plans of one and of two, at equal bytes: ``python benchmarks/joint.py``.

    python benchmarks/joint.py --model MODELS/pydec --model MODELS/pyenc --model MODELS/moe_plain

Writes ``joint.md``. Models are folders that ``benchmarks/train_models.py`` makes, or a real one with a
folder ``texts`` next to it. Every child is a GGUF file that ``zerolm carve`` writes, in a process of its own.
Rows that were measured are kept in ``joint/*.jsonl``, and a script that was stopped goes on. ``--passes``
counts passes over the text, for the package of today and that of another folder (``--before``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final

from joint_judging import judged, weight_bytes
from joint_models import Model
from joint_page import page
from joint_passes import counted
from joint_plans import JUDGED, SEQUENCES, SHARES, Plan
from joint_runs import carved
from parts import Parts
from timing import note, one_thread

FOLDER: Final = Path(__file__).with_suffix("")


def rows(model: Model, shares: list[float]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield what is to be measured of a model, by a name."""
    yield "sizes", lambda: {"bytes": model.bytes, "sequences": SEQUENCES[model.name]}
    yield "parent", lambda: of_parent(model)
    for share in shares:
        for plan in model.plans:
            yield f"{share} {plan.name}", partial(of_plan, model, share, plan)


def of_parent(model: Model) -> dict[str, Any]:
    seen = judged(model.file, model.file, model.texts[1], JUDGED[model.name], decoder=model.is_decoder)
    return {**seen, "bytes": weight_bytes(model.file)}


def of_plan(model: Model, share: float, plan: Plan) -> dict[str, Any]:
    """Return what a child costs, gives up and loses, or why there is none."""
    made = carved(model, plan, share)
    if "refused" in made:
        return made
    (file,) = Path(made["folder"]).glob("*.gguf")
    seen = judged(file, model.file, model.texts[1], JUDGED[model.name], decoder=model.is_decoder)
    del made["folder"]
    return {**made, **seen, "bytes": weight_bytes(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, action="append", default=[], help="its folder")
    parser.add_argument("--work", type=Path, default=Path("joint_work"), help="where children are kept")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--plans", help="names of plans alone, separated by commas")
    parser.add_argument("--minutes", type=float, default=1e9, help="no row begins after these")
    parser.add_argument("--passes", action="store_true", help="count passes over the text")
    parser.add_argument("--before", type=Path, help="a folder with an earlier package")
    wish = parser.parse_args()
    one_thread()
    wish.work.mkdir(parents=True, exist_ok=True)
    last, shares = time.monotonic() + 60 * wish.minutes, [float(share) for share in wish.shares.split(",")]
    for folder in wish.model:
        model = Model(folder, wish.work)
        measures = dict(counted(model, wish.before) if wish.passes else rows(model, shares))
        store = Parts(FOLDER / ("passes.jsonl" if wish.passes else f"{model.name}.jsonl"))
        for name, measure in measures.items():
            if wish.plans and name.partition(" ")[2] not in ("", *wish.plans.split(",")):
                continue
            if time.monotonic() > last:
                note(f"stopped before {name}: {wish.minutes:g} minutes are over")
                break
            store.measured(name, measure)
    text = StringIO()
    with redirect_stdout(text):
        page({file.stem: Parts(file).every() for file in sorted(FOLDER.glob("*.jsonl"))})
    FOLDER.with_suffix(".md").write_text(text.getvalue().strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
