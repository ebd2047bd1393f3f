"""Architectures that are trained the same way: kept, gone on with, and told apart by all that matters."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pickled
import pytest
import torch
from forked import forks, in_another_process
from label_training import SPACE, some_text
from torch import nn

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.io.folders import locked
from zerolm.networks.batch import NOTHING
from zerolm.networks.build import build
from zerolm.progress import silent
from zerolm.settings.compute import TrainedOn
from zerolm.solvers.sampling import drawn
from zerolm.spaces import SPACES, make_space
from zerolm.text.predictions import predicted
from zerolm.training import labels
from zerolm.training.labels import LabelText, LabelTraining, labels_as_trained, train_all
from zerolm.training.losses import HELD_BATCH
from zerolm.training.request import DEPTH_RULES, Execution, Schedule, TrainingRequest
from zerolm.training.scaling import BASE_DEPTH, scaled
from zerolm.training.train import BETAS, CLIP

REQUEST = TrainingRequest(
    160, 2, 16, Schedule(0.01), execution=Execution(TrainedOn(dtype="float32")), checkpoints=5, measured=5
)


def parsed(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {s.name: s.parse(settings[s.name]) for s in SPACES[name].declared if s.name in settings}


@pytest.fixture
def text(tmp_path: Path) -> LabelText:
    return LabelText.of(str(some_text(tmp_path)), "llama", parsed("llama", SPACE), REQUEST, silent)


@pytest.fixture
def few(text: LabelText) -> list[Architecture]:
    return drawn(text.space, 2, 0, distinct=True)


def runs(architectures: list[Architecture], seed: int = 0) -> list[tuple[Architecture, int, str]]:
    return [(one, seed, f"architecture {i}") for i, one in enumerate(architectures)]


def by_hand(text: LabelText, architecture: Architecture, seed: int) -> list[float]:
    """Return the losses held out after each step, of a loop that is written out."""
    network = build(architecture, seed)
    module, groups = scaled(network, architecture.layers[-1].width, REQUEST.schedule.rate)
    optimiser = torch.optim.AdamW(groups, betas=BETAS, weight_decay=0.0)
    first = [group["lr"] for group in optimiser.param_groups]
    data = text.data(REQUEST.sequences, seed)

    def loss(inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        logits = module(inputs, text.classes).flatten(0, 1)
        return nn.functional.cross_entropy(logits, wanted.flatten(), ignore_index=NOTHING)

    held = predicted(text.held_ids, text.task, text.mask)
    losses = []
    factors = (0.0, 1.0, 1.0, 1.0, 0.5)  # five steps: one of warm-up from nothing, two to fall in
    for step, factor in enumerate(factors):
        for group, rate in zip(optimiser.param_groups, first, strict=True):
            group["lr"] = rate * factor
        items = [data[2 * step], data[2 * step + 1]]
        optimiser.zero_grad()
        loss(*(torch.stack([item[name] for item in items]) for name in ("input_ids", "labels"))).backward()
        nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimiser.step()
        with torch.no_grad():
            losses.append(float(loss(*held)))
    return losses


def test_training_is_the_loop_that_is_written_out(text: LabelText, few: list[Architecture]) -> None:
    for architecture in few:
        label = train_all(runs([architecture], 3), text, REQUEST)[0]
        assert list(label.losses) == [32, 64, 96, 128, 160]
        assert list(label.losses.values()) == pytest.approx(by_hand(text, architecture, 3), abs=2e-5)


def test_another_text_is_judged_on_whole(text: LabelText, few: list[Architecture], tmp_path: Path) -> None:
    """In whole batches, and its labels are kept apart from those judged on the end of the text."""
    other = tmp_path / "other.txt"
    other.write_text(" ".join(f"w{i * i % 67}" for i in range(700)))
    source = str(tmp_path / "text.txt")
    judged = LabelText.of(source, "llama", parsed("llama", SPACE), REQUEST, silent, str(other))
    own = judged.judged.texts[0].ids
    assert len(own) // 16 > HELD_BATCH
    assert len(own) // 16 % HELD_BATCH
    ids = judged.held_ids
    assert ids.shape == (len(own) // 16 // HELD_BATCH * HELD_BATCH, 16)
    assert ids.flatten().tolist() == own[: ids.numel()].tolist()
    plain = train_all(runs(few[:1]), text, REQUEST)[0]
    label = train_all(runs(few[:1]), judged, REQUEST)[0]
    assert list(label.losses.values()) == pytest.approx(by_hand(judged, few[0], 0), abs=2e-5)
    assert label.loss != plain.loss
    assert train_all(runs(few[:1]), text, REQUEST) == [plain]


def test_labels_come_as_they_are_trained(text: LabelText, few: list[Architecture]) -> None:
    """What is kept comes first; one that is stopped has lost nothing that was finished."""
    stopped = labels_as_trained(runs(few), text, REQUEST)
    assert next(stopped)[0] == 0
    stopped.close()
    assert [place for place, _ in labels_as_trained(runs(few[::-1]), text, REQUEST)] == [1, 0]


def test_compiled_parts(text: LabelText, few: list[Architecture], monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph for all layers of a shape and one for the loss, to train and to judge; of each shape anew."""
    plain = train_all(runs(few), text, REQUEST)
    graphs: list[torch.fx.GraphModule] = []

    def traced(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=traced))
    request = replace(REQUEST, execution=Execution(TrainedOn(dtype="float32"), compile=True))
    for ours, theirs in zip(train_all(runs(few), text, request), plain, strict=True):
        assert list(ours.losses.values()) == pytest.approx(list(theirs.losses.values()), abs=1e-5)
    assert any(architecture.depth > 1 for architecture in few)
    held = len(text.held_ids)
    batches = 1 + (held >= HELD_BATCH) + (held % HELD_BATCH > 0)  # to train, and to judge
    assert len(graphs) == 2 * batches * len(few)


def test_what_is_kept_is_not_trained_again(
    text: LabelText, few: list[Architecture], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_all(runs(few), text, REQUEST)
    monkeypatch.setattr(labels, "train", never)
    assert train_all(runs(few[::-1]), text, REQUEST) == first[::-1]
    for other in (
        replace(REQUEST, tokens=192),
        replace(REQUEST, schedule=Schedule(0.02)),
        replace(REQUEST, execution=Execution(TrainedOn(dtype="bfloat16"))),
        replace(REQUEST, depth_rule="linear"),
    ):
        with pytest.raises(RuntimeError, match="trained again"):
            train_all(runs(few), text, other)
    with pytest.raises(RuntimeError, match="trained again"):
        train_all(runs(few, seed=1), text, REQUEST)


def test_a_rule_of_depth_changes_all_but_the_base_depth(text: LabelText) -> None:
    choices = {"hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 2, "ffn": 32}
    space = make_space("llama", **{**text.space.settings, "depth": [BASE_DEPTH, 1]})
    base, shallow = (space.read({**choices, "depth": depth}) for depth in (BASE_DEPTH, 1))
    request = replace(REQUEST, tokens=64, measured=1)
    plain, *ruled = (
        train_all(runs([base, shallow]), text, replace(request, depth_rule=rule)) for rule in DEPTH_RULES
    )
    for labels_of in ruled:
        assert labels_of[0].losses == plain[0].losses
        assert labels_of[1].losses != plain[1].losses


def test_a_rule_of_depth_is_refused_before_anything_is_trained(
    text: LabelText, few: list[Architecture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "train", never)
    bert = drawn(make_space("bert", **parsed("bert", SMALL["bert"])), 1, 0)
    with pytest.raises(ValueError, match="--depth-rule sqrt needs layers"):
        train_all(runs([*few, *bert]), text, replace(REQUEST, depth_rule="sqrt"))


def never(*_: object, **__: object) -> None:
    raise AssertionError("trained again")


def test_damaged_records_are_trained_again(text: LabelText, few: list[Architecture], own_cache: Path) -> None:
    (first,) = train_all(runs(few[:1]), text, REQUEST)
    (file,) = (own_cache / "labels").glob("*/labels.jsonl")
    assert not any(place.is_dir() for place in file.parent.iterdir()), "checkpoints are gone"
    for content in (file.read_text()[:20], "", "[]"):
        file.write_text(content)
        assert train_all(runs(few[:1]), text, REQUEST)[0].losses == first.losses


@forks
def test_a_killed_run_goes_on_to_the_same_losses(
    text: LabelText, few: list[Architecture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in a measurement within an architecture, and in one of the next."""
    whole = [label.losses for label in train_all(runs(few), text, REQUEST)]
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "other"))
    judge, kills = LabelTraining._judge, 0
    for moment in (2, 7):

        def killing(self: LabelTraining, learner: nn.Module, at: int = moment) -> Callable[[], Any]:
            measure = judge(self, learner)

            def measured() -> Any:
                nonlocal kills
                kills += 1
                if kills > at:
                    os.kill(os.getpid(), 9)
                return measure()

            return measured

        kills = 0
        monkeypatch.setattr(LabelTraining, "_judge", killing)
        assert in_another_process(lambda: train_all(runs(few), text, REQUEST)) == 9
    monkeypatch.setattr(LabelTraining, "_judge", judge)
    again = [label.losses for label in train_all(runs(few), text, REQUEST)]
    assert [list(losses) for losses in again] == [list(losses) for losses in whole]
    for ours, theirs in zip(again, whole, strict=True):
        assert list(ours.values()) == pytest.approx(list(theirs.values()), abs=1e-6)


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_memory_does_not_hold_is_not_begun(
    jobs: int, text: LabelText, few: list[Architecture], monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    largest = max(CostModel().of(architecture)["params"] for architecture in few)
    monkeypatch.setattr(labels, "free_memory", lambda: 16 * jobs * largest - 1)
    with pytest.raises(ValueError, match=r"parameters fit" + (" with 3 jobs" if jobs > 1 else "$")):
        train_all(runs(few), text, REQUEST, jobs=jobs)
    monkeypatch.setattr(labels, "free_memory", lambda: 16 * largest)
    assert len(train_all(runs(few), text, REQUEST)) == len(few)
    monkeypatch.setattr(labels, "free_memory", lambda: 0)
    assert len(train_all(runs(few), text, REQUEST)) == len(few)  # all are kept


def test_jobs_change_nothing(
    text: LabelText, few: list[Architecture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train_all(runs(few), text, REQUEST)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(labels, "finished", pickled.finished)
    together = train_all(runs(few), text, REQUEST, jobs=2)
    assert [label.losses for label in together] == [label.losses for label in alone]


def test_a_loss_that_is_not_finite_is_a_label_with_a_reason(text: LabelText, few: list[Architecture]) -> None:
    hot = replace(REQUEST, tokens=3200, schedule=Schedule(1e30, warmup=0.001))
    for label in train_all(runs(few[:1]), text, hot):
        assert label.losses == {}
        assert "not finite" in label.failure or "nan" in label.failure or "inf" in label.failure


def test_a_full_disk_is_one_line_and_costs_nothing_that_is_finished(
    text: LabelText, few: list[Architecture], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, calls = labels.train, []

    def full(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the checkpoint of step 3 cannot be written: no space left")
        return train(*given, **more)

    monkeypatch.setattr(labels, "train", full)
    with pytest.raises(ValueError, match="architecture 1: the checkpoint of step 3 cannot be written"):
        train_all(runs(few), text, REQUEST)
    assert len(calls) == 2
    train_all(runs(few), text, REQUEST)
    assert len(calls) == 3


def test_two_commands_train_apart(text: LabelText, few: list[Architecture], own_cache: Path) -> None:
    train_all(runs(few[:1]), text, REQUEST)
    (folder,) = (own_cache / "labels").iterdir()
    with locked(folder, "busy"), pytest.raises(ValueError, match="another command trains"):
        train_all(runs(few), text, REQUEST)


UNIFORM: dict[str, Any] = {"depth": "1", "hidden": "16", "head_size": "8", "ffn": "32", "vocab": 300}
UNIFORM |= {"hidden_per_depth": "1:1000", "ffn_per_hidden": "0.1:10"}
SMALL: dict[str, dict[str, Any]] = {
    "bert": UNIFORM,
    "gpt2-uniform": UNIFORM,
    "flexibert": {"depth": "1", "hidden": "16", "heads": "2", "ffn": "32", "stacks": "1"},
    "gpt2": {"depth": "1", "hidden": "16", "heads": "2", "ffn": "32", "d_embed": "16", "div_val": "1"}
    | {"ffn_per_hidden": "0.1:10"},
    "transformer_xl": {"depth": "1", "hidden": "16", "heads": "2", "ffn": "32", "d_embed": "16"}
    | {"div_val": "1", "ffn_per_hidden": "0.1:10"},
}


@pytest.mark.parametrize("name", SMALL)
def test_every_space_of_text_is_trained(name: str, tmp_path: Path) -> None:
    """From the loss of guessing: the logarithm of the number of tokens that are known."""
    text = LabelText.of(str(some_text(tmp_path)), name, parsed(name, SMALL[name]), REQUEST, silent)
    (label,) = train_all(runs([drawn(text.space, 1, 0)[0]]), text, replace(REQUEST, tokens=1600))
    losses = list(label.losses.values())
    known = text.classes or text.space.settings["vocab"]
    assert losses[-1] < losses[0] < 1.3 * float(torch.tensor(float(known)).log())
    assert known <= 2048


def test_images_and_unknown_networks_are_refused(tmp_path: Path) -> None:
    source = str(some_text(tmp_path))
    others = "text: bert, blocks, elastic, elastic-causal, flexibert"
    with pytest.raises(ValueError, match=f"'pit' read images, and are trained on none; {others}"):
        LabelText.of(source, "pit", {}, REQUEST, silent)
