"""Measure the house: its size, what stands in it twice, and what nobody uses.

    python -m research.house [FOLDER]

FOLDER is the root of a checkout, this one unless named; so two versions are measured by the same rules.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
USERS = ("research", "examples", "docs/site")  # besides the package itself; tests do not count


@dataclass(frozen=True)
class Source:
    """One module: its dotted name and its syntax tree."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def definitions(self) -> Iterator[Definition]:
        """Yield functions and classes at the top level."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node

    def imported(self) -> Iterator[tuple[str, str]]:
        """Yield (module, name) for every `from module import name`, lazy ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((node.module, alias.name) for alias in node.names)

    def words(self) -> Iterator[str]:
        """Yield every name, attribute and dotted string that is read, the last by its last part."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value)
            ):
                yield re.split(r"[.:]", node.value)[-1]


class House:
    """A checkout's sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = {each.name: each for each in self._read(root / "src")}
        self.others = [each for folder in USERS for each in self._read(root / folder)]
        self.shown = {word for page in _pages(root) for word in re.findall(r"\w+", " ".join(page))}

    @staticmethod
    def _read(folder: Path) -> Iterator[Source]:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield Source(name, path.read_text(encoding="utf-8"))

    def lines(self) -> dict[str, int]:
        return {name: source.text.count("\n") for name, source in self.modules.items()}

    def functions(self) -> dict[str, int]:
        """Return the length of every function, methods included."""
        return {
            f"{name}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
            for name, source in self.modules.items()
            for node in ast.walk(source.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def unused(self) -> list[str]:
        """Return public functions and classes that neither code outside the tests uses nor a page shows."""
        everyone = [*self.modules.values(), *self.others]
        taken = {pair for source in everyone for pair in source.imported()}
        words = {word for source in everyone for word in source.words()} | self.shown
        return sorted(
            f"{name}.{node.name}"
            for name, source in self.modules.items()
            for node in source.definitions()
            if not (node.name.startswith("_") or _command(node) or (name, node.name) in taken or node.name in words)
        )

    def defined_twice(self) -> dict[str, list[str]]:
        """Return public names that two modules define at their top level."""
        homes = defaultdict(list)
        for name, source in self.modules.items():
            for node in source.definitions():
                if not node.name.startswith("_"):
                    homes[node.name].append(name)
        return {name: places for name, places in sorted(homes.items()) if len(places) > 1}

    def files_twice(self) -> dict[str, list[str]]:
        """Return names of files or folders that stand in more than one room, commands aside: each is named for what it
        calls."""
        places = defaultdict(list)
        for name in self.modules:
            if not name.startswith("fedsrc.cli."):
                places[name.rpartition(".")[2]].append(name)
        return {name: found for name, found in sorted(places.items()) if len(found) > 1}

    def private_imports(self) -> list[str]:
        """Return imports of another module's private name."""
        return sorted(
            f"{name} imports {module}.{taken}"
            for name, source in self.modules.items()
            for module, taken in source.imported()
            if module.startswith("fedsrc") and taken.startswith("_") and taken != "__version__"
        )

    def cycle(self) -> list[str]:
        """Return the members of an import cycle, lazy imports included; nothing if there is none."""
        graph = {
            name: {
                f"{module}.{taken}" if f"{module}.{taken}" in self.modules else module
                for module, taken in source.imported()
                if module.startswith("fedsrc.")
            }
            for name, source in self.modules.items()
            if name != "fedsrc"
        }
        try:
            tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            return list(error.args[1])
        return []


def _command(node: Definition) -> bool:
    """Whether something else calls it by its decorator: click, a validator, a route."""
    return any(isinstance(each, ast.Call) for each in node.decorator_list) and not isinstance(node, ast.ClassDef)


def _pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield what the README and the pages show of the package: blocks of Python, and dotted names."""
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        yield from re.findall(r"```python\n(.*?)```|`(fedsrc\.[\w.]+)", path.read_text(encoding="utf-8"), re.DOTALL)


def report(root: Path) -> str:
    """Return the measures of a checkout, one a line."""
    house = House(root)
    lines, functions = house.lines(), house.functions()
    longest, function = max(lines, key=lambda name: lines[name]), max(functions, key=lambda name: functions[name])
    rows = [
        f"lines of src            {sum(lines.values()):,} in {len(lines)} modules",
        f"longest module          {longest}, {lines[longest]} lines",
        f"longest function        {function}, {functions[function]} lines",
        f"files of the same name  {len(house.files_twice())}: {_listed(house.files_twice())}",
        f"names defined twice     {len(house.defined_twice())}: {_listed(house.defined_twice())}",
        f"unused public names     {len(house.unused())}: {', '.join(house.unused())}",
        f"private names imported  {len(house.private_imports())}: {', '.join(house.private_imports())}",
        f"import cycle            {' -> '.join(house.cycle()) or 'none'}",
    ]
    return "\n".join(rows)


def _listed(found: dict[str, list[str]]) -> str:
    return "; ".join(
        f"{name} ({', '.join(place.removeprefix('fedsrc.') for place in places)})" for name, places in found.items()
    )


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
