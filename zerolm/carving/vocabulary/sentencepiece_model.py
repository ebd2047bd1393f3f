"""A SentencePiece ``tokenizer.model`` with fewer pieces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

NORMAL: Final = 1
SPECIAL: Final = ("unk_id", "bos_id", "eos_id", "pad_id")


def write_cut(source: Path, target: Path, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Write the model of ``source`` without the normal pieces that are missing in ``after``, in their order.

    Both maps are ids by token, of the parent's tokenizer and of that with fewer tokens. Pieces of any other
    type (unknown, control, bytes, user-defined) are kept. Raises ``ValueError`` where the written pieces
    would be numbered differently relative to the ids than in the source; ``ModuleNotFoundError`` without
    sentencepiece and protobuf.
    """
    proto = opened(source)
    names = [piece.piece for piece in proto.pieces]
    pieces = [piece for piece in proto.pieces if piece.type != NORMAL or piece.piece in after]
    places = {piece.piece: place for place, piece in enumerate(pieces)}
    for place, name in enumerate(names):
        if name in after and name in before and after[name] - places[name] != before[name] - place:
            raise ValueError(f"its piece {name!r:.40} would get another place than its id")
    trainer = proto.trainer_spec
    for name in SPECIAL:
        old = getattr(trainer, name)
        if 0 <= old < len(names):
            setattr(trainer, name, places.get(names[old], -1))
    trainer.vocab_size = len(pieces)
    copies = [type(piece).FromString(piece.SerializeToString()) for piece in pieces]
    del proto.pieces[:]
    proto.pieces.extend(copies)
    target.write_bytes(proto.SerializeToString())


def opened(source: Path) -> Any:
    """Return the parsed message of a model; ``ValueError`` where it is not one."""
    require()
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    proto = messages.ModelProto()
    try:
        proto.ParseFromString(source.read_bytes())
    except Exception as error:  # protobuf's own, which is no ValueError
        raise ValueError(f"{str(source)!r} is no SentencePiece model: {error}") from None
    if not proto.pieces:
        raise ValueError(f"{str(source)!r} is no SentencePiece model: it has no pieces")
    return proto


def require() -> None:
    """Raise ``ModuleNotFoundError`` where the packages for such a model are not installed."""
    try:
        from sentencepiece import sentencepiece_model_pb2  # noqa: F401
    except ImportError:
        raise ModuleNotFoundError(
            "a tokenizer.model is cut with sentencepiece and protobuf: pip install 'zerolm[gguf]'"
        ) from None
