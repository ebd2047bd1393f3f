"""Wrong input: one clear line on stderr, exit status 2, nothing on stdout, nothing half written."""

import json
import os
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from refusals import Zerolm, refused

from zerolm.scores import SCORES, closed_form

FAST = ("search", "bert", "--hidden", "128", "--depth", "2")

WRONG: dict[str, tuple[str, ...]] = {
    "search": ("no space is named", "zerolm spaces"),
    "search bert --score geometry": ("'geometry'", "geo", "zerolm"),
    "search llama --head-size 3 --hidden 384": ("odd", "4"),
    "search bert --max-params 40Q": ("--max-params", "'40Q'", "k, M, B or G, T"),
    "search llama --max-params 1M": ("1000000", "at least 10029312"),
    "search bert --min-params 1T": ("at most 1032199482",),
    "search bert --max-params 1M --min-params 2M": ("--min-params 2000000", "--max-params 1000000"),
    "search llama --max-params 20M --min-macs 90M": (
        "--max-params 20000000 would have to be at least",
        "--min-macs 90000000 would have to be at most",
    ),
    "search gpt2 --max-params 100k": ("100000", "at least"),
    "search gpt2 --hidden 128,192 --depth 2:4 --max-params 7M --min-macs 9M": (
        "--max-params 7000000 would have to be at least",
        "--min-macs 9000000 would have to be at most",
    ),
    "search bert --score zerolm --alpha nan": ("alpha", "nan"),
    "search bert --score zerolm": ("alpha",),
    "search llama --depth deep": ("depth", "'deep'"),
    "search llama --ffn 1:999999999:1": ("ffn", "larger step"),
    "search bert --d-embed 128": ("'d_embed'", "hidden"),
    "search llama --hidden 320 --head-size 64 --heads-per-kv 3,4,8": ("5", "--heads-per-kv [3, 4, 8]"),
    "search llama --per-layer --max-params 90M --max-kv-bytes 9MB --method exact": (
        "exact",
        "--max-params",
        "--max-kv-bytes",
        "milp",
    ),
    "search gpt2 --method exhaustive": ("exhaustive", "exact or milp"),
    "bench run --data .": ("'.' holds no benchmark", "gpt2_wt103"),
    "bench run x.json --alpha 1e308": ("alpha", "1e308"),
    "search llama --heads-per-kv many": ("--heads-per-kv must consist",),
    "search llama --max-params 40M --score zerolm --alpha much": ("--alpha must be a number",),
    "search llama --max-params 40M --kv-bits q8": (
        "--kv-bits 'q8' is neither bits nor a cache type; did you mean 'q8_0'? there are f32,",
    ),
    "carve x --for long": ("zerolm: --for must be a number with a unit",),
    "search llama --max-params 3": ("--max-params 3 would have to be at least",),
    "calibrate --labels": ("zerolm: --labels needs a value after it\n",),
    "calibrate --force=1": ("zerolm: --force is a switch and takes no value\n",),
    "calibrate x.csv": ("calibrate takes no argument 'x.csv'; did you mean --labels x.csv?",),
    "calibrate x --labels y": ("takes no further argument 'x': give it after",),
    "serch": ("no command 'serch'; did you mean 'search'?",),
    "bench rnu": ("no command 'bench rnu'; did you mean 'bench run'?",),
    "search bert --max-prams 1M": ("no option --max-prams; did you mean '--max-params'?",),
    "init --out x": ("init has no option --out; give DIR without it",),
    "bench run --scores geo": ("has no option --scores; zerolm bench run --help lists all",),
    "bench run --score geo": ("zerolm search, score, lab elastic search have it",),
    "calibrate --text x": ("calibrate has no option --text; zerolm search, carve, heal and ",),
    "spaces --keep-ffn x": ("spaces has no option --keep-ffn; zerolm carve has it",),
    "carve x --vocab 9": ("has no option --vocab; did you mean '--keep-vocab'?",),
    "search berd": ("did you mean 'bert'?",),
    "search bert --method exhaustiv": ("did you mean 'exhaustive'?",),
    "carve x --shape uniforn": ("did you mean 'uniform'?",),
    "spaces lama": ("did you mean 'llama'?",),
    "search --baseline SmolLM2-135M --max-train-bytes 1GB": (
        "the baseline SmolLM2-135M needs",
        "train_bytes",
    ),
    "search llama --max-train-flops 1e5 --train-tokens 1B": ("give at least 6e+09, or fewer --train-tokens",),
    "search llama --max-train-flops 1e19 --train-tokens 100T": (
        "--max-macs is --max-train-flops 1e+19 over",
    ),
    "search llama --max-train-flops 0": ("--max-train-flops must be",),
    "search llama --train-tokens=0": ("--train-tokens must be",),
    "search llama --train-tokens=-3": ("--train-tokens must be",),
    "search llama --train-tokens=none": ("--train-tokens must be",),
    "search llama --max-train-bytes 1": ("would have to be at least",),
    "search gpt2-uniform --max-train-bytes 4GB": ("known of llama, qwen3, not of gpt2-uniform",),
    "search llama --max-train-flops 1e18 --vocabularies 300,400 --text x.txt": ("one vocabulary",),
}
"""Commands as a user types them, and words of the message."""


@pytest.mark.parametrize("line", WRONG)
def test_one_line_and_status_2(line: str, zerolm: Zerolm) -> None:
    zerolm(*shlex.split(line)).refused(*WRONG[line])


@pytest.mark.parametrize(("code", "end"), [((), "by SystemExit\n"), (("enough",), "by SystemExit: enough\n")])
def test_a_plugin_does_not_end_the_program_in_silence(
    code: tuple[str, ...], end: str, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SCORES, "_entries", dict(SCORES._entries))
    closed_form("ending", source="a test")(lambda *_, **__: sys.exit(*code))
    ran = zerolm(*FAST, "--score", "ending")
    ran.refused("zerolm: a plug-in has ended zerolm search by SystemExit")
    assert ran.err.endswith(end)


def test_force_replaces_only_when_the_new_one_is_complete(
    zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert zerolm(*FAST, "--out", str(out)).status == 0
    before = (out / "result.json").read_text()

    def fail(*_: Any) -> str:
        raise ValueError("the disk is full")

    monkeypatch.setattr("zerolm.verbs.search_report.SearchReport.page", fail)
    assert zerolm(*FAST, "--top", "2", "--out", str(out), "--force").status == 2
    assert (out / "result.json").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    monkeypatch.undo()
    assert zerolm(*FAST, "--top", "2", "--out", str(out), "--force").status == 0
    assert len(json.loads((out / "result.json").read_text())["best"]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("names", [["result.json", "mine"], ["mine"], ["pick"]])
def test_force_replaces_earlier_results_alone(names: list[str], zerolm: Zerolm, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in names:
        (out / name).write_text("dear")
    zerolm(*FAST, "--out", str(out)).refused("--force")
    zerolm(*FAST, "--out", str(out), "--force").refused("more than an earlier result")
    assert sorted(p.name for p in out.iterdir()) == sorted(names)


def test_force_does_not_replace_the_folder_one_stands_in(zerolm: Zerolm, here: Path) -> None:
    for out in (".", str(here)):
        assert zerolm(*FAST, "--out", out, "--force").status == 2


GOOD: dict[str, Any] = {
    "name": "mine",
    "space": "gpt2",
    "metric": "ppl",
    "higher_is_better": False,
    "architectures": [
        {
            "id": str(i),
            "architecture": {
                "n_layer": 2, "d_model": 64 * i, "d_inner": [256, 300 + i], "n_head": [2, 2],
                "d_embed": 128, "div_val": 1,
            },
            "results": {"ppl": 50.0 - i},
        }
        for i in (1, 2, 3)
    ],
}  # fmt: skip


def spoil(path: str, value: Any) -> str:
    """The good benchmark with one field replaced, or removed (``...``)."""
    document = json.loads(json.dumps(GOOD))
    place, *steps = path.split(".")
    target, key = document, place
    for step in steps:
        target = target[int(key)] if isinstance(target, list) else target[key]
        key = step
    if value is ...:
        del target[key]
    elif isinstance(target, list):
        target[int(key)] = value
    else:
        target[key] = value
    return json.dumps(document)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 7)
)
WRONG_FILES: dict[tuple[str, ...], list[tuple[str, tuple[str, ...]]]] = {
    ("bench", "run", "mine.json"): [
        (json.dumps(GOOD)[:-40], ("cannot be read",)),
        ("", ("cannot be read",)),
        ("[" * 100_000, ("cannot be read",)),
        ("[]", ("benchmark file", "must be a JSON object")),
        (spoil("space", ...), ("space", "required")),
        (spoil("architectures", ...), ("architectures", "required")),
        (spoil("architectures", []), ("architectures", "at least 2")),
        (spoil("architectures.1.results", ...), ("architectures.1.results",)),
        (spoil("architectures.1.results", {}), ("no metric 'ppl'",)),
        (spoil("architectures.1.results.ppl", "low"), ("architectures.1.results.ppl",)),
        (spoil("architectures.1.results.ppl", float("nan")), ("ppl of 2", "finite")),
        (spoil("architectures.1.architecture.d_inner", [256]), ("architecture 2", "d_inner", "depth is 2")),
        (spoil("architectures.1.architecture.d_model", ...), ("architecture 2", "d_model")),
        (spoil("architectures.1.architecture.d_model", 10**30), ("architecture 2", "d_model")),
        (spoil("architectures.1.architecture.n_head", [3, 3]), ("architecture 2", "3 heads")),
        (spoil("space", "mamba"), ("'mamba'", "flexibert")),
        (spoil("metric", "accuracy"), ("'accuracy'", "ppl")),
        (spoil("count", 7), ("7", "3")),
        (spoil("metric", "ppl\x1b[31m"), ("metric", "one line of at most 200 characters")),
        (
            json.dumps(GOOD).replace("49.0", "50.0").replace("48.0", "50.0").replace("47.0", "50.0"),
            ("all 3 results of ppl are the same: nothing can be ranked",),
        ),
        ("9" * 5000, ("cannot be read: a number has 5000 digits",)),
    ],
    ("score", "config.json"): [
        ("{", ("cannot be read",)),
        ("[]", ("object",)),
        ("{}", ("model_type",)),
        ('{"space": "lama", "architecture": {}}', ("'lama'", "llama")),
        ('{"space": "llama", "architecture": {"depth": 2}}', ("'hidden'",)),
        ('{"space": "llama", "settings": {"vocab": "x"}, "architecture": {}}', ("vocab", "'x'")),
        ('{"space": "llama", "settings": {"depth": 3}, "architecture": {}}', ("range of depth",)),
        ('{"space": "llama", "space": "bert", "architecture": {}}', ("'space' is given twice",)),
        (
            '{"space": "llama", "architecture": {"depth": 2, "hidden": 12, "head_size": 3, "heads": 4,'
            ' "ffn": 8}}',
            ("head_size 3 is odd",),
        ),
        ('{"model_type": "rwkv"}', ("'rwkv'", "llama")),
        ('{"model_type": "llama", "hidden_size": 65}', ("65", "32")),
        (
            '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,'
            ' "num_key_value_heads": 3, "intermediate_size": 8, "vocab_size": 9}',
            ("4", "3", "divisible"),
        ),
    ],
    ("search", "--config", "run.yaml"): [
        ("space: [", ("cannot be read",)),
        ("- llama", ("mapping",)),
        ("space: bert\nmax_prams: 1M", ("'max_prams'", "max_params")),
        ("space: bert\nbudgets: {}", ("'budgets'",)),
        ("space: bert\ntop: many", ("top", "'many'")),
        ("space: bert\nmax_params: 9M\nmax_params: 8M", ("'max_params' is given twice",)),
        ("space: bert\nmax_params: 9M\nmax-params: 8M", ("'max_params' twice",)),
        ("space: !!python/object/apply:os.system ['true']", ("cannot be read",)),
        (BOMB, ("'a1' is more than a list of plain values",)),
        ("space: bert\ndepth: &d [[*d]]\n", ("cannot be read",)),
        (f"space: bert\ndepth: [{'x, ' * 100_000}]\n", ("depth must consist of integers, not 'x'",)),
        (f"space: bert\nscore: {'w' * 100_000}\n", ("is not known",)),
        (f"space: {'w' * 100_000}\n", ("is not known",)),
        (f"space: bert\nmax_params: {'9' * 100_000}\n", ("max_params",)),
        (f"space: bert\n? [{'w' * 100_000}]\n: 1\n", ("cannot be read",)),
    ],
}


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [(command, *case) for command, cases in WRONG_FILES.items() for case in cases],
)
def test_files_that_cannot_be(
    command: tuple[str, ...],
    text: str,
    words: tuple[str, ...],
    zerolm: Zerolm,
    here: Path,
) -> None:
    Path(command[-1]).write_text(text)
    ran = zerolm(*command)
    ran.refused(*words)
    assert len(ran.err) < 1200


def test_the_good_benchmark_is_good(zerolm: Zerolm, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(GOOD))
    assert {
        row["tau"]
        for row in zerolm("bench", "run", str(file), "--json").document["rows"]
        if row["score"] == "geo"
    } == {1.0}


def test_files_that_are_no_text_of_ours(zerolm: Zerolm, tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    file.write_bytes(b"\xff\xfe\x00")
    for arguments in (["score", str(file)], ["bench", "run", str(file)], ["search", "--config", str(file)]):
        zerolm(*arguments).refused("it.json")


@pytest.mark.parametrize("arguments", [["score"], ["search", "--config"]])
def test_devices_are_not_read(arguments: list[str], zerolm: Zerolm) -> None:
    zerolm(*arguments, "/dev/zero").refused("regular file")


def test_arithmetic_that_fails_is_one_line(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OverflowError(34, "Numerical result out of range")

    monkeypatch.setattr("zerolm.verbs.search_run.search", fail)
    zerolm(*FAST).refused("cannot be computed with")


@pytest.mark.parametrize("command", [("bench", "run"), ("lab", "ablate")])
def test_one_architecture_three_times(command: tuple[str, str], zerolm: Zerolm, tmp_path: Path) -> None:
    document = json.loads(json.dumps(GOOD))
    for entry in document["architectures"]:
        entry["architecture"] = GOOD["architectures"][0]["architecture"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    ran = zerolm(*command, str(file))
    assert (ran.status, "Traceback" in ran.err) == (0, False)


def nothing_runs(*_: Any, **__: Any) -> None:
    pytest.fail("the work began before its output was tried")


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (FAST, "zerolm.verbs.search_run.search"),
        (("bench", "run", "mine.json"), "zerolm.comparison.bench.bench"),
        (("calibrate", "--labels", "mine.json"), "zerolm.calibration.calibrate"),
    ],
)
@pytest.mark.parametrize("place", ["closed", "file", "proc", "long"])
def test_an_output_that_cannot_be_written_is_noticed_at_once(
    command: tuple[str, ...], work: str, place: str, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(work, nothing_runs)
        (folder / "mine.json").write_text(json.dumps(GOOD))
        (folder / "file").write_text("dear")
        (folder / "closed").mkdir(mode=0o555)
        folder.chmod(0o755)
        out = {"closed": "closed/out", "file": "file/out", "proc": "/proc/out", "long": "x" * 250}[place]
        user = os.geteuid()
        if user == 0:  # nothing is closed to root
            os.seteuid(65534)
        try:
            ran = zerolm(*command, "--out", out)
        finally:
            os.seteuid(user)
        ran.refused()
        assert out[:40] in ran.err or "'file'" in ran.err or "/file" in ran.err
        assert sorted(path.name for path in folder.rglob("*")) == ["closed", "file", "mine.json"]


def test_aliases_of_plain_lists_are_read(zerolm: Zerolm, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("space: flexibert\nhidden: &sizes [128]\nffn: *sizes\ndepth: [2]\njson: true\n")
    question = zerolm("search", "--config", str(file)).document["question"]
    assert question["space"]["settings"]["ffn"] == [128]


ABSENT_TEXTS = (
    ("carve", "parent", "--max-params", "0.8x", "--out", "child", "--text", "absent.txt"),
    ("carve", "parent", "--max-params", "0.8x", "--out", "child", "--text", "code=absent.txt,chat=random"),
    ("heal", "child", "--parent", "parent", "--text", "absent.txt", "--for", "1m", "--out", "healed"),
    ("eval", "child", "--parent", "parent", "--text", "absent.txt"),
    ("search", "llama", "--vocabularies", "512,1024", "--text", "absent.txt"),
    ("bench", "train", "llama", "--text", "absent.txt", "--out", "trained"),
    ("lab", "proxies", "flexibert", "--text", "absent.txt"),
    ("lab", "slice", "parent", "--text", "absent.txt", "--out", "sliced"),
)


@pytest.mark.parametrize("command", ABSENT_TEXTS, ids=" ".join)
def test_an_absent_text_is_refused_before_any_network_is_there(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zerolm: Zerolm
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("parent", "child"):
        (tmp_path / folder).mkdir()
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(zerolm, *command, words="the text 'absent.txt' does not exist")
