"""Train a toy Llama on the source of Python's own library: parent/, text.txt and unseen.txt."""

import sysconfig
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SIZES = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 192}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
STEPS, BATCH, LENGTH, UNSEEN = 400, 16, 64, 60_000

library = Path(sysconfig.get_path("stdlib"))
source = "\n".join(file.read_text("utf-8") for file in sorted(library.glob("[a-d]*.py")))
seen, unseen = source[:-UNSEEN], source[-UNSEEN:]
Path("text.txt").write_text(seen[:150_000], encoding="utf-8")
Path("unseen.txt").write_text(unseen, encoding="utf-8")

bpe = ByteLevelBPETokenizer()
bpe.train_from_iterator([seen], vocab_size=SIZES["vocab_size"], show_progress=False)
tokens = torch.tensor(bpe.encode(seen).ids)

torch.manual_seed(0)
torch.set_num_threads(1)  # products this small take longer when threads wait for each other
model = LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS))
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=STEPS)
for _ in range(STEPS):
    starts = torch.randint(len(tokens) - LENGTH, (BATCH,))
    batch = torch.stack([tokens[start : start + LENGTH] for start in starts])
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()

model.save_pretrained("parent")
PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer).save_pretrained("parent")
print(f"parent: {model.num_parameters():,} parameters, loss {loss:.2f}")
