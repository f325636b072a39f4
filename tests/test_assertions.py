"""Every test can fail: it asserts something, expects an error, or calls a helper of the tests that does.

Read from the source, so that nothing has to be run. A helper counts when it is found, in the test's own module or where
that imports it from, and asserts itself; a method, when every method of that name in the tests does. Calls of
`check`, `expect` and `assert_...` count whoever wrote them, and so does `subprocess.run(..., check=True)`.

Mutants killed: a test whose assertions are gone, a helper that no longer asserts (of tests with nothing else), a new
test that only runs something.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT

TESTS = ROOT / "tests"
FAILS = ("raises", "warns", "deprecated_call", "fail", "check", "expect")  # when called, whoever wrote it
BEGINS = ("assert", "check_", "expect_")
ALLOWED: dict[str, str] = {}  # test: what makes it fail

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(within: ast.AST) -> Iterator[Function]:
    """Functions and methods, not those inside of others."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
            yield from functions(node)


@cache
def defined(path: Path) -> dict[str, Function]:
    return {each.name: each for each in functions(tree(path))}


@cache
def methods() -> dict[str, list[tuple[Path, Function]]]:
    """Methods of classes in the tests, by name."""
    found: dict[str, list[tuple[Path, Function]]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                for each in functions(node):
                    found.setdefault(each.name, []).append((path, each))
    return found


@cache
def imported(path: Path) -> dict[str, tuple[Path, str]]:
    """Names that a module has from other modules of the tests: where they are defined, and as what."""
    found: dict[str, tuple[Path, str]] = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
            place = ROOT.joinpath(*str(node.module).split("."))
            module = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
            found |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return found


@cache
def modules(path: Path) -> set[str]:
    """Names that a module has by `import`: what is called on them is nobody's method."""
    nodes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Import))
    return {(alias.asname or alias.name).split(".")[0] for node in nodes for alias in node.names}


def called(node: ast.Call) -> str:
    """The last part of the name that is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def fails_by_itself(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = called(node).lstrip("_")
    checked = any(word.arg == "check" and getattr(word.value, "value", None) is True for word in node.keywords)
    return name in FAILS or name.startswith(BEGINS) or checked


def given(function: Function) -> set[str]:
    """Names of its parameters: what is called by them is not the module's function of that name."""
    inside = (node for node in ast.walk(function) if isinstance(node, Function | ast.Lambda))
    return {each.arg for node in inside for each in ast.walk(node.args) if isinstance(each, ast.arg)}


def helpers(path: Path, function: Function) -> Iterator[list[tuple[Path, Function]]]:
    """What a function calls that is in the tests: each call with all that it could mean."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            of_module = isinstance(node.func.value, ast.Name) and node.func.value.id in modules(path)
            if node.func.attr in methods() and not of_module:
                yield methods()[node.func.attr]
        elif isinstance(node.func, ast.Name) and node.func.id not in given(function):
            where, name = imported(path).get(node.func.id, (path, node.func.id))
            if name in defined(where):
                yield [(where, defined(where)[name])]


def can_fail(path: Path, function: Function, seen: frozenset[str] = frozenset()) -> bool:
    """Whether the function asserts, or calls a helper that does."""
    if any(fails_by_itself(node) for node in ast.walk(function)):
        return True
    here = seen | {function.name}
    return any(
        all(each.name not in here and can_fail(where, each, here) for where, each in meant)
        for meant in helpers(path, function)
    )


def cases_of(path: Path) -> list[Function]:
    return [each for each in functions(tree(path)) if each.name.startswith("test_")]


FILES = sorted(TESTS.rglob("test_*.py"))


def test_every_test_can_fail() -> None:
    found = {f"{path.relative_to(TESTS)}::{each.name}" for path in FILES for each in cases_of(path)
             if not can_fail(path, each)}  # fmt: skip
    assert found == set(ALLOWED), "these assert nothing, or need no exception any more"


def test_tests_are_found() -> None:
    assert len(FILES) > 100
    assert sum(len(cases_of(path)) for path in FILES) > 1000


@pytest.mark.parametrize(
    ("body", "fails"),
    [
        ("assert x", True),
        ("with pytest.raises(ValueError):\n        f()", True),
        ("with pytest.warns(UserWarning):\n        f()", True),
        ("np.testing.assert_allclose(x, y)", True),
        ("page.expect(y)", True),
        ("subprocess.run([], check=True)", True),
        ("subprocess.run([])", False),
        ("subprocess.run([], check=False)", False),
        ("helper()", True),
        ("through()", True),
        ("silent()", False),
        ("through_a_parameter(f)", False),
        ("again()", False),
        ("f()", False),
        ("pass", False),
        ("def inner():\n        assert x\n    inner()", True),
    ],
)
def test_what_counts(tmp_path: Path, body: str, fails: bool) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        "import subprocess\n\ndef helper():\n    assert x\n\ndef through():\n    helper()\n\n"
        f"def silent():\n    checkpoint(expected())\n\ndef through_a_parameter(helper):\n    helper()\n\n"
        f"def again():\n    again()\n\ndef test_it():\n    {body}\n",
        encoding="utf-8",
    )
    (found,) = cases_of(path)
    assert can_fail(path, found) is fails
