"""The package's types, and what type checkers say of its benchmarks and to its users."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RIGHT = """
import zerolm
import zerolm.lab

result = zerolm.search("llama", max_params="60M", hidden="512,768", top=3)
costs: dict[str, int] = result.pick.costs
zerolm.bench.run("labels.csv", alpha=[0.5, 1.1])
zerolm.eval("child", parent="parent", text="text.txt").to_pandas()
zerolm.load("best").pick
"""
MISSPELT = {
    "zerolm.search('llama', max_parms='60M')": 'Unexpected keyword argument "max_parms"',
    "zerolm.heal('child', 'healed', text='text.txt')": 'Missing named argument "parent"',
    "zerolm.carve('parent', keep_ffn='half')": 'Argument "keep_ffn"',
    "zerolm.lab.elastic.trian('elastic')": 'has no attribute "trian"',
}


NAMES = re.compile(r"\[(attr-defined|name-defined)\]$|(Missing|Unexpected) .* argument")


def _missing_names(api: Any) -> list[str]:
    """Return where benchmarks name what is not there, as scripts do that nobody has run for long."""
    places = [str(file) for file in sorted(Path("benchmarks").rglob("*.py"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", "benchmarks")
        out, _, _ = api.run(["--no-error-summary", "--explicit-package-bases", *places])
    assert "benchmarks" in out, "mypy has read them: they are not typed strictly"
    return [line for line in out.splitlines() if NAMES.search(line)]


def test_the_package_and_scripts_that_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    script = tmp_path / "script.py"
    script.write_text(RIGHT + "\n".join(MISSPELT))
    out, err, _ = api.run(["--package", "zerolm", "--no-error-summary", "--hide-error-context"])
    assert (out, err) == ("", "")
    assert not _missing_names(api)
    out, err, _ = api.run(["--no-error-summary", "--hide-error-context", str(script)])
    first = len(RIGHT.splitlines()) + 1
    lines = [line for line in out.splitlines() if ": error:" in line]
    assert len(lines) == len(MISSPELT), out
    for number, (line, words) in enumerate(zip(lines, MISSPELT.values(), strict=True), first):
        assert f"script.py:{number}: error: " in line
        assert words in line
