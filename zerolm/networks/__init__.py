"""Networks that run: what the modules of a loaded model do, and passes layer by layer (torch)."""

try:
    import torch as torch
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("running networks needs PyTorch: pip install 'zerolm[torch]'") from missing
