"""What tokens and repair are worth on the trained models, with few sequences and loose margins."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from divergences import Divergence, perplexity_and_kl
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from zerolm.architecture import Floats
from zerolm.repairing.walk import repair
from zerolm.text.documents import Text
from zerolm.text.tokens import running_tokens
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import Cut, LayerCut, best
from zerolm.units.pruning import apply_in_memory, dimensions_of

LIBRARY = Path(sysconfig.get_path("stdlib"))
SEEN = ("argparse.py", "inspect.py", "tarfile.py", "subprocess.py", "datetime.py", "statistics.py", "ssl.py")
OPEN = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}


def source(files: list[str]) -> Iterator[str]:
    for name in files:
        if (LIBRARY / name).is_file():
            yield (LIBRARY / name).read_text(encoding="utf-8", errors="ignore")


def unseen(models: Path) -> list[str]:
    """The modules that the models' README names as not trained on."""
    named = (models / "README.md").read_text(encoding="utf-8").split("calibrate on others.")[1]
    return [word for word in named.split() if word.endswith(".py")]


def uniform(model: AutoModel, importance: dict[str, list[Floats]], groups: int, ffn: int) -> Cut:
    sizes, layers = dimensions_of(model), zip(importance["groups"], importance["ffn"], strict=True)
    kept = (LayerCut.of(layer, best(g, groups), best(f, ffn)) for layer, (g, f) in enumerate(layers))
    return Cut(sizes, tuple(kept))


def test_pydec(models_folder: Path) -> None:
    """KL to the parent of three quarters: .136 by output energy, .056 with least squares on 256 sequences."""
    parent = AutoModelForCausalLM.from_pretrained(models_folder / "pydec", **OPEN)
    tokenizer = AutoTokenizer.from_pretrained(models_folder / "pydec", local_files_only=True)
    seen, new = (Text("\n".join(source(files)), "") for files in (list(SEEN), unseen(models_folder)))
    tokens, judged = running_tokens(seen, tokenizer, 16, 192), running_tokens(new, tokenizer, 4, 192)
    energy = importances(parent, tokens)
    generator = np.random.default_rng(0)
    random = {kind: [generator.random(len(x)) for x in layers] for kind, layers in energy.items()}

    def after(importance: dict[str, list[Floats]], method: str) -> Divergence:
        cut = uniform(parent, importance, 3, 576)
        child = apply_in_memory(parent, cut, repair(parent, cut, tokens, method))  # type: ignore[arg-type]
        return perplexity_and_kl(child, parent, judged)

    assert after(energy, "least-squares").kl < 0.12
    assert after(energy, "none").kl < 0.3 < after(random, "none").kl
    assert after(importances(parent, tokens, "amp"), "none").kl < 0.3
