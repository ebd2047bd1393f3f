"""A child, the parent that it was carved from, and the teacher that it learns from."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from zerolm.carving.recipe import Recipe, read_recipe
from zerolm.carving.vocabulary.fewer_tokens import with_tokens
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import fingerprint
from zerolm.evaluation.comparable import check_same_tokens, opened
from zerolm.networks.opener import differing_tokens, stock_tokenizer
from zerolm.progress import Progress


@dataclass(frozen=True, eq=False)
class Patient:
    """A child that was carved from a parent, with its recipe, and the teacher."""

    child: Checkpoint
    parent: Checkpoint
    teacher: Checkpoint
    recipe: Recipe

    @classmethod
    def of(
        cls,
        child: str | Path,
        parent: str | Path,
        teacher: str | Path | None,
        stack: ExitStack,
        progress: Progress,
    ) -> Patient:
        """Open all three; ``ValueError`` says in what they do not belong together.

        The parent of a child with fewer tokens has the same: it reads what the child reads, and predicts none
        but what the child has. Its files are then in a folder that goes with the ``stack``.
        """
        if gguf_file(child) is not None:
            raise ValueError(
                f"{str(child)!r} is GGUF, which is not trained: carve without --format gguf, and heal that "
                "child with --format gguf"
            )
        child_checkpoint, parent_checkpoint = opened(child, parent, same_tokens=False)
        file = child_checkpoint.root / "recipe.json"
        if not file.is_file():
            raise ValueError(
                f"{str(child_checkpoint.root)!r} has no recipe.json, so it is not known to be carved from "
                f"{str(parent_checkpoint.root)!r}"
            )
        recipe = read_recipe(file, parent_checkpoint, fingerprint(parent_checkpoint, progress=progress))
        if recipe.kept is not None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="zerolm-tokens-")))
            parent_checkpoint = with_tokens(parent_checkpoint, recipe.kept, folder, progress=progress)
        check_same_tokens(child_checkpoint, parent_checkpoint)
        master = parent_checkpoint
        if teacher is not None:
            master = Checkpoint.open(teacher)
            ledger_of(master, progress=progress)  # refuses weights that are not finite
            check_same_tokens(child_checkpoint, master)
            _check_same_tokens(child_checkpoint, master)
        return cls(child_checkpoint, parent_checkpoint, master, recipe)

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Return pairs of hidden states, the child's and the teacher's: behind each layer and its origin.

        Of a teacher of another depth it is the layer at the same height; the last goes with the last.
        """
        origins = [layer.layer + 1 for layer in self.recipe.cut.layers]
        depth, other = self.parent.layout.depth, self.teacher.layout.depth
        heights = [max(1, round(origin * other / depth)) for origin in origins]
        return tuple(enumerate([*heights[:-1], other], 1))


def _check_same_tokens(child: Checkpoint, teacher: Checkpoint) -> None:
    """Refuse a teacher whose tokens mean something else."""
    differing = differing_tokens(stock_tokenizer(child.folder), stock_tokenizer(teacher.folder))
    if differing:
        raise ValueError(
            f"the teacher {str(teacher.folder)!r} has another vocabulary: {len(differing)} tokens differ, "
            f"{min(differing)!r} among them"
        )
