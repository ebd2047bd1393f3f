"""The commands that list and fetch: ``spaces``, ``bench ls`` and ``bench download``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.command import LISTING, Command
from zerolm.settings import Setting

DATA: Final = Setting(
    "data",
    "path",
    None,
    "folders of the benchmark files, as in PATH; else those of ZEROLM_DATA, else the cache",
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
    summary="List the benchmarks: those at hand, and those to download.",
    verb="zerolm.api.benchmarks:list_benchmarks",
    groups={"Benchmarks": (DATA,)},
    examples=(
        ("zerolm bench ls", "the folders of ZEROLM_DATA, the cache, and what can be fetched"),
        ("zerolm bench ls --data mine", "one folder alone"),
    ),
    notes="A benchmark is a JSON or CSV file of trained architectures with their results.",
    output=LISTING,
)
BENCH_DOWNLOAD: Final = Command(
    name="bench download",
    summary="Fetch published benchmarks, check them against pinned checksums, and keep them in the cache.",
    verb="zerolm.api.benchmarks:download_benchmarks",
    arguments=(
        Setting("names", "names", None, "the benchmarks to fetch; all where none is named", metavar="NAME"),
    ),
    groups={"Download": (Setting("force", "flag", False, "fetch also what is there and up to date"),)},
    examples=(
        ("zerolm bench download", "all eight, from GitHub"),
        ("zerolm bench download gpt2_wt103", "one of them"),
    ),
    notes="The cache is the folder benchmarks below ZEROLM_CACHE, else zerolm/benchmarks below "
    "XDG_CACHE_HOME or ~/.cache. ZEROLM_MIRROR=URL names a server to ask, for the same paths, in place of "
    "raw.githubusercontent.com and codeload.github.com; checksums hold for it too.",
    output=LISTING,
)
