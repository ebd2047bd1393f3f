"""GGUF files as parents: each tensor is that of the folder that they were written of; lies are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import MODELS, saved
from tiny_families import TINY

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import LLAMA3, llama3_factors
from zerolm.checkpoints.identity import fingerprint
from zerolm.families.config import sizes_of

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.carving.export.child_tensors import Child  # noqa: E402
from zerolm.carving.export.gguf.write import write  # noqa: E402
from zerolm.carving.kept_units import Cut, dimensions  # noqa: E402
