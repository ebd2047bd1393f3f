"""Networks on a device and in a type of products, as commands ask for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import model

from zerolm.networks.compute import Compute, as_noted, compute, devices, put_on
from zerolm.passes.outputs import embeddings, logits_of
from zerolm.settings.compute import ComputeRequest, RunningRequest

BFLOAT16 = Compute(products=torch.bfloat16)
IDS = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(0))


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
    inputs = {"input_ids": IDS}
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
    inputs = {"input_ids": IDS}
    wanted = embeddings(model("bert"), inputs)
    half = embeddings(put_on(model("bert"), BFLOAT16), inputs)
    assert half.dtype == torch.float32
    assert not torch.equal(half, wanted)
    assert torch.cosine_similarity(half, wanted, dim=-1).min() > 0.999
