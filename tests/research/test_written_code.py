"""Programs that a benchmark writes down as text import what there is: no type check reads them.

Mutants killed: a module or a name that moved while the text kept its old place, imported or replaced.

Chance of a false alarm: none, texts are parsed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import ROOT

FOLDERS = ("research", "examples", "docs/site")  # programs in tests are run there


def programs(path: Path) -> Iterator[ast.Module]:
    """Texts of a file that are programs which import from fedsrc."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "from fedsrc" in node.value:
            try:
                yield ast.parse(node.value)
            except SyntaxError:
                continue  # prose


def imported(program: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedsrc":
            yield from ((str(node.module), each.name) for each in node.names)


def replaced(program: ast.Module) -> Iterator[tuple[str, str]]:
    """What a program puts in the place of a name of an imported module."""
    modules = {name: f"{module}.{name}" for module, name in imported(program)}
    for node in ast.walk(program):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in modules:
                yield modules[target.value.id], target.attr


def found(module: str, name: str) -> bool:
    """Whether a name is there: of a module, or a module itself."""
    try:
        if hasattr(import_module(module), name):
            return True
        import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        return (error.name or "").split(".")[0] != "fedsrc"  # it is another package that is not installed here
    return True


WRITTEN = {
    (path.relative_to(ROOT).as_posix(), *each)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    for program in programs(path)
    for each in (*imported(program), *replaced(program))
}


@pytest.mark.parametrize(("file", "module", "name"), sorted(WRITTEN))
def test_what_written_programs_import_is_there(file: str, module: str, name: str) -> None:
    assert found(module, name), f"{file} writes a program that takes or replaces {name} of {module}"


def test_a_name_that_moved_is_noticed() -> None:
    assert ("research/benchmarks/live_latency.py", "fedsrc.federation.live", "carrier") in WRITTEN
    assert ("research/benchmarks/live_latency.py", "fedsrc.federation.live.play", "LiveCarrier") in WRITTEN
    assert not found("fedsrc.federation.live.play", "LiveCarier")
    assert found("fedsrc.federation.live", "carrier")
    assert not found("fedsrc.federation", "carrier")
    assert not found("fedsrc.federation.carrier", "LiveCarrier")
