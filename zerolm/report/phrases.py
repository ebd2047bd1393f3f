"""Sentences and numbers that the terminal and the page share."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.solvers import SearchResult
from zerolm.solvers.result import Expected

LABELS: Final = {
    "params": "parameters",
    "body_params": "body parameters",
    "macs": "MACs a token",
    "kv_bytes": "KV cache",
    "weight_bytes": "weights",
}


def cost_label(name: str) -> str:
    return LABELS[name]


def show_cost(name: str, value: int) -> str:
    return show_amount(value, name.endswith("bytes"))


def show_amount(value: int, size: bool = False) -> str:
    """Three digits and a unit: 39.7M, or 13.4 MB of a size."""
    units = ("", "k", "M", "G", "T", "P", "E")
    scaled, place = float(value), 0
    while abs(scaled) >= 999.5 and place < len(units) - 1:
        scaled, place = scaled / 1000, place + 1
    digits = f"{scaled:.3g}" if place else str(value)
    return f"{digits} {units[place]}B" if size else f"{digits}{units[place]}"


def show_score(value: float) -> str:
    """Enough digits to tell near-ties apart."""
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.7g}"


def show_count(value: int) -> str:
    """Exact up to ten millions, then the power of ten."""
    return f"{value:,}" if value < 10**7 else f"{Decimal(value):.3e}".replace("e+", "e")


def show_expected(expected: Expected) -> str:
    """The expected result with its interval, and whether it goes beyond the labels."""
    beyond = ", beyond all labels" if expected.extrapolated else ""
    return f"{expected.mean:.4g} (90 %: {expected.low:.4g} to {expected.high:.4g}{beyond})"


def expectation_lines(result: SearchResult) -> list[str]:
    """What the labels say about the pick, for results whose score was fitted to some."""
    about, expected = result.calibration, result.pick.expected
    if about is None:
        return []
    lines = [f"score fitted to {about['labels']} trained architectures ({about['method']})"]
    if expected:
        lines.append(f"expected {about['metric']} {show_expected(expected)}")
    return lines


def shape_text(architecture: Architecture) -> str:
    """The choices in one short line; layers that differ as runs: ffn 3 x 1280 + 2 x 1344."""
    choices = architecture.choices
    if "encoder_layers" in choices:
        return f"hidden {choices['hidden_size']}: " + _runs(
            [_encoder_layer(c) for c in choices["encoder_layers"]]
        )
    if "base_dim" in choices:
        return _stages(choices)
    depth = _first(choices, "depth", "n_layer")
    hidden = _first(choices, "hidden", "d_model", "hidden_dim")
    if depth is None or hidden is None:
        return ", ".join(f"{name} {value}" for name, value in choices.items())
    parts = [f"{depth} x {hidden}", f"heads {_value(_first(choices, 'heads', 'n_head', 'num_heads'))}"]
    if "kv_heads" in choices and choices["kv_heads"] != choices["heads"]:
        parts.append(f"kv {_value(choices['kv_heads'])}")
    if "mlp_ratio" in choices:
        parts.append(f"ffn ratio {_value(choices['mlp_ratio'])}")
    else:
        parts.append(f"ffn {_value(_first(choices, 'ffn', 'd_inner'))}")
    parts += [f"{name} {choices[name]}" for name in ("d_embed", "div_val") if name in choices]
    return ", ".join(parts)


def _stages(choices: dict[str, Any]) -> str:
    """Stages of unlike widths: 2 x 64 + 6 x 128 + 4 x 256, heads 2/4/8, ffn ratio 4."""
    stages = zip(choices["depth"], choices["num_heads"], strict=True)
    widths = " + ".join(f"{depth} x {heads * choices['base_dim']}" for depth, heads in stages)
    heads = "/".join(map(str, choices["num_heads"]))
    return f"{widths}, heads {heads}, ffn ratio {choices['mlp_ratio']}"


def _first(choices: dict[str, Any], *names: str) -> Any:
    """The choice by the name that its space gives it."""
    return next((choices[name] for name in names if name in choices), None)


def _value(value: Any) -> str:
    return _runs([str(item) for item in value]) if isinstance(value, list) else str(value)


def _encoder_layer(layer: dict[str, Any]) -> str:
    stacks = layer["num_feed_forward"]
    return (
        f"{layer['operation_type']}-{layer['operation_parameter']}/{layer['num_operation_heads']} "
        f"ffn {layer['feed_forward_dimension']}" + (f"x{stacks}" if stacks > 1 else "")
    )


def _runs(items: list[str]) -> str:
    counts = Counter(items)
    if len(counts) == 1 and " " not in items[0]:
        return items[0]
    return " + ".join(f"{count} x {item}" if count > 1 else item for item, count in counts.items())


def certificate_sentence(result: SearchResult) -> str:
    """What is proven, in one sentence."""
    certificate, size = result.certificate, show_count(result.space.size())
    if certificate.optimal:
        return (
            f"Proven: none of the {size} architectures of {result.space.name} within the budgets scores "
            f"higher than the first of the list ({certificate.method}, {certificate.seconds:.2f} s)."
        )
    if certificate.gap is not None:
        return (
            f"None of the {size} architectures of {result.space.name} within the budgets scores more than "
            f"{100 * certificate.gap:.3g} % above the first of the list ({certificate.method})."
        )
    if certificate.method == "exhaustive":
        return (
            f"Every shape of the {size} architectures of {result.space.name} was looked at once; a score "
            "that sees more than shapes may prefer another order of layers."
        )
    return (
        f"Nothing is proven: {certificate.method} looked at a sample of the {size} architectures of "
        f"{result.space.name}."
    )
