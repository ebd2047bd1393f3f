"""Models of a folder with the head of a task, and their tokenizers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

import zerolm.elastic.model  # noqa: F401 - paths of supernets are models of transformers too
from zerolm.elastic.finetuning.classes import Classification
from zerolm.elastic.finetuning.examples import pad_id
from zerolm.elastic.finetuning.learner import Task
from zerolm.networks.opener import differing_tokens, one_line, stock_tokenizer, stored_model
from zerolm.training.randomness import seeded


def tokenizer_in(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a folder; ``ValueError`` where there is none."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}")
    return stock_tokenizer(folder)


def model_to_train(
    folder: Path, task: Task, tokenizer: PreTrainedTokenizerBase, seed: int
) -> PreTrainedModel:
    """Return the model in a folder with a head for the task, a new one under the seed where it has none.

    ``ValueError`` where other weights are missing, or its head is of another task.
    """
    config = {**task.config, "pad_token_id": pad_id(tokenizer)}
    with one_line(f"the model in {str(folder)!r}"), seeded(seed):
        model, report = stored_model(folder, task.maker, **config)
    base = f"{model.base_model_prefix}."
    if any(str(name).startswith(base) and "pooler" not in str(name) for name in report["missing_keys"]):
        _fill(model, folder)  # stock classes of one family do not all name their body alike
    known = int(model.config.vocab_size)
    if len(tokenizer) > known:
        raise ValueError(
            f"the tokenizer in {str(folder)!r} has {len(tokenizer)} tokens, the model knows {known}"
        )
    return model


def _fill(model: PreTrainedModel, folder: Path) -> None:
    """Give a model's body the weights of the body in a folder; ``ValueError`` where some are missing."""
    with one_line(f"the model in {str(folder)!r}"):
        body, report = stored_model(folder, AutoModel)
    lacking = [str(name) for name in report["missing_keys"] if "pooler" not in str(name)]
    left = model.base_model.load_state_dict(body.state_dict(), strict=False).missing_keys
    lacking += [name for name in left if "pooler" not in name]
    if lacking:
        raise ValueError(f"{str(folder)!r} lacks {min(lacking)!r}")


def teacher_of(folder: Path, task: Task, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a teacher that was fine-tuned for the same task; ``ValueError`` for any other."""
    differing = differing_tokens(tokenizer, tokenizer_in(folder))
    if differing:
        raise ValueError(
            f"the teacher {str(folder)!r} has another vocabulary: {len(differing)} tokens differ, "
            f"{min(differing)!r} among them"
        )
    with one_line(f"the teacher in {str(folder)!r}"):
        model, report = stored_model(folder, task.maker)
    if any("pooler" not in str(name) for name in report["missing_keys"]):
        raise ValueError(
            f"the teacher {str(folder)!r} was not fine-tuned for this task: it has no head for it"
        )
    if isinstance(task, Classification):
        labels: dict[Any, str] = dict(model.config.id2label or {})
        names = tuple(labels[number] for number in sorted(labels))
        if names != task.names:
            raise ValueError(
                f"the teacher {str(folder)!r} knows the classes {', '.join(map(str, names))}, "
                f"not {', '.join(task.names)}"
            )
    return model


def digest(folder: Path) -> str:
    """Return the SHA-256 of the configuration and the weights in a folder."""
    total = hashlib.sha256()
    for file in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()
