"""Every snippet of docs/rules.md is run: rules by their examples and made-up models, commands in a folder that has what they name."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest

from onnxfuse import ruletest
from onnxfuse.library import rules_in
from onnxfuse.ruletest import parse
from tests.cli.conftest import run_python

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "rules.md"
MODELS = 8


@dataclass
class Section:
    """A rule file, and what the document does with it: `other` is a model, `commands` are run, `lines` must be among what they say."""

    rule: str
    other: str = ""
    commands: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def sections() -> list[Section]:
    found: list[Section] = []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if language == "python":
            found.append(Section(text))
        elif language == "onnx":
            found[-1].other = text
        elif language == "sh":
            found[-1].commands += text.splitlines()
        else:
            assert language == "text", f"nothing is known of {language} snippets"
            found[-1].lines += text.splitlines()
    return found


SECTIONS = sections()
EVERY_SECTION = pytest.mark.parametrize("section", SECTIONS, ids=[s.rule.split("\n", 1)[0].strip('"') for s in SECTIONS])


@EVERY_SECTION
def test_every_rule_does_what_its_examples_say_and_keeps_every_number(section: Section, tmp_path: Path) -> None:
    (tmp_path / "my_rules.py").write_text(section.rule, encoding="utf-8")
    (result,) = ruletest.test_rules(tmp_path / "my_rules.py", models=MODELS)
    assert [f.what for f in result.failures] == []
    assert result.fired and result.declined


@pytest.mark.parametrize("section", [s for s in SECTIONS if s.commands], ids=lambda s: s.commands[0])
def test_every_command_runs_and_says_what_the_document_says(section: Section, tmp_path: Path) -> None:
    (tmp_path / "my_rules.py").write_text(section.rule, encoding="utf-8")
    (rule,) = rules_in(tmp_path / "my_rules.py").values()
    onnx.save(parse(rule.fires_on[0]), tmp_path / "model.onnx")
    onnx.save(parse(next(iter(rule.declines.values()))), tmp_path / "declined.onnx")
    if section.other:
        onnx.save(parse(section.other), tmp_path / "other.onnx")
    said = ""
    for command in section.commands:
        program, *arguments = shlex.split(command)
        assert program == "onnxfuse"
        done = run_python("-m", program, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert [line for line in section.lines if line not in re.sub(r"\s+", " ", said)] == []


def test_the_document_tells_of_all_that_a_rule_can_do() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for word in (
        "Var(",
        "Scalar(",
        "optional(",
        "either(",
        ".named(",
        "outputs=",
        "where=",
        "Decline",
        "target(",
        "Op(",
        "explain",
        "rules test",
    ):
        assert word in text


def test_the_users_rules_that_ship_as_an_example_keep_every_number() -> None:
    results = ruletest.test_rules(ROOT / "examples" / "my_rules.py", models=20)
    assert [f.what for r in results for f in r.failures] == []
    assert all(r.fused for r in results)
