"""The width of the stream against its algebra: exact when all is kept, the best subspaces, literal twins."""

import json
import re
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from safetensors.torch import load_file, save_file
from tiny import DECODER, model, saved

from zerolm.carving.formats import FORMATS
from zerolm.carving.loss import Loss
from zerolm.checkpoints import Checkpoint
from zerolm.children.child_tensors import Child
from zerolm.children.verify import compare_blocks
from zerolm.costs import CostModel
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import load_model, mapped_model, open_model
from zerolm.passes.loss_moments import loss_moments
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of, plan_of
from zerolm.progress import silent
from zerolm.repairing.walk import repair
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import apply_in_memory
from zerolm.units.stream.in_memory import loss_basis
from zerolm.units.stream.narrowing import Basis, Width, energies, ordered_basis
from zerolm.units.stream.weights_basis import weights_basis, weights_channels

IDS = torch.randint(64, (6, 12), generator=torch.Generator().manual_seed(0))
TOKENS = Tokens(IDS)
STEP = {"float32": 1e-5, "bfloat16": 2e-2}
RANDOM: dict[str, Any] = {"text": "random", "sequences": 6, "length": 12}


def narrowed(checkpoint: Checkpoint, basis: Basis, hidden: int, tied: bool) -> Cut:
    return replace(Cut.whole(dimensions(checkpoint)), narrowing=basis.narrowing(Width(hidden, tied)))


def written(checkpoint: Checkpoint, cut: Cut, folder: Path) -> Path:
    folder.mkdir()
    config = FORMATS["hf"].write(Child(checkpoint, cut), folder, silent).config
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def outputs(network: Any) -> torch.Tensor:
    with torch.no_grad():
        return network.eval()(input_ids=IDS).logits.float()  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("name", ["llama_biased", "mistral_odd", "qwen2_tied", "qwen3"])
def test_with_all_components_kept_nothing_changes(name: str, dtype: str, tmp_path: Path) -> None:
    """Rotated by the one basis or the other, written and opened again: the parent's outputs."""
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name, dtype=dtype))
    parent, network = open_model(checkpoint), mapped_model(checkpoint)
    wanted, whole = outputs(parent), checkpoint.layout.hidden
    by_loss = loss_basis(network, loss_moments(network, TOKENS, with_stream=True).fisher)
    for basis in (weights_basis(checkpoint), by_loss):
        assert np.allclose(basis.vectors.T @ basis.vectors, np.eye(whole), atol=1e-9)
        for tied in {False, checkpoint.layout.tied}:
            cut = narrowed(checkpoint, basis, whole, tied)
            child = outputs(apply_in_memory(parent, cut))
            assert (child - wanted).abs().max() <= 1e-5 * wanted.abs().max()
            again = outputs(load_model(written(checkpoint, cut, tmp_path / f"{basis.by}-{tied}"), True))
            assert (again - wanted).abs().max() <= STEP[dtype] * wanted.abs().max()


@pytest.mark.parametrize("name", ["llama_tied", "llama_biased", "mistral_odd", "qwen3"])
def test_a_narrower_child_is_the_carved_parent(name: str, tmp_path: Path) -> None:
    """Everything cut at once, from tokens and from weights; its parameters are those that were counted."""
    parent = saved(tmp_path / "parent", name, dtype="bfloat16")
    divisible = {"keep_heads": 0.5} if name != "llama_biased" else {}
    for case, more in (("tokens", RANDOM), ("weights", {})):
        wishes = {"keep_hidden": 0.5, "keep_ffn": 0.5, **divisible, **more}
        carved = carve(parent, tmp_path / case, **wishes)
        assert carved.verified.relative <= 1e-3
        child = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / case)
        assert child.config.hidden_size == carved.cut.hidden == 24
        assert sum(p.numel() for p in child.parameters()) == carved.costs["child"]["params"]
        assert carved.stream.basis == ("loss" if more else "weights")


@pytest.mark.parametrize("name", ["llama_tied", "qwen2_tied"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_may_leave_its_embedding(name: str, tied: bool, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name))
    cut = narrowed(checkpoint, weights_basis(checkpoint), 32, tied)
    folder = written(checkpoint, cut, tmp_path / "child")
    child = load_model(folder, True)
    assert child.config.tie_word_embeddings is tied
    assert ("lm_head.weight" in Checkpoint.open(folder).tensors) is not tied
    wanted = outputs(apply_in_memory(open_model(checkpoint), cut))
    assert (outputs(child) - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    params = costs_of(checkpoint, CostModel(), cut)["params"]
    assert sum(p.numel() for p in child.parameters()) == params
    loss = Loss(Blocks(mapped_model(checkpoint), [{"input_ids": IDS}]))
    a, b = (torch.log_softmax(x, -1) for x in (outputs(open_model(checkpoint)), outputs(child)))
    assert loss.of_cut(cut) == pytest.approx(float((a.exp() * (a - b)).sum(-1).mean()), rel=1e-4)


@given(st.integers(0, 1000), st.integers(2, 7))
def test_no_subspace_foretells_better(seed: int, size: int) -> None:
    """The first k columns leave as much unexplained as Eckart and Young allow, and more than that never."""
    generator = np.random.default_rng(seed)
    energy, metric = (a @ a.T + 1e-3 * np.eye(size) for a in generator.normal(size=(2, size, size)))
    basis = ordered_basis(energy, metric)
    assert np.allclose(basis.T @ basis, np.eye(size), atol=1e-9)
    assert energies(basis, energy).sum() == pytest.approx(1)
    values, vectors = np.linalg.eigh(metric)
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    least = np.linalg.eigvalsh(root @ energy @ root)

    def unexplained(kept: Any) -> float:
        """E (x - x')^T metric (x - x') of the best linear x' of what is kept of x."""
        foretold = energy @ kept @ np.linalg.solve(kept.T @ energy @ kept, kept.T @ energy)
        return float(np.trace(metric @ (energy - foretold)))

    for kept in range(1, size):
        ours = unexplained(basis[:, :kept])
        assert ours == pytest.approx(least[: size - kept].sum(), rel=1e-6, abs=1e-9)
        assert ours <= unexplained(generator.normal(size=(size, kept))) * (1 + 1e-9)


@given(st.integers(0, 1000), st.integers(3, 9), st.sampled_from([0.0, 1e-7]))
def test_what_holds_nothing_goes_first(seed: int, size: int, noise: float) -> None:
    """Of moments of rank r, r directions keep all; fewer foretell as much as any subspace can."""
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(1, size))
    spread, metric = generator.normal(size=(size, rank)), generator.normal(size=(size, size))
    energy, metric = spread @ spread.T + noise * np.eye(size), metric @ metric.T + 0.1 * np.eye(size)
    basis = ordered_basis(energy, metric)
    assert np.allclose(basis.T @ basis, np.eye(size), atol=1e-9)
    left = spread - basis[:, :rank] @ (basis[:, :rank].T @ spread)
    assert np.abs(left).max() < 1e-2 * np.sqrt(noise) + 1e-7
    assert energies(basis, energy)[:rank].sum() == pytest.approx(1, abs=1e-5)
    if not noise:
        root = np.linalg.cholesky(metric).T
        least = np.linalg.eigvalsh(root @ energy @ root.T)
        for kept in range(1, rank):
            crossed = energy @ basis[:, :kept]
            foretold = crossed @ np.linalg.solve(basis[:, :kept].T @ crossed, crossed.T)
            left_over = float(np.trace(metric @ (energy - foretold)))
            assert left_over == pytest.approx(least[: size - kept].sum(), rel=1e-5, abs=1e-7)


def flat(folder: Path, tied: bool, dtype: str) -> Checkpoint:
    """A llama of hidden size 48 whose stream lives in 35 directions: all that is written lies in them."""
    settings = {"head_dim": 8, "mlp_bias": True, "attention_bias": True, "tie_word_embeddings": tied}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER | settings))
    generator = torch.Generator().manual_seed(0)
    plane = torch.linalg.qr(torch.randn(48, 35, generator=generator).double())[0]
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3 + ("norm" in name))
            if "o_proj" in name or "down_proj" in name:
                weight.copy_(plane @ (plane.T @ weight.double()))
            if "embed" in name:
                weight.copy_(weight.double() @ plane @ plane.T)
    network.to(getattr(torch, dtype)).save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.mark.parametrize(
    ("dtype", "most", "tied", "more"),
    [("float32", 1e-6, True, RANDOM), ("float32", 1e-6, False, {}), ("bfloat16", 5e-3, False, RANDOM)],
)
def test_a_stream_that_is_narrower_than_it_looks_is_cut_exactly(
    dtype: str, most: float, tied: bool, more: dict[str, Any], tmp_path: Path
) -> None:
    parent = flat(tmp_path / "parent", tied, dtype)
    carved = carve(parent.folder, tmp_path / "child", keep_hidden=0.75, **{**more, "repair": "none"})
    assert (carved.cut.hidden, carved.stream.kept_energy) == (36, pytest.approx(1, abs=1e-5))
    assert abs(Loss(Blocks(mapped_model(parent), [{"input_ids": IDS}])).of_cut(carved.cut)) < most
    child = outputs(load_model(tmp_path / "child", True))
    wanted = outputs(open_model(parent))
    assert (child - wanted).abs().max() < 50 * STEP[dtype] * wanted.abs().max()


def test_what_the_loss_feels_is_what_autograd_says() -> None:
    """Second moments of the whole network's gradients, with the same draws."""
    network = model("llama")
    network.requires_grad_(False)
    sums: dict[str, Any] = {"energy": 0.0, "metric": 0.0, "last": 0.0}
    for index in range(3):
        sent: list[torch.Tensor] = []
        gains: list[torch.Tensor] = []

        def note(
            norm: Any, got: Any, out: torch.Tensor, sent: Any = sent, gains: Any = gains
        ) -> torch.Tensor:
            leaf = out if out.requires_grad else out.requires_grad_()
            sent.append(leaf)
            gains.append(norm.weight)
            return leaf

        norms = [m for name, m in network.named_modules() if name.endswith("norm")]
        handles = [norm.register_forward_hook(note) for norm in norms]
        ids = IDS[2 * index : 2 * index + 2]
        log = torch.log_softmax(network(input_ids=ids).logits, -1).flatten(0, 1)
        generator = torch.Generator().manual_seed(index)
        drawn = torch.multinomial(log.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(-log.gather(1, drawn).sum(), sent)
        for handle in handles:
            handle.remove()
        for x, g, gain in zip(sent, gradients, gains, strict=True):
            read = (x.detach() / gain).flatten(0, 1).double().numpy()
            felt = (g * gain).flatten(0, 1).double().numpy()
            sums["energy"] += read.T @ read
            sums["metric"] += felt.T @ felt
            sums["last"] += read.T @ read if x is sent[-1] else 0.0
    basis = loss_basis(network, loss_moments(network, TOKENS, with_stream=True).fisher)
    assert np.allclose(basis.last, sums["last"] / np.trace(sums["last"]), atol=1e-5)
    wanted = ordered_basis(sums["energy"], sums["metric"])
    for kept in (8, 24, 40):
        ours, theirs = (x[:, :kept] @ x[:, :kept].T for x in (basis.vectors, wanted))
        assert np.abs(ours - theirs).max() < 1e-2


def test_what_is_read_is_foretold_by_least_squares(tmp_path: Path) -> None:
    """Of the last norm, with everything below whole: the ridge solution, written out."""
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", "llama"))
    many = Tokens(torch.randint(64, (24, 16), generator=torch.Generator().manual_seed(1)))
    cut = narrowed(checkpoint, weights_basis(checkpoint), 32, False)
    repaired = repair(mapped_model(checkpoint), cut, many)
    parent = open_model(checkpoint)
    child = apply_in_memory(parent, cut, repaired)
    with torch.no_grad():
        x = child.base_model(input_ids=many.ids).last_hidden_state.flatten(0, 1).double()  # (n, k)
        t = parent.base_model(input_ids=many.ids).last_hidden_state.flatten(0, 1).double()  # (n, d)
    gain = parent.base_model.norm.weight.detach().double().numpy()
    start = torch.from_numpy(cut.narrowing.input_map("final_norm", gain).T)  # type: ignore[union-attr]
    moments = x.T @ x
    ridge = repaired.ridges[3, "final_norm"].output * float(moments.diagonal().mean())
    wanted = torch.linalg.solve(moments + ridge * torch.eye(32).double(), x.T @ t + ridge * start)  # (k, d)
    assert np.allclose(repaired.arrays[3, "final_norm"], wanted.T.numpy(), atol=1e-4)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "nearly all": ("llama", {"keep_hidden": 0.999}, "nothing would be cut: --keep-hidden 0.999 of 48"),
    "gemma2": ("gemma2", {"keep_hidden": 0.5}, "hidden cannot be cut here: norms on the outputs"),
    "gpt2": ("gpt2", {"keep_hidden": 0.5}, "hidden cannot be cut here: the stock class derives"),
    "bert": ("bert", {"keep_hidden": 0.5}, "hidden cannot be cut here: the stock class derives"),
    "a space": ("llama", {"keep_hidden": 0.5, "space": "lonas-llama-7b"}, "is a space of"),
    "heads that do not divide": ("llama_biased", {"keep_hidden": 0.9}, "no size is left"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_narrowed_is_refused(case: str, tmp_path: Path) -> None:
    name, wishes, message = REFUSED[case]
    parent = saved(tmp_path / "parent", name)
    refused(parent, message, **wishes, **RANDOM)


@pytest.mark.parametrize(
    ("name", "dtype"), [("llama_biased", "float32"), ("qwen3", "bfloat16"), ("qwen2_tied", "float32")]
)
def test_no_tensor_may_be_another(name: str, dtype: str, tmp_path: Path) -> None:
    """Each role, in one layer or another, with its rows or columns in another order: the proof says so."""
    parent = Checkpoint.open(saved(tmp_path / "parent", name, dtype=dtype))
    cut = narrowed(parent, weights_basis(parent), 24, parent.layout.tied)
    folder = written(parent, cut, tmp_path / "child")
    assert compare_blocks(Checkpoint.open(folder), parent, cut).relative <= 1e-5
    weights = load_file(folder / "model.safetensors")
    layers, inside = cycle(("0", "1", "2")), {re.sub(r"\.\d\.", ".{}.", tensor) for tensor in weights}
    for tensor in (name.format(next(layers)) if "{}" in name else name for name in sorted(inside)):
        values = weights[tensor]
        others = [values.flip(axis) for axis in range(values.dim())]
        if "norm" in tensor and "q_norm" not in tensor and "k_norm" not in tensor:
            others = [values * 1.5]
        for other in others:
            save_file({**weights, tensor: other.contiguous()}, folder / "model.safetensors")
            with pytest.raises(ValueError, match=r"differs from"):
                compare_blocks(Checkpoint.open(folder), parent, cut)


@dataclass(frozen=True)
class Drawn(Criterion):
    """A worth of every size, drawn; the more is kept the better."""

    seed: int

    def choose(self, layer: int, kind: str, count: int) -> Any:
        return np.arange(count)

    def score(self, layer: int, kind: str, count: int) -> float:
        weight = np.random.default_rng([self.seed, layer, kind == "ffn"]).random()
        return -float(weight * (1 - count / {"groups": 2, "ffn": 40}[kind]))

    def narrower(self, width: Width) -> float:
        weight = np.random.default_rng([self.seed, width.tied]).random()
        return -float(3 * weight * (1 - width.hidden / 48) ** 2)


@settings(max_examples=portion(12), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.45, 0.6, 0.8]), st.sampled_from(["params", "macs"]))
def test_a_plan_tries_every_width_and_both_heads(seed: int, share: float, cost: str) -> None:
    """Against all combinations of width, head, KV groups and neurons, each counted as a cut."""
    by = Drawn(seed)
    with TemporaryDirectory() as folder:
        parent = Checkpoint.open(saved(Path(folder) / "parent", "qwen2_tied"))
        basis, whole = weights_channels(parent), dimensions(parent)
        limit = int(share * costs_of(parent, CostModel())[cost])
        request = SizeRequest.of({"layers": 1.0}, {f"max_{cost}": limit}, multiple_of=8)
        plan = plan_of(parent, by, request, CostModel())
        best = -np.inf
        for hidden, tied, groups, ffn in product(range(8, 49, 8), (True, False), (1, 2), range(8, 41, 8)):
            if hidden == 48 and not tied:
                continue
            cut = Cut.of(whole, range(3), lambda layer, sizes=(groups, ffn): sizes)  # type: ignore[misc]
            width = Width(hidden, tied)
            if hidden < 48:
                cut = replace(cut, narrowing=basis.narrowing(width))
            if costs_of(parent, CostModel(), cut)[cost] <= limit:
                worth = sum(by.score(n, "groups", groups) + by.score(n, "ffn", ffn) for n in range(3))
                best = max(best, worth + (by.narrower(width) if hidden < 48 else 0.0))
        assert plan.score == pytest.approx(best, rel=1e-9)
        assert plan.costs[cost] <= limit
        cut = plan.cut if plan.width is None else replace(plan.cut, narrowing=basis.narrowing(plan.width))
        assert costs_of(parent, CostModel(), cut) == plan.costs
