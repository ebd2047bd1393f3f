"""Help, version, completion, suggestions and the log: what a newcomer meets first."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import Zerolm

from zerolm.cli.complete import HOMES, KINDS, names_of, script_of
from zerolm.cli.parser import flags, nearest_flag
from zerolm.settings.request import PLACED
from zerolm.verbs import MORE, PANELS, VERBS, commands


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def flat(text: str) -> str:
    """The words of a page without its frames."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("name", commands())
def test_help_names_everything_and_cuts_nothing(name: str, zerolm: Zerolm) -> None:
    request, ran = commands()[name].request, zerolm(*name.split(), "--help")
    assert (ran.status, ran.err) == (0, "")
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    text = flat(ran.out)
    assert "…" not in text
    for words in (f"Usage: zerolm {name}", commands()[name].summary, request.notes):
        assert " ".join(words.split()) in text
    for title, settings in {**request.groups(), "Output": request.output()}.items():
        assert not settings or f"─ {title} ─" in ran.out
    for setting in (*request.settings(), *request.output()):
        if setting not in request.groups()[PLACED]:
            assert setting.flag in text
        if setting.default_text and setting.kind != "flag" and setting.name != "verbose":
            assert f"[{setting.default_text}]" in text
    for line, what in request.examples:
        assert " ".join(line.split()) in text
        assert " ".join(what.split()) in text


@pytest.mark.parametrize("name", commands())
def test_every_setting_has_a_sentence_and_every_command_examples(name: str) -> None:
    request = commands()[name].request
    assert request.name == name
    for setting in (*request.settings(), *request.output()):
        assert len(setting.help.split()) >= 2
        assert not setting.help.endswith(".")
    assert 1 <= len(request.examples) <= 5
    assert request.examples[0][0].startswith(f"zerolm {name}")
    assert all(line.startswith("zerolm ") and what for line, what in request.examples)
    assert commands()[name].summary.endswith((".", "?"))


def test_each_command_stands_in_one_panel(zerolm: Zerolm) -> None:
    """The first page shows the commands of zerolm itself and a line for the laboratory, which has a page."""
    assert {verb.panel for verb in VERBS.values()} == set(PANELS)
    lab = {name: verb for name, verb in commands().items() if name not in VERBS}
    assert {name.split()[0] for name in lab} == set(MORE)
    for verbs, ran in ((VERBS, zerolm("--help")), (lab, zerolm("lab", "--help"))):
        assert all(len(line) <= 80 for line in ran.out.splitlines())
        for name, verb in verbs.items():
            assert f"─ {verb.panel} ─" in ran.out
            assert name in ran.out
            assert verb.summary in flat(ran.out)
    assert all(line in flat(zerolm("--help").out) for line in MORE.values())


def test_help_of_a_word_that_begins_several(zerolm: Zerolm) -> None:
    for words, name in (("bench", "bench run"), ("lab", "lab ablate"), ("lab elastic", "lab elastic train")):
        ran = zerolm(*words.split(), "--help")
        assert ran.status == 0
        assert name in ran.out
        assert "calibrate" not in ran.out
    for words in ("", "bench", "lab elastic"):
        bare = zerolm(*words.split())
        assert (bare.status, bare.out, "Usage" in bare.err) == (2, "", True)


def test_settings_of_what_is_named(zerolm: Zerolm) -> None:
    assert "--heads-per-kv" in zerolm("search", "llama", "--help").out
    assert "--heads-per-kv" not in zerolm("search", "--help").out
    assert "--alpha X" in zerolm("search", "--score", "zerolm", "--help").out
    assert "--alpha X" not in zerolm("search", "llama", "--help").out


def test_version_says_which_extras_are_there(zerolm: Zerolm) -> None:
    import zerolm as package

    ran = zerolm("--version")
    assert ran.status == 0
    first, *extras = ran.out.splitlines()
    assert first == f"zerolm {package.__version__}, Python {sys.version.split()[0]}"
    assert {line.split()[0] for line in extras} >= {"torch", "gguf", "tasks"}
    import torch

    assert any(f"torch {torch.__version__}" in line for line in extras)


def test_version_and_help_import_no_library() -> None:
    code = (
        "import sys; from zerolm.cli import main\n"
        "def check():\n"
        "    status = main(sys.argv[1:])\n"
        "    heavy = {'numpy', 'torch', 'scipy', 'pydantic', 'yaml', 'huggingface_hub'} & set(sys.modules)\n"
        "    assert status == 0 and not heavy, heavy"
    )
    shown = ["--help"], ["--version"], *([*name.split(), "--help"] for name in commands())
    run = f"for arguments in {shown!r}: sys.argv[1:] = arguments; check()"
    subprocess.run([sys.executable, "-c", f"{code}\n{run}"], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serch"], "no command 'serch'; did you mean 'search'?"),
        (["bench", "rnu"], "no command 'bench rnu'; did you mean 'bench run'?"),
        (["search", "bert", "--max-prams", "1M"], "no option --max-prams; did you mean '--max-params'?"),
        (["init", "--out", "x"], "init has no option --out; give DIR without it"),
        (["bench", "run", "--scores", "geo"], "has no option --scores; zerolm bench run --help lists all"),
        (["bench", "run", "--score", "geo"], "zerolm search, score, lab elastic search have it"),
        (["calibrate", "--text", "x"], "calibrate has no option --text; zerolm search, carve, heal and "),
        (["spaces", "--keep-ffn", "x"], "spaces has no option --keep-ffn; zerolm carve has it"),
        (["carve", "x", "--vocab", "9"], "has no option --vocab; did you mean '--keep-vocab'?"),
        (["search", "berd"], "did you mean 'bert'?"),
        (["search", "bert", "--method", "exhaustiv"], "did you mean 'exhaustive'?"),
        (["carve", "x", "--shape", "uniforn"], "did you mean 'uniform'?"),
        (["spaces", "lama"], "did you mean 'llama'?"),
    ],
)  # fmt: skip
def test_what_was_meant(arguments: list[str], words: str, zerolm: Zerolm) -> None:
    zerolm(*arguments).refused(words)


@pytest.mark.parametrize("name", commands())
def test_a_flag_without_a_letter_is_near_and_unrelated_ones_are_not(name: str) -> None:
    possible = flags(name)
    words = [flag.removeprefix("--") for flag in possible]
    for word in words:
        assert all(nearest_flag(word[:place] + word[place + 1 :], possible) for place in range(1, len(word)))
    for word in {"out", "scores", "text", "quit", "fource", "bugdet"} - set(words):
        near = (nearest_flag(word, possible) or f"--{word}").removeprefix("--")
        assert near[0] == word[0] or near.endswith(f"-{word}")


def completed(shell: str, line: str) -> list[str]:
    """The words that a shell is offered behind a line."""
    words = line.split(" ")
    more = {
        "_ZEROLM_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    run = "from zerolm.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", run], env=os.environ | more, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    if shell == "zsh":  # type, word and help, each on a line
        return lines[1::3]
    return [line.split(",", 1)[1].split("\t")[0] for line in lines]


@pytest.mark.parametrize(
    ("shell", "line", "words"),
    [
        ("bash", "zerolm se", ["search"]),
        ("zsh", "zerolm bench ", ["run", "train", "ls"]),
        ("fish", "zerolm lab ", ["proxies", "bench", "ablate", "slice", "elastic"]),
        ("zsh", "zerolm lab proxies mine.csv --proxies sni", ["snip"]),
        ("fish", "zerolm search ll", ["llama"]),
        ("bash", "zerolm search llama --hid", ["--hidden", "--hidden-per-depth"]),
        ("bash", "zerolm search llama --score ze", ["zerolm"]),
        ("bash", "zerolm calibrate labels.csv --method alg", ["algorithm1"]),
    ],
)
def test_the_tab_key(shell: str, line: str, words: list[str]) -> None:
    assert sorted(completed(shell, line)) == sorted(words)


def test_names_that_are_completed_are_those_that_are_known() -> None:
    from zerolm.carving.formats import FORMATS
    from zerolm.lab.zero_cost import defined_names, proxy_names
    from zerolm.scores import SCORES
    from zerolm.spaces import SPACES

    known = {"space": SPACES, "score": SCORES, "format": FORMATS}
    assert all(names_of(HOMES[kind]) == list(names) for kind, names in known.items())
    assert sorted(defined_names()) == sorted(proxy_names())
    assert all(names_of(HOMES[kind]) for kind in KINDS.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_scripts(shell: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    ran = zerolm("--show-completion")
    assert ran.status == 0
    assert f"_ZEROLM_COMPLETE={shell}_complete" in ran.out
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):  # a second time changes nothing
        assert zerolm("--install-completion").status == 0
    files = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert script_of(shell) in files
    assert all(text.count("source ") <= 1 for text in files if text != script_of(shell))


def test_the_log_says_what_is_done(zerolm: Zerolm, tmp_path: Path) -> None:
    small = ("search", "bert", "--hidden", "128", "--depth", "2", "--max-params", "9M", "--json")
    silent, told, more = zerolm(*small), zerolm(*small, "-v"), zerolm(*small, "-vv", "--quiet")
    assert silent.err == ""
    lines = told.err.splitlines()
    assert any(
        re.fullmatch(r"zerolm: [\d.]+ s, steps: searching bert .* took [\d.]+ s", line) for line in lines
    )
    assert len(more.err.splitlines()) >= len(lines)
    documents = [json.loads(ran.out) for ran in (silent, told, more)]
    for document in documents:
        document["certificate"].pop("seconds")
    assert documents[0] == documents[1] == documents[2]
    zerolm(*small[:-1], "--out", str(tmp_path / "out"), "-vv", "--quiet")
    assert not re.search("verbose|quiet|out:|force|json", (tmp_path / "out" / "run.yaml").read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "absent", "--parent", "PARENT", "--text", "TEXT"], "there is no folder 'absent'"),
        (["heal", "CHILD", "--parent", ".", "--text", "T", "--for", "1m", "--out", "o"], "no folder 'CHILD'"),
        (["heal", ".", "--parent", ".", "--text", "T", "--out", "o"], "give the training length: --tokens"),
    ],
)  # fmt: skip
def test_a_mistyped_name_is_refused_before_torch_is_imported(arguments: list[str], words: str) -> None:
    code = "import sys; from zerolm.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["2", "False"]
    assert words in ran.stderr


def test_help_of_a_group_is_of_the_group(zerolm: Zerolm) -> None:
    for words in (["bench"], ["lab", "elastic"]):
        assert f"The commands of {' '.join(words)}." in zerolm(*words, "--help").out
    assert "Reproduce research" in zerolm("lab", "--help").out


def test_the_terminal_shows_each_score_once(zerolm: Zerolm) -> None:
    printed = zerolm("score", "SmolLM2-135M").out
    assert printed.count("45,972,231") == 1
    import zerolm as package

    assert "geo 45,972,231" in repr(package.score("SmolLM2-135M"))
