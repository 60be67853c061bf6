"""Device files: all load, agree with what follows from them, and the user's own win."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from onnxfuse.cost.detect import detect_cpu
from onnxfuse.cost.device import Cpu, Device, Gpu
from onnxfuse.cost.devices import BUILT_IN, CALIBRATED, devices, find, generic_cpu, load, user_folder
from onnxfuse.cost.profile import to_toml
from onnxfuse.errors import UsageError

DEVICES = devices()
GPUS = {key: device for key, device in DEVICES.items() if isinstance(device, Gpu)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "onnxfuse" / "devices").mkdir(parents=True)
    return tmp_path / "onnxfuse" / "devices"


def test_every_file_is_a_device(folder: Path) -> None:
    assert len(GPUS) >= 19
    assert set(devices()) == {path.stem for path in BUILT_IN.glob("*.toml")}


@pytest.mark.parametrize("key", DEVICES)
def test_source_and_confidence_are_given(key: str) -> None:
    assert DEVICES[key].confidence in ("high", "medium", "low")
    assert all(len(source) > 20 for source in DEVICES[key].sources)
    assert DEVICES[key].sources


@pytest.mark.parametrize("key", GPUS)
def test_peaks_follow_from_units_and_clocks(key: str) -> None:
    gpu = GPUS[key]
    fp32 = gpu.sms * gpu.fp32_lanes_per_sm * 2 * gpu.boost_ghz / 1e3
    fp16 = gpu.sms * gpu.tensor_fma_per_clock_sm_fp16 * 2 * gpu.tensor_clock_ghz / 1e3
    assert gpu.peak_tflops["fp32"] == pytest.approx(fp32, rel=0.0125)
    if key != "a10g":  # its sources disagree, as its confidence says
        assert gpu.peak_tflops["fp16"] == pytest.approx(fp16, rel=0.0125)
    assert gpu.l2_gbs > gpu.memory_gbs
    assert gpu.smem_per_block + gpu.smem_reserved == gpu.smem_per_sm
    assert (gpu.smem_reserved > 0) == (gpu.major >= 8)


def test_products_run_at_the_rate_of_their_type() -> None:
    h100, v100 = GPUS["h100-sxm"], GPUS["v100-sxm2-16"]
    assert h100.peak("float16") == h100.peak("bfloat16") == 989.4
    assert h100.peak("float8e4m3fn") == 2 * 989.5
    assert h100.peak("float") == h100.peak("double") == 66.9
    assert v100.peak("bfloat16") == v100.peak("float") == 15.7


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a100", "a100-sxm-80"),
        ("A100", "a100-sxm-80"),
        ("h100", "h100-sxm"),
        ("v100", "v100-sxm2-16"),
        ("H200-SXM", "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB300", "gb300"),
    ],
)
def test_devices_are_found_by_key_alias_and_driver_name(name: str, key: str) -> None:
    assert find(name).key == key


@pytest.mark.parametrize(
    ("name", "suggested"), [("a10x", "a10g"), ("h1oo", "h100"), ("4090", "rtx-4090"), ("auro", "auto"), ("zzz", "Known: ")]
)
def test_unknown_device_names_close_ones(name: str, suggested: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is unknown.*{suggested}"):
        find(name)


def test_users_file_adds_and_replaces(folder: Path) -> None:
    text = (BUILT_IN / "a100-sxm-80.toml").read_text()
    (folder / "mine.toml").write_text(text.replace("sms = 108", "sms = 54"))
    (folder / "a100-sxm-80.toml").write_text(text.replace("memory_gbs = 2039.0", "memory_gbs = 1800.0"))
    mine, known = find("mine"), find("a100")
    assert isinstance(mine, Gpu)
    assert isinstance(known, Gpu)
    assert (mine.key, mine.sms, known.memory_gbs) == ("mine", 54, 1800.0)
    assert set(devices()) == set(DEVICES) | {"mine"}


def test_changed_file_is_read_again(folder: Path) -> None:
    path = folder / "mine.toml"
    text = (BUILT_IN / "cpu-generic.toml").read_text()
    for cores in (4, 16):
        path.write_text(text.replace("cores = 4", f"cores = {cores}"))
        device = find("mine")
        assert isinstance(device, Cpu)
        assert device.cores == cores


def test_auto_is_the_calibrated_profile_or_what_is_detected(folder: Path) -> None:
    assert find("auto").key == "detected-cpu"
    (folder / f"{CALIBRATED}.toml").write_text((BUILT_IN / "cpu-generic.toml").read_text())
    assert find("auto").key == find("cpu").key == CALIBRATED


def test_a_profile_from_before_an_operator_takes_its_rates_from_the_generic_one(folder: Path) -> None:
    generic = generic_cpu()
    older = {name: rate for name, rate in generic.gemm_rates.items() if not name.startswith("GatedLinear")}
    measured = dataclasses.replace(generic, gemm_gflops=2 * generic.gemm_gflops, gemm_rates=older)
    (folder / f"{CALIBRATED}.toml").write_text(to_toml(measured))
    found = find("auto")
    assert isinstance(found, Cpu) and found.gemm_rates.keys() == generic.gemm_rates.keys()
    assert found.gemm_rates["GatedLinear/8"] == pytest.approx(2 * generic.gemm_rates["GatedLinear/8"])
    assert found.gemm_rates["MatMul/8"] == generic.gemm_rates["MatMul/8"]


def test_a_profile_that_calibration_wrote_in_another_form_is_to_be_written_again(folder: Path) -> None:
    (folder / f"{CALIBRATED}.toml").write_text("gone_us = 1.0\n" + (BUILT_IN / "cpu-generic.toml").read_text())
    with pytest.raises(UsageError, match="fields are unknown: gone_us.* `onnxfuse calibrate`"):
        find("auto")


def test_calibrated_profile_must_be_of_a_cpu(folder: Path) -> None:
    (folder / f"{CALIBRATED}.toml").write_text((BUILT_IN / "l4.toml").read_text())
    with pytest.raises(UsageError, match="must be of kind 'cpu'"):
        find("auto")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "gpu"', 'kind = "tpu"', "kind must be 'gpu' or 'cpu'"),
        ("sms = 58\n", "", "fields are missing: sms"),
        ("sms = 58", "sms = 58\ncolour = 3", "fields are unknown: colour. Known: "),
        ("sms = 58", 'sms = "58"', "sms must be a positive int; got '58'"),
        ("sms = 58", "sms = -1", "sms must be a positive int; got -1"),
        ("memory_gbs = 300.0", "memory_gbs = 0", "memory_gbs must be a positive float; got 0"),
        ("memory_gbs = 300.0", "memory_gbs = true", "memory_gbs must be a positive float; got True"),
        ("fp32 = 30.3", 'fp32 = "fast"', "peak_tflops must be"),
        ("fp32 = 30.3\n", "", "peak_tflops must have fp32"),
        ("sms = 58", "sms = ", "no valid TOML"),
        ('confidence = "medium"', 'confidence = "sure"', "confidence must be high, medium or low; got 'sure'"),
    ],
)
def test_file_that_is_not_well_formed_is_named(folder: Path, old: str, new: str, says: str) -> None:
    text = (BUILT_IN / "l4.toml").read_text()
    assert old in text
    (folder / "l4.toml").write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=f"l4.toml: .*{says}"):
        find("l4")


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone.toml: no such file"):
        load(tmp_path / "gone.toml")


@pytest.mark.parametrize("key", DEVICES)
def test_profile_written_out_is_the_profile(key: str, tmp_path: Path) -> None:
    path = tmp_path / f"{key}.toml"
    path.write_text(to_toml(DEVICES[key]))
    assert rounded(load(path)) == rounded(DEVICES[key])


def rounded(device: Device) -> Device:
    floats: dict[str, Any] = {
        f.name: float(f"{v:.4g}") for f in dataclasses.fields(device) if isinstance(v := getattr(device, f.name), float)
    }
    return dataclasses.replace(device, **floats)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "/x/onnxfuse/devices"),
        ("linux", {}, "~/.config/onnxfuse/devices"),
        ("darwin", {}, "~/Library/Application Support/onnxfuse/devices"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/onnxfuse/devices"),
        ("win32", {}, "~/AppData/Roaming/onnxfuse/devices"),
    ],
)
def test_users_folder_follows_the_platform(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_folder() == Path(expected).expanduser()


def fake_machine(root: Path, *, flags: str, caches: list[tuple[str, str, str, str]], quota: str = "max 100000") -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: {flags}\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(quota)
    for i, (level, kind, size, shared) in enumerate(caches):
        index = root / f"sys/devices/system/cpu/cpu0/cache/index{i}"
        index.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
            (index / name).write_text(value + "\n")
    return root


def test_cpu_is_described_by_what_the_kernel_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    listed = [
        ("1", "Data", "48K", "0"),
        ("1", "Instruction", "32K", "0"),
        ("2", "Unified", "2048K", "0-1"),
        ("3", "Unified", "260M", "0-63"),
    ]
    root = fake_machine(tmp_path, flags="fpu sse2 avx2 avx512f", caches=listed)
    cpu = detect_cpu(generic_cpu(), root=root)
    assert (cpu.cores, cpu.simd_bits, cpu.key) == (8, 512, "detected-cpu")
    assert "Example 9000" in cpu.name
    assert [(c.level, c.bytes, c.shared_by) for c in cpu.caches] == [(1, 48 * 1024, 1), (2, 2 * 2**20, 2), (3, 32 * 2**20, 64)]
    assert cpu.gemm_gflops == 2 * generic_cpu().gemm_gflops
    assert cpu.rates["Add"] == generic_cpu().rates["Add"] / 2
    assert cpu.rates["Pow"] == generic_cpu().rates["Pow"]


def test_products_of_many_rows_are_faster_with_amx(tmp_path: Path) -> None:
    found = {}
    for name, flags in (("plain", ""), ("tiles", "amx_tile amx_bf16")):
        (tmp_path / name).mkdir()
        found[name] = detect_cpu(generic_cpu(), root=fake_machine(tmp_path / name, flags=f"avx2 avx512f {flags}", caches=[]))
    plain, tiles = found["plain"], found["tiles"]
    assert plain.gemm_rates["Linear/256"] < plain.gemm_rates["MatMul/256"] < tiles.gemm_rates["Linear/256"]
    assert plain.gemm_rates["Linear/8"] == tiles.gemm_rates["Linear/8"]
    assert (plain.amx, tiles.amx) == (False, True)


def test_whether_there_is_amx_is_kept_in_a_profile(folder: Path) -> None:
    path = folder / f"{CALIBRATED}.toml"
    path.write_text(to_toml(dataclasses.replace(generic_cpu(), amx=True)))
    found = find("auto")
    assert isinstance(found, Cpu) and found.amx
    path.write_text(path.read_text().replace("amx = true", "amx = 1"))
    with pytest.raises(UsageError, match="amx must be true or false; got 1"):
        find("auto")


def test_quota_of_the_cgroup_limits_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    cpu = detect_cpu(generic_cpu(), root=fake_machine(tmp_path, flags="avx2", caches=[], quota="250000 100000"))
    assert (cpu.cores, cpu.simd_bits) == (2, 256)


def test_machine_that_lists_nothing_gets_the_generic_caches(tmp_path: Path) -> None:
    cpu = detect_cpu(generic_cpu(), root=tmp_path)
    assert cpu.caches == generic_cpu().caches
    assert cpu.cores >= 1


def test_this_machine_is_detected() -> None:
    cpu = detect_cpu(generic_cpu())
    assert cpu.cores >= 1
    assert cpu.lanes >= 4
    assert cpu.caches
