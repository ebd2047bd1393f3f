"""Types of the public functions, written by python docs/stubs.py."""

from collections.abc import Sequence
from os import PathLike
from typing import Final, Protocol

from zerolm.lab.verbs.ablate_report import AblationReport as AblationReport
from zerolm.lab.verbs.elastic_export import PathReport as PathReport
from zerolm.lab.verbs.elastic_search_report import SupernetSearchReport as SupernetSearchReport
from zerolm.lab.verbs.elastic_train import SupernetReport as SupernetReport
from zerolm.lab.verbs.proxies import ProxyListing as ProxyListing
from zerolm.lab.verbs.proxies_report import ProxiesReport as ProxiesReport
from zerolm.lab.verbs.proxies_report import ProxyBenchReport as ProxyBenchReport
from zerolm.lab.verbs.slice import SlicesReport as SlicesReport
from zerolm.progress import Progress as Progress

class _Elastic(Protocol):
    @staticmethod
    def train(
        space: str = ...,
        out: str | PathLike[str] = ...,
        *,
        text: str | PathLike[str],
        text_field: str | None = ...,
        tokens: int | str,
        tokenizer: str | PathLike[str] | None = ...,
        words: int | str = ...,
        teacher: str | PathLike[str] | None = ...,
        distillation: str = ...,
        teacher_only: bool = ...,
        predictions: float | None = ...,
        epochs: int | str = ...,
        growth: int | str = ...,
        mean_params: int | str | None = ...,
        eta: float | None = ...,
        batch: int | str = ...,
        length: int | str = ...,
        rate: float = ...,
        device: str = ...,
        dtype: str = ...,
        seed: int | str = ...,
        force: bool = ...,
        depth: int | str | Sequence[int] | None = ...,
        hidden: int | str | Sequence[int] | None = ...,
        head_size: int | str | Sequence[int] | None = ...,
        ffn: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
        hidden_per_depth: str | Sequence[float] | None = ...,
        ffn_per_hidden: str | Sequence[float] | None = ...,
        multiple_of: int | str | None = ...,
        tensor_parallel: int | str | None = ...,
        vocab: int | str | None = ...,
        positions: int | str | None = ...,
        view: str | None = ...,
        heads: int | str | Sequence[int] | None = ...,
        stacks: int | str | Sequence[int] | None = ...,
        corpus: str | None = ...,
        d_embed: int | str | Sequence[int] | None = ...,
        div_val: int | str | Sequence[int] | None = ...,
        heads_per_kv: int | str | Sequence[int] | None = ...,
        query_per_hidden: str | Sequence[float] | None = ...,
        query_width: str | Sequence[float] | None = ...,
        kv_width: str | Sequence[float] | None = ...,
        tied: bool | None = ...,
        per_layer: bool | None = ...,
        qkv_bias: bool | None = ...,
        parent_config: str | None = ...,
        kv_heads: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
        progress: Progress = ...,
    ) -> SupernetReport: ...
    @staticmethod
    def search(
        supernet: str | PathLike[str],
        *,
        max_params: int | str | None = ...,
        max_active_params: int | str | None = ...,
        max_body_params: int | str | None = ...,
        max_macs: int | str | None = ...,
        max_kv_bytes: int | str | None = ...,
        max_weight_bytes: int | str | None = ...,
        max_latency_us: int | str | None = ...,
        min_params: int | str | None = ...,
        min_active_params: int | str | None = ...,
        min_body_params: int | str | None = ...,
        min_macs: int | str | None = ...,
        min_kv_bytes: int | str | None = ...,
        min_weight_bytes: int | str | None = ...,
        min_latency_us: int | str | None = ...,
        context: int | str = ...,
        batch: int | str = ...,
        kv_bits: float | str = ...,
        bits: int | str = ...,
        group_size: int | str = ...,
        score: str = ...,
        text: str | PathLike[str] | None = ...,
        text_field: str | None = ...,
        sequences: int | str = ...,
        top: int | str = ...,
        method: str = ...,
        population: int | str = ...,
        generations: int | str = ...,
        seed: int | str = ...,
        progress: Progress = ...,
    ) -> SupernetSearchReport: ...
    @staticmethod
    def export(
        supernet: str | PathLike[str],
        out: str | PathLike[str],
        *,
        path: str | PathLike[str],
        scratch: bool = ...,
        heads: str = ...,
        unbiased: bool = ...,
        tokens: int | str | None = ...,
        text: str | PathLike[str] | None = ...,
        text_field: str | None = ...,
        teacher: str | PathLike[str] | None = ...,
        distillation: str = ...,
        teacher_only: bool = ...,
        predictions: float | None = ...,
        batch: int | str = ...,
        length: int | str = ...,
        rate: float = ...,
        device: str = ...,
        dtype: str = ...,
        seed: int | str = ...,
        force: bool = ...,
        progress: Progress = ...,
    ) -> PathReport: ...

class _Proxies(Protocol):
    def __call__(
        self,
        target: str | PathLike[str],
        *,
        proxies: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
        mode: str = ...,
        upstream: str | None = ...,
        count: int | str | None = ...,
        max_params: int | str | None = ...,
        limit: int | str | None = ...,
        view: str | None = ...,
        metric: str | None = ...,
        data: str | PathLike[str] | None = ...,
        text: str | PathLike[str] = ...,
        text_field: str | None = ...,
        batch: int | str = ...,
        length: int | str = ...,
        micro_batches: int | str = ...,
        seed: int | str = ...,
        device: str = ...,
        dtype: str = ...,
        jobs: int | str = ...,
        backend: str = ...,
        store: str | PathLike[str] | None = ...,
        progress: Progress = ...,
    ) -> ProxiesReport: ...
    @staticmethod
    def ls(
    ) -> ProxyListing: ...

def ablate(
    names: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    *,
    all: bool = ...,
    data: str | PathLike[str] | None = ...,
    metric: str | None = ...,
    progress: Progress = ...,
) -> AblationReport: ...

def bench(
    names: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    *,
    all: bool = ...,
    data: str | PathLike[str] | None = ...,
    metric: str | None = ...,
    proxies: str | PathLike[str] | Sequence[str | PathLike[str]],
    text: str | PathLike[str] = ...,
    jobs: int | str = ...,
    store: str | PathLike[str] | None = ...,
    alpha: float | Sequence[float] | None = ...,
    init: str | Sequence[str] | None = ...,
    train_tokens: int | str | Sequence[int | str] | None = ...,
    progress: Progress = ...,
) -> ProxyBenchReport: ...

def slice(
    parent: str | PathLike[str],
    out: str | PathLike[str] | None = ...,
    *,
    like: str | None = ...,
    space: str = ...,
    count: int | str = ...,
    max_macs: int | str | None = ...,
    max_params: int | str | None = ...,
    min_macs: int | str | None = ...,
    min_params: int | str | None = ...,
    seed: int | str = ...,
    criterion: str = ...,
    repair: str = ...,
    calibration: str | PathLike[str] | None = ...,
    text: str | PathLike[str] | None = ...,
    text_field: str | None = ...,
    data: str | PathLike[str] | None = ...,
    attacked: str | PathLike[str] | None = ...,
    sequences: int | str = ...,
    length: int | str = ...,
    device: str = ...,
    dtype: str = ...,
    jobs: int | str = ...,
    backend: str = ...,
    force: bool = ...,
    progress: Progress = ...,
) -> SlicesReport: ...

elastic: Final[_Elastic]

proxies: Final[_Proxies]
