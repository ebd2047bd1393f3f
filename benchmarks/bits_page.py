"""The page of ``bits.py``, printed from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from timing import machine, table

Parts = dict[str, Any]


def page(parts: Parts, names: Sequence[str]) -> None:
    """Print the page of all models; ``names`` are those of parts that are there to be measured."""
    print("# Types of weights beside cuts, at equal bytes\n")
    print(
        f"Written by `python benchmarks/bits.py`. Machine: {machine()}, torch {version('torch')}, "
        f"llama-cpp-python {version('llama-cpp-python')}; one thread.\n"
    )
    print(
        "A plan of types gives every matrix of a network its own type of llama.cpp, so that the loss that is "
        "foretold is least within bytes, exactly. Losses are KL to the parent in nats a token, on text that "
        "was neither trained nor calibrated on, of the weights as they are read back; of an encoder they are "
        "1 - cosine of embeddings. All that is quantised here is so with the same importances. Bytes are of "
        "all weights.\n"
    )
    missing = [name for name in names if name not in parts and "joint" not in name]
    if missing:
        print(f"Not measured so far: {'; '.join(missing)}. The same command goes on.\n")
    for model in dict.fromkeys(name.partition(": ")[0] for name in parts):
        sheet(
            {name.partition(": ")[2]: part for name, part in parts.items() if name.startswith(f"{model}: ")},
            model,
        )


def sheet(parts: Parts, model: str) -> None:
    """Print what was measured of a model."""
    sizes = parts.get("sizes")
    if sizes is None:
        return
    tied = "tied" if sizes["tied"] else "with a head of its own"
    print(f"## `{model}`: {sizes['shape']}, {sizes['params'] / 1e6:.2f} M parameters, {tied}\n")
    if "plain" in parts:
        encoder(parts)
        joint_sizes(parts)
        return
    rows: list[list[str | float]] = []
    for kind, other in (("single", "everywhere"), ("mix", "llama.cpp's mix")):
        for name, part in parts.items():
            if not name.startswith(f"{kind} ") or part["bytes"] is None:
                continue
            alone, repaired = part["alone"], parts.get(f"repaired {name}")
            k_types = f"{part['k_types']['kl']:.5f}" if "k_types" in part else ""
            figures = part["kl"], alone["kl"], alone["kl"] / part["kl"], alone["foretold"]
            kl, ours, share, told = (
                f"{figure:.{digits}f}" for figure, digits in zip(figures, (5, 5, 2, 5), strict=True)
            )
            sizes_of = f"{part['bytes'] / 1e6:.3f}", f"{alone['bytes'] / 1e6:.3f}"
            rows.append(
                [
                    f"{name.partition(' ')[2]} {other}",
                    sizes_of[0],
                    kl,
                    sizes_of[1],
                    k_types,
                    ours,
                    share,
                    told,
                    f"{repaired['kl']:.5f}" if repaired else "",
                    f"{repaired['kl'] / part['kl']:.2f}" if repaired else "",
                ]
            )
    for name, part in parts.items():
        if name.startswith("alone ") and part["bytes"] is not None:
            figures = (
                f"{part['bytes'] / 1e6:.3f}",
                "",
                f"{part['kl']:.5f}",
                "",
                f"{part['foretold']:.5f}",
                "",
                "",
            )
            rows.append(["fewer bytes", "", "", *figures])
    if rows:
        print("### Types alone\n")
        head = ("", "MB", "KL", "planned, MB", "K types", "all types", "of the KL", "foretold",
                "repaired", "of the KL")  # fmt: skip
        table(list(head), rows)
    told = [
        f"{name.split()[1]} {part['told']:.5f} ({part['kl']:.5f})"
        for name, part in parts.items()
        if name.startswith("mix ") and "told" in part
    ]
    if told:
        print(
            f"Of the mixes themselves is foretold (and measured): {', '.join(told)}. So the prices tell "
            "these plans as rightly as the planned ones: where a mix is near what types alone can do, little "
            "is left to gain.\n"
        )
    if any(name.startswith("repaired ") for name in parts):
        print(
            "*repaired*: output matrices are solved again by least squares on what the rounded layers before "
            "them send, as `zerolm carve --keep 1 --text TEXT` does.\n"
        )
    cuts(parts)
    joint_sizes(parts)
    healed(parts)
    caches(parts)
    foretold(parts)


def encoder(parts: Parts) -> None:
    """Print what types alone lose of an encoder, as they are read back and as llama.cpp sends them."""
    rows = []
    for name, part in parts.items():
        if "alone" not in part or part["bytes"] is None:
            continue
        kind, _, type_ = name.partition(" ")
        alone, other = part["alone"], "everywhere" if kind == "single" else "llama.cpp's mix"
        figures = part["kl"], part["sent"], alone["kl"], alone["sent"], alone["foretold"]
        lost, sent, ours, ours_sent, told = (f"{figure:.6f}" for figure in figures)
        sizes = f"{part['bytes'] / 1e6:.3f}", f"{alone['bytes'] / 1e6:.3f}"
        share = f"{alone['sent'] / part['sent']:.2f}"
        rows.append([f"{type_} {other}", sizes[0], lost, sent, sizes[1], ours, ours_sent, share, told])
    print("### Types alone\n")
    print(
        "1 - cosine of the embeddings of unseen sentences to those of the class in torch: of the weights as "
        "they are read back, and as llama.cpp sends them of the file "
        f"(a file of float32: {parts['plain']['sent']:.8f}).\n"
    )
    head = ("", "MB", "1 - cosine", "by llama.cpp", "planned, MB", "1 - cosine", "by llama.cpp", "of it",
            "foretold")  # fmt: skip
    table(list(head), rows)


def cuts(parts: Parts) -> None:
    """Print what cuts alone lose at 16 bits."""
    rows = [
        [f"{float(name.split()[1]):.0%}", f"{part['bytes'] / 1e6:.3f}", f"{part['kl']:.4f}"]
        for name, part in parts.items()
        if name.startswith("cut ")
    ]
    if rows:
        print("### Cuts alone\n")
        print("`zerolm carve --max-params`, one size for all layers, weights of 16 bits.\n")
        table(("of the parameters", "MB", "KL"), rows)


def healed(parts: Parts) -> None:
    """Print what healing before types leaves."""
    rows = []
    for name, part in parts.items():
        if name.startswith("healed "):
            joint, losses = part["joint"], part["losses"]
            shape = f"{joint['layers']} x {joint['hidden']}, kv {joint['kv_heads'][0]}, ffn {joint['ffn'][0]}"
            rows.append([shape, f"{part['bytes'] / 1e6:.3f}", *(f"{loss:.4f}" for loss in losses)])
            tokens = part["tokens"]
    if rows:
        print("### Healed, then quantised\n")
        print(
            f"The cut of a plan at 16 bits, healed on {tokens:,} tokens, then types within the bytes "
            "(`zerolm heal`, then `zerolm carve --keep 1 --format gguf`); beside it types of the same cut, "
            "not healed. KL to the parent.\n"
        )
        table(("shape", "MB", "KL as cut", "healed", "healed, with types", "cut, with types"), rows)


def caches(parts: Parts) -> None:
    """Print what types of the KV cache lose."""
    rows = [
        [name.split()[1], f"{part['bits']:g}", f"{part['kl']:.6f}"]
        for name, part in parts.items()
        if name.startswith("cache ")
    ]
    if rows:
        print("### Types of the KV cache\n")
        print(
            "llama.cpp on the whole model in float32, keys and values in one type, beside a cache of "
            "float16; a token at a time.\n"
        )
        table(("keys and values", "bits", "KL"), rows)


def joint_sizes(parts: Parts) -> None:
    """Print what cuts and types together lose."""
    rows: list[list[str | float]] = []
    for name, part in parts.items():
        if not name.startswith("together "):
            continue
        spans = ["-".join(map(str, sorted({part[kind][0], part[kind][-1]}))) for kind in ("kv_heads", "ffn")]
        rivals = {row["name"]: row["measured"] for row in part["equal_bytes"]}
        alone = rivals.get("types alone")
        losses = [part["kl"], *(part["losses"].get(key) for key in ("as_read_back", "repaired")), alone]
        stays = f"{part['layers']} x {part['hidden']}, kv {spans[0]}, ffn {spans[1]}"
        digits = 6 if "sent" in part else 4
        texts = ["" if loss is None else f"{loss:.{digits}f}" for loss in losses]
        rows.append([name.split()[2], f"{part['bytes'] / 1e6:.3f}", stays, *texts])
    if rows:
        print("### Cuts and types together\n")
        print(
            "As `zerolm carve --format gguf --max-weight-bytes` writes them, the file opened again. Beside "
            "them the loss on calibration text, that of the cut alone, and of types alone at these bytes.\n"
        )
        head = ("shape", "MB", "what stays", "loss", "calibration", "cut alone", "types alone")
        table(list(head), rows)


def foretold(parts: Parts) -> None:
    """Print how well losses of whole plans are foretold."""
    joint = [part for name, part in parts.items() if name.startswith("joint ")]
    if len(joint) < 3:
        return
    told, measured = (np.array([part[key] for part in joint]) for key in ("foretold", "measured"))
    small = measured < 0.2
    print("### Foretold and measured\n")
    print(
        f"{len(joint)} plans of cuts and types within drawn bytes, half of one size for all layers, half per "
        f"layer, nothing repaired: Spearman {spearmanr(told, measured)[0]:.3f}. Foretold / measured, median: "
        f"{np.median(told / measured):.2f}, below .2 nats {np.median((told / measured)[small]):.2f} "
        f"({int(small.sum())} plans).\n"
    )
