"""An export of a stock model to ONNX, and how far its outputs are from torch's (torch, onnxruntime)."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch.export import Dim

LENGTHS: Final = (8, 13)
"""Tokens of the sequence that is exported, and of another, which the export is to take as well."""
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class NotExported(Exception):
    """An exporter that does not take a model; another may."""


class FirstOutput(nn.Module):
    """A stock model from ids (b, t) to its first output: logits (b, t, v), or states (b, t, d)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        cached = {"use_cache": False} if hasattr(self.model.config, "use_cache") else {}
        output: Tensor = self.model(input_ids, return_dict=False, **cached)[0]
        return output


def difference(model: Any) -> float:
    """Return the largest difference of ONNX Runtime's outputs from torch's, of the largest output of torch.

    Both read a sequence of each of ``LENGTHS``. ``NotExported`` says why there is no export.
    """
    plain, rows = FirstOutput(model.eval()), model.get_input_embeddings().num_embeddings
    sequences = [torch.arange(length)[None] % rows for length in LENGTHS]
    with TemporaryDirectory(prefix="zerolm-onnx-") as folder:
        file = str(Path(folder) / "model.onnx")
        length = Dim("length", min=2, max=1 << 16)
        try:
            torch.onnx.export(
                plain,
                (sequences[0],),
                file,
                dynamo=True,
                verbose=False,
                input_names=["input_ids"],
                dynamic_shapes={"input_ids": {1: length}},
            )
        except Exception as error:  # whatever an exporter raises
            raise NotExported(reason_of(error)) from None
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return max(_far(session, plain, ids) for ids in sequences)


def reason_of(error: BaseException) -> str:
    """Return the first line of what an error came from in the end, without colours."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = COLOURS.sub("", str(error)).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _far(session: Any, plain: FirstOutput, ids: Tensor) -> float:
    with torch.no_grad():
        expected = plain(ids).numpy()
    exported = session.run(None, {"input_ids": ids.numpy()})[0]
    return float(np.abs(exported - expected).max() / max(float(np.abs(expected).max()), 1e-12))
