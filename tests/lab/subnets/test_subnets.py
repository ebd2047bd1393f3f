"""Sub-networks side by side give what each gives alone, and what the child of their sizes gives."""

import os
import random
import signal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pickled
import pytest
import torch
from carvings import carve, killed_while
from divergences import perplexities_and_kls
from forked import in_another_process
from hypothesis import given
from hypothesis import strategies as st
from tiny import saved, word_tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.io.kept_rows import KeptRows
from zerolm.lab.subnets import slicing
from zerolm.lab.subnets.judging import Judging, judged_by, judged_text, share_right, under_attack
from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest, Limits
from zerolm.lab.subnets.slicing import cuts_of, digest_of, drawn_sizes, slice_parent, space_of
from zerolm.networks.compute import Compute
from zerolm.networks.opener import open_model
from zerolm.planning.part_costs import Choices, PartCosts
from zerolm.planning.sizes import costs_of, part_costs_of
from zerolm.settings.compute import RunningRequest
from zerolm.units.importance.criterion import FirstUnits
from zerolm.units.pruning import apply_in_memory

ON_CPU = RunningRequest("cpu")


def words(count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(1, 64)}" for _ in range(count))


TEXTS = [words(3 + number % 7, seed=number) for number in range(40)]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = saved(tmp_path_factory.mktemp("parent") / "llama", "llama_tied")
    word_tokenizer(folder)
    (folder.parent / "text.txt").write_text(words(400))
    (folder.parent / "seen.txt").write_text(words(900, seed=1))
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("encoder") / "bert", "bert_classes")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("decoder") / "llama", "llama_classes")


def classifier(folder: Path, kind: str) -> Path:
    """Tiny, random, and with weights by which its two classes are as common."""
    word_tokenizer(saved(folder, kind), "w0")
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    head = network.classifier if kind == "bert_classes" else network.score
    with torch.no_grad():
        each = [network(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
        logits = torch.stack(each)
        if head.bias is not None:
            head.bias[1] -= logits.diff(dim=1).quantile(0.5)  # between two: no text is on the edge
        else:
            head.weight[1] *= float((logits[:, 0] / logits[:, 1]).quantile(0.5))
    network.save_pretrained(folder)
    return folder


def results(parent: Path, cuts: Any, repair: str = "none", tokens: Any = None) -> list[dict[str, float]]:
    text = judged_text(Checkpoint.open(parent), str(parent.parent / "text.txt"), 8, 16)
    return Judging(str(parent), [text], Compute(), repair, tokens)(cuts)


def test_side_by_side_each_gives_what_it_gives_alone(parent: Path) -> None:
    """All ways through three layers, so that many share their first layers, beside the copies of each."""
    checkpoint = Checkpoint.open(parent)
    layers = [(1, 3), (1, 40), (2, 17)]
    cuts = cuts_of(checkpoint, FirstUnits(None), list(product(layers, [(2, 40), (1, 9)], layers)))
    model = open_model(checkpoint)
    tokens = judged_text(checkpoint, str(parent.parent / "text.txt"), 8, 16).tokens
    makers = [partial(apply_in_memory, model, cut) for cut in cuts]
    whole, *alone = perplexities_and_kls(makers, model, tokens)
    together = results(parent, cuts)
    assert whole.kl == 0.0
    assert len({round(each["kl"], 9) for each in together}) == len(cuts)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours["perplexity"] == pytest.approx(theirs.perplexity, rel=1e-5)
        assert ours["kl"] == pytest.approx(theirs.kl, rel=1e-5)


@pytest.mark.parametrize(("criterion", "repair"), [("prefix", "none"), ("output_energy", "least-squares")])
def test_sub_networks_are_children(criterion: str, repair: str, parent: Path, tmp_path: Path) -> None:
    seen = str(parent.parent / "seen.txt")
    flags: dict[str, Any] = {"keep_ffn": 0.5, "keep_heads": 0.5}
    text = {"text": seen, "sequences": 24, "length": 16}
    carve(parent, tmp_path / "child", criterion=criterion, repair=repair, plan="weights", **flags, **text)
    child = Checkpoint.open(tmp_path / "child")
    size = (child.layout.kv_heads, child.layout.ffn)
    session = Session(
        Checkpoint.open(parent), Methods(criterion, text=seen, sequences=24, length=16), lambda *_: None
    )
    by = session.importance() if criterion == "output_energy" else FirstUnits(None)
    (cut,) = cuts_of(session.checkpoint, by, [(size,) * 3])
    (ours,) = results(parent, [cut], repair, session.tokens)
    tokens = judged_text(session.checkpoint, str(parent.parent / "text.txt"), 8, 16).tokens
    _, theirs = perplexities_and_kls([lambda: open_model(child)], open_model(session.checkpoint), tokens)
    assert size == (1, 20)
    assert theirs.kl > 0.01
    assert ours["perplexity"] == pytest.approx(theirs.perplexity, rel=1e-5)
    assert ours["kl"] == pytest.approx(theirs.kl, rel=1e-5)


def test_bits_a_byte_are_perplexity_by_bytes(parent: Path) -> None:
    """A word and its space are 3 or 4 bytes; the first word of each sequence is given."""
    text = judged_text(Checkpoint.open(parent), str(parent.parent / "text.txt"), 8, 16)
    (ours,) = results(parent, cuts_of(Checkpoint.open(parent), FirstUnits(None), [((1, 9),) * 3]))
    rows = text.tokens.ids[:, 1:].tolist()
    bytes_ = sum(len(f" w{one}") for row in rows for one in row)
    nats = np.log(ours["perplexity"]) * sum(map(len, rows))
    assert ours["bits_a_byte"] == pytest.approx(nats / np.log(2) / bytes_, rel=1e-9)


SIZES_CUT = {
    "encoder": [[(6, 40 - less), (6, 40 - 2 * less), (6 - less % 2, 40)] for less in range(6)],
    "decoder": [[(2, 40 - less), (2 - less % 2, 40 - 2 * less), (2, 40 - 3 * less)] for less in range(6)],
}


@pytest.mark.parametrize("kind", SIZES_CUT)
def test_classes_are_of_each_text(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """In batches with padding, from the stock class cut in place, one text at a time without any."""
    parent: Path = request.getfixturevalue(kind)
    labels = [number % 3 // 2 for number in range(len(TEXTS))]
    rows = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=True)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    checkpoint = Checkpoint.open(parent)
    judged, _ = judged_by(checkpoint, JudgingRequest(data=str(tmp_path / "rows.csv")))
    cuts = cuts_of(checkpoint, FirstUnits(None), SIZES_CUT[kind])
    together = Judging(str(parent), judged, Compute())(cuts)
    model = AutoModelForSequenceClassification.from_pretrained(parent).eval()
    tokenizer = AutoTokenizer.from_pretrained(parent)
    assert len({each["accuracy"] for each in together}) > 2
    for cut, ours in zip(cuts, together, strict=True):
        network = apply_in_memory(model, cut)
        classes = [int(network(**tokenizer(text, return_tensors="pt")).logits.argmax(-1)) for text in TEXTS]
        assert ours == {"accuracy": share_right(classes, labels)}


ROW = st.tuples(*[st.integers(0, 2)] * 3, st.booleans())


@given(st.lists(ROW, min_size=1, max_size=30))
def test_metrics_under_attack_are_those_of_a_count(rows: list[tuple[int, int, int, bool]]) -> None:
    """A wrong text is not attacked and counts as wrong; a skipped one is as it was, and no attack."""
    rows = [(before, after if x else before, label, x) for before, after, label, x in rows]
    right = stand = tried = fell = 0
    for before, after, label, attacked in rows:
        right += before == label
        stand += before == after == label
        tried += before == label and attacked
        fell += before == label != after
    before, after, labels, attacked = zip(*rows, strict=True)
    assert share_right(before, labels) == right / len(rows)
    assert under_attack(before, after, labels, attacked) == {
        "accuracy_under_attack": stand / len(rows),
        "attack_success_rate": pytest.approx(fell / tried if tried else 0.0),
        "accuracy_drop": (right - stand) / len(rows),
    }


JUDGING = {"draw": DrawRequest("heads-ffn", 20, seed=3), "cutting": CutRequest()}


def by_text(parent: Path) -> JudgingRequest:
    return JudgingRequest(str(parent.parent / "text.txt"), sequences=4, length=16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_killed_run_goes_on(parent: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was judged stays, also where the last line was torn; the rest is judged, and nothing twice."""
    run = partial(slice_parent, parent, judging=by_text(parent), running=ON_CPU, **JUDGING)
    whole = run()
    assert run().seconds is None
    monkeypatch.setenv("ZEROLM_CACHE", str(own_cache / "other"))
    assert in_another_process(partial(run, progress=killed_while("judging", 2))) == signal.SIGKILL
    (file,) = (own_cache / "other").rglob(slicing.ROWS)
    lines = file.read_text().splitlines()
    assert len(lines) == slicing.AT_A_TIME
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][: len(lines[-1]) // 2])
    judged: list[str] = []
    add = KeptRows.add
    monkeypatch.setattr(KeptRows, "add", lambda rows, more: (judged.extend(more), add(rows, more))[1])
    again = run()
    assert again.sizes == whole.sizes
    for ours, theirs in zip(again.results, whole.results, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
    assert len(judged) == len(set(judged)) == 21 - (slicing.AT_A_TIME - 1)


def test_processes_give_the_same(parent: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = partial(slice_parent, parent, judging=by_text(parent), running=ON_CPU, **JUDGING)
    one = run()
    monkeypatch.setenv("ZEROLM_CACHE", str(own_cache / "other"))
    monkeypatch.setattr(slicing, "finished", pickled.finished)
    two = run(jobs=2)
    for ours, theirs in zip(two.results, one.results, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_what_is_kept_is_of_the_same_question_alone(parent: Path) -> None:
    """Another criterion keeps other units of the same sizes; prefix and capacity are never mixed up."""
    text, draw = by_text(parent), DrawRequest("heads-ffn", 3, Limits(max_macs="0.9x"))
    prefix, capacity = (
        slice_parent(parent, draw, CutRequest(name), text, running=ON_CPU) for name in ("prefix", "capacity")
    )
    assert prefix.sizes == capacity.sizes
    assert all(a["kl"] != b["kl"] for a, b in zip(prefix.results, capacity.results, strict=True))
    again = slice_parent(parent, draw, CutRequest("capacity"), text, running=ON_CPU)
    assert again.results == capacity.results
    assert len({digest_of(cut) for cut in cuts_of(prefix.checkpoint, FirstUnits(None), prefix.sizes)}) == 3


def test_a_parent_unlike_its_document_is_refused(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were neurons sliced in another order than they lie, every result would be of another network."""
    from zerolm.lab.subnets import walk
    from zerolm.units import pruning

    def turned(model: Any, cut: Any, kept: Any, repaired: Any = None) -> Any:
        layer = pruning.carved_layer(model, cut, kept, repaired)
        layer.writers["down"].weight.data = layer.writers["down"].weight.data.flip(1)
        return layer

    monkeypatch.setattr(walk, "carved_layer", turned)
    asked = (DrawRequest("heads-ffn", 3), CutRequest(), by_text(parent))
    with pytest.raises(ValueError, match="does not compute what the whole one does without the others"):
        slice_parent(parent, *asked, running=ON_CPU)


Drawn = tuple[Checkpoint, Choices, PartCosts]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    checkpoint = Checkpoint.open(saved(tmp_path_factory.mktemp("parent") / "llama", "llama_tied"))
    _, choices = space_of(checkpoint, "heads-ffn")
    return checkpoint, choices, part_costs_of(checkpoint, choices, CostModel(), "heads-ffn")


@pytest.mark.parametrize("seed", range(3))
def test_draws_keep_to_their_budgets(seed: int, space: Drawn) -> None:
    """Each costs what ``carve`` would count for its cut, and none comes twice."""
    checkpoint, choices, costs_by_part = space
    whole = costs_of(checkpoint, CostModel())
    low = 0.5 + 0.1 * seed
    limits = {"min_params": int(low * whole["params"]), "max_params": int((low + 0.1) * whole["params"])}
    limits["max_macs"] = int(0.9 * whole["macs"])
    sizes = drawn_sizes(choices, costs_by_part, 3, 5, seed, limits)
    assert len(set(sizes)) == 5
    for cut in cuts_of(checkpoint, FirstUnits(None), sizes):
        costs = costs_of(checkpoint, CostModel(), cut)
        assert limits["min_params"] <= costs["params"] <= limits["max_params"]
        assert costs["macs"] <= limits["max_macs"]


def test_a_small_space_is_drawn_to_its_end(space: Drawn) -> None:
    checkpoint, _, _ = space
    choices = Choices(((1, 2), (10, 40)), (3,))
    costs_by_part = part_costs_of(checkpoint, choices, CostModel(), "heads-ffn")
    sizes = drawn_sizes(choices, costs_by_part, 3, 64, 0, {})
    assert set(sizes) == set(product(product((1, 2), (10, 40)), repeat=3))
    assert drawn_sizes(choices, costs_by_part, 3, 64, 1, {}) != sizes
    with pytest.raises(
        ValueError, match=r"^only 64 of 65 different sub-networks were sampled; ask for 64 at most$"
    ):
        drawn_sizes(choices, costs_by_part, 3, 65, 0, {})
    most = sorted(int(costs_by_part.of(dict(enumerate(each)))[COSTS.index("macs")]) for each in sizes)
    within = sum(one >= most[-5] for one in most)
    assert len(drawn_sizes(choices, costs_by_part, 3, within, 0, {"min_macs": most[-5]})) == within
    with pytest.raises(ValueError, match=f"^only {within} of {within + 1} different sub-networks within"):
        drawn_sizes(choices, costs_by_part, 3, within + 1, 0, {"min_macs": most[-5]})
    words = f"no sub-network within the budgets was sampled; macs of all are {most[0]:,} to {most[-1]:,}"
    for budgets in ({"max_macs": most[0] - 1}, {"min_macs": most[-1] + 1}):
        with pytest.raises(ValueError, match=f"^{words}$"):
            drawn_sizes(choices, costs_by_part, 3, 1, 0, budgets)


def test_draws_are_of_all_sub_networks_alike(space: Drawn) -> None:
    """Of 40 widths in three layers the mean of many draws is that of the space, by six deviations."""
    _, choices, costs_by_part = space
    sizes = np.array(drawn_sizes(choices, costs_by_part, 3, 4000, 0, {}))
    for kind, values in enumerate(choices.units):
        deviation = np.std(values) / np.sqrt(4000)
        assert (abs(sizes[:, :, kind].mean(0) - np.mean(values)) < 6 * deviation).all()
