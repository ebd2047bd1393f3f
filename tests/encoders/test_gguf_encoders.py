"""Encoders as GGUF: llama.cpp sends the embeddings that the folder says, or the folder is refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from bert_tokenizers import bert_tokenizer
from sentence_folders import LINES, sentence_folder
from transformers import BertConfig, BertModel

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_files import written

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, Methods
from zerolm.checkpoints import Checkpoint
from zerolm.children.gguf.check import OF_THE_FILE, check, embedding_of, is_encoder, open_encoder, states_of
from zerolm.children.gguf.tokenizer import opened
from zerolm.children.gguf.write import expressible
from zerolm.diagnosis import opening
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.same_size import READ_BACK
from zerolm.networks.opener import open_model
from zerolm.networks.pooling import TokenPooling
from zerolm.passes.outputs import embeddings
from zerolm.planning.size_request import SizeRequest, VocabularyRequest
from zerolm.units.kept_units import Cut, dimensions


def encoder(folder: Path, mode: str | Sequence[str] = "mean", kinds: Sequence[str] = ()) -> Checkpoint:
    checkpoint = Checkpoint.open(sentence_folder(folder, mode=mode, kinds=kinds))
    bert_tokenizer(LINES, 64).save_pretrained(checkpoint.folder)
    torch.manual_seed(0)
    model = BertModel(BertConfig.from_pretrained(checkpoint.folder))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)  # tokens that are not all alike
    model.save_pretrained(checkpoint.folder)
    return Checkpoint.open(folder)


def test_a_file_of_fewer_tokens_is_judged_as_its_folder(tmp_path: Path) -> None:
    parent, text = encoder(tmp_path / "parent", "mean", ["Normalize"]).root, tmp_path / "text.txt"
    text.write_text("\n".join(LINES[:6]), "utf-8")
    size = SizeRequest.of({"ffn": 0.5}, vocabulary=VocabularyRequest("used", None))
    methods, judged = Methods(text=str(text), sequences=4, length=16), []
    for form in ("hf", "gguf"):
        carve(parent, size, methods, Destination(tmp_path / form, form))
        judged.append(evaluate(tmp_path / form, parent, text, length=16))
    folder, file = (each.networks[0].values for each in judged)
    assert folder["distance"] > 1e-4
    assert file == pytest.approx(folder, abs=1e-5)
    assert judged[1].note.startswith(f"{judged[0].note.partition(';')[0]}; {READ_BACK}")


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken"])
def test_embeddings_of_sentences_are_those_of_the_folder(mode: str, tmp_path: Path) -> None:
    """Each sentence by itself, as long as it is; a vector of length 1 is left to the reader."""
    checkpoint = encoder(tmp_path / "parent", mode, ["Normalize"])
    file = written(checkpoint.root, tmp_path / "child.gguf")
    assert is_encoder(file)
    model, pooling, tokenizer = open_model(checkpoint), TokenPooling.of(checkpoint), opened(checkpoint)
    reader = open_encoder(file, pooling_type=OF_THE_FILE)
    for line in LINES[:8]:
        ids = [int(token) for token in tokenizer(line)["input_ids"]]
        assert reader.tokenize(line.encode(), special=True) == ids
        theirs = embeddings(model, {"input_ids": torch.tensor([ids])}, pooling)[0]
        ours = torch.nn.functional.normalize(embedding_of(reader, ids), dim=0)
        assert float((ours - theirs).abs().max()) < 1e-3
    reader.close()
    proof = check(file, lambda ids: model(input_ids=ids).last_hidden_state, tokenizer, pooling=pooling)
    assert proof.by == "llama.cpp"
    assert proof.embeddings < 1e-3


def test_another_pooling_is_no_proof(tmp_path: Path) -> None:
    checkpoint = encoder(tmp_path / "parent", "cls")
    file, model = written(checkpoint.root, tmp_path / "child.gguf"), open_model(checkpoint)
    with pytest.raises(ValueError, match="embeddings differ"):
        check(file, lambda ids: model(input_ids=ids).last_hidden_state, None, pooling=TokenPooling())


def test_states_are_those_of_a_text_alone(tmp_path: Path) -> None:
    """No text sees the one before it."""
    reader = open_encoder(written(encoder(tmp_path / "parent").root, tmp_path / "child.gguf"))
    first = states_of(reader, [5, 6, 7])
    states_of(reader, [9, 10, 11, 12])
    assert torch.equal(states_of(reader, [5, 6, 7]), first)
    reader.close()


@pytest.mark.parametrize(
    ("mode", "kinds", "message"),
    [
        ("max", (), "this model has the pooling max"),
        (("mean", "cls"), (), "this model has the pooling cls \\+ mean|this model has the pooling mean \\+"),
        ("mean", ("Dense",), "a Dense behind its pooling"),
    ],
)
def test_poolings_that_no_reader_has(
    mode: str | Sequence[str], kinds: Sequence[str], message: str, tmp_path: Path
) -> None:
    checkpoint = encoder(tmp_path / "parent", mode, kinds)
    with pytest.raises(ValueError, match=message) as refused:
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))
    assert "\n" not in str(refused.value)


def test_the_doctor_opens_it(tmp_path: Path) -> None:
    file = written(encoder(tmp_path / "parent").root, tmp_path / "child.gguf")
    verdict = opening.opened("llama.cpp", file)
    assert verdict.verdict == opening.OPENS, verdict.reasons
