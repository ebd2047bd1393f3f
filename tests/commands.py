"""Sound calls of every command on small inputs, and wrong values for each of its settings."""

import random
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from small_benchmarks import llamas
from tiny import saved, word_tokenizer

import zerolm
from zerolm.cli import main
from zerolm.settings import REQUIRED
from zerolm.settings.request import PLACED, Request
from zerolm.verbs import commands

SOUND: dict[str, tuple[str, ...]] = {
    name: tuple(words.split())
    for name, words in {
        "search": "bert --hidden 128 --depth 2",
        "init": "trained_anew --architecture SmolLM2-135M",
        "score": "parent",
        "calibrate": "--labels labels.csv",
        "bench run": "labels --data .",
        "lab ablate": "labels --data .",
        "bench train": "llama --text text.txt --count 2 --tokens 64 --batch 2 --length 8 --hidden 16"
        " --depth 1,2 --head-size 8 --ffn 32 --heads-per-kv 1 --hidden-per-depth 1:99"
        " --ffn-per-hidden 1:9 --vocab 300",
        "lab slice": "parent --text text.txt --count 2 --sequences 3 --length 8",
        "carve": "parent --keep-ffn .5 --criterion capacity",
        "eval": "child --parent parent --text text.txt --sequences 6 --length 12",
        "heal": "child --parent parent --text text.txt --tokens 128 --batch 2 --length 12 --out healed",
        "lab elastic train": "elastic --text text.txt --tokens 96 --batch 2 --length 8 --epochs 2 --depth 1"
        " --hidden 16 --heads 2 --embedding 6 --positions 16 --step 4 --words 300 --out trained",
        "lab elastic search": "net --generations 1",
        "lab elastic export": "net --path found --out model",
        "ledger": "parent",
        "doctor": "parent",
        "lab bench": "labels --data . --proxies params",
        "lab proxies": "labels --data . --proxies params --batch 8 --length 8 --micro-batches 2",
    }.items()
}
"""What follows the name; a command that is not here is called without more."""
NUMBERS = (
    "many", "", "nan", "inf", "-inf", "1e400", "9" * 5000, "-99999999999999999999", "1.5x", "0x10", "½",
)  # fmt: skip
WRONG: dict[str, tuple[str, ...]] = {
    "integer": (*NUMBERS, "0.5"),
    "amount": (*(text for text in NUMBERS if text != "1.5x"), "0.5", "-1"),
    "duration": (*NUMBERS, "0", "0.2s", "-1h", "5 weeks", "1h30m", "9" * 400 + "d"),
    "number": ("many", "", "nan", "inf", "-inf", "1e400", "1,5", "\udcff"),
    "cache bits": ("many", "", "nan", "inf", "0", "-8", "q8", "Q9_9", "1,5", "\udcff"),
    "percent": ("many", "", "nan%", "inf", "%", "10%%", "1e400", "-5%", "\udcff"),
    "integers": ("many", "", "8:4", "1:9:0", "1:2:3:4", "1:999999999999", "nan", ","),
    "numbers": ("many", "", "nan", "1,,2", "inf"),
    "shares": ("many", "", "nan", "1,,2", "inf", "0,1", "1,-1"),
    "interval": ("many", "", "1", "3:1", "nan:2", "1:2:3", "1:inf"),
    "texts": (
        "", "nowhere", "w" * 100_000, "\udcff", "code=nowhere", "a=text.txt,a=text.txt", "a=,b=text.txt",
    ),
    "paths": ("", "nowhere", "w" * 100_000, "\udcff"),
    "text": ("", "no such thing", "w" * 100_000, "\x1b[31m", "\udcff"),
    "names": ("no such thing", "w" * 100_000, ",,,x y,,", "\udcff"),
    "path": (
        *("", "nowhere", "nowhere/else", "empty", "binary", "folder", "closed", "/dev/null"),
        *("x" * 5000, "\udcff"),
    ),
}  # fmt: skip
"""Values by the kind of a setting; a file can be wrong in its content, too."""
FREE = {("eval", "tasks"), ("doctor", "folder"), ("bench ls", "data")}
"""Settings that may have any value: another program judges it, or that is what the command is for."""
NEW = {"out": {"nowhere", "\udcff"}, "store": {"nowhere", "nowhere/else", "empty", "\udcff"}}
"""Paths that come into being, and values that are none of a wrong one."""


def make_place(folder: Path) -> None:
    """Fill a folder with what the commands are called with, and files that are none of it."""
    word_tokenizer(saved(folder / "parent", "llama"))
    llamas(folder / "labels.csv", 12)
    (folder / "text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    (folder / "empty").write_text("")
    (folder / "binary").write_bytes(random.Random(0).randbytes(3000))
    (folder / "closed").write_text("secret")
    (folder / "closed").chmod(0)
    (folder / "folder").mkdir()
    for name, text in (("broken.json", '{"space": '), ("broken.csv", 'a,"b\n1'), ("broken.yaml", "a: [")):
        (folder / name).write_text(text)
    zerolm.carve(folder / "parent", folder / "child", keep_ffn=0.5, criterion="capacity")
    with chdir(folder):
        for name, out in (("lab elastic train", "net"), ("lab elastic search", "found")):
            assert main(call(name, "--out", out)) == 0


def call(name: str, *more: str) -> list[str]:
    """Return a sound call, with more behind it."""
    return [*name.split(), *SOUND.get(name, ()), *more]


def wrong_calls(request: type[Request]) -> Iterator[list[str]]:
    name, arguments = request.name, request.groups()[PLACED]
    words = name.split()
    for setting in (*request.settings(), *request.output()):
        if (name, setting.name) in FREE or setting.name == "verbose":
            continue
        placed = setting in arguments
        if setting.kind == "flag":
            yield call(name, f"{setting.flag}=maybe")
            continue
        if not placed:
            yield call(name, setting.flag)  # its value is missing
        kind = "text" if setting.choices else setting.kind
        for value in WRONG[kind]:
            if value in NEW.get(setting.name, ()):
                continue
            if placed:
                yield [*words, *SOUND.get(name, ())[len(arguments) :], "--", value]
            else:
                yield call(name, f"{setting.flag}={value}")
        if kind in ("path", "texts") and setting.name not in NEW:
            for file in ("broken.json", "broken.csv", "broken.yaml"):
                yield [*words, file] if placed else call(name, f"{setting.flag}={file}")
    yield call(name, "--no-such-flag")
    yield call(name, "--no-such-flag", "1")
    yield call(name, "one", "too", "many", "arguments", "--nothing")
    if any(setting.default is REQUIRED for setting in request.settings()):
        yield words
    yield [*words[:-1], words[-1][:-1] + "x"]  # its name mistyped


def all_wrong_calls() -> dict[str, list[list[str]]]:
    return {name: list(wrong_calls(verb.request)) for name, verb in commands().items()}
