"""The run of ``zerolm bench carve``: a checkpoint, or random weights, their pace here, and a carving."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from zerolm.carving.pace import Pace
from zerolm.carving.recipe import versions_of
from zerolm.carving.timed import Command, FilePace, carve_timed, carving_commands, foretold, paces
from zerolm.checkpoints import Checkpoint
from zerolm.io.machine import peak_memory, processor
from zerolm.io.memory import free_memory
from zerolm.networks.compute import compute
from zerolm.networks.opener import STORED
from zerolm.networks.random_weights import random_checkpoint
from zerolm.progress import Progress, announce
from zerolm.settings.compute import ComputeRequest
from zerolm.units.kept_units import dimensions
from zerolm.verbs.bench_carve import (
    BenchCarveSettings,
    CarvedTime,
    CarvingTimes,
    CommandTime,
    MachineFacts,
    MeasuredPace,
    PartTime,
)
from zerolm.verbs.report import run_of

ROOM: Final = {False: 1.0, True: 2.0}
"""Disk for random weights, and for a child of theirs where one is carved, in units of the weights."""


def times_of(request: BenchCarveSettings, progress: Progress) -> CarvingTimes:
    """Return what carving the model of a request takes here."""
    # A limit of tokens, and a device, are refused before weights are drawn.
    running = compute(request.compute)
    most = carving_commands(request.sequences, request.length)[-1]
    most.methods.check()
    with _opened(request, progress) as (checkpoint, is_drawn, place):
        positions = checkpoint.layout.sizes.get("positions") or request.length
        length = min(request.length, positions)
        commands = carving_commands(request.sequences, length)
        progress("taking the time of a layer, the head and files")
        pace, files = paces(checkpoint, length, request.compute)
        tensors = [checkpoint.tensors[name] for name in checkpoint.layout.slots]
        carved = None
        if request.run_:
            carved = _carved(checkpoint, commands[1], (pace, files), place, request.compute, progress)
        return CarvingTimes(
            request.model,
            _shape(checkpoint),
            sum(tensor.count for tensor in tensors),
            sum(tensor.end - tensor.start for tensor in tensors),
            is_drawn,
            _machine(running.device, running.products),
            MeasuredPace(**vars(pace)),
            [_foretold(checkpoint, command, pace, files) for command in commands],
            carved,
            run=run_of(request),
        )


def _shape(checkpoint: Checkpoint) -> str:
    """Return the sizes of a model in words."""
    parent, vocabulary = dimensions(checkpoint), checkpoint.layout.vocab
    return (
        f"{checkpoint.family.name} of {parent.depth} layers, hidden {parent.hidden}, {parent.heads} heads, "
        f"{parent.kv_heads} KV heads, FFN {parent.ffn}, vocabulary {vocabulary:,}"
    )


@contextmanager
def _opened(request: BenchCarveSettings, progress: Progress) -> Iterator[tuple[Checkpoint, bool, Path]]:
    """Yield the checkpoint, whether its weights are random, and a temporary folder for what is carved."""
    folder = Path(request.model)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {request.model!r} with a checkpoint or a config.json")
    with TemporaryDirectory(prefix="zerolm-bench-carve-") as name:
        place = Path(name)
        if any(any(folder.glob(pattern)) for pattern in STORED):
            checkpoint = Checkpoint.open(folder)
            if checkpoint.family.task != "next":
                raise ValueError(f"{request.model!r}: a {checkpoint.family.name} is no decoder")
            yield checkpoint, False, place
            return
        weights = place / "model"
        weights.mkdir()
        room = ROOM[request.run_]
        yield random_checkpoint(folder, weights, room=room, progress=progress), True, place


def _foretold(checkpoint: Checkpoint, command: Command, pace: Pace, files: FilePace) -> CommandTime:
    seconds = foretold(checkpoint, command, pace, files)
    return CommandTime(
        command.words, _tokens(command), [PartTime(name, value) for name, value in seconds.items()]
    )


def _tokens(command: Command) -> int:
    methods = command.methods
    return 0 if methods.text is None else methods.count * methods.length


def _carved(
    checkpoint: Checkpoint,
    command: Command,
    measured: tuple[Pace, FilePace],
    place: Path,
    request: ComputeRequest,
    progress: Progress,
) -> CarvedTime:
    """Return what a carving took that was carried out."""
    seconds = foretold(checkpoint, command, *measured)
    announce(progress, f"carving takes about {sum(seconds.values()):.0f} s")
    device = compute(request).device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    clock = carve_timed(checkpoint, command, place, request, progress)
    parts = [
        PartTime(name, seconds.get(name, 0.0), clock.seconds.get(name, 0.0), clock.processor.get(name, 0.0))
        for name in {**seconds, **clock.seconds}
    ]
    on_device = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return CarvedTime(command.words, _tokens(command), parts, peak_memory(), on_device)


def _machine(device: torch.device, products: torch.dtype) -> MachineFacts:
    """Return what it runs on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    dtype = str(products).removeprefix("torch.")
    versions = versions_of("torch", "transformers")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return MachineFacts(processor(), usable, torch.get_num_threads(), name, dtype, free_memory(), versions)
