"""The structure of the package: rooms in their order, no circles, names and signatures as agreed."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import zerolm

ROOT = Path(zerolm.__file__).parent
ROOMS = (
    "progress", "cost_columns", "settings", "registry", "io", "architecture", "costs", "pretraining",
    "statistics", "scores", "families", "spaces", "solvers", "calibration", "groundtruth", "comparison",
    "checkpoints", "networks", "text", "passes", "units", "planning", "repairing", "children", "training",
    "carving", "evaluation", "healing", "diagnosis", "testing", "show", "verbs", "cli", "lab",
)  # fmt: skip
CORE = ROOMS[ROOMS.index("architecture") : ROOMS.index("groundtruth")]
VAGUE = {
    *("wish", "method", "material", "running", "judge", "accounts", "kept", "lattice", "cuts", "sliced"),
    *("moments", "child", "needed", "observed", "small", "sums", "numbers", "tensors", "engines", "stock"),
}


EMPTY_WORDS = {
    *("found", "own", "given", "told", "said", "known", "made", "asked"),
    *("felt", "foretold", "goes", "stay", "stays", "staying", "leaving", "price", "priced", "bent"),
}
"""Names of variables that do not say what is in them."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its dotted name, parsed."""
    trees = {}
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        trees[name] = ast.parse(file.read_text("utf-8"))
    return trees


@cache
def imports(name: str, at_once: bool = False) -> frozenset[str]:
    """Return the modules of the package that a module imports, wherever in it, or ``at_once`` with it."""
    targets = set()
    for node in modules()[name].body if at_once else ast.walk(modules()[name]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "zerolm":
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                targets.add(deeper if deeper in modules() else node.module)
        elif isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names if alias.name.split(".")[0] == "zerolm"}
    return frozenset(targets - {name})


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_every_module_stands_in_a_known_room() -> None:
    assert {room(name) for name in modules()} - {"", "__main__"} == set(ROOMS)


@pytest.mark.parametrize("place", ROOMS)
def test_a_room_imports_only_rooms_above_it(place: str) -> None:
    above = {"", *ROOMS[: ROOMS.index(place) + 1]}
    wrong = {
        (name, target)
        for name in modules()
        if room(name) == place
        for target in imports(name)
        if room(target) not in above
    }
    assert not wrong


def test_nothing_imports_the_laboratory() -> None:
    """It is the last room, and a plug-in: even names in strings lead there by entry points alone."""
    assert ROOMS[-1] == "lab"
    outside = {name: tree for name, tree in modules().items() if room(name) != "lab"}
    named = [
        (name, node.value)
        for name, tree in outside.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).startswith("zerolm.lab")
    ]
    assert not named
    assert not [name for name in outside if any(room(target) == "lab" for target in imports(name))]


@pytest.mark.parametrize("place", ROOMS)
def test_no_circle_within_a_room(place: str) -> None:
    graph = {
        name: {target for target in linked(name) if room(target) == place and not is_package(target, name)}
        for name in modules()
        if room(name) == place
    }
    while leaves := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph


def linked(name: str) -> frozenset[str]:
    """Return what a module imports; of a verb what its help needs: its run imports the rest."""
    return imports(name, at_once=True) if "verbs" in name.split(".")[1:3] else imports(name)


def is_package(target: str, name: str) -> bool:
    """Whether ``target`` is a package around ``name``: its ``__init__`` only hands on names."""
    return name.startswith(f"{target}.")


def test_the_core_knows_neither_torch_nor_the_terminal() -> None:
    banned = {"torch", "transformers", "typer", "rich", "plotly", "huggingface_hub"}
    for name, tree in modules().items():
        if room(name) in CORE:
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    assert not banned & {alias.name.split(".")[0] for alias in node.names}, name
                elif isinstance(node, ast.ImportFrom):
                    assert (node.module or "").split(".")[0] not in banned, name


def test_files_are_named_for_what_they_hold() -> None:
    assert not [name for name in modules() if name.rsplit(".", 1)[-1] in VAGUE]


@cache
def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    return [
        (name, node)
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]


@pytest.mark.parametrize("place", ROOMS)
def test_no_function_takes_more_than_ten_parameters(place: str) -> None:
    many = []
    for name, node in functions():
        if room(name) != place:
            continue
        if isinstance(node, ast.ClassDef):
            if any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list):
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                required = [part for part in fields if "ClassVar" not in ast.dump(part.annotation)]
                is_record = "verbs" in name.split(".") or any(map(is_setting, required))
                if len(required) > 10 and not is_record and node.name not in WIDE_RECORDS:
                    many.append((name, node.name, len(required)))
            continue
        arguments = node.args
        count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
        count -= any(argument.arg in ("self", "cls") for argument in arguments.args[:1])
        if count > 10 and (name, node.name) != ("zerolm.solvers.search", "search"):
            many.append((name, node.name, count))
    assert not many


def is_setting(field: ast.AnnAssign) -> bool:
    """Whether a field declares a setting: a request is as wide as its command."""
    call = field.value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "setting"


WIDE_RECORDS: set[str] = {
    *("Cuttable", "Shapes", "Layout", "ScoreRow", "CarvedChild", "Healed", "HealTraining", "Sheet", "Gguf"),
    *("RecipeFields", "HealingStage", "Diagnosis", "ChildVocabulary"),
}
"""Data as wide as what they describe: what is said of cuts, columns of shapes, a checkpoint's sizes, a row
of a published table."""


@pytest.mark.parametrize("place", ROOMS)
def test_docstrings_say_what_is_returned(place: str) -> None:
    vague = []
    for name, node in functions():
        text = ast.get_docstring(node)
        if room(name) == place and text and re.match(r"What\b", text):
            vague.append((name, node.name, text.splitlines()[0]))
    assert not vague
    heads = [(name, ast.get_docstring(tree)) for name, tree in modules().items() if room(name) == place]
    assert not [(name, text) for name, text in heads if text and re.match(r"What\b", text)]


def fields_of(tree: ast.Module) -> set[int]:
    """Return the names that are fields of classes: JSON and keywords have them, too."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {id(part.target) for node in classes for part in node.body if isinstance(part, ast.AnnAssign)}


@pytest.mark.parametrize("place", ROOMS)
def test_variables_say_their_content(place: str) -> None:
    """``found`` says nothing of what was found, nor do its like."""
    names = [
        (name, node.lineno)
        for name, tree in modules().items()
        if room(name) == place
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in EMPTY_WORDS and id(node) not in fields_of(tree)
    ]
    assert not names


def test_one_name_is_one_class() -> None:
    homes: dict[str, set[str]] = {}
    for name, node in functions():
        if isinstance(node, ast.ClassDef):
            homes.setdefault(node.name, set()).add(name)
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def test_the_page_of_tests_names_every_helper() -> None:
    folder = Path(__file__).parent
    page = (folder / "README.md").read_text("utf-8")
    helpers = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("test_")} - {"conftest"}
    assert not {name for name in helpers if f"`{name}`" not in page and f"`{name}." not in page}
