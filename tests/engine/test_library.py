"""Where rules come from, and what they are called."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from onnxfuse import library
from onnxfuse.errors import RuleError, UsageError
from onnxfuse.library import load_rules, rules_in

TWO = '''"""x * sigmoid(x) -> Silu(x): twice.

More words.
"""
from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.Swish(x, alpha=1.0), after=SILU(x))
QUICK = Rule(before=op.Swish(x, alpha=1.702), after=SILU(x, alpha=1.702))
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TWO)
    return path


def test_a_rule_has_the_name_of_its_file_and_further_ones_their_own(file: Path) -> None:
    found = rules_in(file)
    assert list(found) == ["mine", "mine.quick"]
    assert {r.summary for r in found.values()} == {"x * sigmoid(x) -> Silu(x): twice."}


def test_rules_of_files_join_those_that_ship_and_take_their_place(file: Path, tmp_path: Path) -> None:
    assert {"mine", "mine.quick", "gelu"} <= set(load_rules([file]))
    (tmp_path / "silu.py").write_text(TWO)
    assert load_rules([tmp_path / "silu.py"])["silu"].summary.endswith("twice.")
    assert not load_rules()["silu"].summary.endswith("twice.")


def test_only_and_disable_choose_among_them(file: Path) -> None:
    assert list(load_rules([file], only=["mine.quick", "gelu"])) == ["gelu", "mine.quick"]
    assert "gelu" not in load_rules(disable=["gelu"])
    assert list(load_rules(only=["gelu", "silu"], disable=["silu"])) == ["gelu"]


def test_a_name_that_no_rule_has_is_refused_with_the_nearest(file: Path) -> None:
    with pytest.raises(UsageError, match="rule 'mine.quik' is unknown. Did you mean mine.quick"):
        load_rules([file], only=["mine.quik"])


def test_an_installed_package_brings_rules_by_an_entry_point(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    point = EntryPoint("theirs", "mine", library.ENTRY_POINT)
    monkeypatch.setattr(library, "entry_points", lambda group: [point] if group == "onnxfuse.rules" else [])
    library._installed.cache_clear()
    try:
        assert {"theirs", "theirs.quick"} <= set(load_rules())
    finally:
        library._installed.cache_clear()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def broken(:", "SyntaxError"),
        ("x = 1 / 0", ":1: ZeroDivisionError"),
        ("\n\nimport there_is_no_such_module", ":3: ModuleNotFoundError"),
        ("x = 1", "defines no rule"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where_it_broke(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(content)
    with pytest.raises(RuleError, match=words):
        rules_in(tmp_path / "bad.py")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such file"):
        rules_in(tmp_path / "missing.py")
    with pytest.raises(RuleError, match="is no Python file"):
        rules_in(tmp_path)
