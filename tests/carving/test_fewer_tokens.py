"""Carvings in which tokens leave: the folder, its proof, its recipe, tables of all families, refusals."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import rebuild
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import CORPUS, byte_level, word_piece
from made_vocabularies import ROWS, TEMPLATE, decoder
from safetensors.torch import load_file, save_file
from sentence_folders import sentence_folder
from tiny import MODELS
from tiny_families import TINY, saved
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, MethodRequest, Methods, methods_of
from zerolm.carving.result import TriedSize
from zerolm.carving.vocabulary import byte_losses, planned_size, text_use
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.fewer_tokens import shaped, with_tokens
from zerolm.carving.vocabulary.size_search import MEASURED, SizeSearch, best_size
from zerolm.carving.vocabulary.text_use import use_of
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.evaluation.evaluate import evaluate
from zerolm.networks.opener import mapped_model, open_model, stock_tokenizer
from zerolm.planning.size_request import SizeRequest, VocabularyRequest, WeightsRequest
from zerolm.progress import silent
from zerolm.text.encoding import separator


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)
    monkeypatch.setattr(planned_size, "SHARES", (1.2, 1.0, 0.7, 0.4))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder(tmp_path_factory.mktemp("parent") / "llama", byte_level(), tie_word_embeddings=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(CORPUS[0] * 3, "utf-8")
    return file


def cut(
    parent: Path, out: Path | None, text: Path | None, size: str | None, keep: Any = None, **more: Any
) -> Any:
    request = SizeRequest.of(keep, vocabulary=VocabularyRequest(size, more.pop("tokens", None)), **more)
    methods = Methods() if text is None else Methods(text=str(text), sequences=4, length=16)
    return carve(parent, request, methods, Destination(out))


def test_a_child_reads_its_text_and_predicts_as_its_parent(parent: Path, text: Path, tmp_path: Path) -> None:
    carved = cut(parent, tmp_path / "child", text, "used")
    child = Checkpoint.open(tmp_path / "child")
    vocabulary = carved.vocabulary
    assert child.layout.vocab == vocabulary.child == vocabulary.used < ROWS
    assert vocabulary.proof.relative <= 1e-5
    saved = carved.costs["parent"]["params"] - carved.costs["child"]["params"]
    assert saved == vocabulary.saves == (ROWS - child.layout.vocab) * 48
    theirs, ours = (AutoTokenizer.from_pretrained(folder) for folder in (parent, tmp_path / "child"))
    before, after = (tokenizer(CORPUS[0])["input_ids"] for tokenizer in (theirs, ours))
    assert ours.convert_ids_to_tokens(after) == theirs.convert_ids_to_tokens(before)
    ids = [torch.tensor([row[:40]]) for row in (before, after)]
    kept = torch.tensor(theirs.convert_tokens_to_ids(ours.convert_ids_to_tokens(range(len(ours)))))
    with torch.no_grad():
        wanted, sent = (
            open_model(one)(input_ids=row).logits
            for one, row in zip((Checkpoint.open(parent), child), ids, strict=True)
        )
    torch.testing.assert_close(sent, wanted[..., kept], rtol=1e-5, atol=1e-5)
    config, generation = (
        json.loads((tmp_path / "child" / name).read_text())
        for name in ("config.json", "generation_config.json")
    )
    for document in (config, generation):
        assert document["bos_token_id"] == ours.convert_tokens_to_ids("<s>")
        assert document["eos_token_id"] == ours.convert_tokens_to_ids(["</s>", "<|im_end|>"])
    chat = [{"role": "user", "content": "naïve 🙂"}]
    turns = [tokenizer.apply_chat_template(chat, tokenize=False) for tokenizer in (ours, theirs)]
    assert turns[0] == turns[1] == ours.decode(ours(turns[0])["input_ids"])


def test_a_recipe_builds_the_same_child_again(parent: Path, text: Path, tmp_path: Path) -> None:
    cut(parent, tmp_path / "child", text, "0.6", {"ffn": 0.5})
    rebuild(tmp_path / "child" / "recipe.json", parent, tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        ours, theirs = ((tmp_path / one / name).read_bytes() for one in ("again", "child"))
        assert ours == theirs
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    tokens = recipe["tokens"]
    for damage in (tokens[2:], f"{tokens}00", f"x{tokens[1:]}", "0" * len(tokens), ""):
        (tmp_path / "bad.json").write_text(json.dumps(recipe | {"tokens": damage}))
        with pytest.raises(ValueError, match=r"its tokens are .*, not bits of"):
            rebuild(tmp_path / "bad.json", parent, tmp_path / "none")


def test_an_untied_head_and_padding(text: Path, tmp_path: Path) -> None:
    parent = decoder(tmp_path / "parent", byte_level())
    carved = cut(parent, tmp_path / "child", text, "300", multiple_of=64)
    child = Checkpoint.open(tmp_path / "child")
    assert child.layout.vocab == carved.vocabulary.child == 320
    assert child.tensors["lm_head.weight"].shape == (320, 48)
    assert carved.vocabulary.losses["child"] > 0


def test_sizes_within_budgets(parent: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size is worth what fewer tokens and all other cuts beside them lose; the least is chosen."""
    monkeypatch.setattr(planned_size, "SMALL", 0.0)
    monkeypatch.setattr(planned_size, "NOISE", 0.0)
    size = SizeRequest.of({"hidden": 1.0}, {"max_params": "0.7x"}, vocabulary=VocabularyRequest("auto"))
    methods = methods_of(size, MethodRequest(text=str(text), sequences=4, length=16))
    carved = carve(parent, size, methods)
    rows = carved.vocabulary.sizes
    known = [row for row in rows if row.measured is not None or row.rest == 0]
    assert carved.vocabulary.child == min(known, key=lambda row: (row.loss, -row.size)).size
    assert [row.size for row in rows] == sorted((row.size for row in rows), reverse=True)
    assert carved.costs["child"]["params"] <= 0.7 * carved.costs["parent"]["params"]
    assert [row.rest for row in rows] == sorted((row.rest for row in rows), reverse=True)
    assert rows[-1].rest == 0  # the most tokens with which nothing else is cut
    costs, units = carved.costs, {row.unit: row for row in carved.units}
    assert sum(row.params for row in carved.units) == costs["parent"]["params"] - costs["child"]["params"]
    assert units["tokens"].after == carved.vocabulary.child
    assert all((row.params > 0) == (row.after < row.before) for row in carved.units)


@given(
    losses=st.lists(st.floats(0.0, 0.1), min_size=1, max_size=9),
    noise=st.floats(0.0, 0.02),
    order=st.randoms(use_true_random=False),
)
def test_of_sizes_with_nearly_equal_losses_the_largest_is_kept(
    losses: list[float], noise: float, order: random.Random
) -> None:
    tried = [TriedSize(size, 0, loss, 0.0) for size, loss in enumerate(losses, 300)]
    order.shuffle(tried)
    chosen, within = best_size(tried, noise), min(losses) + noise
    assert losses[chosen - 300] <= within
    assert all(loss > within for loss in losses[chosen - 299 :])


OF_OTHERS = st.floats(1e-3, 0.1)
LOSSES = st.lists(st.tuples(st.floats(0.0, 0.1), OF_OTHERS), min_size=1, max_size=12)
SOME_UNCUT = st.lists(st.tuples(st.floats(0.0, 0.1), st.just(0.0) | OF_OTHERS), min_size=1, max_size=12)


class Sizes:
    """A search of made-up sizes from 300 down: losses of tokens rise along them, those of all else fall."""

    def __init__(
        self, losses: list[tuple[float, float]], noise: float, impossible: int = 0, share: float | None = None
    ) -> None:
        tokens, rest = (
            sorted(each, reverse=is_rest) for is_rest, each in enumerate(zip(*losses, strict=True))
        )
        self.rows = {
            300 - n: TriedSize(300 - n, 0, *pair) for n, pair in enumerate(zip(tokens, rest, strict=True))
        }
        self.measured = list[int]()
        self.passes = list[int]()
        self.most, self.share = 300 - impossible, share
        self.search = SizeSearch(list(self.rows), self.plan, self.tokens, self.measure, noise, {})

    def plan(self, size: int) -> TriedSize:
        if size > self.most:
            raise ValueError(f"{size} tokens leave no room")
        return replace(self.rows[size], tokens=0.0)

    def tokens(self, size: int) -> float:
        self.passes.append(size)
        return self.rows[size].tokens

    def measure(self, size: int) -> float | None:
        self.measured.append(size)
        return None if self.share is None else self.rows[size].rest * self.share


@given(losses=SOME_UNCUT, noise=st.floats(0.0, 0.02), impossible=st.integers(0, 12))
def test_sizes_that_are_not_tried_are_no_better(
    losses: list[tuple[float, float]], noise: float, impossible: int
) -> None:
    """Against its twin: the loss of every size."""
    sizes = Sizes(losses, noise, impossible)
    possible = [row for row in sizes.rows.values() if row.size <= sizes.most]
    if not possible:
        with pytest.raises(ValueError, match=f"^{min(sizes.rows)} tokens leave no room"):
            sizes.search.best()
        return
    assert sizes.search.best() == best_size(possible, noise)
    assert len(set(sizes.passes)) == len(sizes.passes)


def test_few_sizes_are_tried() -> None:
    """All tokens and one or two others, where the loss of fewer rises steeply."""
    sizes = Sizes([(0.02 * n**2, 0.04 - 8e-4 * n) for n in range(14)], 1e-3)
    assert sizes.search.best() == 300
    assert sizes.passes[0] == 300
    assert len(sizes.passes) <= 3


@given(losses=LOSSES, noise=st.floats(0.0, 0.02), share=st.floats(0.1, 3.0))
def test_measured_losses_correct_those_of_all_sizes(
    losses: list[tuple[float, float]], noise: float, share: float
) -> None:
    """One measurement suffices where repair leaves the same share of all predicted losses."""
    sizes = Sizes(losses, noise, share=share)
    best = sizes.search.best()
    after = [replace(row, measured=row.rest * share) for row in sizes.rows.values()]
    least = min(row.loss for row in after)
    assert next(row.loss for row in after if row.size == best) <= least + noise + 1e-9
    assert len(set(sizes.measured)) == len(sizes.measured) <= MEASURED
    rows = sizes.search.tried.values()
    assert {row.size for row in rows if row.measured is not None} == set(sizes.measured)
    assert best in sizes.measured


def test_sizes_with_which_nothing_else_is_cut_are_not_measured() -> None:
    sizes = Sizes([(0.0, 0.5), (0.2, 0.3)], 0.0)
    sizes.search.tried[200] = TriedSize(200, 0, 0.25, 0.0)
    assert sizes.search.best() == 200
    assert not sizes.measured


def usual(parent: Path, text: Path, out: Path | None = None, budget: Any = "0.8x", **more: Any) -> Any:
    form = more.pop("form", "hf")
    limits = {"max_params": budget} if isinstance(budget, str) else budget
    methods_ = {"for_": more.pop("for_", None)}
    size = SizeRequest.of(more.pop("keep", None), limits, **more)
    methods = methods_of(size, MethodRequest(text=str(text), sequences=4, length=16, **methods_))
    return carve(parent, size, methods, Destination(out, form))


def test_limited_time_prunes_tokens_first(parent: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest vocabulary that suffices, or the smallest one with a small loss and other cuts."""
    monkeypatch.setattr(planned_size, "SMALL", 1.0)
    hurried, free = (usual(parent, text, budget="0.9x", **more) for more in ({"for_": 1e6}, {}))
    assert hurried.cut.is_whole
    assert hurried.vocabulary.child == free.vocabulary.child < ROWS
    hurried = usual(parent, text, budget={"max_macs": "0.3x"}, for_=1e6)
    assert hurried.vocabulary.child < ROWS
    assert not hurried.cut.is_whole
    assert not hurried.vocabulary.sizes


@pytest.mark.parametrize(("share", "is_whole"), [("0.2x", True), ("0.1x", False)])
def test_limited_time_and_types(share: str, is_whole: bool, parent: Path, text: Path) -> None:
    """At six bits per weight all tokens stay; at three they are pruned first."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    carved = usual(parent, text, budget={"max_weight_bytes": share}, form="gguf", for_=1e6)
    assert (carved.vocabulary.child == ROWS) == is_whole
    limit = float(share[:-1]) * carved.costs["parent"]["weight_bytes"]
    assert carved.costs["child"]["weight_bytes"] <= limit


@given(
    used=st.integers(100, 900), most=st.integers(0, 1100), rate=st.floats(0.0, 1e-3), small=st.floats(0, 0.2)
)
def test_the_size_in_limited_time(used: int, most: int, rate: float, small: float) -> None:
    """The most tokens with which nothing else is cut; if these lose much, the fewest that do not."""
    whole = SimpleNamespace(table=SimpleNamespace(rows=1000), least=50, used=used)
    losses: Any = SimpleNamespace(
        use=SimpleNamespace(whole=whole), small=small, of=lambda size: rate * (1000 - size)
    )
    by_tokens: Any = SimpleNamespace(fits_with_types=lambda size: size <= most)
    size = planned_size.size_in_limited_time(losses, by_tokens, 1)
    alone = min(most, 1000) if most >= 50 else 0
    if alone and losses.of(alone) <= small:
        assert size == alone
    else:
        tried = [one for one in planned_size.usual_sizes(whole, 1) if one > alone]  # type: ignore[arg-type]
        assert size == min(one for one in tried if losses.of(one) <= small)


def test_tokens_are_among_the_units_of_a_budget(
    parent: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fewer tokens lose little nothing else leaves; what each unit gave up adds up."""
    monkeypatch.setattr(planned_size, "SMALL", 1.0)
    carved = usual(parent, text, tmp_path / "child", budget="0.9x")
    child = Checkpoint.open(tmp_path / "child")
    assert carved.cut.is_whole
    assert child.layout.vocab == carved.vocabulary.child < ROWS
    costs = {who: carved.costs[who]["params"] for who in ("parent", "child")}
    assert 0.9 * costs["parent"] - 48 < costs["child"] <= 0.9 * costs["parent"]
    gave_up = {row.unit: row.params for row in carved.units}
    assert gave_up.pop("tokens") == costs["parent"] - costs["child"]
    assert not any(gave_up.values())


def test_tokens_and_types_are_chosen_together(
    parent: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number of tokens is weighed with the best types and cuts beside it within the bytes."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    monkeypatch.setattr(planned_size, "SMALL", 0.0)
    monkeypatch.setattr(planned_size, "NOISE", 0.0)
    carved = usual(parent, text, tmp_path / "child", budget={"max_weight_bytes": "0.14x"}, form="gguf")
    rows = carved.vocabulary.sizes
    chosen = min(rows, key=lambda row: (row.tokens + row.rest, -row.size))
    limit = int(0.14 * carved.costs["parent"]["weight_bytes"])
    assert carved.vocabulary.child == chosen.size < ROWS
    assert all(row.bytes is None or row.bytes <= limit for row in rows)
    assert carved.costs["child"]["weight_bytes"] <= limit
    assert {row.unit: row.after for row in carved.units}["tokens"] == chosen.size
    (file,) = (tmp_path / "child").glob("*.gguf")
    assert read_gguf_header(file).tensors["token_embd.weight"][1] == chosen.size
    whole = usual(parent, text, budget={"max_weight_bytes": "0.6x"}, form="gguf", keep={"all": 1})
    assert whole.vocabulary.child == ROWS  # --keep 1 keeps tokens, too


def test_tokens_stay_where_types_of_five_bits_hold_them_all(parent: Path, text: Path) -> None:
    """Whatever held-out text promises; where the named types are larger, tokens are compared."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    carved = usual(parent, text, budget={"max_weight_bytes": "0.2x"}, form="gguf")
    assert carved.vocabulary.child == ROWS
    assert not carved.vocabulary.sizes
    fine = WeightsRequest("F16")
    larger = usual(parent, text, budget={"max_weight_bytes": "0.2x"}, form="gguf", weights=fine)
    assert larger.vocabulary.child < ROWS


def test_bytes_that_no_child_has_are_refused_before_the_work(parent: Path, text: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with pytest.raises(ValueError, match=r"--max-weight-bytes 500 would have to be at least [\d,]+ \("):
        usual(parent, text, budget={"max_weight_bytes": 500}, form="gguf")


@pytest.mark.parametrize("kept", ["auto", "all"])
def test_a_budget_that_no_child_keeps_is_refused_before_tokens_are_counted(
    kept: str, parent: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*_: Any) -> None:
        raise AssertionError("the text was read")

    monkeypatch.setattr(text_use, "token_counts_of", counted)
    with pytest.raises(ValueError, match="max_params 500 would have to be at least"):
        usual(parent, text, budget={"max_params": 500}, vocabulary=VocabularyRequest(kept))


@pytest.mark.parametrize("text", [None, "generated"])
@pytest.mark.parametrize("budget", ["max_params", "max_weight_bytes"])
@pytest.mark.parametrize("kept", [None, "all"])
def test_what_allows_smaller_children_is_named(
    text: str | None, budget: str, kept: str | None, parent: Path
) -> None:
    size = SizeRequest.of(None, {budget: 500}, vocabulary=VocabularyRequest(kept))
    methods = methods_of(size, MethodRequest(text=text, sequences=4, length=16))
    with pytest.raises(ValueError, match="no cut keeps the budgets") as caught:
        carve(parent, size, methods)
    assert ("--text FILE prunes tokens, too" in str(caught.value)) == (kept is None)
    assert ("--format gguf stores weights in fewer bits" in str(caught.value)) == (budget != "max_params")


def test_a_tenth_of_a_text_is_held_out(parent: Path, tmp_path: Path) -> None:
    """Tokens are chosen without the part that their loss is measured on; both together are the text."""
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{number} {CORPUS[0]}" for number in range(40)), "utf-8")
    use = use_of(Checkpoint.open(parent), str(file), progress=silent)
    assert use.is_held_out
    assert (use.text.fitted + use.text.held == use.whole.counts).all()
    tokenizer = Tokenizer.from_str(byte_level())
    ids = [token for piece in use.text.held_pieces for token in tokenizer.encode(piece).ids]
    assert (use.text.held == np.bincount(ids, minlength=ROWS)).all()
    assert 0.05 < use.text.held.sum() / use.whole.counts.sum() < 0.2
    assert use.fitted.counts.sum() < use.whole.counts.sum()
    curve = use.curve([ROWS, use.whole.used, use.whole.least])
    assert curve == sorted(curve)
    assert curve[0] == 0 < curve[-1]


def test_likely_tokens_are_those_of_the_stock_network(parent: Path, text: Path) -> None:
    checkpoint = Checkpoint.open(parent)
    losses = TokenLosses.of_pieces(checkpoint, mapped_model(checkpoint), [text.read_text("utf-8")], 16)
    tokenizer, model = Tokenizer.from_str(byte_level()), open_model(checkpoint)
    start = int(separator(stock_tokenizer(checkpoint.folder), checkpoint.layout.vocab)[0])
    total, count = np.zeros(ROWS), 0
    for stretch in losses.stretches:
        ids = [start, *tokenizer.encode(stretch, add_special_tokens=False).ids]
        for first in range(0, len(ids) - 1, 15):
            window = torch.tensor([ids[first : first + 16]])
            with torch.no_grad():
                p = model(input_ids=window).logits[0, :-1].softmax(-1)
            total, count = total + p.sum(0).double().numpy(), count + len(p)
    np.testing.assert_allclose(losses.likely(), total / count, rtol=1e-4, atol=1e-9)


def test_a_sentence_transformer_stays_whole(text: Path, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", inside="0_Transformer")
    place = folder / "0_Transformer"
    model = transformers.BertModel(transformers.BertConfig(**MODELS["bert"][1] | {"vocab_size": ROWS}))
    model.save_pretrained(place)
    stock = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(word_piece()), pad_token="[PAD]", unk_token="[UNK]"
    )
    stock.save_pretrained(place)
    carved = cut(folder, tmp_path / "child", text, "used")
    child = Checkpoint.open(tmp_path / "child")
    assert child.layout.vocab == carved.vocabulary.used < ROWS
    assert child.sentences is not None
    assert (tmp_path / "child" / "LICENSE").is_file() == (folder / "LICENSE").is_file()
    judged = evaluate(tmp_path / "child", folder, text, length=12)
    assert judged.networks[0].values["cosine"] == pytest.approx(1, abs=1e-5)


def test_bits_a_byte_of_the_network_with_fewer_tokens(
    parent: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent, with its softmax over kept tokens, loses what the child itself does by its own tokens.

    Windows of the same tokens as the parent's are not run again.
    """
    checkpoint = Checkpoint.open(parent)
    use = use_of(checkpoint, str(text), progress=silent).whole
    kept = use.kept(use.used - 100)
    child = with_tokens(checkpoint, kept, tmp_path / "tokens")
    losses = TokenLosses.on(checkpoint, mapped_model(checkpoint), str(text), 16)
    ours = TokenLosses.on(child, mapped_model(child), str(text), 16)
    assert losses.stretches == ours.stretches
    assert losses.bits(kept) == pytest.approx(ours.bits(None), rel=1e-5)
    assert ours.tokens > losses.tokens
    whole = losses.bits(None)
    monkeypatch.delattr(byte_losses, "Stream")
    assert losses.bits(np.arange(ROWS)) == pytest.approx(whole, rel=1e-6)


def test_counted_shapes_are_those_that_are_written(parent: Path, text: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(parent)
    use = use_of(checkpoint, str(text), progress=silent).whole
    child = with_tokens(checkpoint, use.kept(use.used), tmp_path / "tokens")
    counted = shaped(checkpoint, use.used)
    assert counted.layout.vocab == child.layout.vocab
    assert {name: info.shape for name, info in counted.tensors.items()} == {
        name: info.shape for name, info in child.tensors.items()
    }


def test_a_text_streams_and_is_counted_once(parent: Path, tmp_path: Path) -> None:
    """A text that is read in pieces has the tokens that it has as a whole, here and from the cache."""
    from zerolm.carving.vocabulary.counted_text import PIECE

    file = tmp_path / "long.txt"
    content = CORPUS[1] * (1 + 3 * PIECE // len(CORPUS[1]))
    file.write_text(content, "utf-8")
    checkpoint = Checkpoint.open(parent)
    first, second = (use_of(checkpoint, str(file), progress=silent).whole.counts for _ in range(2))
    assert (first == second).all()
    ids = Tokenizer.from_str(byte_level()).encode(content).ids
    template = Tokenizer.from_str(byte_level()).encode(TEMPLATE).ids
    assert (first == np.bincount(ids + template, minlength=ROWS)).all()


TABLE = 64
LISTED = [40, 43, 57]
ODD = {
    "bert": "a head with a bias", "distilbert": "a head with a bias of another name",
    "deberta-v2": "a head of its own matrix", "electra": "an embedding narrower than the stream",
    "gptj": "an untied head with a bias", "opt": "tied, positions begin behind two rows",
    "gemma4_text": "embeddings of each layer", "qwen3_5_text": "layers without attention",
    "mixtral": "experts",
}  # fmt: skip


def words(folder: Path) -> None:
    """A WordPiece of characters and pairs of them, with a token for each row but two."""
    letters = "abcdefghijklmnop"
    pieces = ["[UNK]", "[PAD]", *letters, *(f"##{letter}" for letter in letters)]
    pieces += [f"{first}{second}" for first in letters for second in letters][: TABLE - 2 - len(pieces)]
    tokenizer = Tokenizer(models.WordPiece(dict(zip(pieces, range(TABLE), strict=False)), unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    stock = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    stock.save_pretrained(folder)


def cut_to_listed(folder: Path) -> Any:
    """Carve the parent in a folder to the listed tokens, with what they need."""
    words(folder / "parent")
    (folder / "ids.json").write_text(json.dumps(LISTED))
    request = SizeRequest.of(vocabulary=VocabularyRequest(None, str(folder / "ids.json")))
    return carve(folder / "parent", request, Methods(), Destination(folder / "child"))


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    file = saved(tmp_path / "parent", "glm4_moe", pad_token_id=1) / "model.safetensors"
    beyond = f"model.layers.{Checkpoint.open(file.parent).layout.depth}"
    further = {
        f"{beyond}.{name}.weight": torch.ones(TABLE, 48) for name in ("embed_tokens", "shared_head.head")
    }
    save_file(load_file(file) | further, file, {"format": "pt"})
    assert cut_to_listed(tmp_path).verified.relative <= 1e-5
    assert not [name for name in load_file(tmp_path / "child" / file.name) if name.startswith(f"{beyond}.")]


@pytest.mark.parametrize("kind", ODD)
def test_every_table_loses_its_rows(kind: str, tmp_path: Path) -> None:
    changes = {"hidden_size_per_layer_input": 8, "enable_moe_block": False} if "gemma4" in kind else {}
    changes |= {"pad_token_id": 1} if "pad_token_id" not in TINY[kind] else {}
    saved(tmp_path / "parent", kind, **changes)
    carved = cut_to_listed(tmp_path)
    parent, child = (Checkpoint.open(tmp_path / name) for name in ("parent", "child"))
    assert child.layout.vocab == carved.vocabulary.child < TABLE
    assert max(carved.vocabulary.proof.relative, carved.verified.relative) <= 1e-5
    kept = [*range(34), *LISTED]  # special tokens and characters stay
    for name, slot in parent.layout.slots.items():
        whole, part = parent.read(name), child.read(name)
        for axis, label in enumerate(slot.axes):
            whole = np.take(whole, kept, axis) if label in ("vocab", "layer_vocab") else whole
        np.testing.assert_array_equal(part, whole)
