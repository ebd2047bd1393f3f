"""Fine-tuning of tiny stock models: they learn, resume to the same weights, and open again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from tiny import MODELS, word_tokenizer
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification

from zerolm.elastic.finetuning.finetune import finetune
from zerolm.elastic.finetuning.request import FinetuneRequest, TaskData
from zerolm.elastic.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM
from zerolm.spaces import make_space
from zerolm.spaces.elastic import Elastic
from zerolm.training.randomness import seeded
from zerolm.training.request import Execution
from zerolm.training.train import TrainingFailed

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folders of tiny models with a tokenizer of 64 words."""
    root = tmp_path_factory.mktemp("models")

    def made(name: str, seed: int = 0) -> Path:
        place = root / f"{name}-{seed}"
        if not place.exists():
            with seeded(seed):
                network(name).save_pretrained(place)
            word_tokenizer(place)
        return place

    return made


def network(name: str) -> Any:
    """A model as it is before any training."""
    if name.startswith("elastic"):
        space = make_space(name, hidden=48, heads=6, embedding=16, vocab=64, positions=32, step=8)
        assert isinstance(space, Elastic)
        layers = [{"block": block, "share": "kv", "ffn": 16} for block in ("mobile", "bert")]
        config = ElasticConfig.of(space, space.read({"layers": layers}))
        return (ElasticForCausalLM if config.causal else ElasticForMaskedLM)(config)
    kind, sizes = MODELS[name]
    maker = getattr(transformers, kind)
    return maker(maker.config_class(**sizes))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose class is that of their first word; and where the second word of a question stands."""
    draw, root = random.Random(0), tmp_path_factory.mktemp("rows")
    classes, spans = ["text,label"], ["question,context,answer"]
    for _ in range(80):
        words = [f"w{draw.randrange(10, 60)}" for _ in range(draw.randrange(3, 9))]
        label = draw.choice(["no", "yes"])
        classes.append(f"{'w1' if label == 'yes' else 'w2'} {' '.join(words)},{label}")
        spans.append(f"w3,{' '.join(words[:3])} w5 w{draw.randrange(6, 9)},w5")
    (root / "classes.csv").write_text("\n".join(classes) + "\n", encoding="utf-8")
    (root / "spans.csv").write_text("\n".join(spans) + "\n", encoding="utf-8")
    return root


def request(rows: Path, task: Any = "classification", **more: Any) -> FinetuneRequest:
    file = rows / ("classes.csv" if task == "classification" else "spans.csv")
    given = {"epochs": 6, "batch": 8, "length": 16, "rate": 3e-3, "execution": Execution("float32")} | more
    return FinetuneRequest(TaskData(task, str(file)), **given)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "elastic", "elastic-causal"])
@pytest.mark.parametrize("task", ["classification", "spans"])
def test_a_model_learns_a_task_and_opens_again(
    folder: Folder, rows: Path, tmp_path: Path, name: str, task: str
) -> None:
    out = tmp_path / "tuned"
    asked = request(rows, task)
    asked = replace(asked, data=replace(asked.data, validation=asked.data.train))
    tuned = finetune(folder(name), asked, out)
    after, before = tuned.measures["after"], tuned.measures["before"]
    assert after["loss"] < 0.7 * before["loss"]
    assert tuned.rows == {"train": 80, "validation": 80}
    assert tuned.training["steps"] == 60
    maker = AutoModelForSequenceClassification if task == "classification" else AutoModelForQuestionAnswering
    model = maker.from_pretrained(out)
    if task == "classification":
        assert model.config.id2label == {0: "no", 1: "yes"}
    assert not list(tmp_path.glob(".tuned*"))
    assert {"README.md", "finetuning.json", "tokenizer.json"} <= {file.name for file in out.iterdir()}


def test_the_commonest_class_is_the_baseline_and_is_beaten(
    folder: Folder, rows: Path, tmp_path: Path
) -> None:
    tuned = finetune(folder("bert"), request(rows, epochs=10), tmp_path / "tuned")
    assert 0.5 <= tuned.measures["baseline"]["accuracy"] < tuned.measures["after"]["accuracy"] == 1


@pytest.mark.parametrize("kind", ["relational", "classical"])
@pytest.mark.parametrize("task", ["classification", "spans"])
def test_a_teacher_is_followed(folder: Folder, rows: Path, tmp_path: Path, task: str, kind: str) -> None:
    """Every loss falls; the teacher is of another depth and width."""
    asked = request(rows, task, distillation=kind)
    finetune(folder("bert"), asked, tmp_path / "teacher")
    tuned = finetune(folder("bert", 1), asked, tmp_path / "student", teacher=tmp_path / "teacher")
    first, last = tuned.curve[1], tuned.curve[-1]
    names = {name for name in last if name.startswith("loss_")}
    assert names == {"loss_labels", "loss_predictions", "loss_embedding", "loss_layers"}
    assert last["loss_layers"] < first["loss_layers"]
    assert "accuracy" in tuned.measures["teacher"] or "f1" in tuned.measures["teacher"]
    assert tuned.training["distillation"] == kind


def test_a_run_that_was_killed_goes_on_to_the_same_weights(
    folder: Folder, rows: Path, tmp_path: Path
) -> None:
    asked = request(rows)
    finetune(folder("bert"), asked, tmp_path / "whole")
    steps = 0

    def killed(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(
            folder("bert"),
            asked,
            tmp_path / "killed",
            progress=lambda text, *_: killed() if text.startswith("training") else None,
        )
    assert not (tmp_path / "killed").exists()
    with pytest.raises(ValueError, match=r"a run that was killed left its checkpoints.*with rate"):
        finetune(folder("bert"), replace(asked, rate=1e-3), tmp_path / "killed")
    finetune(folder("bert"), asked, tmp_path / "killed")
    whole, resumed = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path / name).state_dict()
        for name in ("whole", "killed")
    )
    for name, weights in whole.items():
        torch.testing.assert_close(resumed[name], weights, rtol=0, atol=1e-6)


def test_a_result_is_replaced_only_where_it_is_whole_and_asked_for(
    folder: Folder, rows: Path, tmp_path: Path
) -> None:
    asked, out = request(rows, epochs=1), tmp_path / "tuned"
    finetune(folder("bert"), asked, out)
    with pytest.raises(ValueError, match="exists"):
        finetune(folder("bert"), asked, out)
    finetune(folder("bert"), asked, out, force=True)
    (out / "mine.txt").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="holds more than an earlier result"):
        finetune(folder("bert"), asked, out, force=True)


def test_what_cannot_be_done_is_refused(folder: Folder, rows: Path, tmp_path: Path) -> None:
    def refused(message: str, asked: FinetuneRequest, **more: Any) -> None:
        with pytest.raises(ValueError, match=message) as error:
            finetune(more.pop("model", folder("bert")), asked, tmp_path / "out", **more)
        assert "\n" not in str(error.value)
        assert not list(tmp_path.glob("out*")) + list(tmp_path.glob(".out*"))

    asked = request(rows)
    refused("fewer than a batch of 500", replace(asked, batch=500))
    refused("there is no folder", asked, model=tmp_path / "nothing")
    refused("was not fine-tuned for this task", asked, teacher=folder("bert", 1))
    with pytest.raises(ValueError, match="task 'other' is not known"):
        TaskData("other", "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="spans has 3 columns, not 2"):
        TaskData("spans", "", columns=("a", "b"))
    one = tmp_path / "one.csv"
    one.write_text("text,label\n" + "w1,yes\n" * 9, encoding="utf-8")
    refused("there must be two classes", replace(asked, data=TaskData("classification", str(one))))
    other = tmp_path / "other.csv"
    other.write_text("text,label\nw1,maybe\n", encoding="utf-8")
    validated = replace(asked.data, validation=str(other))
    refused("label 'maybe' is none of those to train on, no, yes", replace(asked, data=validated))
    finetune(folder("bert"), asked, tmp_path / "teacher")
    words = tmp_path / "teacher" / "tokenizer.json"
    words.write_text(words.read_text(encoding="utf-8").replace('"w60"', '"x60"'), encoding="utf-8")
    refused("another vocabulary: 2 tokens differ, 'w60' among them", asked, teacher=tmp_path / "teacher")


def test_a_loss_that_is_not_finite_ends_the_run(folder: Folder, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"the loss is (nan|inf)|not finite"):
        finetune(_broken(folder, tmp_path), request(rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _broken(folder: Folder, tmp_path: Path) -> Path:
    place = tmp_path / "broken"
    copytree(folder("bert"), place)
    file = place / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    first = next(name for name in weights if "query.weight" in name)
    weights[first] = torch.full_like(weights[first], float("nan"))
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})
    return place
