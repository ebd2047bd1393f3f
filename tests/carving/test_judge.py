"""Perplexity, divergence and fidelity against the formulas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import model

from zerolm.carving.judge import embeddings, fidelity, perplexity_and_kl, pooling_of
from zerolm.carving.tokens import Tokens, random_tokens

TOKENS = random_tokens(64, 5, 9, seed=1)


def test_perplexity_and_divergence() -> None:
    child, parent = model("llama"), model("llama", seed=1)
    judged = perplexity_and_kl(child, parent, TOKENS, batch=2)
    with torch.no_grad():
        p, q = (net(TOKENS.ids).logits.double().softmax(-1)[:, :-1].numpy() for net in (parent, child))
    following = TOKENS.ids[:, 1:].numpy()
    taken = [q[b, t, following[b, t]] for b in range(5) for t in range(8)]
    assert judged.perplexity == pytest.approx(np.exp(-np.log(taken).mean()), rel=1e-5)
    assert judged.kl == pytest.approx((p * np.log(p / q)).sum(-1).mean(), rel=1e-4)
    assert perplexity_and_kl(parent, parent, TOKENS).kl == 0.0


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_fidelity_ignores_padding(pooling: str) -> None:
    child, parent = model("bert"), model("bert", seed=1)
    mask = torch.ones_like(TOKENS.ids)
    mask[2, 5:] = 0
    found = fidelity(child, parent, Tokens(TOKENS.ids, mask), pooling=pooling, batch=2)
    cosines = []
    for row, length in enumerate(mask.sum(1).tolist()):
        inputs = {"input_ids": TOKENS.ids[row : row + 1, :length]}
        a, b = (embeddings(net, inputs, pooling)[0].double().numpy() for net in (child, parent))
        cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert found == pytest.approx(np.mean(cosines), abs=1e-5)
    assert fidelity(parent, parent, TOKENS, pooling=pooling) == pytest.approx(1.0, abs=1e-6)


def test_pooling_is_what_the_folder_says(tmp_path: Path) -> None:
    assert pooling_of(tmp_path) == "mean"
    (tmp_path / "1_Pooling").mkdir()
    for mode, name in (("mean_tokens", "mean"), ("cls_token", "cls"), ("max_tokens", "max")):
        said = {
            "word_embedding_dimension": 8,
            "pooling_mode_mean_tokens": False,
            f"pooling_mode_{mode}": True,
        }
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(said))
        assert pooling_of(tmp_path) == name
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    with pytest.raises(ValueError, match="pooling by pooling_mode_lasttoken is not known"):
        pooling_of(tmp_path)
