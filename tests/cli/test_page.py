"""The page of `--report FILE.html`: its data, its cost model against ours, its layout, and what it shows."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxfuse
from onnxfuse.cost.device import Cpu, Gpu
from onnxfuse.cost.devices import devices, find
from onnxfuse.cost.model import Model
from onnxfuse.cost.work import Compiled
from onnxfuse.exhibit import device_record, tables, work_record
from onnxfuse.report.html import to_html
from tests.cli import page as browser
from tests.cli.conftest import Cli
from tests.cost.harness import random_work

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt2_torchscript.onnx"
WEB = ROOT / "onnxfuse" / "report" / "web"
SCRIPTS = {name: (WEB / f"{name}.js").read_text(encoding="utf-8") for name in ("cost", "layout")}


@pytest.fixture(scope="module", params=["a100", "cpu-generic"])
def shown(request: pytest.FixtureRequest) -> tuple[onnxfuse.report.Report, str]:
    """A report, and its page."""
    report = onnxfuse.explain(EXAMPLE, device=request.param)
    return report, to_html(report)


def test_page_is_one_file_that_asks_for_nothing(shown: tuple[Any, str]) -> None:
    text = shown[1]
    assert re.findall(r'(?:src|href)\s*=\s*["\']', text) == []
    outside = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert [url for url in outside if url not in browser.part(text, "exhibit")] == []  # sources of devices are data
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|WebSocket|@import", text)


def test_names_of_a_model_are_never_taken_for_markup(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script><!--"
    node = onnx.helper.make_node("Relu", [bad], ["y"], name=bad)
    values = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in (bad, "y")]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:]))
    text = to_html(onnxfuse.explain(model))
    assert bad not in text
    assert browser.data(text, "exhibit")["before"][0]["nodes"][0]["label"] == bad


def test_page_holds_the_report_and_both_graphs(shown: tuple[Any, str]) -> None:
    report, text = shown
    assert browser.data(text, "report")["nodes_after"] == report.nodes_after
    exhibit = browser.data(text, "exhibit")
    assert len(exhibit["before"][0]["nodes"]) == report.nodes_before
    after = {node["label"] for node in exhibit["after"][0]["nodes"]}
    assert report.fused and all(d.new_node in after for d in report.fused)
    before = {node["label"] for node in exhibit["before"][0]["nodes"]}
    assert all(set(d.nodes) <= before for d in report.fused)


# ---- the page's cost model is ours


def test_page_prices_every_decision_as_python_does(shown: tuple[Any, str], tmp_path: Path) -> None:
    report, text = shown
    got = browser.run_script(priced_by_page(text), tmp_path)
    assert len(got["usual"]) == len(report.decisions)
    priced = [(found, d.price) for found, d in zip(got["usual"], report.decisions, strict=True) if d.price is not None]
    assert priced
    for found, price in priced:
        assert found["unfused_us"] == pytest.approx(price.unfused_us, rel=1e-9)
        assert found["fused_us"] == pytest.approx(price.fused_us, rel=1e-9)
        assert (found["saved_bytes"], found["saved_launches"], found["limiter"]) == (price.saved_bytes, price.saved_launches, price.limiter)
        assert found["worth"] == price.worth and bool(found["failures"]) == bool(price.failures)


def test_page_prices_other_sizes_as_python_does(shown: tuple[Any, str], tmp_path: Path) -> None:
    report, text = shown
    got = browser.run_script(priced_by_page(text), tmp_path)["sizes"]
    sizes = dict(report.sizes)
    assert set(got) <= set(sizes) and got
    for dim, found in got.items():
        for size in (min(found, key=int), max(found, key=int)):
            at = onnxfuse.explain(EXAMPLE, device=report.device, shapes={**sizes, dim: int(size)})
            prices = {(d.rule, d.value, d.target, d.nodes): d.price for d in at.decisions if d.price is not None}
            compared = 0
            for i, decision in enumerate(report.decisions):
                price = prices.get((decision.rule, decision.value, decision.target, decision.nodes))
                if price is not None and found[size][i] is not None:
                    compared += 1
                    assert found[size][i]["saved_us"] == pytest.approx(price.saved_us, rel=1e-9, abs=1e-9)
            assert compared


def priced_by_page(text: str) -> str:
    """A script that prices all decisions of a page by its own functions."""
    return f"""{browser.part(text, "cost-script")}
    function answer() {{
      const report = {browser.part(text, "report")}, exhibit = {browser.part(text, "exhibit")};
      const cost = makeCost(exhibit.tables), works = exhibit.works.map((work) => ({{ ...exhibit.tables.work, ...work }}));
      const setting = (kinds) => Object.fromEntries(Object.entries(kinds).map(([name, places]) => [name, places.map((i) => works[i])]));
      const priced = (of) => exhibit.case_of.map((c) => (c === null ? null : cost.price(setting(of(exhibit.cases[c])), exhibit.device)));
      const sizes = Object.fromEntries(Object.entries(exhibit.dims).map(([dim, d]) => [dim, Object.fromEntries(
        d.sizes.map((size) => [size, priced((c) => c.dims[dim][size])]))]));
      return {{ usual: priced((c) => c.usual), sizes }};
    }}"""


@pytest.mark.parametrize("key", [*devices(), "cpu-generic with amx"])
def test_formulas_of_the_page_equal_ours_on_random_kernels(key: str, tmp_path: Path) -> None:
    rng, device = random.Random(key), find(key.split()[0])
    if isinstance(device, Cpu) and key != device.key:
        device = replace(device, amx=True)
    chains = [[random_work(rng) for _ in range(rng.randrange(1, 4))] for _ in range(60)]
    script = f"""{SCRIPTS["cost"]}
    function answer() {{
      const tables = {json.dumps(tables())}, device = {json.dumps(device_record(device))}, cost = makeCost(tables);
      return {json.dumps([[work_record(w) for w in chain] for chain in chains])}.map((chain) => {{
        const works = chain.map((work) => ({{ ...tables.work, ...work }}));
        return ["basic", "extended"].map((mode) => cost.times(works, device, mode));
      }});
    }}"""
    for chain, modes in zip(chains, browser.run_script(script, tmp_path), strict=True):
        for mode, kernels in zip(("basic", "extended"), modes, strict=True):
            want = Model(device).times(chain, mode=mode)
            for term in [t for t in want if t.endswith("_us")]:
                total = sum(float("inf") if kernel[term] is None else kernel[term] for kernel in kernels)
                assert total == pytest.approx(want[term], rel=1e-9), (term, chain)
            if len(chain) == 1 and isinstance(device, Gpu):
                assert kernels[0]["occupancy"]["blocks"] == want["blocks_per_sm"]
                assert kernels[0]["occupancy"]["fraction"] == pytest.approx(want["occupancy"])
                assert kernels[0]["tail"] == pytest.approx(want["tail"])


@pytest.mark.parametrize(
    "launch", [{"registers": 200}, {"threads": 96}, {"smem": 70000, "threads": 128}, {"registers": 256}, {"smem": 10**6}]
)
def test_launch_that_is_moved_is_priced_as_a_compiled_kernel(launch: dict[str, int], tmp_path: Path) -> None:
    device = find("a100")
    rng = random.Random(7)
    for fused in (replace(random_work(rng), fused=True, compiled=None, launches=1) for _ in range(8)):
        before = [random_work(rng), random_work(rng)]
        script = f"""{SCRIPTS["cost"]}
        function answer() {{
          const tables = {json.dumps(tables())}, cost = makeCost(tables), full = (work) => ({{ ...tables.work, ...work }});
          const after = [full({json.dumps(work_record(fused))})], before = {json.dumps([work_record(w) for w in before])}.map(full);
          const setting = {{ before, left: [], after }};
          const {{ kernelFacts }} = cost;
          return [cost.price(setting, {json.dumps(device_record(device))}, {json.dumps(launch)}), kernelFacts(setting.after[0])[0]];
        }}"""
        found, facts = browser.run_script(script, tmp_path)
        moved = replace(fused, compiled=Compiled(**{**facts, **launch}))
        want = Model(device, runtime_fuses=False).price(before, [moved])
        assert found["worth"] == want.worth and bool(found["failures"]) == bool(want.failures)
        assert (float("inf") if found["fused_us"] is None else found["fused_us"]) == pytest.approx(want.fused_us, rel=1e-9)


# ---- the layout


def test_layout_has_every_node_above_its_readers_and_no_two_on_each_other(shown: tuple[Any, str], tmp_path: Path) -> None:
    graph = browser.data(shown[1], "exhibit")["before"][0]
    laid = browser.run_script(f"{SCRIPTS['layout']}\nfunction answer() {{ return layoutGraph({json.dumps(graph)}); }}", tmp_path)
    boxes = {box["id"]: box for box in laid["boxes"]}
    assert len(boxes) == len(graph["nodes"]) + len(graph["inputs"]) + len(graph["outputs"])
    assert all(boxes[line["from"]]["y"] < boxes[line["to"]]["y"] for line in laid["lines"])
    assert all(
        b["x"] - b["w"] / 2 >= 0 and b["x"] + b["w"] / 2 <= laid["width"] and b["y"] + b["h"] / 2 <= laid["height"] for b in boxes.values()
    )
    rows: dict[float, list[Any]] = {}
    for box in boxes.values():
        rows.setdefault(box["y"], []).append(box)
    for row in rows.values():
        row.sort(key=lambda b: b["x"])
        assert all(a["x"] + a["w"] / 2 < b["x"] - b["w"] / 2 for a, b in zip(row, row[1:], strict=False))


def test_thousands_of_nodes_are_laid_out(tmp_path: Path) -> None:
    """A chain with shortcuts: each node reads the one before and one of the last twenty."""
    count = 3000
    rng = random.Random(3)
    values = [{"name": "x", "from": None}, *({"name": f"v{i}", "from": i} for i in range(count))]
    nodes = [{"op": "Add", "reads": sorted({i, max(0, i - rng.randrange(20))})} for i in range(count)]
    graph = {"nodes": nodes, "inputs": [0], "outputs": [count], "values": values}
    laid = browser.run_script(f"{SCRIPTS['layout']}\nfunction answer() {{ return layoutGraph({json.dumps(graph)}); }}", tmp_path)
    assert len(laid["boxes"]) == count + 2


# ---- the command, and the page in a browser


def test_report_is_written_as_a_page(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    for command in (("optimize", gelu, tmp_path / "out.onnx", "--no-verify"), ("explain", gelu)):
        done = cli(*command, "--level", "all", "--report", tmp_path / "report.html")
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>") and browser.data(text, "report")["decisions"][0]["rule"] == "gelu"


def test_page_of_a_model_that_was_only_copied(tmp_path: Path, gelu: Path) -> None:
    shown = browser.data(to_html(onnxfuse.optimize(gelu, tmp_path / "out.onnx", level="none").report), "exhibit")
    assert shown["cases"] == [] and len(shown["before"][0]["nodes"]) == 5 and shown["after"] == shown["before"]


PROBE = """<script>
const notes = {}, count = (what) => document.querySelectorAll(what).length, text = (id) => document.getElementById(id).textContent;
const say = (name) => {
  const [boxes, rows, points] = ["#drawing .box", "#table tbody tr", "#roofline .point"].map(count);
  notes[name] = { boxes, rows, points, now: text("verdicts-now") };
};
say("start");
select(report.decisions.findIndex((d) => d.verdict === "fused"), true);
notes.lit = count("#drawing .box.lit");
notes.details = text("details");
showGraph("after", 0);
say("after");
find("matmul", 1);
notes.found = text("found");
document.getElementById("filter").value = "attention";
drawTable();
say("filtered");
what.figures = { launch: 1e4 };
redraw();
say("slow launches");
const out = document.createElement("pre");
out.id = "notes";
out.textContent = JSON.stringify(notes);
document.body.replaceChildren(out);
</script></body>"""


@pytest.mark.skipif(browser.chromium_path() is None, reason="chromium is not installed: apt-get install chromium")
def test_page_draws_itself_and_answers_what_if(shown: tuple[Any, str], tmp_path: Path) -> None:
    report, text = shown
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", PROBE), encoding="utf-8")
    found = re.search(r'<pre id="notes">(.*?)</pre>', browser.rendered(path, tmp_path), re.DOTALL)
    assert found is not None
    notes = json.loads(browser.html.unescape(found.group(1)))
    fused = report.fused[0]
    before = browser.data(text, "exhibit")["before"][0]
    assert notes["start"]["boxes"] == sum(not n["sizes"] for n in before["nodes"]) + len(before["inputs"]) + len(before["outputs"])
    assert notes["start"]["rows"] == min(300, len(report.decisions)) and notes["start"]["points"] > 0
    assert "All decisions as in the report" in notes["start"]["now"]
    assert notes["lit"] > 1 and fused.rule in notes["details"] and "Predicted" in notes["details"]
    assert notes["after"]["boxes"] < notes["start"]["boxes"]
    assert re.fullmatch(r"1 of \d+", notes["found"])
    assert 0 < notes["filtered"]["rows"] < notes["start"]["rows"]
    assert notes["slow launches"]["now"] != notes["start"]["now"]
