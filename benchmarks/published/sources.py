"""The published benchmarks: where their authors have them, at which revision, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from zerolm.groundtruth.truth import known_direction


@dataclass(frozen=True, slots=True)
class Upstream:
    """A repository on GitHub at one commit, its licence, and the paper to cite."""

    repository: str
    commit: str
    licence: str
    paper: str


@dataclass(frozen=True, slots=True)
class Pinned:
    """A file of a repository, several ``parts``, or (``is_folder``) a folder.

    ``sha256`` is that of the file. Of a folder, and of parts, it is that of what ``sha256sum`` prints for the
    files used, sorted by path (``digest``).
    """

    path: str
    sha256: str
    parts: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        return not self.parts and "." not in self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Source:
    """One benchmark as published."""

    name: str
    space: str
    task: str
    metric: str
    metrics: tuple[str, ...]
    count: int
    upstream: Upstream
    pinned: Pinned
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def higher_is_better(self) -> bool:
        """Return the direction of the metric, which its name says."""
        return known_direction(self.metric) is True

    def record(self) -> dict[str, str]:
        """Return the origin that a converted file names."""
        return {
            "repository": self.upstream.repository,
            "commit": self.upstream.commit,
            "file": self.pinned.path,
            "sha256": self.pinned.sha256,
            "licence": self.upstream.licence,
            "paper": self.upstream.paper,
        }


SERIANNI: Final = Upstream(
    repository="aaronserianni/training-free-nas",
    commit="2d76e01b9586cad7340e8268dadba3056efd070b",
    licence="CC-BY-4.0",
    paper="Serianni & Kalita, Training-free Neural Architecture Search for RNNs and Transformers, ACL 2023",
)
AUTO_PROX: Final = Upstream(
    repository="lliai/Auto-Prox-AAAI24",
    commit="90ed458eff6948a6f0d23e440a8d21bbec50d091",
    licence="Apache-2.0",
    paper="Wei et al., Auto-Prox: Training-Free Vision Transformer Architecture Search, AAAI 2024",
)
ARCHAI: Final = Upstream(
    repository="microsoft/archai",
    commit="47770415327900684ed95c0bc9bf7cd0d0047fad",
    licence="MIT",
    paper="Javaheripi et al., LiteTransformerSearch, NeurIPS 2022",
)
GEMSTONES: Final = Upstream(
    repository="mcleish7/gemstone-scaling-laws",
    commit="5f420478f6057b0cbb4d13405fb10ca64675bccb",
    licence="MIT",
    paper="McLeish et al., Gemstones, NeurIPS 2025, arXiv 2502.06857",
)
GEMSTONE_RUNS: Final = "wandb_dfs/wandb_df_for_fitting_hot_100b+_477.jsonl"
"""The training loss of every run at every 477th step, one row a step."""
GEMSTONE_LOSSES: Final = "other_validation_losses"
"""A folder for each corpus, with a file for each network: its loss there at some steps and at the end."""
GEMSTONE_SHAPES: Final = (
    "256x23", "256x27", "256x71", "256x80", "384x13", "384x36", "512x11", "512x12", "512x13", "512x14",
    "512x16", "768x3", "768x45", "1024x28", "1280x15", "1280x36", "1536x50", "1792x7", "1792x18", "2048x27",
    "2560x8", "3072x12",
)  # fmt: skip
"""Hidden size and depth."""


def _vit(name: str, space: str, extra: tuple[str, ...], file: str, sha256: str) -> Source:
    metrics = tuple(f"{data}_{way}_acc" for data in ("c100", "flower", "chaoyang") for way in ("base", "kd"))
    return Source(
        name=name,
        space=space,
        task="top-1 accuracy of vision transformers on CIFAR-100, Flowers-102, Chaoyang (base: plain "
        "training; kd: with distillation)" + (" and ImageNet (one-shot supernet)" if extra else ""),
        metric="c100_kd_acc",
        metrics=metrics + extra,
        count=100,
        upstream=AUTO_PROX,
        pinned=Pinned(f"gt_results/{file}", sha256),
    )


def _perplexity(name: str, corpus: str, folder: str, count: int, sha256: str) -> Source:
    gpt2 = name.startswith("gpt2")
    return Source(
        name=name,
        space="gpt2" if gpt2 else "transformer_xl",
        task=f"perplexity after training on {corpus}",
        metric="test_ppl",
        metrics=("test_ppl", "test_word_ppl", "valid_ppl") if gpt2 else ("test_ppl", "valid_ppl"),
        count=count,
        upstream=ARCHAI,
        pinned=Pinned(f"archai/nlp/nas/saved_logs/{folder}", sha256),
        fields={
            "d_inner, n_head": "one value a layer",
            "parameters": "as published: AdaEmb, Attn, FFN, nonembedding, total",
        },
    )


_ALL = (
    Source(
        name="flexibert_glue",
        space="flexibert",
        task="GLUE dev scores after ELECTRA-style pre-training (100k steps) and fine-tuning",
        metric="glue",
        metrics=("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst", "sts", "glue"),
        count=500,
        upstream=SERIANNI,
        pinned=Pinned(
            "data/BERT_benchmark.json", "fa2ff7198dcd71e0b8021ed2ace1c221672c33cc56931b6dff31fda3d044784f"
        ),
        fields={
            "operation_type": "SA self-attention, LT linear transform, DSC span-based dynamic convolution",
            "operation_parameter": "SDP scaled dot product, WMA weighted multiplicative, DFT or DCT, "
            "or the kernel size of DSC",
            "train_seconds": "wall time of the training run that gave the result",
        },
    ),
    _perplexity(
        "gpt2_wt103",
        "WikiText-103",
        "random_GPT2_wt103",
        200,
        "462a29948fdbcea79ffaa62b6c5ffb9f0795691c3337ab99fc767adbc3223561",
    ),
    _perplexity(
        "gpt2_lm1b",
        "LM1B",
        "random_GPT2_lm1b",
        200,
        "45175ef9cbd92e4999625db29580ed8adcd13e47bac1aa151eab3387c8ed9057",
    ),
    _perplexity(
        "transformer_xl_wt103",
        "WikiText-103",
        "random_TransXL_wt103",
        200,
        "59bfb5e73e39bb1321432db83b39cb2dd37d0b23b3fd705e52adc023460e351c",
    ),
    _perplexity(
        "transformer_xl_lm1b",
        "LM1B",
        "random_TransXL_lm1b",
        183,
        "9a86466149651e770d8630a497eb8e84a0e945d635253a42b1809a2b1b77b211",
    ),
    _vit(
        "autoformer_vit",
        "autoformer",
        ("imagenet_super_acc",),
        "gt_autoformer.pth",
        "712ad277546d9f7f565ce07885be7e0b98dcd8d0724fdd1120f595b517436eca",
    ),
    _vit(
        "pit_vit",
        "pit",
        (),
        "gt_pit.pth",
        "bdda89841d4105f99ab759e3243e7a2402929ba7a8430dac12a50256aa533bb2",
    ),
    Source(
        name="gemstones",
        space="llama",
        task="validation loss on FineWeb after 350 billion tokens",
        metric="fineweb_loss",
        metrics=(
            *(f"train_loss_{billions}B" for billions in (10, 50, 100, 200, 350)),
            *(f"{corpus}_loss" for corpus in ("fineweb", "fineweb_edu", "dclm")),
        ),
        count=22,
        upstream=GEMSTONES,
        pinned=Pinned(
            f"{GEMSTONE_RUNS}, {GEMSTONE_LOSSES}/",
            "12cd57c76d8fc1d2ead63c8094132289c429ad263694ddc3a19b7ad75da967e4",
            parts=(
                GEMSTONE_RUNS,
                *(
                    f"{GEMSTONE_LOSSES}/{corpus}_losses/Gemstone-{shape}.json"
                    for corpus in ("fineweb", "fineweb_edu", "dclm")
                    for shape in GEMSTONE_SHAPES
                ),
            ),
        ),
        fields={
            "parameters": "as published: total",
            "constant": {"vocab": 50304, "tied": False, "positions": 2048, "tokens": 350_119_526_400},
        },
    ),
)
SOURCES: Final = {source.name: source for source in _ALL}
"""The eight benchmarks by name."""
