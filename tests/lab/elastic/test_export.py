"""From a text to a supernet, from a supernet to a model in a folder; and what is refused on the way."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from once import once
from small_supernets import NAMES, SIZES, run_of, text_in
from tiny import saved, word_tokenizer
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM

from zerolm.lab.supernets import train as training
from zerolm.lab.supernets.distillation import teacher_in as opened_teacher
from zerolm.lab.supernets.export import ExportRequest, export
from zerolm.lab.supernets.learner import SupernetLearner
from zerolm.lab.supernets.request import Growth, Teaching
from zerolm.lab.supernets.supernet import Supernet, read_supernet
from zerolm.lab.supernets.text import supernet_text
from zerolm.lab.supernets.train import SupernetRequest, train_supernet
from zerolm.settings.compute import TrainedOn
from zerolm.training.request import Execution

NetIn = Callable[..., Supernet]
GROWTH = Growth(epochs=2, growth=1, every=1)


def request_in(folder: Path, **more: Any) -> SupernetRequest:
    given = {"settings": SIZES, "growth": GROWTH, "vocabulary": 300, "training": run_of(8)}
    return SupernetRequest(text_in(folder), **{**given, **more})


@pytest.fixture
def net_in(tmp_path_factory: pytest.TempPathFactory) -> NetIn:
    def copied(folder: Path, space: str = "elastic") -> Supernet:
        def make(place: Path) -> None:
            train_supernet(request_in(place, space=space), place / "net")

        shutil.copytree(once(tmp_path_factory, f"net-{space}", make) / "net", folder / "net")
        return read_supernet(folder / "net")[0]

    return copied


def teacher_in(folder: Path, **more: Any) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder / "net")
    sizes = {"hidden_size": 12, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(tokenizer), **{"max_position_embeddings": 32, **sizes, **more})
    BertForMaskedLM(config).save_pretrained(folder / "teacher")
    tokenizer.save_pretrained(folder / "teacher")
    return str(folder / "teacher")


def test_a_path_goes_from_a_text_to_a_model_of_transformers(tmp_path: Path, net_in: NetIn) -> None:
    net_in(tmp_path)
    net, tokenizer, told = read_supernet(tmp_path / "net")
    assert net.space.widths == tuple(net.widths.flatten().tolist())
    assert set(net.space.widths) > {4}
    rows = [json.loads(line) for line in (tmp_path / "net" / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[-1]["widths"] == net.widths.tolist()
    path = [0, 4]
    exported = export(tmp_path / "net", ExportRequest(net.architecture(path).choices), tmp_path / "path")
    ids = torch.arange(20)[None] % len(tokenizer)
    opened = AutoModelForMaskedLM.from_pretrained(tmp_path / "path").eval()
    assert torch.allclose(opened(ids).logits, net(ids, path), atol=1e-5)
    assert AutoTokenizer.from_pretrained(tmp_path / "path").get_vocab() == tokenizer.get_vocab()
    assert sum(p.numel() for p in opened.parameters()) == exported.costs["params"]
    assert list(exported.losses) == ["as exported"]
    card = (tmp_path / "path" / "README.md").read_text()
    assert "loss on text held out, as exported: " in card
    assert f"{exported.costs['params']:,} parameters" in card
    assert "AutoModelForMaskedLM" in card
    again = export(
        tmp_path / "net", ExportRequest(net.architecture([1, 1]).choices), tmp_path / "path", force=True
    )
    assert again.losses != exported.losses
    assert told["text"]["length"] == 16


@pytest.mark.parametrize(
    ("starts", "heads"), [("scratch", "keep"), ("supernet", "fuse"), ("scratch", "remove")]
)
def test_a_path_is_trained_further(starts: Any, heads: Any, tmp_path: Path, net_in: NetIn) -> None:
    choices = net_in(tmp_path, "elastic-causal").architecture([0, 8]).choices
    request = ExportRequest(choices, starts, heads, training=run_of(20))
    exported = export(tmp_path / "net", request, tmp_path / "path")
    assert exported.losses["after"] < exported.losses["before"]
    assert [layer.ffn for layer in exported.layers] == [layer["ffn"] for layer in choices["layers"]]
    assert not list(tmp_path.glob(".*"))


def test_a_teacher_is_learned_from(tmp_path: Path, net_in: NetIn) -> None:
    net_in(tmp_path)
    teaching = Teaching(teacher_in(tmp_path), "classical", teacher_only=True, predictions=1.0)
    request = request_in(tmp_path, teaching=teaching, training=run_of(30))
    trained = train_supernet(request, tmp_path / "taught")
    first, last = trained.log[1], trained.log[-1]
    names = {"loss_embedding", "loss_attention", "loss_layers", "loss_predictions"}
    assert names <= set(last)
    assert "loss_cross-entropy" not in last
    assert sum(last[name] for name in names) < sum(first[name] for name in names)
    net, *_ = read_supernet(tmp_path / "taught")
    taught = ExportRequest(net.architecture([2, 3]).choices, training=run_of(4), teaching=teaching)
    assert set(export(tmp_path / "taught", taught, tmp_path / "path").losses) == {"before", "after"}


@pytest.mark.parametrize("space", NAMES)
def test_a_path_teaches_what_a_supernet_says_of_it(space: str, tmp_path: Path, net_in: NetIn) -> None:
    """The signals are the path's own features in the supernet that it came from."""
    net = net_in(tmp_path, space)
    _, _, facts = read_supernet(tmp_path / "net")
    text = supernet_text(tmp_path / "net", net.space, facts)
    run, ids = run_of(2, execution=Execution(TrainedOn(dtype="float32"))), text.held_out[0][:2]
    for kind, (block, _) in enumerate(net.space.kinds):
        folder = tmp_path / f"path-{kind}"
        export(tmp_path / "net", ExportRequest(net.architecture([kind] * 2).choices), folder)
        if block == "mobile":
            with pytest.raises(ValueError, match="has blocks mobile, whose attention is narrower"):
                opened_teacher(folder, text, 2, run, predictions=True)
            continue
        signals = opened_teacher(folder, text, 2, run, predictions=True).signals(ids, torch.arange(2))
        (features, logits), theirs = net.features(ids, [kind] * 2), signals["theirs"]
        torch.testing.assert_close(signals["logits"], logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(theirs.embedding, features.embedding)
        torch.testing.assert_close(list(theirs.attention), list(features.attention))
        torch.testing.assert_close(theirs.layers[0], features.layers[0])
    teaching = Teaching(str(tmp_path / "path-0"), predictions=1.0)
    request = request_in(tmp_path, space=space, teaching=teaching)
    assert "loss_attention" in train_supernet(request, tmp_path / "taught").log[-1]


def test_a_killed_run_resumes_to_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_in(tmp_path, training=run_of(12))
    train_supernet(request, tmp_path / "whole")
    forward = SupernetLearner.forward

    def until(self: SupernetLearner, *given: Any, **named: Any) -> Any:
        if int(self.number) == 8:
            raise KeyboardInterrupt
        return forward(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SupernetLearner, "forward", until)
        with pytest.raises(KeyboardInterrupt):
            train_supernet(request, tmp_path / "net")
    assert not (tmp_path / "net").exists()
    with pytest.raises(ValueError, match="a run that was killed left its checkpoints"):
        train_supernet(replace(request, vocabulary=301), tmp_path / "net")
    train_supernet(request, tmp_path / "net")
    one, other = (read_supernet(tmp_path / name)[0].state_dict() for name in ("whole", "net"))
    assert all(torch.allclose(one[name].double(), other[name].double(), atol=1e-6) for name in one)
    first, second = ((tmp_path / name / "history.jsonl").read_text() for name in ("whole", "net"))
    assert first == second


def test_what_does_not_fit_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, net_in: NetIn
) -> None:
    net_in(tmp_path)
    teacher = teacher_in(tmp_path)
    word_tokenizer(saved(tmp_path / "other", "bert_masked"), special="w1")
    word_tokenizer(saved(tmp_path / "maskless", "bert_masked"))
    small = tmp_path / "small"
    small.mkdir()
    cases: list[tuple[SupernetRequest, str]] = [
        (replace(request_in(tmp_path), text=text_in(small, 40)), "are the least for sequences of 16"),
        (request_in(tmp_path, training=replace(run_of(1), batch=4096)), "a batch 4096: give more text"),
        (request_in(tmp_path, training=replace(run_of(1), length=64)), "64 tokens are longer than the 32"),
        (request_in(tmp_path, space="bert"), "space 'bert' has no supernets"),
        (request_in(tmp_path, settings={**SIZES, "heads": 3}), "is not divisible by 3 heads"),
        (request_in(tmp_path, settings={**SIZES, "vocab": 9}), "vocab 9 is not that of the tokenizer"),
        (request_in(tmp_path, tokenizer=str(tmp_path / "maskless")), "the tokenizer has no mask token"),
        (
            request_in(tmp_path, teaching=Teaching(str(tmp_path / "other")), tokenizer=teacher),
            "has another tokenizer: .* tokens differ",
        ),
        (request_in(tmp_path, teaching=Teaching(str(tmp_path / "none"))), "cannot be read|no folder"),
    ]
    for request, message in cases:
        refused(lambda asked=request: train_supernet(asked, tmp_path / "out"), message)  # type: ignore[misc]
        assert not (tmp_path / "out").exists()
    refused(lambda: train_supernet(request_in(tmp_path), tmp_path / "net"), r"'.*net' exists")
    monkeypatch.setattr(training, "processes", lambda: type("Two", (), {"num_processes": 2}))
    refused(
        lambda: train_supernet(request_in(tmp_path), tmp_path / "out"), "a supernet is trained in one process"
    )


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_folders_and_paths_that_make_no_sense_are_refused(tmp_path: Path, net_in: NetIn) -> None:
    choices = net_in(tmp_path).architecture([0, 1]).choices
    refused(lambda: ExportRequest(choices, "scratch"), "from scratch, or a teacher, are of no use without")
    wide = {"layers": [{**layer, "ffn": 9} for layer in choices["layers"]]}
    out, net_folder = tmp_path / "path", tmp_path / "net"
    refused(lambda: export(net_folder, ExportRequest(wide), out), "with ffn 9, is not of the supernet")
    refused(lambda: export(tmp_path, ExportRequest(choices), out), "is no folder of a supernet")
    file = net_folder / "supernet.json"
    told = json.loads(file.read_text())
    for change, message in (
        ({"settings": {**told["settings"], "hidden": 24}}, "the weights in .* cannot be read"),
        ({"settings": {**told["settings"], "widths": [12] * 12}}, "do not have the widths of supernet.json"),
        ({"settings": 7}, "has no settings of a space"),
        ({"space": "bert", "settings": {}}, "is of space 'bert', which has no supernets"),
    ):
        file.write_text(json.dumps({**told, **change}))
        refused(lambda: export(net_folder, ExportRequest(choices), out), message)
    assert not out.exists()
