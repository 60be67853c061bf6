"""The command line, end to end: what is printed, what is written, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.main import get_command

import onnxfuse
from onnxfuse import validate
from onnxfuse.bench import BenchResult, Timing
from onnxfuse.cli import app
from onnxfuse.commands.bench import run as run_bench
from onnxfuse.commands.bench import verdict
from onnxfuse.commands.options import names, sizes
from onnxfuse.errors import UsageError
from onnxfuse.inputs import sizes as size
from onnxfuse.inputs.sizes import Refusal, Sizes
from tests.cli.conftest import SAME, Cli, Done, run_python

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def failed(done: Done, code: int, *words: str) -> None:
    """One message that says these words, the exit code, no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert [w for w in words if w not in done.stderr] == [], done.stderr


def test_optimize_fuses_writes_and_says_so(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = cli("optimize", gelu, out, "--level", "all")
    assert done.returncode == 0, done.stderr
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Gelu"]
    for words in ("Fused", "gelu", "Nodes     5 -> 1", "Verified", f"Written   {out}"):
        assert words in done.stdout
    assert done.stderr == ""


def test_verbose_prints_a_line_per_decision(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    done = cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "-v")
    assert "[FUSION] fused gelu: Div x2 + Erf + Add + Mul -> " in done.stderr


def test_report_is_written_as_json(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    done = cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--report", tmp_path / "report.json")
    assert done.returncode == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert [d["rule"] for d in report["decisions"] if d["verdict"] == "fused"] == ["gelu"]
    assert report["output"] == str(tmp_path / "out.onnx")


@pytest.mark.parametrize("options", [("--level", "none"), ("--disable", "gelu,fused_elementwise"), ("--only", "layer_norm")])
def test_nothing_fused_is_a_copy_byte_for_byte(cli: Cli, gelu: Path, tmp_path: Path, options: tuple[str, str]) -> None:
    done = cli("optimize", gelu, tmp_path / "out.onnx", *options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.onnx").read_bytes() == gelu.read_bytes()
    assert "byte-for-byte copy" in done.stdout


def test_output_that_is_no_terminal_has_no_colour_and_is_not_cut_off(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    done = cli("optimize", gelu, tmp_path / "out.onnx", COLUMNS="30", TERM="xterm-256color")
    assert "\x1b" not in done.stdout + done.stderr
    assert "…" not in done.stdout


def test_folder_called_onnxfuse_where_one_stands_is_not_what_runs(gelu: Path, tmp_path: Path) -> None:
    """The `onnxfuse` script, started in a source tree."""
    (tmp_path / "onnxfuse").mkdir()
    (tmp_path / "onnxfuse" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    script = "import sys; sys.path = [p for p in sys.path if p]; from onnxfuse.cli import main; main()"
    done = run_python("-c", script, "optimize", gelu, "out.onnx", "--level", "all", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Gelu"]


# ---- what is refused


def test_missing_input(cli: Cli, tmp_path: Path) -> None:
    failed(cli("optimize", tmp_path / "no.onnx", tmp_path / "out.onnx"), 1, "no.onnx", "no such file")
    assert os.listdir(tmp_path) == ["here"]


@pytest.mark.parametrize("content", [b"hello, I am text", b"", bytes(100)], ids=["text", "empty", "zeros"])
def test_file_that_is_no_model(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    failed(cli("optimize", tmp_path / "bad.onnx", tmp_path / "out.onnx"), 1, "bad.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_file_that_is_cut_short(cli: Cli, gelu: Path, tmp_path: Path, share: float) -> None:
    content = gelu.read_bytes()
    gelu.write_bytes(content[: int(len(content) * share)])
    failed(cli("optimize", gelu, tmp_path / "out.onnx"), 1, "gelu.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_cyclic_graph(cli: Cli, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] b) { a = Add(x, b) b = Relu(a) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "cycle.onnx")
    failed(cli("optimize", tmp_path / "cycle.onnx", tmp_path / "out.onnx"), 1, "cycle", "'b'")


def test_output_that_is_the_input(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    before = gelu.read_bytes()
    (tmp_path / "link.onnx").symlink_to(gelu)
    for out in (gelu, tmp_path / "link.onnx"):
        failed(cli("optimize", gelu, out), 2, "must not be the input")
    assert gelu.read_bytes() == before


def test_output_folder_that_is_missing(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    failed(cli("optimize", gelu, tmp_path / "no" / "out.onnx"), 2, "folder")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--device", "a1000"), ("a1000", "a100")),
        (("--only", "geluu"), ("geluu", "gelu")),
        (("--disable", "layer_nrm"), ("layer_nrm", "layer_norm")),
        (("--level", "everything"), ("everything", "cost")),
        (("--level", "none", "--device", "a1000"), ("a1000", "a100")),
        (("--level", "none", "--only", "geluu"), ("geluu", "gelu")),
        (("--shape", "batsch=3", "--no-verify"), ("batsch", "batch")),
        (("--shape", "batch"), ("NAME=SIZE", "'batch'")),
        (("--shape", "batch=-1"), ("NAME=SIZE",)),
        (("--shape", "batch=2", "--shape", "batch=3"), ("two sizes",)),
        (("--inputs", "no.npz"), ("no.npz",)),
        (("--report", "no/such/report.json"), ("no/such",)),
    ],
)
def test_wrong_option_is_usage(cli: Cli, gelu: Path, tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    failed(cli("optimize", gelu, tmp_path / "out.onnx", *options), 2, *words)
    assert not (tmp_path / "out.onnx").exists()


def test_report_in_place_of_a_model(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    before = gelu.read_bytes()
    for report in (gelu, tmp_path / "out.onnx"):
        failed(cli("optimize", gelu, tmp_path / "out.onnx", "--report", report), 2, "--report")
    assert gelu.read_bytes() == before and not (tmp_path / "out.onnx").exists()


def test_report_in_place_of_what_the_command_reads(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    model = onnx.load(gelu)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "unread"))
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "mine.py").write_text("x = 1")
    data = (tmp_path / "w.bin").read_bytes()
    failed(cli("optimize", tmp_path / "apart.onnx", tmp_path / "out.onnx", "--report", tmp_path / "w.bin"), 2, "w.bin", "external data")
    options = ("--rules", tmp_path / "mine.py", "--report", tmp_path / "mine.py")
    failed(cli("optimize", gelu, tmp_path / "out.onnx", *options), 2, "--report", "mine.py")
    assert (tmp_path / "w.bin").read_bytes() == data and not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("args", [("optimize",), ("nonsense",), ("optimize", "a", "b", "--leve", "all")])
def test_wrong_usage_is_exit_2(cli: Cli, args: tuple[str, ...]) -> None:
    done = cli(*args)
    assert done.returncode == 2 and "Error" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"), [("def broken(:", "SyntaxError"), ("raise ValueError('x')", "ValueError"), ("a = 1", "no rule")]
)
def test_broken_rule_file_is_named(cli: Cli, gelu: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    failed(cli("optimize", gelu, tmp_path / "out.onnx", "--rules", tmp_path / "mine.py"), 1, "mine.py", words)


def test_library_that_is_none_is_named(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    (tmp_path / "ops.so").write_bytes(b"no library")
    failed(cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--library", tmp_path / "ops.so"), 1, "ops.so")
    assert not (tmp_path / "out.onnx").exists()


def test_library_is_loaded_for_each_rewrite_too(monkeypatch: pytest.MonkeyPatch, gelu: Path) -> None:
    given: list[object] = []
    check = validate.verify_rewrite
    monkeypatch.setattr(validate, "verify_rewrite", lambda *a, **k: given.append(k["libraries"]) or check(*a, **k))
    onnxfuse.optimize(gelu, level="all", libraries=[onnxfuse.library_path()])
    assert given and set(map(str, given)) == {str([onnxfuse.library_path()])}


def test_bug_is_called_one_and_verbose_shows_the_traceback() -> None:
    script = "from onnxfuse.commands.screen import errors_told\nwith errors_told(verbose={}): 1 / 0"
    plain, verbose = (run_python("-c", script.format(v)) for v in (False, True))
    assert plain.returncode == verbose.returncode == 1
    assert plain.stderr.startswith("bug: ") and "ZeroDivisionError" in plain.stderr and "Traceback" not in plain.stderr
    assert "Traceback" in verbose.stderr


INTERRUPTED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it with interrupts ignored
from onnxfuse import api, cli
api.optimize = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT) or signal.pause()
cli.main()
"""


def test_interrupt_ends_quietly(gelu: Path, tmp_path: Path) -> None:
    done = run_python("-c", INTERRUPTED, "optimize", gelu, tmp_path / "out.onnx")
    assert done.returncode in (1, 128 + signal.SIGINT)
    assert "Traceback" not in done.stderr and not (tmp_path / "out.onnx").exists()


def test_reader_that_stops_early_is_no_error() -> None:
    command = [sys.executable, "-m", "onnxfuse", "devices"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=SAME) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


# ---- the other commands


def test_verify_of_equal_models(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--no-verify")
    done = cli("verify", gelu, tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    assert "Verified  same" in done.stdout


def test_verify_of_other_numbers(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    model = onnx.load(gelu)
    model.graph.node[1].attribute[0].t.float_data[:] = [1.9]
    onnx.save(model, tmp_path / "other.onnx")
    done = cli("verify", gelu, tmp_path / "other.onnx")
    assert done.returncode == 1 and "DIFFERENT" in done.stdout
    assert done.stderr.startswith("error: ") and "other.onnx" in done.stderr


def test_inputs_are_read_from_a_file(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 8), np.float32))
    done = cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--inputs", tmp_path / "inputs.npz")
    assert done.returncode == 0 and "same on 1 input set" in done.stdout


def test_no_verify_says_so(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    done = cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--no-verify")
    assert done.returncode == 0 and "Unchecked" in done.stdout and "Verified" not in done.stdout


def test_explain_says_what_would_be_fused_and_writes_nothing(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    done = cli("explain", gelu, "--level", "all", "--rule", "gelu", "--node", "y")
    assert done.returncode == 0, done.stderr
    assert "fused" in done.stdout and "Total" in done.stdout
    assert os.listdir(tmp_path / "here") == []


def test_explain_of_a_node_that_is_not_there(cli: Cli, gelu: Path) -> None:
    failed(cli("explain", gelu, "--node", "produkt"), 2, "produkt", "Did you mean product")


def test_explain_of_a_rule_that_is_not_there(cli: Cli, gelu: Path) -> None:
    failed(cli("explain", gelu, "--rule", "gelo"), 2, "gelu")


def test_bench_times_two_models(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    cli("optimize", gelu, tmp_path / "out.onnx", "--level", "all", "--no-verify")
    done = cli("bench", gelu, tmp_path / "out.onnx", "--runs", "3", "--shape", "batch=2")
    assert done.returncode == 0, done.stderr
    assert "Ratio" in done.stdout and "batch=2" in done.stdout


def test_bench_says_when_usual_sizes_do_not_run(gelu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settle, starts = size.settle, []

    def settle_small(start: Sizes, *rest: Any) -> Sizes | Refusal:
        starts.append(start)
        return Refusal(0, "too large") if len(starts) == 1 else settle(start, *rest)

    monkeypatch.setattr(size, "settle", settle_small)
    options = {"threads": 1, "runs": 2, "shapes": {}, "inputs": None, "libraries": (), "profile": False}
    run_bench(gelu, None, **options)  # type: ignore[arg-type]
    assert len(starts) == 2 and "so small ones were made up" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.01, 1.2, "b.onnx is faster than a.onnx"),
        (0.8, 0.99, "b.onnx is slower than a.onnx"),
        (0.98, 1.01, "no difference that these runs show"),
    ],
)
def test_bench_says_what_the_ratio_means(low: float, high: float, words: str) -> None:
    timing = Timing(1.0, 0.9, 1.1)
    assert verdict(BenchResult(timing, timing, 1.0, low, high, 3, 1, {}, ()), Path("a.onnx"), Path("b.onnx")) == words


def test_listings_have_every_rule_op_and_device(cli: Cli) -> None:
    from onnxfuse.cost.devices import devices
    from onnxfuse.custom_ops import all_ops
    from onnxfuse.library import all_rules, load_generators

    for command, expected in (("rules", {**all_rules(), **load_generators()}), ("ops", all_ops()), ("devices", devices())):
        done = cli(command)
        assert done.returncode == 0, done.stderr
        assert expected and [name for name in expected if name not in done.stdout] == []


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert done.returncode == 0 and done.stdout.startswith("onnxfuse")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.returncode == 0 and "Usage: onnxfuse" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    script = "import sys, onnxfuse.cli; print([m for m in ('onnx', 'numpy', 'onnxruntime', 'onnx_graphsurgeon') if m in sys.modules])"
    assert run_python("-c", script).stdout.strip() == "[]"


# ---- options


def test_sizes_are_read_one_by_one_or_in_a_list() -> None:
    assert sizes(["batch=2", "seq=3, past = 0"]) == {"batch": 2, "seq": 3, "past": 0}
    assert sizes(["a=b=4"]) == {"a=b": 4}


@pytest.mark.parametrize("text", ["", "=3", "a=", "a=x", "a=1.5", "a=-1", "a=1,"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="NAME=SIZE"):
        sizes([text])


def test_names_may_stand_in_a_list() -> None:
    assert names(["a", "b, c", ""]) == ["a", "b", "c"]
