"""The teacher of a supernet or of a path: a model of transformers with the same tokenizer."""

from __future__ import annotations

from pathlib import Path

from zerolm.io.brief import one_line
from zerolm.lab.spaces.elastic import NARROW, Elastic
from zerolm.lab.supernets.distillation import FeatureDistillation, FeatureTeacher
from zerolm.lab.supernets.learner import Aim
from zerolm.lab.supernets.text import ElasticText
from zerolm.networks.huggingface import HEADS
from zerolm.networks.opener import differing_tokens, stock_tokenizer, stored_model
from zerolm.training.randomness import seeded
from zerolm.training.request import TrainingRequest


def teacher_in(
    folder: Path, text: ElasticText, depth: int, aim: Aim, request: TrainingRequest
) -> FeatureTeacher:
    """Return the teacher in a folder for students of ``depth`` layers.

    It is a stock model, or a path that was handed over. ``ValueError`` where there is none, its tokenizer is
    not the text's, it reads shorter sequences, or its attention is narrower than its hidden states.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r} with a teacher")
    differing = differing_tokens(text.tokenizer, stock_tokenizer(folder))
    if differing:
        raise ValueError(
            f"the teacher {str(folder)!r} has another tokenizer: {len(differing)} tokens differ, "
            f"{min(differing)!r} among them; leave --tokenizer out to take the teacher's"
        )
    with one_line(f"the teacher in {str(folder)!r}"):
        model, report = stored_model(folder, HEADS[text.task])
    lacking = [name for name in map(str, report["missing_keys"]) if "pooler" not in name]
    if lacking:
        raise ValueError(f"the teacher {str(folder)!r} lacks {min(lacking)!r}")
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and request.length > positions:
        raise ValueError(f"the teacher reads {positions} tokens at most, not sequences of {request.length}")
    if any(layer["block"] == "mobile" for layer in getattr(model.config, "layers", None) or ()):
        raise ValueError(
            f"the teacher {str(folder)!r} has blocks mobile, whose attention is narrower than its hidden "
            "states; bert and llama can teach"
        )
    return FeatureTeacher(model, depth, predictions=aim.predictions > 0, bfloat16=request.execution.bfloat16)


def teaching(
    folder: str | None, text: ElasticText, space: Elastic, depth: int, aim: Aim, request: TrainingRequest
) -> tuple[FeatureTeacher | None, FeatureDistillation | None]:
    """Return the teacher in a folder, and the comparison of its features with those of a space's blocks."""
    if folder is None or aim.distillation is None:
        return None, None
    teacher = teacher_in(Path(folder), text, depth, aim, request)
    widths = {block: space.hidden // NARROW if block == "mobile" else space.hidden for block in space.blocks}
    hidden = (space.hidden, int(teacher.model.config.hidden_size))
    with seeded(request.seed):
        return teacher, FeatureDistillation(aim.distillation, hidden, widths)
