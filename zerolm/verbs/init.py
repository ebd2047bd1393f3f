"""``zerolm init``: a folder that trains an architecture from scratch, on stock software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.messages import called
from zerolm.settings.request import Request, argument, setting
from zerolm.show.text import show_amount
from zerolm.training.request import DEPTH_RULES
from zerolm.verbs.report import Shown

if TYPE_CHECKING:
    from zerolm.architecture import Architecture
    from zerolm.families.config import ModelSizes

FORMAT: Final = "zerolm-training"
SCRIPT: Final = "train.py"
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
TOKENIZER_BYTES: Final = 256 << 20
"""The most that is copied of a file of a tokenizer."""
SEQUENCES: Final = 8
"""The number of sequences that the script computes at once on a device, by default."""
WARMUP: Final = 2000
LAST_RATE: Final = 1e-5
DECAY: Final = 0.1
"""Steps of warming up, rate at the end, and weight decay of Step Law's runs."""
SOURCES: Final = (
    "batch 0.58 D^0.571, rate 1.79 N^-0.713 D^0.307 falling to 1e-5: Step Law, arXiv 2503.04715",
    "tokens, unless --train-tokens set them: compute-optimal by Chinchilla's law, arXiv 2404.10102",
    "AdamW with betas .9 and .95, weight decay .1 on matrices, gradients clipped at 1, at most 2,000 steps\n"
    "  of warm-up: as in Step Law's runs",
    "last matrices of residual branches initialised smaller by the root of twice the depth (GPT-2). A depth\n"
    "  rule scales them too: Depth-muP (arXiv 2310.02244) for sqrt, CompleteP (arXiv 2505.01618) for linear",
)
README: Final = """# {name}, from scratch

```sh
{commands}
```

TEXT is a file, a folder (texts, or .jsonl with a field "text") or a data set of the hub. `--per-device` is
the number of sequences that a device computes at once; gradients are accumulated to the full batch.
`--resume` continues from the last checkpoint. Change the settings in `training.json`: {tokens} tokens, depth
rule {rule}.

{sources}
"""


@dataclass(frozen=True, kw_only=True)
class InitSettings(Request):
    """Return how an architecture is trained from scratch, and write a folder that does it.

    The folder holds its configuration, ``train.py`` on transformers' ``Trainer``, and ``training.json``:
    tokens, batch, rate. Raises ``ValueError``, in one line, for what makes no sense.
    """

    name: ClassVar[str] = "init"
    writes_no_result = True
    examples = (
        ("zerolm init run --architecture best", "the pick of what `zerolm search --out best` wrote"),
        ("zerolm init known --architecture SmolLM2-135M --train-tokens 20B", "a known decoder, anew"),
    )
    notes = (
        "Learning rate and batch size follow Step Law (arXiv 2503.04715), training tokens Chinchilla's law "
        "as fitted in arXiv 2404.10102. `python DIR/train.py --smoke` tests the folder."
    )
    out: str = argument("path", REQUIRED, "output folder", metavar="DIR")
    architecture: str = setting(
        "path", REQUIRED, "architecture.json or config.json, a folder with one, what search --out wrote (its "
        "pick), a known decoder, or owner/name of the hub", group="What is trained", metavar="MODEL",
    )  # fmt: skip
    tokenizer: str | None = setting(
        "path", None, "folder with a tokenizer.json to copy; default: train one on the text",
        metavar="DIR",
    )  # fmt: skip
    train_tokens: int | None = setting(
        "integer", None, "training tokens; default: the search's, or the compute-optimal number",
        group="How", low=1, high=1 << 60,
    )  # fmt: skip
    length: int = setting("integer", 1024, "tokens per sequence", low=2, high=1 << 20)
    batch_tokens: int | None = setting(
        "integer", None, "tokens per step; default: Step Law", low=2, high=1 << 40
    )
    rate: float | None = setting("number", None, "peak learning rate; default: Step Law", low=0, high=100)
    depth_rule: str = setting(
        "text", "none", "scale residual branches and rates by depth: over its root (sqrt, Depth-muP) or over "
        "it (linear, CompleteP), relative to Step Law's networks of that size",
        choices=tuple(DEPTH_RULES),
    )  # fmt: skip
    seed: int = setting("integer", 0, "seed of weights and data order", low=0, high=2**32 - 1)
    force: bool = setting("flag", False, "replace an earlier folder of `init` that holds no training run")

    def run(self, progress: Progress = silent) -> InitReport:
        from zerolm.io.files import write_json
        from zerolm.io.folders import check_new, new_folder

        check_new(Path(self.out), self.force)
        name, config, architecture, tokens = _architecture_of(self.architecture)
        sizes = _decoder_sizes(config, self.length)
        how = self._how(architecture, self.train_tokens or tokens)
        copied = _tokenizer_files(self.tokenizer, sizes.vocab)
        script = Path(__file__).parent.parent / "training" / "from_scratch.py"
        memory = _train_bytes(config["model_type"], architecture, sizes.vocab, self.length)
        report = InitReport(self.out, name, len(copied) > 0, memory, how)
        texts = {SCRIPT: script.read_text("utf-8"), "README.md": report.readme(), **copied}
        with new_folder(Path(self.out), self.force) as folder:
            for file, text in texts.items():
                (folder / file).write_text(text, encoding="utf-8")
            write_json(folder / "config.json", config)
            files = ["training.json", "config.json", *texts]
            write_json(folder / "training.json", {"format": FORMAT, "files": files, **how})
        return report

    def _how(self, architecture: Architecture, tokens: int | None) -> dict[str, Any]:
        """Return the content of training.json; ``ValueError`` where batch, sequence and tokens contradict."""
        from zerolm.costs import CostModel
        from zerolm.pretraining import chinchilla_tokens, step_law, step_law_depth

        costs = CostModel(context=self.length).of(architecture)
        tokens = tokens or chinchilla_tokens(costs["macs"])
        law = step_law(costs["body_params"], tokens)
        batch = self.batch_tokens or max(self.length, law.batch // self.length * self.length)
        if self.length > batch:
            raise ValueError(f"batch_tokens {batch:,} are fewer than the {self.length:,} of one sequence")
        if batch > tokens:
            raise ValueError(
                f"a step of {batch:,} tokens is more than train_tokens {tokens:,}; give less batch_tokens, "
                "or more train_tokens"
            )
        return {
            "params": costs["params"],
            "body_params": costs["body_params"],
            "macs": costs["macs"],
            "tokens": tokens,
            "length": self.length,
            "batch_tokens": batch,
            "rate": self.rate or law.rate,
            "last_rate": LAST_RATE,
            "warmup_steps": WARMUP,
            "weight_decay": DECAY,
            "depth_rule": self.depth_rule,
            "depth": architecture.depth,
            "base_depth": step_law_depth(costs["body_params"]),
            "seed": self.seed,
        }


Reading = tuple[str, dict[str, Any], "Architecture", int | None]
"""A name, a configuration, its architecture, and the training tokens given to its search, if any."""


def _architecture_of(name: str) -> Reading:
    """Return the name of an architecture, its stock configuration, and the tokens of its search."""
    from zerolm.checkpoints.named_model import PICK, named_model
    from zerolm.spaces.decoders import Decoder
    from zerolm.spaces.document import from_document
    from zerolm.verbs.search_report import searched

    folder, tokens = Path(name), None
    if (folder / PICK).is_dir() and (folder / "result.json").is_file():
        plan = searched(folder).question.training
        tokens = plan.tokens if plan else None
    called, document = named_model(name)
    document = document.document if isinstance(document, Decoder) else document
    architecture = from_document(document)
    config = document if "model_type" in document else _stock_config(document, architecture)
    return called, dict(config), architecture, tokens


def _stock_config(document: Mapping[str, Any], architecture: Architecture) -> Mapping[str, Any]:
    """Return the configuration of an architecture of a space; ``ValueError`` where it has none."""
    from zerolm.spaces import make_space

    space = make_space(architecture.space, **(document.get("settings") or {}))
    config = space.config(architecture)
    if config is None:
        raise ValueError(f"this architecture of {space.name} cannot be trained so: {space.unstocked()}")
    return config


def _decoder_sizes(config: Mapping[str, Any], length: int) -> ModelSizes:
    """Return the sizes of a decoder; ``ValueError`` for another model, or one of shorter sequences."""
    from zerolm.families.config import sizes_of
    from zerolm.families.known import family_of

    family = family_of(config)
    if family.task != "next":
        raise ValueError(f"{family.name} does not predict the next token; init trains decoders")
    sizes = sizes_of(family, config)
    most = sizes.sizes.get("positions", length)
    if length > most:
        raise ValueError(
            f"{called('length')} {length:,} is more than the {most:,} positions of the configuration"
        )
    return sizes


def _train_bytes(kind: str, architecture: Architecture, vocab: int, length: int) -> int | None:
    """Return bytes of training on one device with eight sequences at once; None where they are not known."""
    from zerolm.cost_columns import TRAINING
    from zerolm.pretraining import HELD, TrainedCosts

    if kind not in HELD:
        return None
    costs = TrainedCosts(context=length, sequences=SEQUENCES, vocab=vocab, held=HELD[kind])
    return costs.of(architecture)[TRAINING]


def _tokenizer_files(folder: str | None, vocab: int) -> dict[str, str]:
    """Return the files of a tokenizer by name; ``ValueError`` where its ids are more than the network's."""
    from zerolm.io.files import parse_json, read_text

    if folder is None:
        return {}
    place = Path(folder)
    if not (place / TOKENIZER_FILES[0]).is_file():
        raise ValueError(f"there is no {TOKENIZER_FILES[0]} in {folder!r}")
    try:
        texts = {
            name: read_text(place / name, TOKENIZER_BYTES)
            for name in TOKENIZER_FILES
            if (place / name).is_file()
        }
        model = parse_json(texts[TOKENIZER_FILES[0]])["model"]
        size = len(model["vocab"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"the tokenizer in {folder!r} cannot be read: {error}") from None
    if size > vocab:
        raise ValueError(f"the tokenizer in {folder!r} has {size:,} ids, the network {vocab:,}")
    return texts


@dataclass(frozen=True, repr=False, eq=False)
class InitReport(Shown):
    """How an architecture is trained from scratch, and the folder that does it.

    ``rate`` is the highest, ``last_rate`` the one at the end; ``base_depth`` the depth at which a
    ``depth_rule`` changes nothing. ``train_bytes`` are those of one device with eight sequences at once, None
    where they are not known.
    """

    folder: str
    architecture: str
    has_tokenizer: bool
    train_bytes: int | None
    how: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        first = {"folder": self.folder, "architecture": self.architecture, "train_bytes": self.train_bytes}
        return {**first, "has_tokenizer": self.has_tokenizer, **self.how}

    def rows(self) -> list[dict[str, Any]]:
        return [self.to_json()]

    @property
    def written(self) -> list[str]:
        return [SCRIPT, "training.json", "config.json", "README.md", *(["tokenizer"] * self.has_tokenizer)]

    @property
    def remarks(self) -> list[str]:
        from zerolm.pretraining import STEP_LAW_PARAMS, STEP_LAW_TOKENS

        warnings, source = [], "which Step Law's rate and batch come from"
        for cost, (low, high) in (("body_params", STEP_LAW_PARAMS), ("tokens", STEP_LAW_TOKENS)):
            if not low <= self.how[cost] <= high:
                span = f"{show_amount(low)} to {show_amount(high)}"
                count = f"{show_amount(self.how[cost])} {cost.replace('_params', ' parameters')}"
                warnings.append(f"warning: {count} are beyond {span}, {source}")
        return warnings

    def lines(self) -> list[str]:
        from zerolm.pretraining import train_flops

        how = self.how
        steps = -(-how["tokens"] // how["batch_tokens"])
        memory = [] if self.train_bytes is None else [
            f"memory: {show_amount(self.train_bytes, True)} on one device with {SEQUENCES} sequences of "
            f"{how['length']:,} at once"
        ]  # fmt: skip
        return [
            f"{self.folder}: {self.architecture}, {show_amount(how['params'])} parameters",
            f"training: {show_amount(how['tokens'])} tokens in {steps:,} steps of {how['batch_tokens']:,}, "
            f"rate {how['rate']:.3g}, {train_flops(how['macs'], how['tokens']):.3g} operations",
            *memory,
            *(f"{after}: {command}" for after, command in self._commands(self.folder)),
        ]

    def _commands(self, folder: str) -> list[tuple[str, str]]:
        script = str(Path(folder) / SCRIPT)
        trained = "" if self.has_tokenizer else ", a tokenizer of the text first"
        return [
            ("try it", f"python {script} --smoke"),
            (f"train it{trained}", f"python {script} --text TEXT"),
            ("on several devices", f"accelerate launch {script} --text TEXT"),
        ]

    def readme(self) -> str:
        commands = "\n".join(f"{command}  # {after}" for after, command in self._commands("."))
        how = self.how
        return README.format(
            name=self.architecture,
            commands=commands,
            tokens=show_amount(how["tokens"]),
            rule=how["depth_rule"],
            sources="\n".join(f"- {line}" for line in SOURCES),
        )
