"""From the states of tokens to embeddings, with all settings of a folder, as the package makes them."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, refused
from hypothesis import given
from hypothesis import strategies as st
from sentence_folders import LINES, dense, lines_file, sentence_folder, write
from tiny import word_tokenizer
from torch import Tensor
from transformers import BertConfig, BertModel

import zerolm
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.sentence_settings import SIMILARITIES
from zerolm.checkpoints.sentences import ACTIVATIONS, MODES
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.neighbours import neighbourhood, similarity_within
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model, open_model
from zerolm.networks.pooling import ACTIVATED, MEAN, TokenPooling, pooled
from zerolm.passes.outputs import embeddings
from zerolm.passes.walk import gradient_above
from zerolm.text.calibration import sentence_tokens, tokens_of

ALONE: dict[str, Any] = {
    "cls": lambda x: x[0],
    "max": lambda x: x.amax(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / math.sqrt(len(x)),
    "weightedmean": lambda x: sum((i + 1) * row for i, row in enumerate(x)) / sum(range(1, len(x) + 1)),
    "lasttoken": lambda x: x[-1],
}


def batch(lengths: list[int], *, left: bool = False) -> tuple[Tensor, Tensor]:
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
    assert not np.allclose(gradient_above(blocks, 0, last), gradient)


PROMPT = {"prompts": {"query": "w7 w8 w9 ", "document": None}, "default_prompt_name": "query"}
CUT = {"truncate_dim": 20}


def configured(
    folder: Path, settings: dict[str, Any], *, pools_prompt: bool = True, mode: str = "mean", **more: Any
) -> Path:
    sentence_folder(folder, mode=mode, **more)
    torch.manual_seed(0)
    model = BertModel(BertConfig.from_pretrained(folder))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)
    model.save_pretrained(folder)
    write(folder / "config_sentence_transformers.json", settings)
    pooling = {"embedding_dimension": 48, "pooling_mode": mode, "include_prompt": pools_prompt}
    write(folder / "1_Pooling" / "config.json", pooling)
    return folder


def embedded(folder: Path) -> Any:
    checkpoint = Checkpoint.open(folder)
    batches = sentence_tokens(checkpoint, LINES).batches(8)
    model, pooling = open_model(checkpoint), TokenPooling.of(checkpoint)
    return torch.cat([embeddings(model, inputs, pooling) for inputs in batches])


@pytest.mark.parametrize(
    ("settings", "pools_prompt", "mode"),
    [
        *((PROMPT | CUT, False, mode) for mode in ("mean", "cls", "max", "weightedmean", "lasttoken")),
        *((settings, True, "mean") for settings in (CUT, PROMPT, {"truncate_dim": 4096})),
    ],
)
def test_embeddings_are_those_that_users_get(
    settings: dict[str, Any], pools_prompt: bool, mode: str, tmp_path: Path
) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = configured(tmp_path, settings, pools_prompt=pools_prompt, mode=mode)
    model = package.SentenceTransformer(str(folder), device="cpu")
    wanted = model.encode(LINES, convert_to_tensor=True, show_progress_bar=False)
    ours = embedded(folder)
    assert ours.shape == (len(LINES), min(48, settings.get("truncate_dim", 48)))
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_each_setting_changes_embeddings(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    variants: list[tuple[dict[str, Any], bool]] = [({}, True), (PROMPT, True), (PROMPT, False), (CUT, True)]
    rows = [embedded(configured(tmp_path / str(i), s, pools_prompt=p)) for i, (s, p) in enumerate(variants)]
    for a, b in pairwise(rows):
        assert a.shape != b.shape or float((a - b).abs().max()) > 1e-2


def test_a_prompt_of_a_special_token_behind_it_is_counted_without(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = configured(tmp_path, PROMPT, pools_prompt=False)
    word_tokenizer(folder, "w9")  # the last word of the prompt
    model = package.SentenceTransformer(str(folder), device="cpu")
    assert TokenPooling.of(Checkpoint.open(folder)).prompt_tokens == 2
    assert model[0]._get_prompt_length("w7 w8 w9 ") == 2


@given(st.lists(st.integers(3, 7), min_size=1, max_size=4), st.integers(0, 2), st.booleans())
def test_tokens_of_a_prompt_weigh_nothing(lengths: list[int], behind: int, left: bool) -> None:
    generator, longest = torch.Generator().manual_seed(sum(lengths)), max(lengths)
    hidden = torch.randn(len(lengths), longest, 5, generator=generator)
    mask = torch.stack([(torch.arange(longest) < length).long() for length in lengths])
    hidden, mask = (each.flip(1) if left else each for each in (hidden, mask))
    other = hidden.clone()
    for row, start in enumerate(mask.argmax(1).tolist()):
        other[row, start : start + behind] = 1e3
    for mode in ("mean", "max", "cls", "weightedmean", "lasttoken", "mean_sqrt_len_tokens"):
        a, b = (pooled(each, mask, mode, behind=behind) for each in (hidden, other))
        torch.testing.assert_close(a, b)
    assert torch.equal(pooled(hidden, mask, "mean", behind=0), pooled(hidden, mask, "mean"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"truncate_dim": 0}, "has truncate_dim 0; 1 or more dimensions can be"),
        ({"truncate_dim": -3}, "has truncate_dim -3"),
        ({"truncate_dim": "64"}, "has truncate_dim '64'"),
        ({"truncate_dim": True}, "has truncate_dim True"),
        ({"default_prompt_name": "search"}, "has default_prompt_name 'search'; query, document can be"),
        ({"prompts": ["a"]}, "has prompts"),
        ({"prompts": {"a": 3}}, "has prompts"),
        ({"prompts": None}, "has prompts None"),
        ({"model_type": "SparseEncoder"}, "has model_type 'SparseEncoder'; SentenceTransformer can be"),
    ],
)
def test_settings_that_nobody_can_use(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = configured(tmp_path / "parent", settings)
    refused(folder, words)


def test_a_similarity_that_the_package_does_not_know_is_its_usual_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(configured(tmp_path, {"similarity_fn_name": "maxsim"}))
    assert TokenPooling.of(checkpoint).similarity == "cosine"


def test_a_child_is_carved_by_them_and_keeps_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = PROMPT | CUT | {"similarity_fn_name": "dot", "x": 1}
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = configured(tmp_path / "parent", settings)
    flags: dict[str, Any] = {"keep_ffn": 0.5, "text": str(lines_file(tmp_path)), "sequences": 12}
    carved = carve(folder, tmp_path / "child", **flags)
    assert carved.verified.embeddings is not None
    assert carved.unit == "1 - cosine of embeddings"
    assert "embeddings are cut to 20 dimensions (truncate_dim)" in " ".join(carved.notes)
    assert "prompt 'w7 w8 w9 ' (default_prompt_name)" in " ".join(carved.notes)
    assert "compared by dot product" in " ".join(carved.notes)
    name = "config_sentence_transformers.json"
    assert json.loads((tmp_path / "child" / name).read_text()) == settings
    write(folder / name, {})
    other = carve(folder, tmp_path / "other", **flags)
    assert "truncate_dim" not in " ".join(other.notes)
    assert other.losses["measured"] != carved.losses["measured"]


def test_calibration_reads_the_prompt(tmp_path: Path) -> None:
    plain, prompted = (configured(tmp_path / str(i), s) for i, s in enumerate(({}, PROMPT)))
    a, b = (
        tokens_of(Checkpoint.open(folder), str(lines_file(tmp_path)), sequences=3)
        for folder in (plain, prompted)
    )
    assert b.ids[:, :3].tolist() == [[7, 8, 9]] * 3
    (ours,), (theirs,) = ([batch["input_ids"][0] for batch in one.rows([0]).batches()] for one in (a, b))
    assert theirs[3:].tolist() == ours[: len(theirs) - 3].tolist()


def rows_of(folder: Path, child: Path, lines: str) -> dict[str, Any]:
    judged = evaluate(child, folder, lines)
    return {row.name: row for row in judged.networks} | {"note": judged.note}


def test_a_child_is_judged_by_them(tmp_path: Path) -> None:
    """The first dimensions of a child are its parent's, all others are not: cut there, they are the same."""
    folder, lines = configured(tmp_path / "parent", {}), str(lines_file(tmp_path))
    carve(folder, tmp_path / "child", keep_ffn=0.5, text=lines, repair="none")
    whole = rows_of(folder, tmp_path / "child", lines)
    for place in (folder, tmp_path / "child"):
        write(place / "config_sentence_transformers.json", CUT | PROMPT)
    cut = rows_of(folder, tmp_path / "child", lines)
    ours, theirs = embedded(tmp_path / "child"), embedded(folder)
    cosine = torch.cosine_similarity(ours.double(), theirs.double(), dim=1).mean()
    assert cut["child"].values["cosine"] == pytest.approx(float(cosine), abs=1e-6)
    assert whole["child"].values["cosine"] != pytest.approx(float(cosine), abs=1e-6)
    assert "embeddings are cut to 20 dimensions" in cut["note"]
    assert "truncate_dim" not in whole["note"]


@pytest.mark.parametrize("by", SIMILARITIES)
def test_similarities_are_those_of_the_package(by: str) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    ours, theirs = np.random.default_rng(0).normal(size=(2, 9, 4))
    within = package.SimilarityFunction.to_similarity_pairwise_fn(by)(ours, theirs)
    np.testing.assert_allclose(similarity_within(ours, theirs, by), within, rtol=1e-5, atol=1e-6)
    every = package.SimilarityFunction.to_similarity_fn(by)
    a, b = (every(each, each).double().fill_diagonal_(-torch.inf) for each in (ours, theirs))
    order, nearest = neighbourhood(ours, theirs, by)
    assert nearest == float((a.argmax(1) == b.argmax(1)).double().mean())
    ranks = torch.stack([each.argsort(1).argsort(1).double()[~torch.eye(9).bool()] for each in (a, b)])
    rhos = [float(torch.corrcoef(pair)[0, 1]) for pair in ranks.reshape(2, 9, 8).unbind(1)]
    assert order == pytest.approx(np.mean(rhos), abs=1e-9)


@pytest.mark.parametrize("by", SIMILARITIES)
def test_distances(by: str) -> None:
    """Of length 1 all are 1 - cosine; of others a change of length counts where lengths are compared."""
    pooling = TokenPooling(similarity=by)
    a, b = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, b = (each / each.norm(dim=1, keepdim=True) for each in (a, b))
    cosines = torch.cosine_similarity(a, b, dim=1)
    torch.testing.assert_close(pooling.distances(a, b), 1 - cosines)
    torch.testing.assert_close(pooling.distances(a, a), torch.zeros(5, dtype=torch.float64))
    longer = float(pooling.distances(1.1 * a, a).mean())
    assert longer == pytest.approx(0.0 if by == "cosine" else 0.005, abs=1e-9)


@pytest.mark.parametrize("by", SIMILARITIES)
def test_gradients_of_directions_are_those_of_distances(by: str) -> None:
    """The Hessian of the distance at the parent is J^T J of its direction."""
    pooling = TokenPooling(similarity=by)
    e = torch.randn(1, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    autograd: Any = torch.autograd.functional
    hessian = autograd.hessian(lambda x: pooling.distances(x[None], e)[0], e[0])
    jacobian = autograd.jacobian(lambda x: pooling.direction(x[None])[0], e[0])
    torch.testing.assert_close(hessian, jacobian.T @ jacobian, rtol=1e-6, atol=1e-8)


def test_healing_follows_them(tmp_path: Path) -> None:
    folder, lines = configured(tmp_path / "parent", CUT | PROMPT), str(lines_file(tmp_path))
    carve(folder, tmp_path / "child", keep_ffn=0.5, text=lines, repair="none")
    run: dict[str, Any] = {"text": lines, "tokens": 1200, "batch": 4, "length": 12, "rate": 1e-3}
    healed = zerolm.heal(tmp_path / "child", tmp_path / "healed", parent=folder, **run)
    assert "embeddings are cut to 20 dimensions" in " ".join(healed.notes)
    name = "config_sentence_transformers.json"
    assert (tmp_path / "healed" / name).read_bytes() == (folder / name).read_bytes()
    assert healed.losses["after"]["cosine"] > healed.losses["before"]["cosine"]
