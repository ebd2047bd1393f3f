"""Losses of features by what they do not see, and the teacher's features beside those of transformers."""

import pytest
import torch
from tiny import model
from torch import Tensor

from zerolm.lab.supernets.distillation import FeatureDistillation, Features, FeatureTeacher, Kind, compared

BLOCKS = ("bert", "mobile", "bert")
KINDS = pytest.mark.parametrize("kind", ["relational", "classical"])


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def student(seed: int = 0) -> Features:
    attention = [drawn(seed + i, 2, 6, 8 if block == "bert" else 2) for i, block in enumerate(BLOCKS)]
    return Features(drawn(seed + 9, 2, 6, 8), attention, [drawn(seed + 20 + i, 2, 6, 8) for i in range(3)])


def losses(kind: Kind, teacher_of: str = "fitted") -> tuple[FeatureDistillation, dict[str, Tensor]]:
    """Of a student, and of a teacher that says what the student says, through the same matrices."""
    distillation = FeatureDistillation(kind, (8, 12), {"bert": 8, "mobile": 2})
    ours = student()
    with torch.no_grad():
        theirs = Features(
            distillation.layers(ours.embedding),
            [distillation.attention[block](x) for block, x in zip(BLOCKS, ours.attention, strict=True)],
            [distillation.layers(x) for x in ours.layers],
        )
    if teacher_of == "scaled":
        theirs = Features(
            theirs.embedding * 3 - 1, [x * 2 + 5 for x in theirs.attention], [x * 7 for x in theirs.layers]
        )
    return distillation, distillation(ours, theirs, BLOCKS)


@KINDS
def test_a_teacher_that_says_the_same_leaves_nothing_to_learn(kind: Kind) -> None:
    _, parts = losses(kind)
    assert set(parts) == {"embedding", "attention", "layers"}
    assert all(float(part.detach()) == pytest.approx(0, abs=1e-5) for part in parts.values())


def test_only_relations_are_blind_to_scale_and_shift() -> None:
    _, relational = losses("relational", "scaled")
    _, classical = losses("classical", "scaled")
    assert all(float(part.detach()) == pytest.approx(0, abs=1e-4) for part in relational.values())
    assert all(float(part.detach()) > 0.1 for part in classical.values())


@KINDS
def test_only_the_matrices_of_the_path_learn(kind: Kind) -> None:
    distillation = FeatureDistillation(kind, (8, 12), {"bert": 8, "mobile": 2, "llama": 8})
    other = student(50)
    theirs = Features(drawn(1, 2, 6, 12), [drawn(i, 2, 6, 12) for i in range(3)], [drawn(9, 2, 6, 12)] * 3)
    torch.stack(list(distillation(other, theirs, BLOCKS).values())).sum().backward()
    learnt = {name.rsplit(".", 1)[0] for name, p in distillation.named_parameters() if p.grad is not None}
    assert learnt == {"layers", "attention.bert", "attention.mobile"}


@pytest.mark.parametrize(
    ("depth", "teacher", "pairs"),
    [(12, 12, list(range(12))), (6, 12, [1, 3, 5, 7, 9, 11]), (3, 2, [0, 0, 1]), (4, 6, [1, 2, 3, 5])],
)
def test_layers_are_compared_at_the_same_height(depth: int, teacher: int, pairs: list[int]) -> None:
    assert compared(depth, teacher) == pairs


@pytest.mark.parametrize("name", ["bert_masked", "llama", "gpt2"])
def test_features_of_a_teacher_are_its_hidden_states_and_attention(name: str) -> None:
    network = model(name)
    ids = torch.randint(0, 64, (2, 5), generator=torch.Generator().manual_seed(0))
    given = FeatureTeacher(network, 2, predictions=True).signals(ids, torch.arange(2))
    with torch.no_grad():
        outputs = network(input_ids=ids, output_hidden_states=True)
    theirs = given["theirs"]
    torch.testing.assert_close(given["logits"], outputs.logits)
    torch.testing.assert_close(theirs.embedding, outputs.hidden_states[0])
    torch.testing.assert_close(list(theirs.layers), [outputs.hidden_states[2], outputs.hidden_states[3]])
    assert [tuple(x.shape) for x in theirs.attention] == [(2, 5, 48)] * 2
    if name == "bert_masked":
        layer = network.bert.encoder.layer[2]
        with torch.no_grad():
            attended = layer.attention.self(outputs.hidden_states[2])[0]
            torch.testing.assert_close(theirs.attention[1], layer.attention.output.dense(attended))
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert set(FeatureTeacher(model(name), 3).signals(ids, torch.arange(2))) == {"theirs"}
