"""Where networks run, in which type and memory: the same child, one within rounding, or one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import BY_WEIGHTS, carve
from refusals import Zerolm, refused
from safetensors.torch import load_file, save_file
from tiny import model, saved, word_tokenizer

from zerolm.carving import formats, session
from zerolm.carving.loss import Loss
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks import blocks as blocks_module
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import Compute, as_noted, compute, computed, devices, put_on
from zerolm.networks.states import HiddenStates
from zerolm.passes.outputs import embeddings, logits_of
from zerolm.passes.walk import BatchGroup, LayerGradients, batch_groups, gradient_above, writers
from zerolm.progress import silent
from zerolm.settings.compute import ComputeRequest, RunningRequest
from zerolm.text.tokens import Tokens
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of

TOKENS = Tokens(torch.randint(64, (6, 10), generator=torch.Generator().manual_seed(1)))
MANY = Tokens(torch.randint(64, (96, 16), generator=torch.Generator().manual_seed(2)))
CHILD: dict[str, Any] = {"max_params": "0.8x", "text": "random", "sequences": 12, "length": 16}
LITTLE = 1 << 16


def half_of(whole: Cut) -> Cut:
    layers = (LayerCut(one.layer, {**one.kept, "ffn": one["ffn"][::2]}) for one in whole.layers)
    return replace(whole, layers=tuple(layers))


@pytest.fixture
def no_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_check_room", lambda *_: None)


@pytest.mark.usefixtures("no_least")
@pytest.mark.parametrize(("name", "dtype"), [("qwen2_tied", "float32"), ("bert", "bfloat16")])
def test_a_child_has_the_same_bytes_in_little_memory(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HiddenStates on disk, batches one by one and a proof layer by layer tell what memory tells."""
    parent, made = saved(tmp_path / "parent", name, dtype=dtype), []
    on_disk: list[bool] = []
    start = HiddenStates.__init__

    def note(states: HiddenStates, **how: bool) -> None:
        on_disk.append(how["on_disk"])
        start(states, **how)

    monkeypatch.setattr(HiddenStates, "__init__", note)
    monkeypatch.setattr(blocks_module, "STATES_HELD", 6 * 64)
    for memory in (1 << 34, LITTLE):
        monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / f"cache-{memory}"))
        on_disk.clear()
        child = tmp_path / str(memory)
        proof = carve(parent, child, **CHILD, compute=ComputeRequest(memory=memory)).verified
        assert any(on_disk) == (memory == LITTLE)
        assert proof.by == ("blocks" if memory == LITTLE else "outputs")
        made.append((child / "model.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_bfloat16_tells_what_float32_tells_within_its_rounding(name: str, tmp_path: Path) -> None:
    network = model(name)
    narrow = computed(model(name), Compute(products=torch.bfloat16))
    wide, rounded = (importances(each, MANY) for each in (network, narrow))
    for kind in ("groups", "ffn"):
        np.testing.assert_allclose(rounded[kind], wide[kind], rtol=0.05, atol=1e-3 * np.max(wide[kind]))
    half = half_of(Cut.whole(dimensions_of(network)))
    losses = [Loss(Blocks(each, MANY.batches(4))).of_cut(half) for each in (network, narrow)]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_a_child_planned_in_bfloat16_is_verified_and_says_so(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    results = {
        dtype: carve(parent, tmp_path / dtype, **CHILD, keep_hidden=1, compute=ComputeRequest(dtype=dtype))
        for dtype in ("float32", "bfloat16")
    }
    assert results["bfloat16"].verified is not None
    assert results["bfloat16"].losses["repaired"] == pytest.approx(
        results["float32"].losses["repaired"], rel=0.2
    )
    assert '"dtype": "bfloat16"' in (tmp_path / "bfloat16" / "recipe.json").read_text()


def test_what_is_felt_does_not_depend_on_how_many_batches_go_together() -> None:
    network = model("llama")

    def gradients_with(memory: int) -> dict[tuple[int, int], LayerGradients]:
        blocks = Blocks(computed(network, Compute(memory=memory)), TOKENS.batches(1))
        seen: dict[tuple[int, int], LayerGradients] = {}
        parts: list[BatchGroup] = []
        for part in batch_groups(blocks, {}, ArrayCache(), "", "", silent):
            parts.append(part)
            upstream = [
                gradient_above(blocks, index, last)
                for index, last in zip(part.indices, part.states[-1], strict=True)
            ]
            seen |= {(each.index, each.layer): each for each in part.layers(upstream, writers)}
        assert len(parts) == (6 if memory == LITTLE else 3)
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zerolm.passes.walk.SAVED", 3)
        patch.setattr("zerolm.passes.walk.STATES_SHARE", 1 << 8)
        little, much = gradients_with(LITTLE), gradients_with(1 << 34)
    assert set(little) == set(much)
    for place, one in little.items():
        assert torch.equal(one.downstream, much[place].downstream)
        assert torch.equal(one.above, much[place].above)


@pytest.mark.parametrize("name", ["gemma2", "qwen2_tied"])
def test_few_logits_at_a_time_tell_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = model(name)
    half = half_of(Cut.whole(dimensions_of(network)))
    blocks = Blocks(network, TOKENS.batches(3))
    wanted = Loss(blocks).of_cut(half)
    monkeypatch.setattr(blocks_module, "LOGITS", 64 * 3 * 4)  # four of ten tokens
    assert Loss(blocks).of_cut(half) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.usefixtures("no_least")
def test_a_proof_by_layers_sees_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of equal weights are equal; the last norm's epsilon is in none of them."""
    parent = saved(tmp_path / "parent", "llama")
    monkeypatch.setattr("zerolm.children.verify.compare_blocks", lambda *_: formats)
    wrong = dict(Checkpoint.open(parent).config) | {"rms_norm_eps": 10.0}
    configuration = formats.configuration

    def otherwise(*arguments: Any) -> dict[str, Any]:
        return configuration(*arguments) | {"rms_norm_eps": wrong["rms_norm_eps"]}

    monkeypatch.setattr(formats, "configuration", otherwise)
    with pytest.raises(ValueError, match="differs from the carved parent"):
        carve(parent, tmp_path / "child", keep_ffn=0.5, compute=ComputeRequest(memory=LITTLE))
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize("on_disk", [False, True])
def test_states_are_a_list(on_disk: bool) -> None:
    states, plain = HiddenStates(on_disk=on_disk), []
    for size in (3, 1, 4):
        plain.append(torch.randn(2, size))
        states.append(plain[-1])
    states[1] = plain[1] = torch.randn(2, 1)
    assert len(states) == 3
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(states, plain, strict=True))


def test_a_device_that_lacks_bfloat16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.networks.compute.multiplies_bfloat16", lambda device: False)
    with pytest.raises(ValueError, match="cpu does not multiply in bfloat16: give --dtype float32"):
        compute(ComputeRequest(dtype="bfloat16"))


@pytest.mark.usefixtures("no_least")
def test_what_is_measured_in_another_type_is_cached_apart(tmp_path: Path) -> None:
    opened = Checkpoint.open(saved(tmp_path / "parent", "llama"))
    methods = Methods("output_energy", "prices", "random", sequences=8, length=8, repair="none")
    folders = {
        session.Session(opened, methods, silent, ComputeRequest(dtype=dtype)).cache("basis").folder
        for dtype in ("float32", "bfloat16")
    }
    assert len(folders) == 2
    small = Session(opened, methods, silent, ComputeRequest(memory=LITTLE)).cache("basis").folder
    assert small in folders


def test_memory_for_less_than_a_part_is_refused_with_what_would_do(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    with pytest.raises(
        ValueError, match=r"--memory 65536 is too little: .* give at least (\d+)MB"
    ) as refused:
        carve(parent, tmp_path / "child", **CHILD, compute=ComputeRequest(memory=LITTLE))
    assert not (tmp_path / "child").exists()
    least = int(str(refused.value).split()[-1].removesuffix("MB"))
    carve(parent, tmp_path / "child", **CHILD, keep_hidden=1, compute=ComputeRequest(memory=least * 10**6))


OF_TEXT = ("--text", "text.txt", "--sequences", "8", "--length", "12")
MATRIX = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = saved(Path("parent"), "llama", dtype="float16")
    word_tokenizer(folder)
    Path("text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    return folder


def scaled(folder: Path, change: Callable[[str], float | None]) -> None:
    """Scale each weight so that its largest is what ``change`` gives for its name, if anything."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    for name, weight in weights.items():
        largest = change(name)
        if largest is not None:
            weights[name] = (weight.float() * (largest / weight.float().abs().max())).half()
    save_file(weights, file, {"format": "pt"})


def test_a_repaired_matrix_that_its_type_does_not_hold(parent: Path, zerolm: Zerolm) -> None:
    scaled(parent, lambda name: 65_504.0 if name == MATRIX else None)
    cut = ("carve", "parent", "--keep-ffn", ".5", *OF_TEXT, "--out", "child")
    refused(zerolm, *cut, words=f"the repaired '{MATRIX}' ")
    refused(zerolm, *cut, words="give --repair none, or save the parent in bfloat16 first")
    ran = zerolm(*cut, "--repair", "none")
    assert ran.status == 0, ran.err
    assert "Warning" not in ran.err


@pytest.mark.parametrize(
    ("where", "words"),
    [(".layers.1.", "the gradients of layer 0 are not finite"), (".layers.", "the activations of layer 0")],
)
def test_overflowing_sums_name_their_layer(where: str, words: str, parent: Path, zerolm: Zerolm) -> None:
    scaled(parent, lambda name: 60_000.0 if where in name else None)
    for cut in ("--max-params", "--keep-ffn"):
        share = ".9x" if cut == "--max-params" else ".5"
        refused(zerolm, "carve", "parent", cut, share, *OF_TEXT, "--out", "child", words=words)
    alone = zerolm(
        "carve", "parent", "--keep-ffn", ".5", *BY_WEIGHTS, "--out", "child"
    )  # by weights, as the remedy says
    assert "Warning" not in alone.err
    assert alone.status == 0, alone.err


BFLOAT16 = Compute(products=torch.bfloat16)
TWO = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["cuda:7", "npu", "cpu:0", "CPU", ""])
def test_a_device_that_is_not_here_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(ValueError, match=f"possible are {', '.join(devices())}$"):
        compute(RunningRequest(device=name))


def test_a_request_without_memory_sets_no_limit() -> None:
    assert compute(RunningRequest("cpu")).memory is None
    assert compute(ComputeRequest("cpu", memory=1 << 20)).memory == 1 << 20


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2_tied", "qwen3", "gemma2", "gpt2"])
def test_whole_models_multiply_as_is_noted_on_them(name: str) -> None:
    """Within two per cent of the deviation of log p, with a head and sums in float32."""
    inputs = {"input_ids": TWO}
    wanted = logits_of(model(name), inputs).log_softmax(-1)
    network = put_on(model(name), BFLOAT16)
    half = logits_of(network, inputs).float().log_softmax(-1)
    assert half.dtype == torch.float32
    assert not torch.equal(half, wanted)
    assert (half - wanted).square().mean().sqrt() < 0.02 * wanted.std()
    with as_noted(network), torch.no_grad(), torch.autocast("cpu", enabled=False):  # as the harness calls it
        logits: Any = network(**inputs).logits
    assert logits.dtype == torch.float32
    assert torch.equal(logits.log_softmax(-1), half)


def test_embeddings_multiply_as_is_noted() -> None:
    inputs = {"input_ids": TWO}
    wanted = embeddings(model("bert"), inputs)
    half = embeddings(put_on(model("bert"), BFLOAT16), inputs)
    assert half.dtype == torch.float32
    assert not torch.equal(half, wanted)
    assert torch.cosine_similarity(half, wanted, dim=-1).min() > 0.999
