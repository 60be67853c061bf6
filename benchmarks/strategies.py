"""What fusing would do for well-known language models on well-known GPUs: predicted, from their sizes alone.

    python benchmarks/strategies.py [--device a100 h100] [--markdown]

Predicts launches, traffic, time and peak memory of GPT-2 small at 1,024 tokens, LLaMA-7B at 2,048 and LLaMA-70B at 4,096 (one
sequence, float16, all tokens at once) with nothing fused, with pointwise operators and norms, with all but attention, and with
all. `onnxfuse explain --strategies` prints the same for any model. Takes some minutes for the largest model.
"""

from __future__ import annotations

import argparse

from blueprints import BLUEPRINTS
from rich.console import Console

import onnxfuse
from onnxfuse.report.tables import STRATEGIES, strategies_table
from onnxfuse.report.text import show_bytes, show_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="+", default=["a100", "h100"], help="names of `onnxfuse devices`")
    parser.add_argument("--models", nargs="+", default=[config.name for config, _ in BLUEPRINTS])
    parser.add_argument("--markdown", action="store_true", help="print rows for a README")
    options = parser.parse_args()
    console = Console(width=140)
    for config, build in BLUEPRINTS:
        if config.name not in options.models:
            continue
        model = build(config)
        for device in options.device:
            report = onnxfuse.explain(model, device=device, shapes={"batch": 1, "seq": config.length})
            title = f"{config.name}, {config.length:,} tokens, {device}"
            if options.markdown:
                print(*rows(title, report), sep="\n")
            else:
                console.print(f"\n{title}", strategies_table(report))


def rows(title: str, report: onnxfuse.report.Report) -> list[str]:
    """Lines of a Markdown table: model, strategy, launches, traffic, time, peak memory."""
    plans = {plan.name: plan for plan in report.plans}
    lines = []
    for name, words in STRATEGIES.items():
        plan = plans[name]
        cells = (title, words, f"{plan.launches:,}", show_bytes(plan.bytes), show_us(plan.time_us), show_bytes(plan.peak_bytes))
        lines.append("| " + " | ".join(cells) + " |")
        title = ""
    return lines


if __name__ == "__main__":
    main()
