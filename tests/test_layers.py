"""The rooms of the package, and the four bans between them; the surface; what stays light.

Mutants killed: a site that imports the server or the other way round, a gate that needs records, scores that know the
protocol, a gate that knows the app which reads texts, a command or a report that leans on the demo, two rooms or two
modules that import each other (lazily too), a module put into the root, a room that leans on the face, a formula that
reads a file, a name of the surface without a home, a heavy library loaded by `fedsrc --help`, `import fedsrc` or
`from fedsrc import Gate`, a test that leans on a benchmark.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import fedsrc
from fedsrc.cli.main import COMMANDS, Commands, cli
from research.house import House

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "src" / "fedsrc"
FILES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)
ROOMS = {
    "common", "maths", "protocol", "records", "site", "server", "planning", "simulate", "federation", "gate", "monitor",
    "report", "data", "scores", "audit", "demo", "cli", "labelling", "guardrail",
}  # fmt: skip
HEAVY = ("polars", "scipy", "opendp", "joblib", "numpy", "matplotlib", "jinja2", "rich")


def module_of(path: Path) -> str:
    """The dotted name below fedsrc; empty for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.partition(".")[0]


MODULES = {module_of(path): path for path in FILES}


def imports(module: str) -> set[str]:
    """Modules of fedsrc that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedsrc" and not node.level:
            base = (node.module or "").removeprefix("fedsrc").lstrip(".")
            names = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            found |= {name if name in MODULES else base for name in names}
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "fedsrc"]
            found |= {name.removeprefix("fedsrc").lstrip(".") for name in names}
    return found - {module}


GRAPH = {module: imports(module) for module in MODULES}


def rooms_used_by(room: str) -> set[str]:
    return {room_of(other) for module in MODULES if room_of(module) == room for other in GRAPH[module]} - {room, ""}


def test_the_rooms_are_these() -> None:
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"} == ROOMS
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "errors.py", "face.py", "run.py"}


def test_the_face_is_above_every_room_but_the_commands() -> None:
    """Only commands use the calls and the run that users hold; the face needs neither them nor the demo."""
    for face in ("face", "run"):
        users = {room_of(module) for module, others in GRAPH.items() if face in others}
        assert users <= {"", "cli", "face"}
        assert not {room_of(other) for other in GRAPH[face]} & {"cli", "demo", "audit", "scores", "data"}


def test_site_and_server_do_not_know_each_other() -> None:
    """Ban 1: the private and the public side have no edge between them."""
    assert "server" not in rooms_used_by("site")
    assert "site" not in rooms_used_by("server")


def test_a_gate_needs_the_protocol_alone() -> None:
    """Ban 2."""
    assert rooms_used_by("gate") <= {"protocol", "common", "errors"}


def test_only_the_guardrail_sees_texts_and_decides() -> None:
    """It is above gate and scores, which do not know it; of the rest it needs what they need."""
    assert {"gate", "scores"} <= rooms_used_by("guardrail") <= {"gate", "scores", "data", "protocol", "errors"}
    assert [room for room in ROOMS if "guardrail" in rooms_used_by(room)] == ["cli"]
    assert not rooms_used_by("scores") & {"gate"}


@pytest.mark.parametrize("room", ["scores", "data"])
def test_scores_and_data_know_neither_protocol_nor_records(room: str) -> None:
    """Ban 3: from logs to scores, whatever is made of them afterwards."""
    assert not rooms_used_by(room) & {"protocol", "records"}


def test_only_commands_use_the_demo() -> None:
    """Ban 4."""
    assert [room for room in ROOMS if "demo" in rooms_used_by(room)] == ["cli"]


def test_nothing_goes_round_in_circles() -> None:
    """Neither modules nor rooms, imports inside functions included; a cycle raises CycleError with its members."""
    own = {module: {other for other in others if other} for module, others in GRAPH.items() if module}
    assert set(own) <= set(TopologicalSorter(own).static_order())
    assert set(ROOMS) <= set(TopologicalSorter({room: rooms_used_by(room) for room in ROOMS}).static_order())
    with pytest.raises(CycleError, match="cycle"):
        tuple(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())


def test_every_check_of_imports_can_fail() -> None:
    """The graph is not empty where the bans look."""
    assert {"protocol", "records"} <= rooms_used_by("site")
    assert {"protocol", "maths"} <= rooms_used_by("server")
    assert rooms_used_by("gate") == {"protocol", "common", "errors"}
    assert "common" in rooms_used_by("scores") & rooms_used_by("data")


def test_nothing_public_is_unused_and_nothing_private_is_imported() -> None:
    """What only tests call lives with the tests; `python -m research.house` prints these and more."""
    house = House(REPOSITORY)
    assert house.unused() == []
    assert house.private_imports() == []
    assert house.cycle() == []


def test_the_measures_of_the_house_can_fail(tmp_path: Path) -> None:
    """A name that nobody uses, a private one that is imported and a lazy cycle are seen."""
    package = tmp_path / "src" / "fedsrc"
    package.mkdir(parents=True)
    (tmp_path / "README.md").write_text("")
    (package / "one.py").write_text("def idle():\n    from fedsrc.two import _hidden\n\n\ndef used(): ...\n")
    (package / "two.py").write_text("from fedsrc.one import used\n\n\ndef _hidden(): ...\n")
    house = House(tmp_path)
    assert house.unused() == ["fedsrc.one.idle"]
    assert house.private_imports() == ["fedsrc.one imports fedsrc.two._hidden"]
    assert set(house.cycle()) == {"fedsrc.one", "fedsrc.two"}


def test_tests_and_benchmarks_are_apart() -> None:
    """Neither imports the other, nothing in the package imports either, and nobody bends the path of imports."""
    places = {"src": ("tests", "research"), "research": ("tests",), "tests": ("research.benchmarks",)}
    for place, banned in places.items():
        files = sorted((REPOSITORY / place).rglob("*.py"))
        assert len(files) > 20
        for path in files:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            assert not any(f"{name}.".startswith(f"{other}.") for name in names for other in banned), path
            calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            assert not calls & {"sys.path.insert", "sys.path.append"}, path


def test_maths_is_alone_and_pure() -> None:
    """numpy and scipy only; no file, clock, log, print or generator."""
    allowed = {
        "__future__",
        "numpy",
        "scipy",
        "math",
        "typing",
        "dataclasses",
        "functools",
        "collections",
        "fractions",
        "fedsrc",
    }
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


def test_seeds_exist_only_where_runs_are_simulated() -> None:
    for module, path in MODULES.items():
        if "default_rng" in path.read_text():
            assert room_of(module) in ("audit", "simulate") or module.endswith("planning.plan"), path


def test_the_surface_is_what_it_says() -> None:
    assert sorted(fedsrc.__all__) == fedsrc.__all__
    assert {*fedsrc._HOME_OF, "__version__"} == set(fedsrc.__all__)
    for name in fedsrc.__all__:
        assert getattr(fedsrc, name) is not None
        assert name in dir(fedsrc)
    assert not ROOMS & set(fedsrc.__all__), "a name that a room would hide once it is imported"
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        fedsrc.magic  # noqa: B018
    told = ast.parse((ROOT / "__init__.py").read_text()).body
    typed = next(node for node in told if isinstance(node, ast.If))
    homes = {
        alias.name: (node.module or "").removeprefix("fedsrc.")
        for node in ast.walk(typed)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == fedsrc._HOME_OF


def loaded_by(code: str) -> set[str]:
    """Which heavy libraries a fresh process has loaded after some code."""
    show = f"import sys; print(*({HEAVY!r} & sys.modules.keys()))".replace(repr(HEAVY), repr(set(HEAVY)))
    done = subprocess.run([sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import fedsrc",
        "from fedsrc import Gate",
        "from fedsrc.cli.main import cli; cli(['--help'], standalone_mode=False)",
    ],
)
def test_what_most_people_do_first_is_light(code: str) -> None:
    assert loaded_by(code) == set()


def test_the_check_of_lightness_can_fail() -> None:
    assert {"polars", "numpy"} <= loaded_by("from fedsrc import certify")


def test_help_lists_every_command_in_its_own_words() -> None:
    """`--help` imports no command, and prints the first sentence of each one's own help."""
    assert isinstance(cli, Commands)
    shown = " ".join(CliRunner().invoke(cli, ["--help"], terminal_width=1_000).output.split())
    made = {path.stem.replace("_", "-") for path in (ROOT / "cli").glob("*.py") if "_command(" in path.read_text()}
    assert sorted(COMMANDS) == list(COMMANDS) == sorted(made - {"main"}), "each in one group"
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name
        assert f"{name} {command.get_short_help_str(limit=900)}" in shown


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
