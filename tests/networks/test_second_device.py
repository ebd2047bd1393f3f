"""Layers on a device that is not the CPU, without one: tensors of shapes alone, which know where they are.

What is left on the CPU is an error, as on a real device. A process of its own does it, for torch takes a new
device for good.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMES = ("qwen2_tied", "gpt2", "bert")
SETUP = "_setup_privateuseone_for_python_backend"


def test_nothing_is_left_on_the_cpu() -> None:
    registration = importlib.util.find_spec("torch.utils.backend_registration")
    if registration is None or SETUP not in Path(str(registration.origin)).read_text():
        pytest.skip("this torch takes no device that is made in Python")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *NAMES],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split() == list(NAMES)


def main(names: list[str]) -> None:
    """Run each model on the second device, and print its name."""
    import torch
    from tiny import model
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils import backend_registration

    from zerolm.networks.blocks import Blocks
    from zerolm.networks.compute import Compute, computed

    getattr(backend_registration, SETUP)("second")
    vars(torch)["second"].get_amp_supported_dtype = lambda: [torch.bfloat16]
    second = torch.device("second:0")

    def is_there(*tensors: Any) -> None:
        assert all(tensor.device == second for tensor in tensors)

    def layers(network: Any, inputs: dict[str, Any]) -> None:
        """A layer forward and backward, and the head."""
        blocks = Blocks(computed(network, Compute(second, memory=1 << 30)), [inputs])
        hidden = blocks.embed(0).detach().requires_grad_()
        out = blocks.call(0, 1, hidden, gradients=True)
        (gradient,) = torch.autograd.grad(out.sum(), hidden)
        is_there(hidden, out, gradient, blocks.finish(0, out)[0])
        with pytest.raises(RuntimeError, match="device"):
            blocks.call(0, 1, hidden.cpu())

    for name in names:
        network, mode = model(name), FakeTensorMode(shape_env=ShapeEnv())
        shapes(network, mode)
        with mode:
            layers(network, {"input_ids": torch.zeros(2, 12, dtype=torch.long)})
        print(name)


def shapes(network: Any, mode: Any) -> None:
    """Have a network of shapes alone, its tied parameters still one."""
    tied: dict[int, Any] = {}
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = tied.setdefault(id(tensor), mode.from_tensor(tensor))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main(sys.argv[1:])
