"""Architectures as JSON: what is malformed is refused with ValueError, whatever it is."""

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from portion import portion
from twin_costs import exact_costs

from zerolm.costs import CostModel
from zerolm.scores import make_score
from zerolm.spaces.document import from_document, scores_of

LAYER = {
    "operation_type": "DSC", "operation_parameter": 5, "num_operation_heads": 2,
    "feed_forward_dimension": 512, "num_feed_forward": 3,
}  # fmt: skip
GPT2 = {
    "n_layer": 2, "d_model": 128, "d_inner": [256, 512], "n_head": [2, 4], "d_embed": 128, "div_val": 2
}  # fmt: skip
LLAMA = {"depth": 2, "hidden": 256, "head_size": 64, "heads": 4, "kv_heads": 1, "ffn": 640}
AUTOFORMER = {"hidden_dim": 192, "mlp_ratio": [3.5, 4.0], "depth": 2, "num_heads": [3, 4]}
PIT = {"base_dim": 16, "mlp_ratio": 6, "depth": [1, 4, 2], "num_heads": [2, 4, 4]}


def flexibert(*layers: Any, width: int = 128) -> dict[str, Any]:
    choices = {"hidden_size": width, "encoder_layers": list(layers)}
    return {"space": "flexibert", "architecture": choices}


VALID: list[dict[str, Any]] = [
    {"space": "gpt2", "settings": {"corpus": "lm1b"}, "architecture": GPT2},
    {"space": "transformer_xl", "architecture": {**GPT2, "d_embed": -1, "d_inner": 512}},
    flexibert(LAYER, LAYER),
    {"space": "llama", "settings": {"per_layer": True, "vocab": 99}, "architecture": LLAMA},
    {"space": "llama", "settings": {"ffn_per_hidden": [1, 9]}, "architecture": {**LLAMA, "ffn": [640, 700]}},
    {"space": "bert", "settings": {}, "architecture": {**LLAMA, "kv_heads": 4}},
    {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
     "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 99, "tie_word_embeddings": True},
    {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": None, "vocab_size": 99},
    {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
     "intermediate_size": 128, "vocab_size": 99, "max_position_embeddings": 10},
    {"space": "autoformer", "settings": {"size": "small", "classes": 9}, "architecture": AUTOFORMER},
    {"space": "pit", "settings": {"mlp_ratio": [2, 2.5]}, "architecture": PIT},
]  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-2, 9),
    st.sampled_from((1 << 20, 1 << 31, 1 << 63, 1 << 64, -(1 << 70), 10**400)),
    st.floats(),
)
ATOMS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5))
JSON = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@pytest.mark.parametrize("document", VALID)
def test_the_valid_documents_are_read(document: dict[str, Any]) -> None:
    assert from_document(document).depth == (7 if document.get("space") == "pit" else 2)


@given(JSON)
@example({"space": "gpt2", "architecture": {}})
@example({"model_type": None})
@example({"model_type": ["gpt2"]})
def test_arbitrary_json_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_document(document)


def places(document: Any) -> list[list[Any]]:
    """The path to every value inside a JSON document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document))
    return [[key, *path] for key, value in items for path in ([], *places(value))]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A valid document with one or two values replaced, removed, repeated or added."""
    document = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from(places(document)))
        parent = document
        for key in path:
            parent = parent[key]
        match draw(st.sampled_from(("replace", "remove", "add"))):
            case "replace":
                parent[last] = draw(JSON)
            case "remove":
                del parent[last]
            case "add" if isinstance(parent, list):
                parent.append(draw(st.sampled_from((parent[last], None))))
            case "add":
                parent[draw(st.text(max_size=3))] = draw(ATOMS)
        if not places(document):
            break
    return document


@settings(max_examples=portion(1500))
@given(damaged())
def test_damaged_documents_are_refused_or_counted_exactly(document: Any) -> None:
    message = None
    try:
        architecture = from_document(document)
    except ValueError as error:
        message = str(error)
    if message is None:
        assert CostModel().of(architecture) == exact_costs(architecture, CostModel())
        assert make_score("geo").of(architecture) >= 0
    else:
        assert message
        assert "\n" not in message


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "needs 'space' and 'architecture'.*no fields"),
    ({"space": "gpt2"}, "needs 'space' and 'architecture'"),
    ({"space": "gpt9", "architecture": GPT2}, "space 'gpt9' is not known"),
    ({"space": "gpt2", "architecture": GPT2, "note": 1}, "unknown field 'note'"),
    ({"space": "gpt2", "architecture": [GPT2]}, "must be JSON objects"),
    ({"space": "gpt2", "settings": [1], "architecture": GPT2}, "must be JSON objects"),
    ({"space": "gpt2", "settings": False, "architecture": GPT2}, "must be JSON objects"),
    ({"space": ["gpt2"], "architecture": GPT2}, "space"),
    ({"space": "gpt2", "settings": {"depth": 3}, "architecture": GPT2}, "range of depth"),
    ({"space": "gpt2", "settings": {"name": 3}, "architecture": GPT2}, "settings do not fit|no setting"),
    ({"space": "gpt2", "architecture": {}}, "lacks 'n_layer'"),
    ({"space": "gpt2", "architecture": {**GPT2, "heads": 3}}, "unknown field 'heads'"),
    ({"space": "gpt2", "architecture": {**GPT2, "n_layer": True}}, "n_layer must be an integer, not True"),
    ({"space": "gpt2", "architecture": {**GPT2, "n_layer": "2"}}, "n_layer must be an integer"),
    ({"space": "gpt2", "architecture": {**GPT2, "n_layer": 1025}}, "n_layer must be an integer from 1"),
    ({"space": "gpt2", "architecture": {**GPT2, "d_inner": [1]}}, "d_inner lists 1 layers, but the depth is"),
    ({"space": "gpt2", "architecture": {**GPT2, "d_inner": [256, True]}}, "d_inner must be an integer"),
    ({"space": "gpt2", "architecture": {**GPT2, "d_inner": 1 << 64}}, "d_inner must be an integer from 1"),
    ({"space": "gpt2", "architecture": {**GPT2, "n_head": 3}}, "128 is not divisible by 3 heads"),
    ({"space": "gpt2", "architecture": {**GPT2, "d_embed": 0}}, "d_embed must be positive, or -1"),
    ({"space": "gpt2", "architecture": {**GPT2, "d_embed": -2}}, "d_embed must be an integer from -1"),
    ({"space": "gpt2", "architecture": {**GPT2, "div_val": 0}}, "div_val must be an integer from 1"),
    ({"space": "flexibert", "architecture": {"hidden_size": 128}}, "lacks 'encoder_layers'"),
    ({"space": "flexibert", "architecture": {"hidden_size": 128, "encoder_layers": {}}}, "must list 1 to"),
    (flexibert(), "must list 1 to"),
    (flexibert(7), "must be an object"),
    (flexibert({**LAYER, "num_operation_heads": 3}), "hidden 128 is not divisible by 3 heads"),
    (flexibert({**LAYER, "num_feed_forward": 65}), "num_feed_forward must be an integer from 1 to 64"),
    (flexibert({**LAYER, "kernel": 5}), "unknown field 'kernel'"),
    (flexibert(LAYER, width=129), "hidden 129 is not divisible by 2 heads"),
    ({"space": "bert", "architecture": {**LLAMA, "heads": 3}}, "3 heads x head size 64 is not hidden 256"),
    ({"space": "llama", "architecture": {**LLAMA, "kv_heads": 3}}, "not divisible by 3 KV heads"),
    ({"space": "llama", "architecture": {**LLAMA, "kv_heads": [1, 3]}}, "not divisible by 3 KV heads"),
    ({"space": "llama", "architecture": {**LLAMA, "ffn": [640] * 3}}, "ffn lists 3 layers"),
    ({"space": "bert", "architecture": {**LLAMA, "kv_heads": 1}}, "kv_heads|KV heads"),
    ({"space": "autoformer", "architecture": PIT}, "unknown field 'base_dim'"),
    ({"space": "autoformer", "architecture": {**AUTOFORMER, "depth": 3}}, "mlp_ratio lists 2 layers, but"),
    ({"space": "autoformer", "architecture": {**AUTOFORMER, "num_heads": 1 << 20}}, "from 1 to 16384"),
    ({"space": "autoformer", "architecture": {**AUTOFORMER, "mlp_ratio": True}}, "mlp_ratio must be a posi"),
    ({"space": "autoformer", "architecture": {**AUTOFORMER, "mlp_ratio": [4, "4"]}}, "positive number .*'4'"),
    ({"space": "autoformer", "architecture": {**AUTOFORMER, "mlp_ratio": 1e-9}}, "FFN width .*, not 0"),
    ({"space": "pit", "architecture": AUTOFORMER}, "unknown field 'hidden_dim'"),
    ({"space": "pit", "architecture": {**PIT, "depth": [1, 4]}}, r"depth must list 3 stages, not \[1, 4\]"),
    ({"space": "pit", "architecture": {**PIT, "depth": 4}}, "depth must list 3 stages, not 4"),
    ({"space": "pit", "architecture": {**PIT, "depth": [1, 0, 2]}}, "depth must be an integer from 1 to"),
    ({"space": "pit", "architecture": {**PIT, "num_heads": [2, 4.0, 4]}}, r"an integer, not 4\.0"),
    ({"space": "pit", "architecture": {**PIT, "num_heads": [8, 4, 2]}}, r"\[8, 4, 2\] cannot be pooled"),
    ({"space": "pit", "architecture": {**PIT, "mlp_ratio": [6] * 3}}, "mlp_ratio must be a positive number"),
    ({"space": "pit", "architecture": {**PIT, "base_dim": 1 << 19}}, "base_dim x heads must be an integer"),
    ({"model_type": "gpt9"}, "model_type 'gpt9' is not known"),
    ({**VALID[6], "hidden_size": None}, "hidden_size None; 1 to"),
    ({**VALID[6], "hidden_size": 66}, "hidden_size 66 is not divisible by num_attention_heads 4"),
    ({**VALID[6], "num_key_value_heads": 3}, "4 is not divisible by num_key_value_heads 3"),
    ({**VALID[6], "attention_bias": "no"}, "attention_bias must be true or false, not 'no'"),
    ({**VALID[7], "n_embd": 66}, "n_embd 66 is not divisible by n_head 4"),
    ({**VALID[8], "vocab_size": 0}, "vocab_size 0; 1 to 16777216 are possible"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "message"), REFUSED)
def test_what_is_wrong_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_document(document)


@pytest.mark.parametrize(
    "document",
    [{"a\nb": 1}, {"space": "gpt2", "architecture": {"a\nb": 1}}, {"space": "a\nb", "architecture": GPT2}],
)
def test_a_message_is_one_line_whatever_the_names_are(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        from_document(document)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "operation", [["SA", "DFT"], ["LT", None], ["DSC", True], ["DSC", "5"], [["SA"], {}]]
)
def test_unknown_operations_are_refused(operation: list[Any]) -> None:
    layer = {**LAYER, "operation_type": operation[0], "operation_parameter": operation[1]}
    with pytest.raises(ValueError, match="operation"):
        from_document(flexibert(layer))


@pytest.mark.parametrize("document", VALID)
def test_scores_of_a_document_equal_those_of_its_architecture(document: dict[str, Any]) -> None:
    rows = scores_of(json.loads(json.dumps(document)), options={"alpha": [0.25, 2.0]})
    architecture = from_document(document)
    for row in rows:
        options = {} if row["alpha"] is None else {"alpha": row["alpha"]}
        assert row["value"] == make_score(row["score"], **options).of(architecture)
    assert [row["alpha"] for row in rows if row["score"] == "zerolm"] == [0.25, 2.0]
    assert scores_of(architecture, ["geo"]) == [row for row in rows if row["score"] == "geo"]
    with pytest.raises(ValueError, match="score 'goe' is not known"):
        scores_of(document, ["goe"])
