"""The parameter counts that the four benchmarks of microsoft/archai publish, reproduced to the last one."""

import json
from pathlib import Path

import pytest

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.spaces import make_space

FILES = {
    "gpt2_wt103": ("gpt2", "wt103", 200),
    "gpt2_lm1b": ("gpt2", "lm1b", 200),
    "transformer_xl_wt103": ("transformer_xl", "wt103", 200),
    "transformer_xl_lm1b": ("transformer_xl", "lm1b", 183),
}


def ffn_params(architecture: Architecture) -> int:
    """FFN weights with a bias for every output."""
    matrices = [m for layer in architecture.layers for m in layer.matrices if m.role == "ffn"]
    return sum(matrix.rows * matrix.cols + matrix.rows for matrix in matrices)


@pytest.mark.parametrize("name", FILES)
def test_published_parameters_are_reproduced(name: str, data_folder: Path) -> None:
    kind, corpus, count = FILES[name]
    document = json.loads((data_folder / f"{name}.json").read_text(encoding="utf-8"))
    space = make_space(kind, corpus=corpus)
    assert len(document["architectures"]) == count
    for entry in document["architectures"]:
        architecture, published = space.read(entry["architecture"]), entry["parameters"]
        width, depth = entry["architecture"]["d_model"], architecture.depth
        positions = 192 * width if name == "gpt2_wt103" else 0
        final_norm = 2 * width if name == "gpt2_wt103" else 0
        costs = CostModel().of(architecture)
        assert architecture.ends.embedding == published["AdaEmb"]
        assert architecture.ends.tied_head == published["AdaEmb"] - positions
        assert ffn_params(architecture) == published["FFN"]
        assert costs["body_params"] - ffn_params(architecture) == published["Attn"]
        assert published["nonembedding"] == costs["body_params"] + (4 * width * depth + final_norm)
        assert costs["params"] == published["nonembedding"] + published["AdaEmb"]
