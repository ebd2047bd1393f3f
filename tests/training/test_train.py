"""Training: what it must end with whatever happens on the way."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from forked import die, forks, in_another_process, killed_at
from label_training import ASKED, some_text
from safetensors.torch import load_file
from small_supernets import SIZES
from tiny import model, saved, word_tokenizer
from torch import Tensor, nn
from transformers import TrainerState

from zerolm.settings.compute import TrainedOn
from zerolm.text.corpus import Corpus, Sequences, TokenFile
from zerolm.training import train as training
from zerolm.training import watch as watching
from zerolm.training.learner import Objective, Student
from zerolm.training.losses import forward_kl, labelled
from zerolm.training.request import Execution, Schedule, TrainingRequest
from zerolm.training.teacher import LiveTeacher, fill, teacher_cache
from zerolm.training.train import WEIGHTS, TrainingFailed, last_checkpoint, recompute_activations, train
from zerolm.training.watch import LOG, TrainingRun

LENGTH, BATCH = 8, 4


def tokens(count: int = 4000, seed: int = 0, name: str = "text") -> TokenFile:
    """A text in which the next token is often the one after, so that there is something to learn."""
    steps = np.random.default_rng(seed).integers(0, 4, count)
    return TokenFile(name, f"{seed:064x}", 1, (np.cumsum(steps) % 64).astype(np.uint16))


def corpus(length: int = LENGTH) -> Corpus:
    return Corpus((tokens(),), length)


def request(steps: int, rate: float = 3e-3, **more: Any) -> TrainingRequest:
    return TrainingRequest(
        steps * BATCH * LENGTH, BATCH, LENGTH, Schedule(rate), **{"checkpoints": steps // 2, **more}
    )


def learner(name: str = "llama", *losses: str, seed: int = 0) -> Student:
    pairs = tuple((place, place) for place in range(1, 4))
    return Student(model(name, seed), Objective(dict.fromkeys(losses or ("next-token",), 1.0), layers=pairs))


def trained(folder: Path, plan: TrainingRequest, name: str = "llama", **more: Any) -> dict[str, torch.Tensor]:
    """The weights that a run in this folder ends with."""
    folder.mkdir(exist_ok=True)
    student = learner(name)
    train(student, data(plan), plan, TrainingRun(folder, **more))
    return weights(student)


def data(plan: TrainingRequest) -> Sequences:
    return Sequences(corpus(plan.length), plan.sequences, plan.seed)


def weights(student: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in student.state_dict().items()}


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def in_parts(accumulate: int) -> Execution:
    return Execution(TrainedOn(dtype="float32"), accumulate)


@forks
def test_kills_change_no_weight(tmp_path: Path) -> None:
    """Of gpt2, which drops activations at random."""
    plan, name = request(20), "gpt2"
    whole = trained(tmp_path / "whole", plan, name)
    for moment in (3, 1):
        ended = in_another_process(
            lambda at=moment: trained(tmp_path / "killed", plan, name, progress=killed_at(at))  # type: ignore[misc]
        )
        assert ended == signal.SIGKILL
    assert last_checkpoint(tmp_path / "killed") is not None
    assert difference(trained(tmp_path / "killed", plan, name), whole) <= 1e-6
    logs = [(tmp_path / run / LOG).read_text() for run in ("whole", "killed")]
    steps = [[json.loads(line)["step"] for line in log.splitlines()] for log in logs]
    assert steps[0] == steps[1] == sorted(set(steps[0]))


@forks
@pytest.mark.parametrize(
    ("place", "name"),
    [(training.safetensors.torch, "save_model"), (torch, "save"), (TrainerState, "save_to_json")],
)
def test_killed_in_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
    """What is not complete is removed, and the one before is gone on with."""
    plan = request(8)
    whole, folder = trained(tmp_path / "whole", plan), tmp_path / "killed"
    real = getattr(place, name)
    per_checkpoint = {"save": 3}.get(name, 1)  # optimiser, scheduler, random state
    calls = iter(range(1, 100))

    def some(*given: Any, **more: Any) -> Any:
        if next(calls) > per_checkpoint:  # in the second one
            Path(given[-1]).write_bytes(b"half") if name != "save" else None
            die()
        return real(*given, **more)

    monkeypatch.setattr(place, name, some)
    assert in_another_process(lambda: trained(folder, plan)) == signal.SIGKILL
    monkeypatch.setattr(place, name, real)
    assert (folder / "checkpoint-4").is_dir()
    assert last_checkpoint(folder) == folder / "checkpoint-2"
    assert not (folder / "checkpoint-4").exists()
    assert difference(trained(folder, plan), whole) <= 1e-6


def test_accumulation_is_one_batch(tmp_path: Path) -> None:
    whole = trained(tmp_path / "1", request(6, execution=in_parts(1)))
    assert difference(trained(tmp_path / "2", request(6, execution=in_parts(2))), whole) <= 1e-5
    with pytest.raises(ValueError, match=r"a batch of 4 .* 1 processes x 3 micro-batches; 3 does"):
        trained(tmp_path / "3", request(6, execution=in_parts(3)))


def test_checkpointed_activations_change_no_loss(tmp_path: Path) -> None:
    plan, losses = request(4), []
    for on in (False, True):
        student = learner()
        if on:
            recompute_activations(student.model)  # type: ignore[arg-type]
        folder = tmp_path / str(on)
        folder.mkdir()
        rows = train(student, data(plan), plan, TrainingRun(folder)).rows
        losses.append([row["loss_next-token"] for row in rows if row["step"]])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(losses[0]) == 4


def test_a_cached_teacher_that_keeps_all_teaches_the_same(tmp_path: Path) -> None:
    """Up to the rounding of float16."""
    plan, parent = request(6), model("llama", seed=1)
    live = LiveTeacher(parent, Objective({"kl": 1.0}))
    cache = teacher_cache("parent", corpus(), 64, 1.0, 64)
    sequences = data(plan)
    fill(cache, parent, corpus(), sequences.pairs, 1.0)
    assert not len(cache.missing(sequences.numbers))
    results = []
    for name, teacher in (("live", live), ("cached", cache)):
        student, folder = learner("llama", "kl"), tmp_path / name
        folder.mkdir()
        rows = train(student, sequences, plan, TrainingRun(folder), teacher=teacher).rows
        results.append([row["loss_kl"] for row in rows if row["step"]])
    assert results[0] == pytest.approx(results[1], rel=5e-3)
    assert results[0][0] > 0.01


@pytest.mark.parametrize("every", [2, 3, 7])
def test_some_positions_are_predicted_by_student_and_teacher_alike(every: int) -> None:
    """States are compared at all positions, and the last token, which nothing follows, is left out."""
    objective = Objective(dict.fromkeys(("next-token", "kl", "hidden"), 1.0), layers=((1, 1),), every=every)
    networks = model("llama"), model("llama", seed=1)
    firsts = set[int]()
    for seed in range(20):
        ids = torch.randint(0, 64, (3, LENGTH), generator=torch.Generator().manual_seed(seed))
        signals = LiveTeacher(networks[1], objective).signals(ids, ids[:, 0])
        with torch.no_grad():
            losses = Student(networks[0], objective)(ids, **signals)
            student, teacher = (network(input_ids=ids).logits for network in networks)
        places = np.arange(int(ids.sum()) % every, LENGTH - 1, every)[: (LENGTH - 1) // every]
        firsts.add(int(places[0]))
        whole = Student(networks[0], replace(objective, every=1))
        live = LiveTeacher(networks[1], whole.objective)
        hidden = whole(ids, **live.signals(ids, ids[:, 0]))["hidden"].detach()
        wanted = [
            labelled(student[:, places], ids[:, places + 1]),
            forward_kl(student[:, places], teacher[:, places]),
            hidden,
        ]
        assert signals["logits"].shape[1] == len(places) == (LENGTH - 1) // every
        assert [*map(float, losses.values())] == pytest.approx([*map(float, wanted)], rel=1e-5)
        log_p, every_token = teacher.log_softmax(-1), torch.arange(64).expand(teacher.shape)
        cached = Student(networks[0], replace(objective, weights={"kl": 1.0}))
        assert float(cached(ids, log_p=log_p, ids=every_token)["kl"].detach()) == pytest.approx(
            float(losses["kl"]), rel=1e-5
        )
    assert firsts == {*range(every)}


@pytest.mark.parametrize("seed", range(4))
def test_states_of_another_width_are_fitted_beyond_the_rounding_of_what_is_stored(seed: int) -> None:
    """Then the fit is the same wherever the states lie in memory, and a killed run starts from it again."""
    torch.manual_seed(seed)
    network, draws = model("llama", seed), torch.Generator().manual_seed(seed)
    width, ids = network.config.hidden_size, torch.randint(0, 64, (4, LENGTH), generator=draws)
    teacher = torch.randn(2, 4, LENGTH, 2 * width, generator=draws)
    objective = Objective({"hidden": 1.0}, layers=((1, 0), (2, 1)))
    student = Student(network, objective, (width, 2 * width))
    stub: Any = SimpleNamespace(signals=lambda ids, numbers: {"hidden": list(teacher)})
    student.balance(ids, ids[:, 0], stub)
    with torch.no_grad():
        states = network(input_ids=ids, output_hidden_states=True).hidden_states
    ours = np.concatenate([states[place].flatten(0, 1).double().numpy() for place in (1, 2)])
    wanted = np.linalg.lstsq(ours, teacher.flatten(0, 2).double().numpy())[0].T.astype(np.float32)
    assert student.fit is not None
    assert np.mean(student.fit.weight.detach().numpy() == wanted) > 0.99


def test_a_teacher_is_run_once(tmp_path: Path) -> None:
    parent, sequences = model("llama"), data(request(6))

    def interrupted(text: str, done: int, of: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(teacher_cache("a", corpus(), 64, 2.0, 5), parent, corpus(), sequences.pairs, 2.0, interrupted)
    assert 0 < len(teacher_cache("a", corpus(), 64, 2.0, 5).missing(sequences.numbers)) < len(sequences)
    fill(teacher_cache("a", corpus(), 64, 2.0, 5), parent, corpus(), sequences.pairs, 2.0)
    cache = teacher_cache("a", corpus(), 64, 2.0, 5)
    fill(cache, None, corpus(), sequences.pairs, 2.0)  # type: ignore[arg-type]
    ids = torch.stack([sequences[place]["input_ids"] for place in (0, 7)])
    signals = cache.signals(ids, torch.tensor(sequences.numbers[[0, 7]]))
    with torch.no_grad():
        log_p, likely = torch.log_softmax(parent(input_ids=ids).logits / 2.0, -1).topk(5, -1)
    torch.testing.assert_close(signals["log_p"], log_p, rtol=1e-3, atol=1e-3)
    assert bool((signals["ids"] == likely).all())
    assert len(teacher_cache("b", corpus(), 64, 2.0, 5).missing(sequences.numbers)) == len(sequences)


class Failing(nn.Module):
    """A line whose loss is not a number at one step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.at, self.calls = at, 0

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        loss = ((self.weight - input_ids.float().mean()) ** 2).sum()
        return {"square": loss * (math.nan if self.calls == self.at else 1.0)}


def test_a_loss_that_is_not_finite_ends_it_at_the_last_good_state(tmp_path: Path) -> None:
    plan, student = request(20), Failing(at=8)
    with pytest.raises(TrainingFailed, match="the loss is nan at step 8"):
        train(student, data(plan), plan, TrainingRun(tmp_path))
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    kept = load_file(tmp_path / "checkpoint-6" / WEIGHTS)
    assert difference(weights(student), kept) == 0
    assert bool(kept["weight"].any())


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_no_disk_left_for_a_checkpoint(tmp_path: Path, small_disk: Callable[[int], None], size: int) -> None:
    """Whichever file does not fit: the weights are 177 kB, the optimiser's state twice that."""
    plan = request(8)
    whole = trained(tmp_path / "whole", plan)

    def full(text: str, done: int, of: int) -> None:
        if done == 5:
            small_disk(size)

    folder = tmp_path / "run"
    with pytest.raises(OSError, match=r"the checkpoint of step 6 cannot be written: .*make room"):
        trained(folder, plan, progress=full)
    small_disk(1 << 40)
    assert sorted(place.name for place in folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    assert difference(trained(folder, plan), whole) <= 1e-6


def test_random_numbers_around_it_are_left_alone(tmp_path: Path) -> None:
    def draws() -> list[float]:
        return [random.random(), float(np.random.random()), float(torch.rand(()))]

    def seeds() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.default_generator.manual_seed(1)

    plan, students = request(2), [learner("gpt2"), learner("gpt2")]
    seeds()
    alone = draws()
    seeds()
    train(students[0], data(plan), plan, TrainingRun(tmp_path))
    assert draws() == alone
    (tmp_path / "b").mkdir()
    train(students[1], data(plan), plan, TrainingRun(tmp_path / "b"))
    assert difference(*map(weights, students)) == 0


def test_the_log_tells_what_was_measured(tmp_path: Path) -> None:
    plan = request(10, rate=2e-2, measured=5)
    measured: list[int] = []

    def judge() -> dict[str, float]:
        measured.append(1)
        return {"kl": float(len(measured))}

    student = learner()
    rows = train(student, data(plan), plan, TrainingRun(tmp_path, judge)).rows
    assert rows == [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8, 10]
    assert [row["tokens"] for row in rows] == [step * BATCH * LENGTH for step in range(0, 11, 2)]
    assert [row["kl"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["loss_next-token"] < rows[1]["loss_next-token"]
    assert student.training


def test_the_rate_rises_holds_and_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    step = torch.optim.AdamW.step

    def noted(self: Any, *given: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    schedule = Schedule(1e-3, warmup=0.25, decay=0.5)
    plan = TrainingRequest(20 * BATCH * LENGTH, BATCH, LENGTH, schedule, checkpoints=1)
    train(learner(), data(plan), plan, TrainingRun(tmp_path))
    assert len(rates) == 20
    assert rates[:6] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert rates[5:11] == pytest.approx([1e-3] * 6)
    assert rates[10:] == pytest.approx([1e-3 * (1 - part / 10) for part in range(10)])


@pytest.mark.parametrize("pace", [0.5, 3.0])
def test_a_run_by_time_lasts_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float) -> None:
    """60 steps are estimated in 60 seconds; a step takes ``pace`` seconds, and is the only one that looks."""
    now, rates, shown = [0.0], list[float](), list[tuple[int, int]]()
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))
    plan = request(60, seconds=60.0)
    trainer = training._Trainer

    class Slow(trainer):  # type: ignore[misc, valid-type]
        def compute_loss(self, *arguments: Any, **named: Any) -> Any:
            now[0] += pace
            rates.append(self.optimizer.param_groups[0]["lr"])
            return super().compute_loss(*arguments, **named)

    monkeypatch.setattr(training, "_Trainer", Slow)
    run = TrainingRun(tmp_path, None, lambda text, done=0, of=0: shown.append((done, of)))
    result = train(learner(), data(plan), plan, run)
    assert result.steps == len(rates) == round(60 / pace)
    rate = plan.schedule.rate
    np.testing.assert_allclose(
        rates[1:], [rate * plan.schedule.factor(n * pace / 60 + 1 / 60) for n in range(1, len(rates))]
    )
    assert 0 < rates[0] < rate
    assert rates[-1] < 0.2 * rate
    assert shown[-1] == (60_000, 60_000)
    assert [row["seconds"] for row in result.rows][-1] == 60
    assert len(result.rows) == 1 + min(plan.measured, result.steps)
    assert last_checkpoint(tmp_path) is not None
    now[0] = 1000.0
    again = train(learner(), data(plan), plan, run)  # nothing is left of its time
    assert again.steps <= result.steps + 1


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED"])
def test_networks_are_never_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{kind}", "true")
    with pytest.raises(ValueError, match=f"so {kind} is not possible"):
        trained(tmp_path / "run", request(4))


RUNS = """
import sys, zerolm
folder, sizes, asked = sys.argv[1], eval(sys.argv[2]), eval(sys.argv[3])
text, run = folder + "/text.txt", {"tokens": 256, "batch": 4, "length": 16}
for more in ({"checkpointing": True}, {"lora": 2}):
    healed = folder + "/healed-" + "-".join(more)
    zerolm.heal(folder + "/child", healed, parent=folder + "/parent", text=text, **run, **more)
zerolm.lab.elastic.train("elastic", folder + "/net", text=text, words=300, epochs=2, **run, **sizes)
zerolm.bench.train("llama", text=text, **{**asked, "count": 2})
passes = {"batch": 2, "length": 8, "micro_batches": 1, "store": folder + "/store"}
zerolm.lab.proxies(folder + "/parent", text=text, **passes)
"""


def test_no_library_warns_a_user(tmp_path: Path) -> None:
    word_tokenizer(saved(tmp_path / "parent", "llama"))
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5)
    some_text(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path), repr(SIZES), repr(ASKED)],
        env={**os.environ, "ZEROLM_CACHE": str(tmp_path / "cache")}, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
