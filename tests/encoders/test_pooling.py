"""From the states of tokens to an embedding: against one sentence at a time, and against the package."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_folders import dense, sentence_folder, write
from torch import Tensor

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.sentences import ACTIVATIONS, MODES
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model
from zerolm.networks.pooling import ACTIVATED, MEAN, TokenPooling, pooled
from zerolm.passes.walk import gradient_above
from zerolm.text.calibration import tokens_of

ALONE: dict[str, Any] = {
    "cls": lambda x: x[0],
    "max": lambda x: x.amax(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / math.sqrt(len(x)),
    "weightedmean": lambda x: sum((i + 1) * row for i, row in enumerate(x)) / sum(range(1, len(x) + 1)),
    "lasttoken": lambda x: x[-1],
}


def batch(lengths: list[int], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """States (b, t, 5) and the mask of sentences of these lengths; padding is absurdly large."""
    longest, generator = max(lengths), torch.Generator().manual_seed(sum(lengths))
    hidden = torch.randn(len(lengths), longest, 5, generator=generator)
    mask = torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, longest - length :] = 1
        if not left:
            mask[row] = mask[row].flip(0)
    return hidden.masked_fill(mask[..., None] == 0, 1e3), mask


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from(list(MODES)), st.booleans())
def test_a_sentence_is_pooled_as_it_is_alone(lengths: list[int], mode: str, left: bool) -> None:
    hidden, mask = batch(lengths, left=left)
    wanted = [ALONE[mode](row[kept.bool()]) for row, kept in zip(hidden, mask, strict=True)]
    torch.testing.assert_close(pooled(hidden, mask, mode), torch.stack(wanted), rtol=1e-5, atol=1e-5)


def test_every_activation_has_its_function() -> None:
    assert tuple(ACTIVATED) == ACTIVATIONS
    x = torch.linspace(-2, 2, 9)
    for name, function in ACTIVATED.items():
        torch.testing.assert_close(function(x), getattr(torch.nn, name)()(x))


@pytest.mark.parametrize("mode", [*MODES, ["mean", "max", "cls"]])
@pytest.mark.parametrize("kinds", [(), ("Dense",), ("Normalize", "Dense", "Normalize")])
def test_it_is_what_the_package_makes_of_states(mode: Any, kinds: tuple[str, ...], tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if isinstance(mode, list):
        mode = sorted(mode, key=list(MODES).index)
    folder = sentence_folder(tmp_path, mode=mode, kinds=kinds)
    pooling = TokenPooling.of(Checkpoint.open(folder))
    hidden, mask = torch.randn(3, 6, 48, generator=torch.Generator().manual_seed(0)), torch.ones(3, 6).long()
    mask[1, 4:] = 0
    features = {"token_embeddings": hidden, "attention_mask": mask}
    for module in list(package.SentenceTransformer(str(folder), device="cpu"))[1:]:
        features = module(features)
    wanted = features["sentence_embedding"].detach()
    torch.testing.assert_close(pooling(hidden, mask), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", list(MODES))
def test_flags_of_older_folders_name_the_mode(mode: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path)
    flags = {flag: name == mode for name, flag in MODES.items()}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 48, **flags})
    assert TokenPooling.of(Checkpoint.open(folder)).modes == (mode,)


def test_without_modules_it_is_the_mean(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, mode="max")
    assert TokenPooling.of(Checkpoint.open(folder)).modes == ("max",)
    (folder / "modules.json").unlink()
    assert TokenPooling.of(Checkpoint.open(folder)) == MEAN


def test_another_matrix_or_mode_is_another_in_the_key_of_a_cache(tmp_path: Path) -> None:
    names = set()
    for number, mode in enumerate(("mean", "max")):
        folder = sentence_folder(tmp_path / str(number), mode=mode, kinds=("Dense",))
        names.add(repr(TokenPooling.of(Checkpoint.open(folder))))
        dense(folder / "2_Dense", 48, activation_function="torch.nn.modules.linear.Identity")
        names.add(repr(TokenPooling.of(Checkpoint.open(folder))))
    assert len(names) == 4
    assert repr(MEAN) == "mean"


def test_gradients_are_those_of_the_folders_own_embedding(tmp_path: Path) -> None:
    """Against finite differences of r . e / |e|, as the same random direction r is drawn."""
    folder = sentence_folder(tmp_path / "parent", mode="max", kinds=("Dense",))
    checkpoint, lines = Checkpoint.open(folder), tmp_path / "text.txt"
    lines.write_text("w1 w2 w3\nw4 w5 w6 w7 w8\n")
    pooling = TokenPooling.of(checkpoint)
    blocks = Blocks(mapped_model(checkpoint), tokens_of(checkpoint, str(lines)).batches())
    last = torch.randn(2, 5, 48, generator=torch.Generator().manual_seed(1))
    gradient = gradient_above(blocks, 0, last, pooling=pooling)
    drawn = torch.randn(2, 24, generator=torch.Generator().manual_seed(0))
    mask = blocks.tokens(0)

    def value(states: Tensor) -> float:
        with torch.no_grad():
            e = pooling(states, mask).double()
        return float((e / e.norm(dim=1, keepdim=True) * drawn).sum())

    for row, token, channel in ((0, 0, 3), (1, 4, 7), (1, 2, 40), (0, 4, 1)):
        step = torch.zeros_like(last)
        step[row, token, channel] = 0.01
        slope = (value(last + step) - value(last - step)) / 0.02
        assert float(gradient[row, token, channel]) == pytest.approx(slope, abs=2e-4)
    assert not gradient[0, 3:].any()  # padding
    other = gradient_above(blocks, 0, last)
    assert not np.allclose(other, gradient)
