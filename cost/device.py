"""What the model knows of a device: a GPU or a CPU, as frozen records read from one TOML file each.

Units everywhere: bytes are exact, GB/s is 1e9 bytes a second, TFLOP/s are dense with float32 accumulation,
times are microseconds, clocks GHz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# ONNX type name -> name of the peak a matrix product of that type reaches; a type without its own rate runs as fp32.
PEAKS = {"float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8", "float8e4m3fn": "fp8", "float8e5m2": "fp8"}


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU. `confidence` is high (device query or datasheet), medium, or low; `note` says what to doubt."""

    key: str
    name: str
    confidence: str
    sources: tuple[str, ...]
    compute_capability: str
    sms: int
    boost_ghz: float
    tensor_clock_ghz: float
    fp32_lanes_per_sm: int
    sfu_per_clock_sm: int  # exp and its like, results per clock and SM
    tensor_fma_per_clock_sm_fp16: int
    registers_per_sm: int
    smem_per_sm: int
    smem_per_block: int  # the most one block may ask for, by opt-in
    smem_reserved: int  # taken by the driver from every block's share
    warps_per_sm: int
    blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    memory_gbs: float
    l2_gbs: float
    launch_us: float  # one kernel in a stream
    graph_launch_us: float  # one kernel in a CUDA graph
    memory_efficiency: float  # the part of memory_gbs that a copy reaches
    tensor_efficiency: float  # the part of the tensor peak that a large GEMM reaches
    peak_tflops: Mapping[str, float]
    match: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def major(self) -> int:
        """The first number of the compute capability: 8 for 8.6."""
        return int(self.compute_capability.split(".")[0])

    def peak(self, dtype: str) -> float:
        """TFLOP/s of a matrix product of that ONNX type; float32 runs without TF32, as ONNX Runtime does by default."""
        return self.peak_tflops.get(PEAKS.get(dtype, "fp32"), self.peak_tflops["fp32"])

    def has_tensor_cores(self, dtype: str) -> bool:
        """Whether a matrix product of that ONNX type has a rate of its own beside fp32."""
        return PEAKS.get(dtype, "fp32") != "fp32" and PEAKS[dtype] in self.peak_tflops


@dataclass(frozen=True)
class Cache:
    """One level: `gbs` is a copy's read + write rate from one thread while both ends fit in it."""

    level: int
    bytes: int
    shared_by: int  # cores that share one instance
    gbs: float


@dataclass(frozen=True)
class Cpu:
    """A CPU as one process sees it. `rates`, `fused_rates` and `kernel_rates` are nanoseconds an element on one thread, data in cache."""

    key: str
    name: str
    confidence: str
    sources: tuple[str, ...]
    cores: int
    simd_bits: int
    fma_units: int
    clock_ghz: float
    caches: tuple[Cache, ...]
    memory_gbs: float  # read + write, one thread
    memory_gbs_all: float  # the same, all cores together
    gemm_gflops: float  # what the runtime's float32 MatMul reaches on one thread
    node_us: float = 0.25  # what the runtime adds to each node of its own with two operands
    operand_us: float = 0.08  # and for each operand more
    fused_node_us: float = 0.35  # what it adds to each node of a custom-op library
    fused_operand_us: float = 0.35  # and for each of its operands
    generated_efficiency: float = 1.0  # the part of the vector units' rate that generated kernels reach
    attention_efficiency: float = 0.75  # the part of gemm_gflops that the fused attention reaches
    attention_us: float = 1.0  # what laying out the work of one fused attention takes
    attention_row_us: float = 0.05  # and for each row of queries of each head
    amx: bool = False  # whether our products of many rows are made on the AMX unit
    gemm_rates: Mapping[str, float] = field(default_factory=dict)  # GFLOP/s of products, by op or `Op/rows` of the left side
    rates: Mapping[str, float] = field(default_factory=dict)  # by ONNX op, in the runtime's own kernels
    fused_rates: Mapping[str, float] = field(default_factory=dict)  # by ONNX op, as part of a fused kernel
    kernel_rates: Mapping[str, float] = field(default_factory=dict)  # of whole fused kernels, by `Name/operands`
    match: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def lanes(self) -> int:
        """float32 values in one vector register."""
        return self.simd_bits // 32

    @property
    def slots_per_ns(self) -> float:
        """Elements that one core's vector units take through one instruction in a nanosecond."""
        return self.lanes * self.fma_units * self.clock_ghz

    @property
    def gflops(self) -> float:
        """Peak float32 GFLOP/s of one core."""
        return 2.0 * self.slots_per_ns


Device = Gpu | Cpu
