"""Published folders and configurations: counted, read in any order, refused where they are wrong."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import transformers
from carvings import carve
from changed_folders import configured, stored
from covering import chosen
from safetensors.torch import load_file, save_file
from tiny_families import TINY, random_model, saved, stock_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.known import described, families
from zerolm.families.values import described as fields_of
from zerolm.testing import stored_numbers

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
ROTATED = [name for name in TINY if any("inv_freq" in each for each in families()[name].tensors.ignored)]
CUT = {"repair": "none", "keep_ffn": 0.5}


def refused(folder: Path, words: str, **cut: Any) -> None:
    """That a folder is not cut, in one line with these words, and that nothing is written."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        carve(folder, folder.parent / "child", **(cut or CUT))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert sorted(folder.parent.rglob("*")) == before


def scattered(folder: Path, shards: int = 3) -> Path:
    """Return the folder with its tensors in several files, in no order, and an index in another."""
    tensors = load_file(folder / FILE)
    names = sorted(tensors, key=lambda name: name[::-1])
    places = {
        name: f"model-0000{1 + n * 7 % shards}-of-0000{shards}.safetensors" for n, name in enumerate(names)
    }
    for file in set(places.values()):
        inside = [name for name in reversed(names) if places[name] == file]
        save_file({name: tensors[name] for name in inside}, folder / file, {"format": "pt"})
    (folder / FILE).unlink()
    order = sorted(places, key=lambda name: (len(name), name[::-1]))
    index = {"metadata": {"total_size": 0}, "weight_map": {name: places[name] for name in order}}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("kind", ["phi3", "deepseek_v3"])
def test_files_in_any_order_are_one_model(kind: str, tmp_path: Path) -> None:
    """The same child, tensor by tensor; it has as many files as its parent."""
    cut: dict[str, Any] = {"repair": "none", "keep_heads": 0.5}
    carve(saved(tmp_path / "one", kind), tmp_path / "of_one", **cut)
    carve(scattered(saved(tmp_path / "many", kind)), tmp_path / "of_many", **cut)
    wanted = load_file(tmp_path / "of_one" / FILE)
    files = sorted((tmp_path / "of_many").glob("*.safetensors"))
    written = {name: x for file in files for name, x in load_file(file).items()}
    assert written.keys() == wanted.keys()
    assert all(torch.equal(written[name], x) for name, x in wanted.items())


@pytest.mark.parametrize("kind", chosen(ROTATED))
def test_buffers_of_rotations_are_left_out(kind: str, tmp_path: Path) -> None:
    """Older files have them, in each layer or once; stock classes make them anew."""
    parent = saved(tmp_path / "parent", kind)
    opened = Checkpoint.open(parent)
    first = opened.family.tensors.body[0].name
    prefix = next(name for name in opened.tensors if name.endswith(first)).removesuffix(first)
    names = [f"{prefix}layers.{n}.self_attn.rotary_emb.inv_freq" for n in range(2)]
    names += [f"{prefix}rotary_emb.inv_freq"] if prefix else []
    stored(parent, lambda tensors: tensors.update({name: torch.ones(4) for name in names}))
    assert Checkpoint.open(parent).layout.slots.keys() == opened.layout.slots.keys()
    if kind == "llama":
        carve(parent, tmp_path / "child", repair="none", keep_ffn=0.5)
        assert not set(names) & load_file(tmp_path / "child" / FILE).keys()


def test_names_with_prefixes_of_two_kinds(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    name = "model.layers.1.mlp.up_proj.weight"
    stored(parent, lambda tensors: tensors.update({name[6:]: tensors.pop(name)}))
    words = f"tensor {name!r} is missing, but {name[6:]!r} is there: its names have prefixes of two kinds"
    refused(parent, words)


WITH_KINDS = {
    "qwen3_5_text": {"layer_types": ["full_attention"] * 4}, "deepseek_v3": {"first_k_dense_replace": 4},
    "afmoe": {"num_dense_layers": 0}, "exaone_moe": {"mlp_layer_types": ["sparse"] * 4},
    "qwen2_moe": {"mlp_only_layers": []}, "qwen3_moe": {"mlp_only_layers": [0, 1, 2, 3]},
    "ernie4_5_moe": {"moe_layer_start_index": 0},
}  # fmt: skip
"""Configurations by which some layers are of a kind whose tensors are not there."""


@pytest.mark.parametrize("kind", WITH_KINDS)
def test_a_kind_of_layers_without_its_tensors(kind: str, tmp_path: Path) -> None:
    parent = configured(saved(tmp_path / "parent", kind), **WITH_KINDS[kind])
    refused(parent, "' is missing", repair="none", keep_heads=0.5)


def lists(kind: str) -> Iterator[str]:
    """Yield the fields of a tiny model's configuration that list one value a layer, and are read."""
    config = families()[kind].config
    read = {config.window.types} if config.window else set()
    read |= {choice.field for choice in config.kinds}
    yield from sorted(field for field in read if field)


TOLD_OTHERWISE = ("gemma4_text", "nemotron_h")
"""Families whose list is contradicted by another field first, or says how many layers there are."""
LISTS = [(kind, field) for kind in chosen(TINY) if kind not in TOLD_OTHERWISE for field in lists(kind)]


@pytest.mark.parametrize(("kind", "field"), LISTS, ids=[f"{kind}-{field}" for kind, field in LISTS])
@pytest.mark.parametrize("length", [-1, 1])
def test_a_list_of_layers_of_another_length(kind: str, field: str, length: int, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", kind)
    network = random_model(kind)
    values = list(getattr(network.config, field))
    depth = network.config.num_hidden_layers
    configured(parent, **{field: values[:length] if length < 0 else [*values, values[0]]})
    refused(parent, f"it has {depth} layers and {depth + length} {field}")
    configured(parent, **{field: [*values[1:], "none_of_these"]})
    refused(parent, f"{field} is [")


QUANTIZED: dict[str, Callable[[str, torch.Tensor], dict[str, torch.Tensor]]] = {
    "FP8": lambda stem, w: {
        f"{stem}.weight": w.to(torch.float8_e4m3fn), f"{stem}.weight_scale_inv": torch.ones(1, 1)
    },
    "MXFP4": lambda stem, w: {
        f"{stem}.weight_blocks": torch.zeros(w.shape[0], 2, 16, dtype=torch.uint8),
        f"{stem}.weight_scales": torch.zeros(w.shape[0], 2, dtype=torch.uint8),
    },
    "INT4": lambda stem, w: {
        f"{stem}.weight_packed": torch.zeros(w.shape[0], 6, dtype=torch.int32),
        f"{stem}.weight_scale": torch.ones(w.shape[0], 1), f"{stem}.weight_shape": torch.tensor(w.shape),
    },
}  # fmt: skip
"""A weight as quantised files have it."""


@pytest.mark.parametrize("said", [True, False], ids=["said", "not said"])
@pytest.mark.parametrize("form", QUANTIZED)
def test_quantised_storage(form: str, said: bool, tmp_path: Path) -> None:
    """Whether the configuration says so or not: a tensor is named where it does not."""
    parent = saved(tmp_path / "parent", "llama")
    stem = "model.layers.1.mlp.up_proj"

    def quantise(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update(QUANTIZED[form](stem, tensors.pop(f"{stem}.weight")))

    stored(parent, quantise)
    if said:
        configured(parent, quantization_config={"quant_method": "some"})
        refused(parent, "its weights are quantized; weights in BF16, F16 or F32 can be read")
        return
    refused(parent, f"tensor '{stem}.weight'")


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(200)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(parent)
    (tmp_path / "text.txt").write_text(" ".join(f"w{n * 7 % 200}" for n in range(400)))
    words = f"the tokenizer of {str(parent)!r} gives token "
    refused(parent, words, keep_ffn=0.5, text=tmp_path / "text.txt", sequences=4, length=12)


@pytest.mark.parametrize("kind", [name for name, family in described().items() if family.config.at])
def test_a_text_part_that_contradicts_the_whole(kind: str) -> None:
    """Every size that both say."""
    family = described()[kind]
    at = str(family.config.at)
    for size in family.config.sizes.values():
        if size.field is not None:
            config = {at: {size.field: 3}, size.field: 4}
            with pytest.raises(ValueError, match=f"{size.field} is 4, and 3 in {at}"):
                fields_of(family, config)
            assert fields_of(family, {at: {size.field: 3}, size.field: 3})[size.field] == 3


PUBLISHED: Final = json.loads((Path(__file__).parent / "published_configs.json").read_text("utf-8"))
OF_ONE_SIZE: Final = {
    *("arcee", "bamba", "cwm", "deepseek_v32", "dots1", "ernie4_5", "exaone_moe", "granitemoeshared"),
    *("helium", "hunyuan_v1_moe", "internlm3", "iquestcoder", "jais2", "kimi_k25", "mimo_v2_flash"),
    *("ministral", "mpnet", "nomic_bert", "olmoe", "qwen3_next", "seed_oss", "smollm3", "solar_open"),
    "vaultgemma",
}
"""Families of which one size was published, as far as is known here."""
UNSEEN: Final = {"hy_v3"}
"""Families of which no published configuration was seen: the class's defaults are counted elsewhere."""
LISTED: Final = "*"
"""Stands for the list of the stock class, which takes no parameters for it."""


def stock_text(config: Mapping[str, Any]) -> Any:
    stock = AutoConfig.for_model(**{name: value for name, value in config.items() if value != LISTED})
    family = families()[str(config["model_type"])]
    if family.config.at is None:
        return stock
    tied, stock = stock.tie_word_embeddings, stock.get_text_config()
    kind = family.module_names.text_type
    if kind is not None:
        fields = {name: value for name, value in stock.to_dict().items() if name != "model_type"}
        stock = AutoConfig.for_model(kind, **fields)
    stock.tie_word_embeddings = tied
    return stock


@pytest.mark.parametrize(
    "published",
    [
        pytest.param(published, id=published["name"])
        for published in PUBLISHED
        if published["config"]["model_type"] in chosen(described())
    ],
)
def test_published_models_have_the_parameters_that_are_counted(published: Mapping[str, Any]) -> None:
    stock = stock_text(published["config"])
    with torch.device("meta"):
        network = stock_model(stock)
    built = stored_numbers(network)
    listed = {name: getattr(stock, name) for name, value in published["config"].items() if value == LISTED}
    assert CostModel().of(from_config(published["config"] | listed))["params"] == built
    assert published.get("parameters", built) == built


def test_two_sizes_of_each_family_are_published() -> None:
    sizes = Counter(
        kind
        for kind, _ in {
            (published["config"]["model_type"], json.dumps(published["config"], sort_keys=True))
            for published in PUBLISHED
        }
    )
    assert {kind for kind in described() if sizes[kind] == 1} == OF_ONE_SIZE
    assert {kind for kind in described() if sizes[kind] == 0} == UNSEEN
