"""The formats of a written child, and its files: weights, configuration, tokenizer, card and recipe."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.checkpoints.folder import read_object
from zerolm.children.card import SENTENCES, card
from zerolm.children.child_tensors import Child
from zerolm.children.folder import REMOTE, check_sizes, configuration, lists_by_layer, tensors, without_code
from zerolm.children.read_again import ReadAgain
from zerolm.io.files import sha256_of, write_json
from zerolm.progress import Progress, silent
from zerolm.registry import Entry, Registry
from zerolm.units.kept_units import Cut

if TYPE_CHECKING:
    from zerolm.carving.bits.typed_child import TypedChild
    from zerolm.carving.session import Session
    from zerolm.children.gguf.file_tensors import Typed
    from zerolm.children.trained import TrainedWeights
    from zerolm.children.verify import Verified
    from zerolm.networks.blocks import Blocks
    from zerolm.units.pruning import Repaired

LICENCE_FILES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "USE_POLICY")


@dataclass(frozen=True)
class WrittenWeights:
    """The model type of written weights, the ``config`` that goes with them, None if the file has it.

    ``digests`` are the SHA-256 of files that were already read again.
    """

    kind: str
    config: dict[str, Any] | None = None
    digests: Mapping[Path, str] = field(default_factory=dict)


class StockFolder:
    """The folder of a stock class, whose layers all have the same sizes (``pads``: with zeros)."""

    has_tokenizer = False

    def __init__(self, *, pads: bool) -> None:
        self.pads = pads

    def check_tokenizer(self, checkpoint: Checkpoint) -> None:
        """Accept any tokenizer: its files are copied unchanged."""

    def check_uneven(self, checkpoint: Checkpoint) -> None:
        """Raise ``ValueError`` where all layers must have one size."""
        if not self.pads:
            gguf = checkpoint.family.gguf
            other = "--format gguf, " if gguf and not gguf.alike else ""
            raise ValueError(
                f"the stock class has one size for all layers: give --shape uniform, {other}or --format "
                "padded, as large as its largest layer"
            )

    def check(self, checkpoint: Checkpoint, cut: Cut) -> None:
        """Raise ``ValueError`` for a cut that the format cannot express."""
        if not cut.uniform:
            self.check_uneven(checkpoint)
        check_sizes(checkpoint, cut)
        configuration(checkpoint, cut)  # rejects what it cannot express

    def write(
        self, child: Child, folder: Path, progress: Progress, typed: Typed | None = None
    ) -> WrittenWeights:
        """Write the weights into a folder; ``typed`` has the types of the matrices."""
        config, at = configuration(child.parent, child.cut), child.parent.family.config.at
        lists = lists_by_layer(child.parent, child.cut)
        config |= lists if at is None else {at: config[at] | lists}
        with ReadAgain() as again:
            written = None if child.maps else again.written  # products might round differently a second time
            write_shards(folder, tensors(child), progress=progress, written=written)
            progress("comparing the child with its parent")
            return WrittenWeights(str(config["model_type"]), config, again.digests())

    def verified(
        self, session: Session, cut: Cut, repaired: Repaired, folder: Path, typed: TypedChild | None = None
    ) -> Verified:
        """Open the written child; ``ValueError`` where it differs from the carved parent."""
        from zerolm.children import encoded, verify
        from zerolm.networks.opener import open_model
        from zerolm.text.calibration import page_tokens
        from zerolm.units.pruning import CarvedNetwork

        parent = session.checkpoint
        child, proof = Checkpoint.open(folder, packed=bool(parent.packed)), None
        if not cut.keeps_all:  # else all bytes were compared as they were written
            proof = verify.compare_blocks(child, parent, cut, repaired)
        stored = verify.as_stored(child, cut, repaired)
        ids = page_tokens(parent)
        if parent.packed or not verify.fits(parent, session.compute.limit):
            carved = session.output_of(partial(CarvedNetwork, cut=cut, repaired=stored))
            by_outputs = verify.compare_outputs(child, carved, ids)
            return by_outputs if proof is None else replace(proof, by="blocks")
        reference = session.carved(cut, stored)
        model = open_model(child)
        if cut.narrowing is None:
            return encoded.with_encoded(verify.compare(model, reference, ids), child, reference)
        return verify.compare(model, verify.rounded(reference, child), ids, tolerance=verify.ROUNDED)

    def verified_trained(
        self, source: Checkpoint, cut: Cut, weights: TrainedWeights, folder: Path
    ) -> Verified:
        """Open a written child with trained weights; ``ValueError`` where it differs from their network."""
        from zerolm.children.encoded import with_encoded
        from zerolm.children.trained import check_written
        from zerolm.children.verify import compare, rounded
        from zerolm.networks.opener import open_model
        from zerolm.text.calibration import page_tokens

        child = Checkpoint.open(folder)
        check_written(child, source, cut, weights)
        reference = rounded(copy.deepcopy(weights.model).train(False), child)
        proof = compare(open_model(child), reference, page_tokens(child))
        return with_encoded(proof, child, reference)


class GgufFile:
    """One file of llama.cpp, whose layers may have different sizes; of llamas and similar, or of encoders.

    Its methods are those of ``StockFolder``. It contains the tokenizer, whose files are not copied.
    """

    pads, has_tokenizer = False, True

    def check_tokenizer(self, checkpoint: Checkpoint) -> None:
        from zerolm.children.gguf.tokenizer import proven

        if checkpoint.family.gguf is not None:  # else no tokenizer would help
            proven(checkpoint)

    def check_uneven(self, checkpoint: Checkpoint) -> None:
        from zerolm.children.gguf import write

        write.check_uneven(checkpoint.family)

    def check(self, checkpoint: Checkpoint, cut: Cut) -> None:
        from zerolm.children.gguf import write

        write.expressible(checkpoint, cut)

    def write(
        self, child: Child, folder: Path, progress: Progress, typed: Typed | None = None
    ) -> WrittenWeights:
        from zerolm.checkpoints.origin import origin_of
        from zerolm.children.gguf.write import write

        name = origin_of(child.parent.whole.root).name.rpartition("/")[2]
        write(child, folder / f"{name}-carved.gguf", typed, progress=progress)
        gguf = child.parent.family.gguf
        return WrittenWeights(gguf.architecture if gguf else "")

    def verified(
        self, session: Session, cut: Cut, repaired: Repaired, folder: Path, typed: TypedChild | None = None
    ) -> Verified:
        from zerolm.children.gguf.check import check
        from zerolm.children.gguf.tokenizer import opened
        from zerolm.units.pruning import CarvedNetwork

        file, tokenizer = next(folder.glob("*.gguf")), opened(session.checkpoint)
        network: Callable[[Blocks], CarvedNetwork] = partial(CarvedNetwork, cut=cut, repaired=repaired)
        if typed is not None:
            from zerolm.carving.bits.typed_child import ReadBack, WrittenChild

            written = WrittenChild(typed.weighed, typed.types, file)
            written.check()
            network = partial(ReadBack, typed=written, repaired=repaired)
        return check(file, session.output_of(network), tokenizer, pooling=session.pooling)

    def verified_trained(
        self, source: Checkpoint, cut: Cut, weights: TrainedWeights, folder: Path
    ) -> Verified:
        from zerolm.children.gguf.check import check
        from zerolm.children.gguf.tokenizer import opened
        from zerolm.children.verify import outputs
        from zerolm.networks.pooling import TokenPooling

        model, file = weights.model.train(False), next(folder.glob("*.gguf"))
        pooling = TokenPooling.of(source)
        return check(file, lambda ids: outputs(model(input_ids=ids)), opened(source), pooling=pooling)


Format = StockFolder | GgufFile
FORMATS: Final[Registry[Format]] = Registry("format")
FORMATS.add(Entry("hf", StockFolder(pads=False), "transformers, one size for all layers", ("torch",)))
FORMATS.add(Entry("padded", StockFolder(pads=True), "transformers, smaller layers with zeros", ("torch",)))
FORMATS.add(Entry("gguf", GgufFile(), "llama.cpp, any size of each layer", ("torch", "gguf")))


def write(
    child: Child,
    recipe: Mapping[str, Any],
    folder: Path,
    more: Sequence[str] = (),
    *,
    typed: Typed | None = None,
    progress: Progress = silent,
) -> dict[str, str]:
    """Write all files of a child into an empty folder; return the SHA-256 of its weight files.

    The recipe also lists ``more`` files, which are written later. ``typed`` has the types of its matrices.
    """
    checkpoint, form = child.parent, FORMATS[recipe["written_as"]]
    place = folder if form.has_tokenizer else folder / checkpoint.folder.relative_to(checkpoint.root)
    place.mkdir(exist_ok=True)
    written = form.write(child, place, progress, typed)
    if written.config is not None:
        write_json(place / "config.json", written.config)
    weights = sorted(file for file in place.iterdir() if file.suffix != ".json")
    sha256 = {
        file.relative_to(folder).as_posix(): written.digests.get(file) or sha256_of(file) for file in weights
    }
    for name in checkpoint.other_files():
        is_licence = name.name.upper().startswith(LICENCE_FILES)
        if name.name.lower() != "readme.md" and (is_licence or not form.has_tokenizer):
            _copy(checkpoint.root, name, folder)
    auto = _auto_class(checkpoint) if written.config is not None else weights[0].name
    text = card(recipe, written.kind, auto, checkpoint.family.task)
    describe(folder, text, {**recipe, "sha256": sha256}, more)
    return sha256


def describe(folder: Path, text: str, recipe: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """Write the ``text`` of its card and the recipe of a child; it lists all files, ``more`` among them."""
    (folder / "README.md").write_text(text, encoding="utf-8")
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    write_json(folder / "recipe.json", {**recipe, "files": sorted([*files, "recipe.json", *more])})


def _auto_class(checkpoint: Checkpoint) -> str:
    if checkpoint.sentences:
        return SENTENCES
    return "AutoModelForCausalLM" if checkpoint.family.task == "next" else "AutoModel"


def _copy(source: Path, name: Path, folder: Path) -> None:
    """Copy a file of the parent, without the configuration fields that name its code."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    content = (source / name).read_bytes() if name.suffix == ".json" else b""
    if any(f'"{field}"'.encode() in content for field in REMOTE):
        write_json(place, without_code(read_object(source, str(name))))
    else:
        shutil.copyfile(source / name, place)
