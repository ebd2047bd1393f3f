"""Results of a search: small where they are shown, the same when they are pickled or read from JSON."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import pytest
from catalogue import SETTINGS, catalogue
from hypothesis import given
from hypothesis import strategies as st
from labelled import labelled

from zerolm.architecture import Architecture
from zerolm.calibration import Calibration, calibrate
from zerolm.calibration.expectation import explained
from zerolm.io.brief import LONGEST_REPR
from zerolm.io.plain import as_plain
from zerolm.solvers import SearchResult, search


@cache
def result_of(name: str) -> SearchResult:
    listed = catalogue(name)
    limits = {"max_params": listed.quantile("params", 0.5), "max_macs": listed.quantile("macs", 0.6)}
    return search(listed.space, budgets=limits)


@cache
def calibrated() -> tuple[Calibration, SearchResult]:
    calibration = calibrate(labelled("gpt2", 24), "stack")
    return calibration, explained(search(catalogue("gpt2").space, calibration.score()), calibration)


def parts(value: Any) -> Iterator[Any]:
    """Yield every object of the package within a result, but what an architecture is made of."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from parts(item)
    elif is_dataclass(value):
        yield value
        if not isinstance(value, Architecture):
            for field in fields(value):
                yield from parts(getattr(value, field.name))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_part_of_a_result_is_shown_on_one_short_line(name: str) -> None:
    result = result_of(name)
    shown = [repr(part) for part in parts(result) if part is not result] + [repr(result.space)]
    assert max(map(len, shown)) <= LONGEST_REPR
    assert not [text for text in shown if "\n" in text]
    params = result.pick.costs["params"]
    assert f"score {result.pick.score:.6g}, {params:,} parameters" in repr(result.pick)
    assert repr(result.space).startswith(type(result.space).__name__)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_pickled_result_is_equal(name: str) -> None:
    result = result_of(name)
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert hash(again.space) == hash(result.space)
    assert as_plain(again) == as_plain(result)
    assert pickle.loads(pickle.dumps(result.pick)) == result.pick
    assert again.pick.architecture.identity == result.pick.architecture.identity


def test_a_pickled_calibration_ranks_alike() -> None:
    calibration, result = calibrated()
    again = pickle.loads(pickle.dumps(calibration))
    assert (again.method, again.alpha, again.seed, again.dictionary, again.weights) == (
        calibration.method, calibration.alpha, calibration.seed, calibration.dictionary, calibration.weights,
    )  # fmt: skip
    pool = calibration.labels.pool
    assert again.rank(pool).tolist() == calibration.rank(pool).tolist()
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize("name", SETTINGS)
def test_a_result_is_read_from_its_json(name: str) -> None:
    result = result_of(name)
    again = SearchResult.from_json(json.loads(json.dumps(as_plain(result))))
    assert again == result
    assert json.dumps(as_plain(again)) == json.dumps(as_plain(result))


def paths(value: Any, place: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Yield the path of everything in a document but what only its space reads."""
    if place:
        yield place
    if place[-1:] and place[-1] in ("architecture", "settings", "options", "conditions", "calibration"):
        return
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            yield from paths(item, (*place, step))
        else:
            yield (*place, step)


@cache
def whole_document() -> str:
    """A result with labels, baselines and a table of latencies."""
    document = as_plain(calibrated()[1])
    question, plateau = document["question"], document["plateau"]
    document["front"]["points"] = document["front"]["points"][:2]
    plateau["landscape"] = plateau["landscape"][:2]
    document["bounds"]["binding"] = as_plain(result_of("gpt2").bounds.binding)[:2]
    layer = {"block": "mha", "us": 3}
    question["latency"] = {"batch": 1, "tokens": 8, "threads": 1, "rounds": 3, "ends": 4, "layers": [layer]}
    question["baseline"] = {"name": "gpt2", "exclusions": ["depth 12"], "choice": document["pick"]}
    vocabulary = {"vocab": 9, "bytes_per_token": 2, "context": 7, "budgets": {"max_params": 3}}
    question["vocabularies"] = [vocabulary]
    return json.dumps(document)


OPTIONAL = {"calibration", "best_label", "baselines", "bounds"}


@given(st.data())
def test_what_is_wrong_in_an_edited_document_is_named(data: st.DataObject) -> None:
    document = json.loads(whole_document())
    assert as_plain(SearchResult.from_json(document))["pick"] == document["pick"]
    path = data.draw(st.sampled_from(list(paths(document))))
    if path[:3] == ("question", "latency", "layers") and len(path) == 5:
        return  # a layer is described as its space does
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = {"none": "such"} if not isinstance(parent[path[-1]], dict) else ["none"]
    with pytest.raises(ValueError, match=r"^.*$") as caught:
        SearchResult.from_json(document)
    message = str(caught.value)
    assert message.startswith((".".join(map(str, path)), "space"))
    assert len(message) < 300


def test_a_missing_field_is_named() -> None:
    for name in json.loads(whole_document()).keys() - OPTIONAL:
        document = json.loads(whole_document())
        del document[name]
        with pytest.raises(ValueError, match=f"^{name} (is required|must be a JSON object, not None)$"):
            SearchResult.from_json(document)
    for name in OPTIONAL:
        document = json.loads(whole_document())
        del document[name]
        SearchResult.from_json(document)
