"""Moments of matrices against hooks on the whole stock model, and sums over tokens against numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from typed_models import SIZES, VOCAB, some_lines, some_words, typed_encoder, typed_parent, words_of_bytes

from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import open_model
from zerolm.networks.pooling import MEAN
from zerolm.networks.roles import layers_of
from zerolm.passes.loss_moments import MOMENT_BATCH, loss_moments
from zerolm.passes.matrix_moments import Place
from zerolm.passes.token_sums import TokenSums
from zerolm.passes.token_weights import token_weights
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens

ROLES = {
    **{role: f"self_attn.{role}_proj" for role in "qkvo"},
    **{role: f"mlp.{role}_proj" for role in ("gate", "up", "down")},
}


def tokens_for(parent: Checkpoint, folder: Path, sequences: int = 6) -> Tokens:
    return tokens_of(parent, str(some_words(folder / "text.txt")), sequences=sequences, length=16)


def test_it_is_what_hooks_see(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(typed_parent(tmp_path / "parent", torch.float32))
    tokens, model = tokens_for(checkpoint, tmp_path), open_model(checkpoint)
    moments = loss_moments(model, tokens, with_matrices=True).matrices
    seen: dict[Place, list[Tensor]] = {}
    for number, layer in enumerate(model.model.layers):
        for role, path in ROLES.items():

            def note(
                _: object, inputs: tuple[Tensor], out: Tensor, place: tuple[int, str] = (number, role)
            ) -> None:
                out.retain_grad()
                seen.setdefault(place, []).extend([inputs[0], out])

            layer.get_submodule(path).register_forward_hook(note)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    predictions = []
    for index, batch in enumerate(tokens.filled(MOMENT_BATCH)):
        log = model(**batch).logits.log_softmax(-1).flatten(0, 1)
        generator = torch.Generator().manual_seed(index)
        (-log.gather(1, torch.multinomial(log.detach().exp(), 1, generator=generator)).sum()).backward()
        predictions.append(log.detach().exp())
    count = tokens.ids.numel()
    for place, values in seen.items():
        x = torch.cat([each.detach().flatten(0, 1) for each in values[::2]])
        g = torch.cat([each.grad.flatten(0, 1) for each in values[1::2]])  # type: ignore[union-attr]
        ours = moments[place]
        np.testing.assert_allclose(ours.inputs, x.square().mean(0).double(), rtol=1e-4)
        np.testing.assert_allclose(ours.gradients, g.square().mean(0).double(), rtol=1e-4, atol=1e-9)
        both = float((x.square().sum(1) * g.square().sum(1)).mean())
        assert np.isclose(ours.factor, both / (ours.inputs.sum() * ours.gradients.sum()), rtol=1e-4)
    p = torch.cat(predictions)
    np.testing.assert_allclose(moments[None, "head"].gradients, (p * (1 - p)).mean(0).double(), rtol=1e-4)
    shares = np.bincount(tokens.ids.flatten().numpy(), minlength=VOCAB) / count
    np.testing.assert_allclose(moments[None, "embedding"].gradients, shares)
    assert moments[None, "embedding"].factor == 1.0


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gemma2", {"query_pre_attn_scalar": 16, "final_logit_softcapping": 0.5}),
        ("granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}),
    ],
)
def test_factors_of_embeddings_and_logits_count(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Gradients are those of the stored rows, uncertainties those of the outputs of the head's matrix."""
    torch.manual_seed(0)
    sizes = SIZES | {"head_dim": 16, "tie_word_embeddings": False} | changes
    config = AutoConfig.for_model(kind, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "parent")
    words_of_bytes().save_pretrained(tmp_path / "parent")
    checkpoint = Checkpoint.open(tmp_path / "parent")
    tokens, model = tokens_for(checkpoint, tmp_path), open_model(checkpoint)
    moments = loss_moments(model, tokens, with_matrices=True).matrices
    factor = {"gemma2": SIZES["hidden_size"] ** 0.5, "granite": 3.0}[kind]
    stream, outputs, slopes = [], [], []
    model.model.layers[0].register_forward_pre_hook(lambda _, inputs: stream.append(inputs[0]))
    model.lm_head.register_forward_hook(lambda _, __, out: outputs.append(out))
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    squares = torch.zeros(SIZES["hidden_size"])
    for index, batch in enumerate(tokens.filled(MOMENT_BATCH)):
        logits = model(**batch).logits
        (slope,) = torch.autograd.grad(logits.sum(), outputs[-1], retain_graph=True)
        log = logits.log_softmax(-1).flatten(0, 1)
        p = log.detach().exp()
        slopes.append(p * (1 - p) * slope.flatten(0, 1).square())
        drawn = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(index))
        (gradient,) = torch.autograd.grad(-log.gather(1, drawn).sum(), stream[-1])
        squares += (factor * gradient).flatten(0, 1).square().sum(0)
    count = tokens.ids.numel()
    np.testing.assert_allclose(moments[None, "embedding"].inputs, (squares / count).double(), rtol=1e-3)
    np.testing.assert_allclose(moments[None, "head"].gradients, torch.cat(slopes).mean(0).double(), rtol=1e-3)


OF_BERT = {
    **{role: f"attention.self.{name}" for role, name in zip("qkv", ("query", "key", "value"), strict=True)},
    "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip


def test_an_encoder_feels_its_sequences(tmp_path: Path) -> None:
    """The squares are those of the gradients of each sequence alone, one backward pass for each."""
    checkpoint = Checkpoint.open(typed_encoder(tmp_path / "parent"))
    text = str(some_lines(tmp_path / "text.txt", 7))
    tokens, model = tokens_of(checkpoint, text, sequences=7, length=16), open_model(checkpoint)
    moments = loss_moments(model, tokens, with_matrices=True).matrices
    matrices = {
        (number, role): layer.get_submodule(path).get_parameter("weight")
        for number, layer in enumerate(model.encoder.layer)
        for role, path in OF_BERT.items()
    }
    matrices[None, "embedding"] = model.get_input_embeddings().get_parameter("weight")
    assert moments.keys() == matrices.keys()
    sums = {place: torch.zeros_like(matrix) for place, matrix in matrices.items()}
    for index, batch in enumerate(tokens.filled(MOMENT_BATCH)):
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        generator = torch.Generator().manual_seed(index)
        drawn = torch.randn(len(mask), checkpoint.layout.hidden, generator=generator)
        for row in range(len(mask)):
            count = int(mask[row].sum())
            sent = model(input_ids=batch["input_ids"][row : row + 1, :count]).last_hidden_state
            direction = torch.nn.functional.normalize(MEAN(sent, torch.ones(1, count)), dim=-1)[0]
            leaves = [matrix.requires_grad_() for matrix in matrices.values()]
            gradients = torch.autograd.grad((direction * drawn[row]).sum(), leaves)
            for place, gradient in zip(matrices, gradients, strict=True):
                sums[place] += gradient.square()
    for place, total in sums.items():
        ours, mean = moments[place], (total / len(tokens)).double()
        np.testing.assert_allclose(ours.inputs, mean.sum(0), rtol=1e-3, atol=1e-9)
        np.testing.assert_allclose(ours.gradients, mean.sum(1), rtol=1e-3, atol=1e-9)
        assert np.isclose(ours.factor * ours.inputs.sum(), 1.0, rtol=1e-4)


@pytest.mark.parametrize("centred", [False, True])
@given(seed=st.integers(0, 10**6), batches=st.integers(1, 5), mean=st.sampled_from([0.0, 1.0, 1e3]))
@settings(max_examples=30, deadline=None)
def test_sums_are_those_of_all_tokens_at_once(seed: int, batches: int, mean: float, centred: bool) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.normal(size=(8 * batches, 4)) + mean).astype(np.float32)
    t = (generator.normal(size=(8 * batches, 3)) - mean).astype(np.float32)
    w = generator.random(8 * batches).astype(np.float32)
    moments = TokenSums(4, 3, centred=centred)
    for part in np.split(np.arange(len(x)), batches):
        moments.add(*(torch.from_numpy(each[part]) for each in (x, t, w)))
    a, b, c = (each.astype(np.float64) for each in (x, t, w))
    assert (moments.count, moments.total) == (len(x), pytest.approx(c.sum(), rel=1e-6))
    np.testing.assert_allclose(moments.inputs, c @ a, rtol=1e-5, atol=1e-5 * (1 + mean))
    np.testing.assert_allclose(moments.outputs, c @ b, rtol=1e-5, atol=1e-5 * (1 + mean))
    if centred:
        a, b = a - c @ a / c.sum(), b - c @ b / c.sum()
    scale = 1.0 if centred else (1 + mean) ** 2
    np.testing.assert_allclose(moments.squares, a.T @ (c[:, None] * a), rtol=1e-4, atol=1e-3 * scale)
    np.testing.assert_allclose(moments.crossed, a.T @ (c[:, None] * b), rtol=1e-4, atol=1e-3 * scale)


def test_a_small_variance_far_from_zero_is_not_lost() -> None:
    """In float32 the difference of two sums of squares near 1e6 would be noise."""
    x = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0)) * 1e-1 + 1e3
    moments = TokenSums(2, centred=True)
    for part in x.split(512):
        moments.add(part)
    wanted = torch.cov(x.double().T, correction=0)
    np.testing.assert_allclose(moments.squares / 4096, wanted, rtol=1e-3, atol=1e-5)


def states(rows: int = 3, length: int = 7, first: float = 1.0) -> torch.Tensor:
    """A stream (b, t, d) whose first tokens are larger by a factor."""
    stream = torch.randn(rows, length, 32, generator=torch.Generator().manual_seed(0))
    stream[:, 0] *= first
    return stream


def blocks_of(name: str, mask: torch.Tensor | None = None) -> Blocks:
    batch = {"input_ids": torch.ones(3, 7, dtype=torch.long)}
    return Blocks(model(name), [batch if mask is None else batch | {"attention_mask": mask}])


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert"])
def test_errors_count_relative_to_what_norms_divide_by(name: str) -> None:
    blocks, stream, output = blocks_of(name), states(first=3.0), states() + 1
    layer = layers_of(blocks.model)[0]
    scale = stream.square().mean(-1)
    if name == "gemma2":
        scale = scale * output.square().mean(-1)
    torch.testing.assert_close(token_weights(blocks, 0, layer, stream, output), 1 / scale)


def test_a_first_token_weighs_as_its_gradients_do() -> None:
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = 0
    mask[2, 0] = 0
    blocks, stream = blocks_of("llama", mask), states(first=1e3)
    weights = token_weights(blocks, 0, layers_of(blocks.model)[0], stream, None, first=40.0)
    plain = mask / stream.square().mean(-1)
    torch.testing.assert_close(weights[:, 1:], plain[:, 1:])
    assert weights[0, 0] == pytest.approx(40 * float(plain[0, 1:].mean()))
    assert weights[1, 0] == pytest.approx(40 * float(plain[1, 1:5].mean()))
    assert weights[2, 0] == 0.0  # padding
