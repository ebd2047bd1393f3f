"""The public API: names, signatures as requests declare them; architectures layer by layer."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zerolm
from zerolm.architecture import Architecture
from zerolm.cli import main
from zerolm.settings import REQUIRED
from zerolm.settings.request import PLACED
from zerolm.show.charts import LayerSizes
from zerolm.show.strip import columns, labels, largest, strip, to_runs
from zerolm.spaces import make_space, space_names
from zerolm.verbs import VERBS, commands
from zerolm.verbs.call import function_of, public_names
from zerolm.verbs.report import Report, Shown
from zerolm.verbs.search_charts import layer_sizes

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from stubs import stub

HELPERS = {"__version__", "load", "make_score", "make_space", "read_labels"}
NAMES = pytest.mark.parametrize("name", commands())


def test_dir_is_the_public_api_and_nothing_else() -> None:
    verbs = {(verb.function or name).split()[0] for name, verb in VERBS.items()}
    assert set(dir(zerolm)) == set(zerolm.__all__) == verbs | HELPERS
    assert len(zerolm.__all__) == len(set(zerolm.__all__))
    for name in dir(zerolm):
        assert getattr(zerolm, name)


@NAMES
def test_a_verb_is_called_as_its_command(name: str) -> None:
    verb = zerolm
    for word in (commands()[name].function or name).split():
        verb = getattr(verb, word)
    assert verb is function_of(name)


def test_no_room_bears_the_name_of_a_public_function() -> None:
    """Else the function is gone as soon as the room is imported."""
    assert not {path.stem for path in Path(zerolm.__file__).parent.iterdir()} & set(public_names())


@NAMES
def test_a_function_takes_the_settings_of_its_request(name: str) -> None:
    request, parameters = commands()[name].request, dict(inspect.signature(function_of(name)).parameters)
    assert ("progress" in parameters) == request.takes_progress
    parameters.pop("progress", None)
    assert bool(request.owners) == (parameters.pop("further", None) is not None)
    placed = request.by_place()
    declared = [*placed, *(setting for setting in request.settings() if setting not in placed)]
    assert list(parameters) == [setting.name for setting in declared]
    for parameter, setting in zip(parameters.values(), declared, strict=True):
        assert (parameter.kind is parameter.KEYWORD_ONLY) == (setting not in placed)
        default = None if setting.default is REQUIRED else setting.default
        assert (parameter.default, type(parameter.default)) == (default, type(default))


@NAMES
def test_help_reads_well(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(function_of(name)))
    settings = commands()[name].request.settings()
    assert ("Parameters\n    ----------" in text) == bool(settings)
    for setting in settings:
        assert f"    {setting.name}\n" in text
        assert setting.help.split()[0] in text
    first = (inspect.getdoc(function_of(name)) or "").splitlines()[0]
    assert first[:1].isupper()
    assert first.endswith(".")
    assert " at 0x" not in text


@NAMES
def test_a_verb_returns_something_that_shows_itself(name: str) -> None:
    verb = commands()[name]
    assert issubclass(verb.report, Shown)
    assert issubclass(verb.report, Report) == (not verb.request.writes_no_result)
    if issubclass(verb.report, Report):
        assert verb.report.command == name


def test_type_checkers_read_the_settings_of_today() -> None:
    file = Path(zerolm.__file__).with_suffix(".pyi")
    assert file.read_text("utf-8") == stub(), "run: python docs/stubs.py > zerolm/__init__.pyi"
    file = file.parent / "lab" / file.name
    assert file.read_text("utf-8") == stub("lab"), "run: python docs/stubs.py lab > its file"


def test_importing_is_light() -> None:
    heavy = ("numpy", "torch", "click", "rich", "pydantic", "yaml", "pandas", "typing", "inspect")
    code = f"import sys; import zerolm; assert not set(sys.modules) & set({heavy})"
    place = {"PYTHONPATH": str(Path(zerolm.__file__).parents[1])}
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env=place)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="prune"):
        zerolm.prune  # noqa: B018


@NAMES
def test_what_a_command_lacks_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are named as a user types them: capitals of an argument, a flag of what else is needed."""
    request = commands()[name].request
    placed = request.groups()[PLACED]
    needed = [
        setting.placeholder if setting in placed else setting.flag
        for setting in request.settings()
        if setting.default is REQUIRED
    ]
    if needed:
        status, ran = main(name.split()), capsys.readouterr()
        assert (status, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
        assert f"{name} needs {needed[0]}" in ran.err


LLAMA = {"depth": 3, "hidden": 256, "head_size": 64, "heads": 4, "kv_heads": 2, "ffn": 640}


def read(space: str, **choices: Any) -> Architecture:
    return make_space(space).read(choices)


def smallest(name: str) -> Architecture:
    space = make_space(name)
    backbone = next(iter(space.backbones()))
    return space.assemble(backbone, [[0] * (1 if b.tied else b.count) for b in backbone.blocks])


def test_a_llama_has_the_sizes_of_its_choices() -> None:
    layers = layer_sizes(read("llama", **LLAMA))
    assert layers == [LayerSizes(256, 256, 128, 4, 640)] * 3
    assert to_runs(layers) == [[3, 256, 256, 128, 4, 640]]
    assert labels(layers) == {"width": "256", "attention": "4 heads, 2 KV", "ffn": "640"}


def test_stages_of_a_pit_have_their_own_heads() -> None:
    layers = layer_sizes(read("pit", base_dim=16, mlp_ratio=2, depth=[1, 4, 2], num_heads=[2, 4, 8]))
    assert [layer.heads for layer in layers] == [2, 4, 4, 4, 4, 8, 8]
    assert labels(layers)["attention"] == "2 to 8 heads"
    assert len(to_runs(layers)) == 3


@pytest.mark.parametrize("name", space_names())
def test_every_space_can_be_drawn(name: str) -> None:
    architecture = smallest(name)
    layers = layer_sizes(architecture)
    assert len(layers) == architecture.depth
    has_ffn = any(matrix.role == "ffn" for matrix in architecture.layers[0].matrices)
    assert all(layer.heads and bool(layer.ffn) == has_ffn for layer in layers)
    assert strip(layers, largest([layers]), slots=True).count("h.84") == (3 + has_ffn) * len(layers)


def test_columns_are_as_high_as_values() -> None:
    assert columns([1, 2, 0, 4], 4) == "M0.08 100v-25h.84v25zM1.08 100v-50h.84v50zM3.08 100v-100h.84v100z"
    assert labels([LayerSizes(0, 0, 0, 0, 0), LayerSizes(8, 8, 8, 2, 9)])["ffn"] == "9"
