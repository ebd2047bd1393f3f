"""Where and how networks are computed: the device, the type of products, and the memory that it may take."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.io.memory import free_memory
from zerolm.networks.hooks import stand_ins
from zerolm.networks.mapped import assembled, is_in_parts, released
from zerolm.networks.roles import body_of, layer_list
from zerolm.settings import check_known, shown
from zerolm.settings.compute import ComputeRequest, RunningRequest

M = TypeVar("M", bound=nn.Module)
TYPES: Final = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}
WIDE: Final = 256
SHARE: Final = 4
"""Without a limit, one in ``SHARE`` bytes of free memory is used."""
_NOTED: Final = "_zerolm_compute"
_HELD: Final = "_zerolm_held"


@dataclass(frozen=True)
class Compute:
    """A ``device``, the type of ``products`` of matrices there, and bytes of ``memory`` that may be used.

    States, gradients, norms, logits and all sums are float32, or better, whatever the products are.
    """

    device: torch.device = torch.device("cpu")
    products: torch.dtype = torch.float32
    memory: int | None = None

    @property
    def limit(self) -> int:
        """Return bytes of memory to keep to: what was asked for, else a quarter of what is free."""
        return free_memory() // SHARE if self.memory is None else self.memory

    @property
    def sums(self) -> torch.device:
        """Return where sums in float64 are held: the device, if it has that type."""
        return self.device if self.device.type in ("cpu", "cuda") else torch.device("cpu")

    @property
    def room(self) -> int:
        """Return bytes of weights that may stay on a device in addition to what runs there; 0 on the CPU."""
        if self.device.type != "cuda":
            return 0
        return int(torch.cuda.mem_get_info(self.device)[0]) // 2

    @contextmanager
    def wide(self) -> Iterator[None]:
        """Within, float32 matrices are multiplied in less than float32 where products are to be bfloat16.

        Numbers come in and go out as float32, so that logits are not rounded to bfloat16.
        """
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium" if self.products == torch.bfloat16 else before)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def running(self) -> torch.autocast:
        """Return a context in which matrices are multiplied in the type of products."""
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.products == torch.bfloat16, cache_enabled=False
        )

    def placed(self, module: M, used: Iterable[nn.Parameter], *, wide: bool, shared: Iterable[Any] = ()) -> M:
        """Return the module with those parameters that are ``used`` on the device; others are its own.

        So is what is ``shared``. Matrices are in the type of products, or in float32 where that is ``wide``;
        vectors in float32.
        """
        moved: dict[int, Any] = {}
        for stored in used:
            dtype = torch.float32 if wide or stored.dim() < 2 else self.products
            here = dtype if self.device.type == "cpu" else None  # what is sent elsewhere is sent as stored
            weight = assembled(stored, here) if is_in_parts(stored) else stored
            if weight is not stored or (weight.dtype, weight.device) != (dtype, self.device):
                moved[id(stored)] = nn.Parameter(weight.to(self.device, dtype), requires_grad=False)
        moved |= {id(x): x.to(self.device) for x in module.buffers() if x.device != self.device}
        if not moved:
            return module
        memo = {id(each): each for each in (*shared, *module.parameters())}
        return copy.deepcopy(module, memo | moved)

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return a product of matrices in float32, computed in the type of products."""
        with self.running():
            return (left @ right).float()

    def to_json(self) -> dict[str, str]:
        """Return the settings that results depend on: the kind of device, and the type of products."""
        return {"device": self.device.type, "dtype": str(self.products).removeprefix("torch.")}


class Held:
    """The parts of a model that are held as they are computed: on a device many, else one at a time."""

    def __init__(self, compute: Compute) -> None:
        self.compute, self.room = compute, compute.room
        self.last: tuple[object, nn.Module | None] = (None, None)
        self.used: Sequence[nn.Parameter] = ()
        self.kept: dict[object, nn.Module] = {}

    def part(
        self, name: object, module: M, used: Sequence[nn.Parameter], *, wide: bool, shared: nn.Module
    ) -> M:
        """Return a part by its name, as ``Compute.placed`` makes it of a module."""
        if name in self.kept:
            return cast(M, self.kept[name])
        if self.last[0] != name:
            self.last = (None, None)  # not two at a time
            released(self.used)
            self.used = used
            self.last = (name, self.compute.placed(module, used, wide=wide, shared=[shared]))
            size = 4 * sum(weight.numel() for weight in used)
            if size <= self.room:
                self.room -= size
                self.kept[name] = cast(nn.Module, self.last[1])
        return cast(M, self.last[1])

    def let_go(self) -> None:
        """Let go of all parts; they are made again when needed."""
        released(self.used)
        self.room, self.last, self.used = self.compute.room, (None, None), ()
        self.kept.clear()


def held_of(model: nn.Module, compute: Compute) -> Held:
    """Return the weights of a model that are held on the device, shared by all who run it."""
    held: Held | None = model.__dict__.get(_HELD)
    if held is None or held.compute != compute:
        held = model.__dict__[_HELD] = Held(compute)
    return held


def compute_of(model: nn.Module) -> Compute:
    """Return how a model is computed: as was noted on it, else in float32 where its parameters are."""
    noted: Compute | None = model.__dict__.get(_NOTED)
    return noted or Compute(next(model.parameters()).device)


def computed(model: M, compute: Compute) -> M:
    """Return the model, with a note how it is computed."""
    model.__dict__[_NOTED] = compute
    return model


def put_on(model: PreTrainedModel, compute: Compute) -> PreTrainedModel:
    """Return a model in memory, put on a device as a whole, with a note how it is computed.

    Matrices of its layers are held in the type of products.
    """
    model.to(compute.device)  # type: ignore[arg-type]
    for weight in layer_list(model).parameters():
        if weight.dim() > 1:
            weight.data = weight.data.to(compute.products)
    return computed(model, compute)


@contextmanager
def as_noted(model: PreTrainedModel) -> Iterator[None]:
    """Within, a model that is called as a whole multiplies as is noted on it, but its head in float32."""
    compute = compute_of(model)
    if compute.products == torch.float32:
        yield
        return
    body = body_of(model)
    forward = body.forward

    @wraps(forward)
    def run(*arguments: Any, **named: Any) -> Any:
        with compute.running():
            return forward(*arguments, **named)

    with stand_ins([body], [run]):
        yield


def compute(request: RunningRequest, hidden: int = 0) -> Compute:
    """Return the device and dtype of a request; ``ValueError`` for a device that is absent, with those
    present.

    Products of type ``auto`` are bfloat16 where the device is fast in it, for a network whose ``hidden`` size
    is at least ``WIDE``; else float32.
    """
    device = device_of(request.device)
    check_known("dtype", request.dtype, TYPES)
    products = TYPES[request.dtype]
    if request.dtype == "auto" and hidden >= WIDE and is_fast_in_bfloat16(device):
        products = torch.bfloat16
    if products == torch.bfloat16 and not multiplies_bfloat16(device):
        raise ValueError(f"{device} does not multiply in bfloat16: give --dtype float32")
    memory = request.memory if isinstance(request, ComputeRequest) else None
    return Compute(device, products, memory)


def device_of(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is CUDA's, if any. ``ValueError`` where it is absent."""
    possible = devices()
    if name == "auto":
        return torch.device("cuda" if "cuda" in possible else "cpu")
    if name not in possible:
        raise ValueError(f"there is no device {shown(name)} here; possible are {', '.join(possible)}")
    return torch.device(name)


def devices() -> list[str]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ["cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count)), *mps]


def is_fast_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device has units for products in bfloat16, which then take less time."""
    if device.type == "cuda":
        return multiplies_bfloat16(device)
    return device.type == "cpu" and any(
        getattr(torch.cpu, f"_is_{unit}_supported", bool)() for unit in ("amx_tile", "avx512_bf16")
    )


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether products in bfloat16 are possible on a device."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported())
    try:
        ones = torch.ones(2, 2, device=device, dtype=torch.bfloat16)
        torch.matmul(ones, ones)
    except (RuntimeError, TypeError):
        return False
    return True
