"""Write a stand-in of all-MiniLM-L6 with random weights: encoder/, text.txt, unseen.txt and pairs.csv.

It has the shape and the layout of that model: 6 layers, hidden 384, and the modules of sentence-transformers.
The texts are sentences from the docstrings of Python's own library, one a line.
"""

import ast
import csv
import json
import sysconfig
from pathlib import Path

import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast

SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
VOCABULARY, LONGEST, SEEN, UNSEEN = 30522, 128, 400, 120
MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


def paragraphs(file: Path) -> list[list[str]]:
    """Return the first two paragraphs of each docstring that has as many."""
    tree = ast.parse(file.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    parts = ([" ".join(part.split()) for part in text.split("\n\n")[:2]] for text in texts if text)
    return [part for part in parts if len(part) == 2 and all(20 < len(line) < 200 for line in part)]


library = Path(sysconfig.get_path("stdlib"))
pairs = [pair for file in sorted(library.glob("[a-t]*.py")) for pair in paragraphs(file)]
seen, unseen = pairs[:SEEN], pairs[SEEN : SEEN + UNSEEN]
Path("text.txt").write_text("\n".join(line for pair in seen for line in pair), encoding="utf-8")
Path("unseen.txt").write_text("\n".join(line for pair in unseen for line in pair), encoding="utf-8")
with Path("pairs.csv").open("w", encoding="utf-8", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["sentence1", "sentence2", "score"])
    for place, (first, second) in enumerate(unseen):  # of one docstring, and of two
        rows.writerow([first, second, 1])
        rows.writerow([first, unseen[place - 1][1], 0])

words = BertWordPieceTokenizer(lowercase=True)
words.train_from_iterator((line for pair in seen for line in pair), VOCABULARY, show_progress=False)
torch.manual_seed(0)
config = BertConfig(**SIZES, vocab_size=VOCABULARY, max_position_embeddings=512, initializer_range=0.03)
model = BertModel(config, add_pooling_layer=False)
model.save_pretrained("encoder")
BertTokenizerFast(tokenizer_object=words._tokenizer, model_max_length=512).save_pretrained("encoder")
files = {
    "modules.json": [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(MODULES.items())
    ],
    "sentence_bert_config.json": {"max_seq_length": LONGEST, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {}, "similarity_fn_name": "cosine"},
    "1_Pooling/config.json": {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True},
}
for name, content in files.items():
    place = Path("encoder", name)
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(content, indent=2), encoding="utf-8")
print(f"encoder: {model.num_parameters():,} parameters, {len(seen) * 2} sentences, {len(unseen) * 2} unseen")
