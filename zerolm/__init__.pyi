"""Types of the public functions, written by python docs/stubs.py."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, Protocol

from zerolm.architecture import Architecture as Architecture
from zerolm.calibration.pool import Labels as Labels
from zerolm.groundtruth.labels import read_labels as read_labels
from zerolm.progress import Progress as Progress
from zerolm.scores import make_score as make_score
from zerolm.solvers.result import Choice as Choice
from zerolm.spaces import make_space as make_space
from zerolm.verbs.bench import BenchmarksReport as BenchmarksReport
from zerolm.verbs.bench_report import BenchReport as BenchReport
from zerolm.verbs.bench_train import LabelsReport as LabelsReport
from zerolm.verbs.calibrate_report import CalibrationReport as CalibrationReport
from zerolm.verbs.carve import CarvingReport as CarvingReport
from zerolm.verbs.doctor import DoctorReport as DoctorReport
from zerolm.verbs.eval import EvaluationReport as EvaluationReport
from zerolm.verbs.families import FamiliesReport as FamiliesReport
from zerolm.verbs.heal import HealingReport as HealingReport
from zerolm.verbs.init import InitReport as InitReport
from zerolm.verbs.ledger_report import LedgerReport as LedgerReport
from zerolm.verbs.report import load as load
from zerolm.verbs.score_report import ScoreReport as ScoreReport
from zerolm.verbs.search_report import SearchReport as SearchReport
from zerolm.verbs.spaces import SpacesReport as SpacesReport

class _Bench(Protocol):
    @staticmethod
    def run(
        names: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
        *,
        all: bool = ...,
        data: str | PathLike[str] | None = ...,
        metric: str | None = ...,
        alpha: float | Sequence[float] | None = ...,
        init: str | Sequence[str] | None = ...,
        train_tokens: int | str | Sequence[int | str] | None = ...,
        progress: Progress = ...,
    ) -> BenchReport: ...
    @staticmethod
    def train(
        space: str | None = ...,
        out: str | PathLike[str] | None = ...,
        *,
        rows: str | PathLike[str] | None = ...,
        count: int | str | None = ...,
        max_params: int | str | None = ...,
        max_body_params: int | str | None = ...,
        min_params: int | str | None = ...,
        min_body_params: int | str | None = ...,
        text: str | PathLike[str],
        text_field: str | None = ...,
        held_out: str | PathLike[str] | None = ...,
        tokens: int | str | None = ...,
        tokens_per_param: float | None = ...,
        batch: int | str = ...,
        length: int | str = ...,
        rate: float = ...,
        depth_rule: str = ...,
        device: str = ...,
        dtype: str = ...,
        compile: bool = ...,
        seed: int | str = ...,
        seeds: int | str = ...,
        repeated: int | str = ...,
        jobs: int | str = ...,
        backend: str = ...,
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
    ) -> LabelsReport: ...
    @staticmethod
    def ls(
        *,
        data: str | PathLike[str] | None = ...,
    ) -> BenchmarksReport: ...

def calibrate(
    labels: str | PathLike[str] | Labels = ...,
    *,
    metric: str | None = ...,
    method: str = ...,
    seed: int | str = ...,
    progress: Progress = ...,
) -> CalibrationReport: ...

def carve(
    parent: str | PathLike[str],
    out: str | PathLike[str] | None = ...,
    *,
    like: str | None = ...,
    max_params: int | str | None = ...,
    max_active_params: int | str | None = ...,
    max_body_params: int | str | None = ...,
    max_macs: int | str | None = ...,
    max_kv_bytes: int | str | None = ...,
    max_weight_bytes: int | str | None = ...,
    types: str | None = ...,
    max_bits: float | None = ...,
    imatrix: bool = ...,
    requantize: bool = ...,
    keep_ffn: float | None = ...,
    keep_heads: float | None = ...,
    keep_layers: float | None = ...,
    keep_hidden: float | None = ...,
    keep: float | None = ...,
    keep_experts: str | None = ...,
    keep_expert_ffn: str | None = ...,
    domains: str = ...,
    expert_parallel: int | str = ...,
    keep_vocab: str | None = ...,
    keep_tokens: str | PathLike[str] | None = ...,
    shape: str | None = ...,
    space: str | None = ...,
    multiple_of: int | str | None = ...,
    tensor_parallel: int | str = ...,
    criterion: str | None = ...,
    plan: str | None = ...,
    text: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = ...,
    text_field: str | None = ...,
    sequences: int | str | None = ...,
    length: int | str = ...,
    repair: str | None = ...,
    seed: int | str = ...,
    for_: int | str | None = ...,
    heal: int | str | None = ...,
    steps: int | str = ...,
    context: int | str = ...,
    batch: int | str = ...,
    kv_bits: float | str = ...,
    bits: int | str | None = ...,
    group_size: int | str | None = ...,
    device: str = ...,
    dtype: str = ...,
    memory: int | str | None = ...,
    format: str | None = ...,
    recipe: str | PathLike[str] | None = ...,
    force: bool = ...,
    progress: Progress = ...,
) -> CarvingReport: ...

def doctor(
    folder: str | PathLike[str],
    *,
    progress: Progress = ...,
) -> DoctorReport: ...

def eval(
    child: str | PathLike[str],
    *,
    parent: str | PathLike[str],
    beside: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    like: str | None = ...,
    text: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = ...,
    text_field: str | None = ...,
    data: str | PathLike[str] | None = ...,
    sequences: int | str = ...,
    length: int | str = ...,
    loops: int | str = ...,
    tasks: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    limit: int | str | None = ...,
    device: str = ...,
    dtype: str = ...,
    progress: Progress = ...,
) -> EvaluationReport: ...

def heal(
    child: str | PathLike[str],
    out: str | PathLike[str],
    *,
    parent: str | PathLike[str],
    teacher: str | PathLike[str] | None = ...,
    text: str | PathLike[str] | Sequence[str | PathLike[str]],
    text_field: str | None = ...,
    mix: float | str | Sequence[float] | None = ...,
    length: int | str = ...,
    tokens: int | str | None = ...,
    for_: int | str | None = ...,
    losses: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    temperature: float = ...,
    top: int | str | None = ...,
    lora: int | str | None = ...,
    only: str | None = ...,
    rate: float | None = ...,
    batch: int | str | None = ...,
    seed: int | str = ...,
    device: str = ...,
    dtype: str = ...,
    accumulate: int | str = ...,
    checkpointing: bool = ...,
    compile: bool = ...,
    format: str | None = ...,
    force: bool = ...,
    progress: Progress = ...,
) -> HealingReport: ...

def init(
    out: str | PathLike[str],
    *,
    architecture: str | PathLike[str],
    tokenizer: str | PathLike[str] | None = ...,
    train_tokens: int | str | None = ...,
    length: int | str = ...,
    batch_tokens: int | str | None = ...,
    rate: float | None = ...,
    depth_rule: str = ...,
    seed: int | str = ...,
    force: bool = ...,
    progress: Progress = ...,
) -> InitReport: ...

def ledger(
    parent: str | PathLike[str],
    *,
    verify: bool = ...,
    like: str | None = ...,
    progress: Progress = ...,
) -> LedgerReport: ...

def list_families(
    name: str | None = ...,
) -> FamiliesReport: ...

def list_spaces(
    name: str | None = ...,
    *,
    known: bool = ...,
) -> SpacesReport: ...

def score(
    architecture: str | PathLike[str] | Architecture | Choice | Mapping[str, Any] = ...,
    *,
    score: str | PathLike[str] | Sequence[str | PathLike[str]] | None = ...,
    calibration: str | PathLike[str] | CalibrationReport | None = ...,
    context: int | str = ...,
    batch: int | str = ...,
    kv_bits: float | str = ...,
    bits: int | str = ...,
    group_size: int | str = ...,
    like: str | None = ...,
    alpha: float | Sequence[float] | None = ...,
    init: str | Sequence[str] | None = ...,
    train_tokens: int | str | Sequence[int | str] | None = ...,
) -> ScoreReport: ...

def search(
    space: str | None = ...,
    *,
    baseline: str | PathLike[str] | None = ...,
    within: float | str | None = ...,
    vocabularies: int | str | Sequence[int] | None = ...,
    text: str | PathLike[str] | None = ...,
    text_field: str | None = ...,
    max_params: int | str | None = ...,
    max_active_params: int | str | None = ...,
    max_body_params: int | str | None = ...,
    max_macs: int | str | None = ...,
    max_kv_bytes: int | str | None = ...,
    max_weight_bytes: int | str | None = ...,
    min_params: int | str | None = ...,
    min_active_params: int | str | None = ...,
    min_body_params: int | str | None = ...,
    min_macs: int | str | None = ...,
    min_kv_bytes: int | str | None = ...,
    min_weight_bytes: int | str | None = ...,
    train_tokens: int | str | None = ...,
    max_train_flops: float | None = ...,
    max_train_bytes: int | str | None = ...,
    train_batch: int | str = ...,
    context: int | str = ...,
    batch: int | str = ...,
    kv_bits: float | str = ...,
    bits: int | str = ...,
    group_size: int | str = ...,
    score: str | None = ...,
    labels: str | PathLike[str] | None = ...,
    metric: str | None = ...,
    calibration: str | PathLike[str] | CalibrationReport | None = ...,
    top: int | str = ...,
    method: str = ...,
    seed: int | str = ...,
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
    alpha: float | None = ...,
    init: str | None = ...,
    progress: Progress = ...,
) -> SearchReport: ...

bench: Final[_Bench]

__version__: Final[str]
