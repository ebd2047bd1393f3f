"""``benchmarks/train_models.py``: what it trains on, and that others open what it writes."""

import json
import sys
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import corpus  # noqa: E402
import train_models  # noqa: E402
from training import loop  # noqa: E402
from training.decoder import DecoderSettings, batches, perplexity, stream  # noqa: E402
from training.encoder import EncoderSettings, rounds  # noqa: E402
from training.mixture import MixtureSettings  # noqa: E402

STEPS: Final = 200
MODULE = '''
class Pair{n}:
    """Two values side by side. And more that is no summary."""

    def first_{n}(self, other):
        """Give back the first
        value."""
        return self.values[{n}] + other


def lonely_{n}():
    """Word."""
    return "é"
'''


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> train_models.Split:
    """Eight small modules to train on, two to judge on."""
    folder = tmp_path_factory.mktemp("library")
    written = [folder / f"module{n}.py" for n in range(10)]
    for n, file in enumerate(written):
        file.write_text(MODULE.format(n=n) * 4, encoding="utf-8")
    return train_models.Split(written[:8], written[8:])


@pytest.fixture(scope="module")
def models(files: train_models.Split, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models, tiny, after ``STEPS`` steps by a clock that counts them: a slow machine trains as much."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("models")
    sizes = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 48}
    decoder = DecoderSettings(**sizes, kv_heads=2, vocab=300, length=16, batch=4)
    encoder = EncoderSettings(**sizes, vocab=120, length=24, batch=4)
    clock = SimpleNamespace(monotonic=partial(next, count()))  # a second a step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", clock)
        train_models.decoder(out / "pydec", files, decoder, seconds=STEPS, seed=0)
        train_models.pyenc(out / "pyenc", files, encoder, seconds=STEPS, seed=0)
    return out


def test_a_mixture_learns_and_opens_in_stock_software(files: train_models.Split, tmp_path: Path) -> None:
    """Experts in groups send what a loop over them does, and the folder has all of them."""
    torch.set_num_threads(1)
    settings = MixtureSettings(
        layers=2, hidden=32, heads=4, experts=6, ffn=16, vocab=300, length=16, batch=4, rate=3e-3
    )
    sides = train_models.Sides((files.seen[:4], files.seen[4:]), {"code": files.unseen})
    clock = SimpleNamespace(monotonic=partial(next, count()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", clock)
        train_models.moe(tmp_path / "moe", sides, settings, seconds=STEPS, seed=0)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "moe").eval()
    assert (model.config.num_experts, model.config.num_experts_per_tok) == (6, 4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "moe")
    ids = stream(corpus.sources(files.unseen), tokenizer)
    assert perplexity(model, ids, 16) < 60
    with torch.no_grad():
        sent = []
        for way in ("eager", "grouped_mm"):
            model.set_experts_implementation(way)
            sent.append(model(input_ids=ids[None, :16], use_cache=False).logits)
    assert torch.allclose(*sent, atol=1e-4)


def test_the_folders_open_in_stock_software(models: Path, files: train_models.Split) -> None:
    text = corpus.sources(files.unseen)[0]
    for name, kind in (("pydec", transformers.AutoModelForCausalLM), ("pyenc", transformers.AutoModel)):
        tokenizer = transformers.AutoTokenizer.from_pretrained(models / name)
        options = {"add_pooling_layer": False} if name == "pyenc" else {}
        model, info = kind.from_pretrained(models / name, output_loading_info=True, **options)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert model.get_input_embeddings().num_embeddings >= len(tokenizer)
        ids = tokenizer(text, truncation=name == "pyenc", return_tensors="pt")["input_ids"]
        with torch.no_grad():
            found = model(input_ids=ids[:, :16])
        assert all(torch.isfinite(each).all() for each in found.values() if torch.is_tensor(each))
    assert {file.name for file in models.iterdir()} == {"pydec", "pyenc"}  # nothing unfinished is left


def test_a_sentence_encoder_says_that_it_pools_by_means(models: Path) -> None:
    pooling = json.loads((models / "pyenc" / "1_Pooling" / "config.json").read_text())
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens"]
    assert pooling["word_embedding_dimension"] == 32
    assert [each["path"] for each in json.loads((models / "pyenc" / "modules.json").read_text())] == [
        "",
        "1_Pooling",
    ]


def test_the_cards_state_what_was_measured(models: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / "pydec")
    model = transformers.AutoModelForCausalLM.from_pretrained(models / "pydec")
    held_out = stream([MODULE.format(n=n) * 4 for n in (8, 9)], tokenizer)
    assert (
        f"perplexity {perplexity(model, held_out, 16):.2f} a token"
        in (models / "pydec/README.md").read_text()
    )
    assert "retrieval@1" in (models / "pyenc" / "README.md").read_text()
    assert perplexity(model, held_out, 16) < 150  # of 300 tokens: it has learned something


def test_a_round_holds_every_window_and_every_pair_once() -> None:
    generator = torch.Generator().manual_seed(0)
    feed = batches(torch.arange(100), 7, 3, generator)
    windows: list[int] = []
    while len(windows) < 13:
        rows = next(feed)
        assert (rows == rows[:, :1] + torch.arange(8)).all()
        windows += rows[:, 0].tolist()
    assert sorted(windows) == list(range(min(windows), 93, 7))
    pairs = rounds(10, 3, generator)
    assert len({i for _ in range(3) for i in next(pairs)}) == 9
    assert sorted(next(rounds(2, 3, generator))) == [0, 1]
