"""What healing gives back: ``python benchmarks/healing.py --model pydec --work FOLDER``.

Writes ``healing.md``. The model is a folder that ``benchmarks/train_models.py`` makes. Children are cut and
repaired on modules of the standard library that it has seen, healed on the same, and judged on modules
that it has not. Every run is stored in the folder when it is finished, and goes on where it was killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from corpus import seen_text, unseen_text
from parts import Parts
from timing import machine, note, one_thread

import zerolm

PLACE: Final = Path(__file__).with_suffix(".md")
JUDGED: Final = 96
LARGER: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
PEAK: Final = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)
"""A program that runs another and prints its peak memory in kB."""
LENGTH: Final = 256
CALIBRATION: Final = 192


@dataclass(frozen=True)
class Child:
    """How a child is carved: keywords of ``zerolm.carve``."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Healing:
    """One run: a child, and how it is healed; keywords of the request."""

    name: str
    table: str
    child: str
    tokens: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return what makes the run what it is, whatever its name."""
        return self.child, self.tokens, {"losses": ("kl", "hidden"), "seed": 0, **self.settings}


def uniform(share: float, **more: Any) -> dict[str, Any]:
    """Return the keywords of a cut that keeps a share of heads and FFN."""
    return {
        "keep_ffn": share,
        "keep_heads": share,
        "criterion": "output_energy",
        "repair": "least-squares",
        **more,
    }


CHILDREN: Final = (
    Child("1/2", uniform(0.5)),
    Child("3/4", uniform(0.75)),
    Child("1/2 capacity", uniform(0.5, criterion="capacity")),
    Child("1/4", uniform(0.25)),
    Child("70 % uniform", {"max_params": "0.7x", "keep_hidden": 1.0}),
    Child(
        "70 % per layer",
        {"budgets": {"max_params": "0.7x"}, "shape": "per-layer", "keep_hidden": 1.0, "form": "padded"},
    ),
)
LOSSES: Final = {
    "cross-entropy": {"losses": ("next-token",)},
    "KL": {"losses": ("kl",)},
    "KL + hidden": {"losses": ("kl", "hidden")},
    "hidden + DIST": {"losses": ("hidden", "dist")},
    "reverse KL": {"losses": ("reverse-kl",)},
    "KL, 64 likeliest from the disk": {"losses": ("kl",), "top": 64},
    "KL + hidden, LoRA 8": {"losses": ("kl", "hidden"), "lora": 8},
    "KL + hidden, LoRA 64": {"losses": ("kl", "hidden"), "lora": 64},
}
SCHEDULES: Final = {
    "falls over all steps": {"decay": 1.0},
    "falls over the last fifth": {"decay": 0.2},
    "batch 4": {"batch": 4},
    "batch 4, falls over all steps": {"batch": 4, "decay": 1.0},
    "twice the rate, falls over all steps": {"rate": 1.76e-3, "decay": 1.0},
}
UNITS: Final = (
    ("output_energy", "1/2", {}),
    ("capacity", "1/2 capacity", {}),
    ("from scratch", "scratch", {"rate": 2e-3}),
)
LONGEST: Final = {
    "KL + hidden": LOSSES["KL + hidden"],
    "KL": LOSSES["KL"],
    "batch 4, twice the rate, falls over all steps": {"batch": 4, "rate": 1.76e-3, "decay": 1.0},
}
SECONDS: Final = 100
TIMED: Final = ("cross-entropy", "KL", "KL + hidden", "hidden + DIST", "KL + hidden, LoRA 8")
CURVES: Final = ("Asked", "Losses", "Units", "Schedules at 1/2", "Seeds at 1/2", "4 M at 1/2")
SHORT, MIDDLE, LONG, THREE = 200_000, 820_000, 4_000_000, 2_000_000
RUNS: Final = (
    Healing("1/2, .82 M", "Asked", "1/2", MIDDLE),
    *(Healing(name, "Losses", "1/2", SHORT, settings) for name, settings in LOSSES.items()),
    Healing("3/4, 2 M", "Asked", "3/4", THREE),
    Healing("1/2, 4 M", "Asked", "1/2", LONG),
    *(
        Healing(f"{name}, {tokens / 1e6:g} M", "Units", child, tokens, settings)
        for tokens in (SHORT, MIDDLE)
        for name, child, settings in UNITS
    ),
    *(
        Healing(f"rate {rate:g}", f"Rates at {child}", child, SHORT, {"rate": rate})
        for child, rates in (("1/2", (2.5e-4, 5e-4, 1e-3, 2e-3)), ("3/4", (1e-4, 2e-4, 4e-4, 8e-4)))
        for rate in rates
    ),
    Healing("one cut", "Stages at 1/4", "1/4", 2 * SHORT),
    Healing("two cuts", "Stages at 1/4", "1/4 in two", 2 * SHORT),
    Healing("uniform", "Per layer at 70 %", "70 % uniform", SHORT),
    Healing("per layer", "Per layer at 70 %", "70 % per layer", SHORT),
    *(Healing(name, "Schedules at 1/2", "1/2", MIDDLE, settings) for name, settings in SCHEDULES.items()),
    *(
        Healing(f"{name}, seed {seed}", "Seeds at 1/2", "1/2", SHORT, {**LOSSES[name], "seed": seed})
        for seed in (0, 1, 2)
        for name in ("KL", "KL + hidden")
    ),
    *(
        Healing(name, "Equal seconds at 1/2", "1/2", 0, {**settings, "seconds": SECONDS})
        for name, settings in LOSSES.items()
        if name in TIMED
    ),
    *(Healing(name, "4 M at 1/2", "1/2", LONG, settings) for name, settings in LONGEST.items()),
)


class Workplace:
    """The folder of what was made: texts, children, and the result of each run."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("ZEROLM_CACHE", str(folder / "cache"))
        self.seen, self.unseen = folder / "seen.txt", folder / "unseen.txt"
        for file, text in ((self.seen, seen_text), (self.unseen, unseen_text)):
            if not file.exists():
                file.write_text(text(), encoding="utf-8")

    def child(self, name: str) -> Path:
        """Return the folder of a child, made where it is not there yet."""
        place = self.folder / "children" / name.replace("/", "-").replace(" ", "-")
        if (place / "recipe.json").exists():
            return place
        place.parent.mkdir(exist_ok=True)
        if name == "scratch":
            self._scratch(place)
        else:
            settings = next(child.settings for child in CHILDREN if child.name == name)
            zerolm.carve(self.model, place, text=self.seen, sequences=CALIBRATION, length=LENGTH, **settings)
        return place

    def _scratch(self, place: Path) -> None:
        """Write the network of the child of one half at random initialisation, with its recipe."""
        from transformers import AutoConfig, AutoModelForCausalLM

        like = self.child("1/2")
        shutil.copytree(like, place)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(like), dtype=torch.float32)
        model.save_pretrained(place)

    def healed(self, run: Healing) -> dict[str, Any]:
        """Heal a child, judged on text that the parent has not seen, and return all that is known of it."""
        from zerolm.healing.heal import Healing as Job
        from zerolm.healing.held_out import HeldOut
        from zerolm.healing.patient import Patient
        from zerolm.text.calibration import tokens_of

        if run.child.endswith("in two"):
            return self._staged(run)
        with tempfile.TemporaryDirectory() as scratch:
            patient = Patient.of(self.child(run.child), self.model, None, Path(scratch), note)
            job = scheduled(Job, run)(patient, request(run, self.seen), note)
            job.held_out = HeldOut(
                tokens_of(patient.parent, str(self.unseen), sequences=JUDGED, length=LENGTH), None
            )
            work = self.folder / "runs" / file_name(run)
            work.mkdir(parents=True, exist_ok=True)
            return job.healed(work).to_json()

    def _staged(self, run: Healing) -> dict[str, Any]:
        """Cut to a quarter in two stages, the first healed on half of the tokens."""
        from zerolm.carving.request import Destination, MethodRequest, methods_of
        from zerolm.evaluation.evaluate import evaluate
        from zerolm.healing.stages import Stages, carve_and_heal
        from zerolm.planning.size_request import SizeRequest

        place = self.folder / "children" / "staged"
        if not place.exists():
            size = SizeRequest.of(keep={"ffn": 0.25, "heads": 0.25})
            methods = methods_of(
                size, MethodRequest(text=str(self.seen), sequences=CALIBRATION, length=LENGTH)
            )
            stages = Stages(size, methods, request(run, self.seen), 2)
            carve_and_heal(self.model, stages, Destination(place), progress=note)
        rows = evaluate(
            place, self.model, self.unseen, sequences=JUDGED, length=LENGTH, progress=note
        ).networks
        once = next(one for one in RUNS if one.table == run.table and one is not run)
        before = self.measured(once)["losses"]["before"]
        return {
            "losses": {"before": before, "after": rows[0].values},
            "training": {"seconds": 0.0},
            "curve": [],
        }

    @property
    def parts(self) -> Parts:
        return Parts(self.folder / "parts.jsonl")

    def measured(self, run: Healing) -> dict[str, Any]:
        """Return the result of a run, the stored one where it, or one that is the same, was made."""

        def result() -> dict[str, Any]:
            same = (self.stored(other) for other in RUNS if other.identity == run.identity)
            return next(filter(None, same), None) or self.healed(run)

        return dict(self.parts.measured(file_name(run), result))

    def stored(self, run: Healing) -> dict[str, Any] | None:
        result: dict[str, Any] | None = self.parts.stored(file_name(run))
        return result

    def memory(self) -> dict[str, float]:
        """Return the peak memory in MB of healing a larger child: the teacher beside it, or on the disk."""

        def peaks() -> dict[str, float]:
            parent, child = self._larger()
            return {
                name: _peak_of(parent, child, self.unseen, self.folder / "healed", more)
                for name, more in (("beside", ["--losses", "kl"]), ("disk", ["--top", "64"]))
            }

        return dict(self.parts.measured("memory", peaks))

    def _larger(self) -> tuple[Path, Path]:
        """Return a random parent of LARGER sizes, and its child with half of heads and FFN."""
        from transformers import AutoConfig, AutoModelForCausalLM

        import zerolm

        parent, child = self.folder / "larger", self.folder / "larger-child"
        if not child.exists():
            config = AutoConfig.from_pretrained(self.model, **LARGER)
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(parent)
            for file in self.model.glob("tokenizer*"):
                shutil.copy(file, parent)
            zerolm.carve(parent, child, keep_ffn=0.5, keep_heads=0.5)
        return parent, child


def _peak_of(parent: Path, child: Path, text: Path, out: Path, more: Sequence[str]) -> float:
    """Return the peak memory in MB of a healing of two steps in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "zerolm",
        "heal",
        str(child),
        "--parent",
        str(parent),
        "--text",
        str(text),
    ]
    command += ["--out", str(out), "--force", "--quiet", "--tokens", "256", "--batch", "1", "--length", "128"]
    run = subprocess.run(
        [sys.executable, "-c", PEAK, *command, *more], check=True, capture_output=True, text=True
    )
    return int(run.stdout.split()[-1]) / 1000


def scheduled(job: type, run: Healing) -> type:
    """Return the class of a healing whose rate falls over the share of the steps that the run names."""
    if "decay" not in run.settings:
        return job

    class Scheduled(job):
        def _plan(self, *given: Any) -> Any:
            plan = super()._plan(*given)
            return replace(plan, schedule=replace(plan.schedule, decay=run.settings["decay"]))

    return Scheduled


def request(run: Healing, text: Path) -> Any:
    """Return the request of a run."""
    from zerolm.healing.request import Distillation, HealRequest, Texts
    from zerolm.training.request import Execution

    own = dict(run.settings)
    own.pop("decay", None)
    distillation = Distillation(own.pop("losses", None), top=own.pop("top", None))
    execution = Execution(compile=run.tokens >= MIDDLE)
    return HealRequest(
        Texts((str(text),), length=LENGTH),
        run.tokens or None,
        distillation=distillation,
        execution=execution,
        **own,
    )


HEAD: Final = "| run | tokens | rate | KL before | after | left | perplexity | seconds |"


def file_name(run: Healing) -> str:
    text = f"{run.table} {run.name}".lower()
    return "".join(character if character.isalnum() else "-" for character in text)


def document(work: Workplace) -> Iterator[str]:
    """Yield the lines of the page, of what is stored."""
    results = [(run, result) for run in RUNS if (result := work.stored(run))]
    yield from ("# What healing gives back", "")
    yield "`python benchmarks/healing.py --model pydec --work FOLDER`."
    yield from (f"{machine()}; torch {torch.__version__}, one thread.", "")
    yield (
        f"A child of {work.model.name} is cut uniformly (a share of FFN and heads, by `output_energy`, "
        f"least squares on {CALIBRATION} sequences), trained on modules of the standard library that the "
        f"parent has seen and judged on {JUDGED} sequences of {LENGTH} tokens of modules that it has not: KL "
        "to the parent in nats a token. *Left* is the share of the KL before healing. Settings are those of "
        "`zerolm heal` unless the row says other. Seconds are of one thread on a machine that was busy with "
        f"other work. {len(results)} of {len(RUNS)} runs are measured."
    )
    if peaks := work.parts.stored("memory"):
        size = f"{LARGER['num_hidden_layers']} x {LARGER['hidden_size']}"
        yield from ("", "## Memory", "")
        yield (
            f"A random parent of {size}, its child with half of heads and FFN, one sequence of 128 tokens, "
            f"float32 weights. Peak with the teacher beside the child: **{peaks['beside']:,.0f} MB**; with "
            f"its 64 likeliest tokens on the disk: **{peaks['disk']:,.0f} MB**."
        )
    for name in dict.fromkeys(run.table for run in RUNS):
        rows = [(run, result) for run, result in results if run.table == name]
        if not rows:
            continue
        yield from ("", f"## {name}", "", HEAD, "|---|---:|---:|---:|---:|---:|---:|---:|")
        yield from (row(run, result) for run, result in rows)
        if name in CURVES:
            yield from curves(rows)


def row(run: Healing, result: dict[str, Any]) -> str:
    before, after = (result["losses"][who] for who in ("before", "after"))
    training = result["training"]
    rate = f"{training['rate']:.2g}" if "rate" in training else ""
    tokens = training.get("tokens", run.tokens) / 1e6
    return (
        f"| {run.name} | {tokens:.2f} M | {rate} | {before['kl']:.4f} | {after['kl']:.4f} | "
        f"{after['kl'] / before['kl']:.3f} | {after['perplexity']:.2f} | {training['seconds']:,.0f} |"
    )


def curves(rows: Sequence[tuple[Healing, dict[str, Any]]]) -> Iterator[str]:
    """Yield the KL on the way, on 32 of the sequences."""
    yield ""
    for run, result in rows:
        points = [point for point in result["curve"] if "kl" in point]
        told = ", ".join(f"{point['tokens'] / 1e6:.2f} M {point['kl']:.3f}" for point in points)
        yield f"On the way, {run.name}, on 32 of the sequences: {told}."
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the folder of the parent")
    parser.add_argument("--work", type=Path, required=True, help="folder of texts, children and results")
    parser.add_argument("--only", default="", help="run those alone whose table or name begins so")
    parser.add_argument("--stored", action="store_true", help="write the page of what is measured already")
    given = parser.parse_args()
    one_thread()
    work = Workplace(given.model.resolve(), given.work.resolve())
    if not given.stored and "Memory".startswith(given.only):
        work.memory()
    for run in () if given.stored else RUNS:
        if f"{run.table}: {run.name}".startswith(given.only):
            work.measured(run)
    PLACE.write_text("\n".join(document(work)).rstrip() + "\n", encoding="utf-8")
    note(f"wrote {PLACE.name}")


if __name__ == "__main__":
    main()
