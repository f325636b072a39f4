"""The flow stays visible: modules import only from layers below their own; the surface is what is documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedsrc

ROOT = Path(fedsrc.__file__).parent
LAYERS = [
    ["maths"],
    ["errors"],
    ["common"],
    ["protocol"],
    ["records"],
    ["site", "server"],
    ["simulate"],
    ["planning", "federation", "data"],
    ["monitor", "gate", "scores"],
    ["demo"],
    ["report"],
    ["audit"],
    ["studies"],
    ["__init__"],
    ["cli_common"],
    ["cli_run"],
    ["cli_table"],
    [
        "cli_answers",
        "cli_audit",
        "cli_choose",
        "cli_fit",
        "cli_gate",
        "cli_live",
        "cli_monitor",
        "cli_reproduce",
        "cli_score",
        "cli_view",
    ],
    ["cli"],
]
LEVEL = {name: i for i, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


def layer_of(path: Path) -> str:
    part = path.relative_to(ROOT).parts[0]
    return part.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Modules of fedsrc that a file imports, as dotted names below fedsrc."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedsrc":
            inner = node.module.split(".")[1:]
            found |= {".".join(inner)} if inner else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("fedsrc").lstrip(".") for alias in node.names if alias.name.startswith("fedsrc")
            }
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    here = layer_of(path)
    assert here in LEVEL, f"{here} has no layer"
    for module in imports(path):
        other = module.split(".")[0] or "__init__"
        other = other if other in LEVEL else "__init__"
        assert LEVEL[other] < LEVEL[here] or other == here, f"{path.name} imports {module}"


def test_maths_is_alone_and_pure() -> None:
    """numpy and scipy only; no file, clock, log, print or generator."""
    allowed = {"__future__", "numpy", "scipy", "math", "typing", "dataclasses", "functools", "collections", "fedsrc"}
    for path in sorted((ROOT / "maths").glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in allowed, path
                assert not (node.module or "").startswith("fedsrc") or (node.module or "").startswith("fedsrc.maths")
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("random", "default_rng", "open", "time", "print"), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), path


def test_seeds_exist_only_in_the_audit() -> None:
    for path in FILES:
        if "default_rng" in path.read_text():
            assert layer_of(path) in ("audit", "simulate"), path


def test_the_surface_is_what_it_says() -> None:
    assert sorted(fedsrc.__all__) == fedsrc.__all__
    for name in fedsrc.__all__:
        assert getattr(fedsrc, name) is not None
    public = {name for name in vars(fedsrc) if not name.startswith("_")}
    modules = {path.stem for path in ROOT.iterdir()}
    assert public - modules <= {*fedsrc.__all__, "annotations"}
    assert set(fedsrc.__all__) - public == {"__version__"}


def test_every_public_function_is_documented() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                documented = ast.get_docstring(node) or node.name == "main" or _one_line(node)
                assert documented, f"{path.name}: {node.name}"


def _one_line(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return isinstance(node, ast.FunctionDef) and len(node.body) == 1
