"""The settings of a sentence-transformers folder that change its embeddings, or how they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from zerolm.checkpoints.folder import inside, read_object
from zerolm.settings import shown

SETTINGS_FILE: Final = "config_sentence_transformers.json"
MODEL_TYPE: Final = "SentenceTransformer"
COSINE: Final = "cosine"
SIMILARITIES: Final = {
    COSINE: "cosine",
    "dot": "dot product",
    "euclidean": "Euclidean distance",
    "manhattan": "Manhattan distance",
}
"""The similarity functions of embeddings, and their names in a sentence."""
USUAL_PROMPTS: Final = ("query", "document")
"""Prompts that every folder has, empty where it does not define them."""


@dataclass(frozen=True)
class SentenceSettings:
    """Steps of ``encode`` before and behind the modules.

    It puts the ``prompt`` before each text, and cuts each embedding behind the last module to its first
    ``dimensions`` (None: all); nothing is normalised again. ``similarity`` is a key of ``SIMILARITIES``.
    """

    dimensions: int | None = None
    prompt: str = ""
    similarity: str = COSINE

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the settings of a folder; ``ValueError`` for those that sentence-transformers refuses."""
        if not inside(folder, SETTINGS_FILE):
            return cls()
        document = read_object(folder, SETTINGS_FILE)
        kind = document.get("model_type", MODEL_TYPE)
        if kind != MODEL_TYPE:
            raise ValueError(f"{SETTINGS_FILE} has model_type {shown(kind)}; {MODEL_TYPE} can be")
        dimensions = document.get("truncate_dim")
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise ValueError(
                f"{SETTINGS_FILE} has truncate_dim {shown(dimensions)}; 1 or more dimensions can be"
            )
        similarity = document.get("similarity_fn_name")
        if not isinstance(similarity, str) or similarity not in SIMILARITIES:
            similarity = COSINE  # so does the package
        return cls(dimensions, _prompt(document), similarity)

    @property
    def notes(self) -> tuple[str, ...]:
        """The settings that are not the usual ones, in words; empty where all are."""
        notes = {
            f"embeddings are cut to {self.dimensions} dimensions (truncate_dim)": self.dimensions is not None,
            f"each text begins with the prompt {shown(self.prompt)} (default_prompt_name)": self.prompt,
            f"embeddings are compared by {SIMILARITIES[self.similarity]} (similarity_fn_name)": (
                self.similarity != COSINE
            ),
        }
        return tuple(text for text, holds in notes.items() if holds)


def _prompt(document: dict[str, Any]) -> str:
    prompts, name = document.get("prompts", {}), document.get("default_prompt_name")
    texts = prompts.values() if isinstance(prompts, dict) else [prompts]
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in texts):
        raise ValueError(f"{SETTINGS_FILE} has prompts {shown(prompts)}; texts by their names can be")
    named: dict[Any, str | None] = dict.fromkeys(USUAL_PROMPTS) | prompts
    if name is not None and name not in named:
        raise ValueError(f"{SETTINGS_FILE} has default_prompt_name {shown(name)}; {', '.join(named)} can be")
    return named.get(name) or ""
