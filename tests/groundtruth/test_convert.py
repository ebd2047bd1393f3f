"""The authors' files become exactly the shared benchmarks: the same architectures and results."""

import gzip
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from upstream import OLDER, gemstones, upstream_folder

from zerolm.groundtruth.reader import SHIPPED, read, unpacked

from convert_published import contents as contents_of  # isort: skip
from convert_published import digest, packed, verify  # isort: skip
from published.convert import convert  # isort: skip
from published.sources import GEMSTONE_RUNS, SOURCES, Source  # isort: skip

FLEXIBERT, PIT, GPT2 = SOURCES["flexibert_glue"], SOURCES["pit_vit"], SOURCES["gpt2_wt103"]


@pytest.fixture(scope="module")
def contents(data_folder: Path) -> dict[str, Any]:
    return contents_of(upstream_folder(data_folder))


@pytest.mark.parametrize("name", OLDER)
def test_what_is_shipped_is_the_authors(name: str, data_folder: Path, contents: dict[str, Any]) -> None:
    """And is equal to the shared benchmark."""
    if name.endswith("_vit"):
        pytest.importorskip("torch")
    verify(SOURCES[name], contents[name])
    with pytest.raises(ValueError, match="SHA-256"):
        verify(SOURCES[name], b"another")
    made = convert(SOURCES[name], contents[name])
    assert packed(made) == (SHIPPED / f"{name}.json.gz").read_bytes()
    ours, shared = json.loads(json.dumps(made)), json.loads((data_folder / f"{name}.json").read_text())
    for field in ("name", "space", "metric", "higher_is_better", "count", "architectures"):
        assert ours[field] == shared[field]
    for field in ("licence", "repository", "file"):
        assert ours["source"][field] == shared["source"][field]
    assert ours["fields"].get("constant") == shared.get("fields", {}).get("constant")


def test_what_is_shipped_names_its_source_and_licence() -> None:
    for name, source in SOURCES.items():
        truth = read(SHIPPED / f"{name}.json.gz")
        assert truth.source == source.record()
        assert truth.source["licence"] in ("CC-BY-4.0", "MIT", "Apache-2.0")
        assert len(truth.architectures) == source.count


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda content: content[:-20], "damaged"),
        (lambda content: content[:40] + b"xyz" + content[43:], "damaged"),
        (lambda _: gzip.compress(b" " * (8 << 20) + b"{}"), "more than"),
        (lambda _: b"{}", "Not a gzipped file"),
        (lambda _: gzip.compress(b"\xff"), "utf-8"),
    ],
)
def test_a_packed_file_that_is_none(
    spoil: Callable[[bytes], bytes], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pit_vit.json.gz"
    file.write_bytes(spoil((SHIPPED / file.name).read_bytes()))
    with pytest.raises((OSError, ValueError), match=words):
        unpacked(file)
    monkeypatch.setattr("zerolm.groundtruth.reader.SHIPPED", tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        read(file)


def test_gemstones_are_equal_to_the_shared_ones(decoders_folder: Path) -> None:
    shared = json.loads((decoders_folder / "gemstones.json").read_text())
    ours = convert(SOURCES["gemstones"], gemstones(decoders_folder))
    same = ("name", "space", "task", "metric", "higher_is_better", "fields", "count", "architectures")
    assert {field: ours[field] for field in same} == {field: shared[field] for field in same}
    assert packed(ours) == (SHIPPED / "gemstones.json.gz").read_bytes()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(b'"width": 256', b'"width": 257'),
        lambda text: text.replace(b'"tokens": 350000000000', b'"tokens": "many"'),
        lambda text: text.replace(b'"final_loss": 1.0', b'"final_loss": NaN', 1)[:-3],
        lambda _: b"",
    ],
)
def test_runs_that_are_not_as_promised(spoil: Callable[[bytes], bytes], decoders_folder: Path) -> None:
    files = gemstones(decoders_folder)
    files[GEMSTONE_RUNS] = spoil(files[GEMSTONE_RUNS])
    with pytest.raises(ValueError, match=r"."):
        convert(SOURCES["gemstones"], files)


def test_entries_without_a_perplexity_are_not_used(contents: dict[str, Any]) -> None:
    """Transformer-XL on LM1B: 186 were configured, 183 trained to the end."""
    source = SOURCES["transformer_xl_lm1b"]
    configured = {path for path in contents[source.name] if path.endswith("model_config.yaml")}
    used = {entry["id"] for entry in convert(source, contents[source.name])["architectures"]}
    assert (len(configured), len(used)) == (186, 183)
    unused = {"_".join(path.split("/")[:2]) for path in configured} - used
    assert unused == {"config_6_j1", "config_6_j5", "config_8_j9"}


def test_the_digest_of_a_folder_is_that_of_its_listing() -> None:
    """printf a > f/x; printf b > f/y/z; sha256sum f/x f/y/z | sha256sum."""
    files = {"y/z": b"b", "x": b"a"}
    assert digest("some/where/f", files) == "1f3a86b8c4437508d58f5c860c285c1e695fc12032f52edb15fa19ec97cbefca"
    assert digest("f", {"y/z": b"b", "x": b"a "}) != digest("f", files)


def runs(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Two FlexiBERT runs, the second one changed."""
    layer = {
        "operation_type": "SA", "operation_parameter": "SDP", "num_operation_heads": 4,
        "feed_forward_dimension": 1024, "num_feed_forward": 1,
    }  # fmt: skip
    made = [
        {
            "id": number,
            "time_to_train": 1.0,
            "scores": dict.fromkeys(FLEXIBERT.metrics, 50.0),
            "hparams": {
                "model_hparam_overrides": {
                    "hidden_size": 128,
                    "nas_config": {"encoder_layers": [layer, layer]},
                }
            },
        }
        for number in range(2)
    ]
    change(made[1])
    return json.dumps(made).encode()


SMALL = replace(FLEXIBERT, count=2)


def test_a_small_file_is_converted() -> None:
    assert len(convert(SMALL, runs(lambda _: None))["architectures"]) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda run: run["scores"].update(glue=math.nan), "nan is not a finite number"),
        (lambda run: run["scores"].update(glue="high"), "'high' is not a finite number"),
        (lambda run: run["scores"].update(glue=True), "True is not a finite number"),
        (lambda run: run["scores"].pop("cola"), "cola"),
        (lambda run: run["hparams"].clear(), "model_hparam_overrides"),
        (lambda run: run.update(id=0), "the same id"),
        (lambda run: run.update(hparams=[]), "laid out"),
    ],
)
def test_content_that_is_not_as_promised(change: Callable[[Any], None], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(SMALL, runs(change))


@pytest.mark.parametrize(
    ("source", "content"),
    [
        (FLEXIBERT, b"[]"),
        (FLEXIBERT, b"\xff\x00"),
        (FLEXIBERT, runs(lambda _: None)),  # two are not five hundred
        (FLEXIBERT, b"[" * 100_000),
        (PIT, b"no zip"),
        (PIT, b""),
        (GPT2, {}),
        (GPT2, {"ppl_summary.yaml": b"[", "params_summary.yaml": b"{}"}),
        (GPT2, {"ppl_summary.yaml": b"{}", "params_summary.yaml": b"{}"}),
        (GPT2, {"ppl_summary.yaml": b"!!python/name:os.system", "params_summary.yaml": b"{}"}),
    ],
)
def test_content_of_another_kind(source: Source, content: Any) -> None:
    if source is PIT:
        pytest.importorskip("torch")
    with pytest.raises(ValueError):  # noqa: PT011 - any words will do
        convert(source, content)


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Harm:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "harm",))

    for content in ([{"arch": Harm()}], Harm()):
        file = io.BytesIO()
        torch.save(content, file)
        with pytest.raises(ValueError, match="plain numbers"):
            convert(PIT, file.getvalue())
    assert not (tmp_path / "harm").exists()
