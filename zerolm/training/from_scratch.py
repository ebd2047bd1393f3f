"""Train the network of this folder from scratch: ``python train.py --text TEXT``.

``training.json`` says how: tokens, batch, rate, and how weights and rates go by the depth. ``--smoke`` takes
20 small steps on whatever this machine has, on random tokens where no text is named.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.utils.data import IterableDataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    get_cosine_with_min_lr_schedule_with_warmup,
)

HERE = Path(__file__).resolve().parent
END = "<|end|>"
OUTPUTS = ("o_proj.weight", "down_proj.weight", "attn.c_proj.weight", "mlp.c_proj.weight")
"""Matrices that write into the stream: the last of each residual branch."""
BRANCHES = {"none": None, "sqrt": 0.5, "linear": 1.0}
"""By how large a power of the depth residual branches are divided."""
TEXTS_OF_TOKENIZER = 100_000
SHUFFLED = 2_000
"""Windows that are held and sampled from, so that neighbours in the text are not neighbours in a batch."""


def documents(source: str) -> Iterator[str]:
    """Yield texts: of a file or folder (.jsonl has them under "text"), or of a data set of the hub.

    A longer file than a million characters counts as several.
    """
    place = Path(source)
    if not place.exists():
        from datasets import load_dataset

        yield from (row["text"] for row in load_dataset(source, split="train", streaming=True))
        return
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    for file in files:
        with file.open(encoding="utf-8") as lines:
            if file.suffix == ".jsonl":
                yield from (json.loads(line)["text"] for line in lines if line.strip())
            else:
                yield from iter(lambda: lines.read(1 << 20), "")


def tokenizer_of(vocab: int, source: str | None) -> Any:
    """Return the tokenizer of this folder; where there is none, one that is trained on the text and kept."""
    if (HERE / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(HERE)
    if source is None:
        raise SystemExit("there is no tokenizer.json here: give --text, and one is trained on it")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet)
    texts = (text for _, text in zip(range(TEXTS_OF_TOKENIZER), documents(source), strict=False))
    tokenizer.train_from_iterator(texts, trainer)
    ends = {"bos_token": END, "eos_token": END, "pad_token": END}
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)  # type: ignore[no-untyped-call]
    fast.save_pretrained(HERE)
    return fast


class Windows(IterableDataset):  # type: ignore[type-arg]
    """Windows of ``length`` tokens of the texts, one after another, in rounds without end."""

    def __init__(self, source: str | None, tokenizer: Any, length: int, vocab: int, seed: int) -> None:
        self.source, self.tokenizer, self.length = source, tokenizer, length
        self.vocab, self.seed = vocab, seed

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        draw, held = random.Random(self.seed), list[list[int]]()
        for window in self._in_order(draw):
            if len(held) < SHUFFLED:
                held.append(window)
                if self.source is not None:
                    continue
            place = draw.randrange(len(held))
            chosen, held[place] = held[place], window
            yield {"input_ids": chosen, "labels": chosen}

    def _in_order(self, draw: random.Random) -> Iterator[list[int]]:
        if self.source is None:
            while True:
                yield draw.choices(range(self.vocab), k=self.length)
        ids, windows = list[int](), 0
        while True:
            for text in documents(self.source):
                ids += self.tokenizer(text, add_special_tokens=False)["input_ids"]
                ids.append(self.tokenizer.eos_token_id)
                for start in range(0, len(ids) - self.length + 1, self.length):
                    windows += 1
                    yield ids[start : start + self.length]
                ids = ids[len(ids) - len(ids) % self.length :]
            if not windows:
                raise SystemExit(f"{self.source} has fewer than the {self.length} tokens of one sequence")


def groups_of(model: nn.Module, how: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters with their rates and decay; what writes into the stream is drawn smaller.

    Without a rule of depth by 1 / sqrt(2 L), as GPT-2 does. With one, a branch that is divided by
    (L / base)^a is the same as one whose last matrix is, and that learns at a rate divided by as much, for
    Adam does not see the scale.
    """
    exponent, ratio = BRANCHES[how["depth_rule"]], how["depth"] / how["base_depth"]
    inside = 1.0 if exponent is None else ratio ** (exponent - 1)
    scale = (2 * how["depth"]) ** -0.5 if exponent is None else ratio**-exponent
    slower = 1.0 if exponent is None else scale
    sorted_: dict[tuple[float, float], list[nn.Parameter]] = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            rate = inside if ".layers." in name or ".h." in name else 1.0
            decay = how["weight_decay"] if parameter.ndim > 1 else 0.0
            if name.endswith(OUTPUTS):
                parameter.mul_(scale)
                rate, decay = rate * slower, decay / slower
            sorted_.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": how["rate"] * rate, "weight_decay": decay}
        for (rate, decay), parameters in sorted_.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--text", help="a file, a folder, or a data set of the hub (streamed)")
    parser.add_argument("--out", default=str(HERE / "run"), help="checkpoints, and the model at the end")
    parser.add_argument("--per-device", type=int, default=8, help="sequences at once on a device")
    parser.add_argument("--smoke", action="store_true", help="20 steps of one short sequence")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    options = parser.parse_args()
    how = json.loads((HERE / "training.json").read_text(encoding="utf-8"))
    if options.text is None and not options.smoke:
        parser.error("give --text; --smoke alone runs on random tokens")
    config = AutoConfig.from_pretrained(HERE)
    random_tokens = options.text is None
    tokenizer = None if random_tokens else tokenizer_of(config.vocab_size, options.text)
    if tokenizer is not None and len(tokenizer) > config.vocab_size:
        parser.error(f"the tokenizer has {len(tokenizer)} ids, the network {config.vocab_size}")
    length = min(64, how["length"]) if options.smoke else how["length"]
    torch.manual_seed(how["seed"])
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    accelerated = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    arguments = TrainingArguments(
        output_dir=options.out,
        max_steps=1,
        per_device_train_batch_size=1 if options.smoke else options.per_device,
        learning_rate=how["rate"],
        max_grad_norm=1.0,
        use_cpu=not torch.accelerator.is_available(),
        bf16=accelerated,
        dataloader_pin_memory=accelerated,
        logging_steps=5 if options.smoke else 50,
        save_strategy="no" if options.smoke else "steps",
        save_steps=1000,
        save_total_limit=3,
        report_to="none",
        seed=how["seed"],
    )
    device = arguments.device  # which joins the other processes, too
    at_once = arguments.world_size * arguments.per_device_train_batch_size * length
    arguments.gradient_accumulation_steps = (
        1 if options.smoke else max(1, round(how["batch_tokens"] / at_once))
    )
    step = at_once * arguments.gradient_accumulation_steps
    arguments.max_steps = 20 if options.smoke else max(1, round(how["tokens"] / step))
    groups = groups_of(model, how)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    warmup = min(how["warmup_steps"], arguments.max_steps // 10)
    floor = min(1.0, how["last_rate"] / how["rate"])
    scheduler = get_cosine_with_min_lr_schedule_with_warmup(
        optimizer, warmup, arguments.max_steps, min_lr_rate=floor
    )
    if arguments.process_index == 0:
        print(
            f"{model.num_parameters():,} parameters, {arguments.max_steps:,} steps of {step:,} tokens, "
            f"rate {how['rate']:.3g}, on {arguments.world_size} x {device.type}"
        )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Windows(options.text, tokenizer, length, config.vocab_size, how["seed"]),
        optimizers=(optimizer, scheduler),
    )
    trainer.train(resume_from_checkpoint=options.resume or None)
    if not options.smoke:
        trainer.save_model(options.out)
        if tokenizer is not None and arguments.process_index == 0:
            tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
