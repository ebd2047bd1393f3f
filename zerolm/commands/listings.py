"""The commands that list: ``spaces`` and ``bench ls``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import LISTING, Command
from zerolm.settings import Setting

DATA: Final = Setting(
    "data",
    "path",
    None,
    "folders of the benchmark files, as in PATH; else those of ZEROLM_DATA, else the cache and zerolm's own",
    metavar="DIR",
)
SPACES: Final = Command(
    name="spaces",
    summary="List the search spaces with their exact size, the settings of one, or known decoders.",
    verb="zerolm.api.spaces:list_spaces",
    arguments=(Setting("name", "text", None, "the space whose settings are listed", metavar="SPACE"),),
    groups={
        "Known decoders": (
            Setting("known", "flag", False, "list published decoders, those of the space where one is named"),
        )
    },
    examples=(
        ("zerolm spaces", "all spaces, and how many architectures each holds"),
        ("zerolm spaces llama", "what can be set in one of them, with the defaults"),
        ("zerolm spaces --known", "published decoders: shapes, counts, and whether a space holds them"),
    ),
    notes="Every setting of a space is a flag of `zerolm search`, and a keyword of `zerolm.search`.",
    output=LISTING,
)
BENCH_LS: Final = Command(
    name="bench ls",
    summary="List the benchmarks at hand: where each is from, its licence, its results.",
    verb="zerolm.api.benchmarks:list_benchmarks",
    groups={"Benchmarks": (DATA,)},
    examples=(
        ("zerolm bench ls", "those of ZEROLM_DATA, of the cache, and of zerolm"),
        ("zerolm bench ls --data mine", "one folder alone"),
    ),
    notes="A benchmark is a JSON or CSV file of trained architectures with their results. Ten come with "
    "zerolm. A file of the same name in a folder of ZEROLM_DATA, else in the folder benchmarks of the cache, "
    "counts before them.",
    output=LISTING,
)
