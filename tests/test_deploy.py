"""The files of deploy/ say what they mean to, and what they start is what the project has.

Mutants killed: a service that runs as root, keeps a capability, writes its root, has a secret in its environment, a
port on every address or a folder of the host; a site that has a network; an option or a file that was renamed; a
process that writes where it cannot; a unit without one of its locks; a proxy that logs what clients write or passes
other routes on.

`make test-deploy` also makes the image's environment step by step and plays a run of three sites in it, each service as
user and with files and rights as compose.yaml says (tests/support/deploy_replay.py).
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedsrc.federation.flower import processes, supernode
from fedsrc.gate.gate import Gate
from tests.support import ROOT
from tests.support.deploy import (
    DEPLOY,
    Compose,
    Service,
    Unit,
    commands,
    compose,
    dockerfile,
    parsed,
    units,
)
from tests.support.deploy_proxy import certificates, proxied
from tests.support.deploy_replay import build, missing, outcome
from tests.support.gate_certificates import CLAIM, TRUSTED, copied_run
from tests.support.gate_server import serving

ENVIRONMENT = {"FEDSRC_FILES": "/files", "FEDSRC_TRUST": "ab" * 32, "FEDSRC_SCORE": "lift"}
SITES = ("ashford", "birch", "cedar")
SERVICES = ("server", "gate", *SITES, *(f"{site}-node" for site in SITES))
UNITS = ("fedsrc-gate", "fedsrc-node", "fedsrc-server", "fedsrc-site")
WRITTEN = ("folder", "ledger", "socket", "halt_file", "log")  # parameters of commands: what they write
READ = ("registration", "records", "key", "ca", "certificate", "certificate_key", "node_key", "mask_key", "monitor")
LOCKS = {
    "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict",
    "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes", "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes", "ProtectKernelLogs": "yes", "ProtectControlGroups": "yes", "ProtectClock": "yes",
    "ProtectHostname": "yes", "ProtectProc": "invisible", "RestrictNamespaces": "yes", "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes", "LockPersonality": "yes", "SystemCallArchitectures": "native", "UMask": "0077",
}  # fmt: skip
SAMPLE = {
    "SITE": "north", "SUPERLINK": "server.example.org:8000", "HOST": "0.0.0.0", "TRUST": "ab" * 32, "SCORE": "lift",
    "NODES": "--node-key north=/etc/fedsrc/north.pub --node-key south=/etc/fedsrc/south.pub",
    "CREDENTIALS_DIRECTORY": "/run/credentials/it", "STATE_DIRECTORY": "/var/lib/it",
}  # fmt: skip
needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx on this machine")
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze on this machine"
)
on_request = pytest.mark.skipif("FEDSRC_DEPLOY" not in os.environ, reason="minutes and a download: make test-deploy")


# The image


def test_image_installs_as_the_makefile_does() -> None:
    """With the same flags, from a file that has what server, site and gate need, and everything by its hash."""
    _, build, _ = dockerfile()
    runs = [each.text for each in build if each.name == "RUN"]
    flags = re.search(r"^HASHED := \$\(PIP\) (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert flags is not None
    locked = [run for run in runs if " -r " in run]
    assert [f"{flags[1]} -r requirements/flower.txt" in run for run in locked] == [True]
    own = [run for run in runs if "--no-build-isolation ." in run]
    assert len(own) == 1
    assert "--no-deps" in own[0]
    assert all(run in (*locked, *own) for run in runs if " install " in run)
    assert needed("gate") | needed("flower") | needed() <= pinned("flower")


def needed(extra: str = "") -> set[str]:
    import tomllib

    said = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        canonicalize_name(Requirement(each).name)
        for each in (said["optional-dependencies"][extra] if extra else said["dependencies"])
    }


def pinned(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return {canonicalize_name(found) for found in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def test_image_leaves_nothing_that_builds() -> None:
    """What is taken out was there, and nobody who stays needs it but for uv, which Flower starts to install things."""
    _, build, _ = dockerfile()
    (run,) = [each.text for each in build if " uninstall " in each.text]
    assert run.index(" check ") < run.index(" uninstall ")
    gone = set(run.partition(" uninstall ")[2].split()) - {"--quiet", "--yes"}
    assert gone <= pinned("flower")
    assert {"hatchling", "pytest", "uv"} <= gone
    text = (ROOT / "requirements/flower.txt").read_text(encoding="utf-8")
    users = dict(re.findall(r"^([\w.-]+)==(?:.*\n)(?:    --hash.*\n)*    # via (.*)$", text, re.MULTILINE))
    for name in gone - {"uv"}:
        assert set(users[name].split(", ")) <= gone | {"fedsrc (pyproject.toml:build)", "fedsrc (pyproject.toml:live)"}


def test_image_is_pinned_and_not_root() -> None:
    before, build, final = dockerfile()
    assert [each.text for each in before] == ["BASE=python:3.11.14-slim-bookworm"]
    assert (build[0].text, final[0].text) == ("${BASE} AS build", "${BASE}")
    said = {each.name: each for each in final}
    assert said["USER"].text == "10001:10001"
    assert said["ENTRYPOINT"].exec_form == ["fedsrc"]
    assert said["CMD"].exec_form == ["--help"]
    assert not any(each.name in ("ADD", "SHELL", "VOLUME", "EXPOSE") for each in build + final)
    assert not any(" install " in f" {each.text}" and "pip" in each.text.split(" install ")[0] for each in final)
    (copied,) = [each.text for each in final if each.name == "COPY"]
    assert copied == "--from=build /opt/fedsrc /opt/fedsrc"
    for name, value in {**processes.QUIET, "PYTHONDONTWRITEBYTECODE": "1"}.items():
        if name != "FLWR_SUPEREXEC_TASK_POLL_INTERVAL":
            assert f"{name}={value}" in said["ENV"].text.split()
    labels = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", said["LABEL"].text))
    assert {"title", "description", "licenses", "base.name"} <= labels


def test_context_of_the_image_is_what_it_copies() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and line[0] != "#"]
    let_in = {rule[1:] for rule in rules if rule[0] == "!"}
    _, build, _ = dockerfile()
    copied = {name for each in build if each.name == "COPY" for name in each.text.split()[:-1]}
    assert rules[0] == "*"
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


# Compose


@pytest.fixture(scope="module")
def composed() -> Compose:
    return compose(ENVIRONMENT)


def faults(service: Service) -> list[str]:
    """What is wrong with the way a service is locked in."""
    said = service.said
    checks = {
        "runs as root": min(service.ids) >= 10_000,
        "writes its root": said.get("read_only") is True,
        "keeps capabilities": said.get("cap_drop") == ["ALL"] and "cap_add" not in said,
        "may gain rights": said.get("security_opt") == ["no-new-privileges:true"],
        "is privileged": not said.get("privileged") and "devices" not in said,
        "shares a namespace": not {"pid", "ipc", "uts", "userns_mode", "cgroup"} & said.keys(),
        "has the host's network": said.get("network_mode", "none") == "none",
        "listens beyond loopback": all(each.startswith("127.0.0.1:") for each in said.get("ports", [])),
        "mounts the host": all(re.fullmatch(r"[a-z][a-z-]*", each.source) for each in service.volumes),
        "runs what is in memory": all("noexec" in each and "nosuid" in each for each in said.get("tmpfs", [])),
        "may start without end": said.get("pids_limit", 0) > 0,
        "has more in its environment": set(said.get("environment", {})) <= {"FLWR_HOME"} and "env_file" not in said,
        "names a secret": not any(re.search("PRIVATE KEY", word) for word in service.words),
    }
    return [fault for fault, fine in checks.items() if not fine]


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_locked_in(composed: Compose, name: str) -> None:
    assert set(composed.services) == set(SERVICES)
    assert faults(composed.services[name]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"user": "0:0"}, {"read_only": False}, {"cap_drop": []}, {"cap_add": ["NET_ADMIN"]}, {"security_opt": []},
        {"privileged": True}, {"network_mode": "host"}, {"pid": "host"}, {"ports": ["8321:8321"]},
        {"ports": ["0.0.0.0:8321:8321"]}, {"volumes": ["/srv/run:/srv/run"]}, {"volumes": ["./run:/srv/run"]},
        {"tmpfs": ["/tmp"]}, {"pids_limit": -1}, {"environment": {"FEDSRC_KEY": "x"}}, {"env_file": "a"},
    ],
)  # fmt: skip
def test_a_fault_is_seen(composed: Compose, change: dict[str, Any]) -> None:
    gate = composed.services["gate"]
    assert len(faults(Service("gate", {**gate.said, **change}, gate.files))) == 1


def test_sites_have_no_network_and_nodes_reach_the_server_alone(composed: Compose) -> None:
    """A network for each site, which the server is in and nobody else."""
    services, networks = composed.services, composed.said["networks"]
    for site in SITES:
        assert services[site].said["network_mode"] == "none"
        assert "networks" not in services[site].said
        assert services[f"{site}-node"].said["networks"] == [site]
        assert networks[site] == {"internal": True}
        assert {name for name, each in services.items() if site in each.said.get("networks", [])} == {
            "server", f"{site}-node",
        }  # fmt: skip
    assert services["gate"].said["networks"] == ["gate"]
    assert all(("ports" in each.said) == (name in ("server", "gate")) for name, each in services.items())


def test_a_node_sees_nothing_of_its_site_but_the_socket(composed: Compose) -> None:
    for site in SITES:
        own, node = composed.services[site], composed.services[f"{site}-node"]
        assert node.ids[0] != own.ids[0]
        assert node.said["group_add"] == [str(own.ids[1])]
        assert [each.source for each in node.volumes] == [f"{site}-socket"]
        assert not any(each.writable for each in node.volumes)
        assert {each.source for each in node.secrets} & {each.source for each in own.secrets} == set()


def test_a_private_file_is_given_to_one_service(composed: Compose) -> None:
    """Keys and records, that is, each to the service of its party; ledgers are on a volume that nobody else has."""
    places = [(each.source, service.name) for service in composed.services.values() for each in service.secrets]
    private = [(path, name) for path, name in places if path.endswith((".key", ".csv"))]
    assert len({path for path, _ in private}) == len(private) == 2 + 3 * len(SITES)
    for path, name in private:
        assert PurePosixPath(path).parent.name == name.removesuffix("-node")
    mounted = [each.source for service in composed.services.values() for each in service.volumes]
    assert all(mounted.count(f"{site}-ledger") == 1 for site in SITES)
    assert set(mounted) == set(composed.said["volumes"])
    assert {name for name, each in composed.services.items() if any(m.source == "run" for m in each.volumes)} == {
        "server", "gate",
    }  # fmt: skip
    assert [m.writable for m in composed.services["gate"].volumes if m.source == "run"] == [False]


@pytest.mark.parametrize("name", ["server", "gate", *SITES])
def test_service_is_a_command_whose_paths_are_mounted(composed: Compose, name: str) -> None:
    """What it reads comes as a secret or lies on a volume; what it writes is on a volume."""
    service = composed.services[name]
    program, *words = service.words
    said = parsed(words)
    assert program == "fedsrc"
    for path in paths(said, WRITTEN):
        assert service.writable(path), path
        assert not any(path.is_relative_to(place) for place in service.tmpfs), path
    for path in (*paths(said, READ), *(PurePosixPath(each) for each in (said.get("node_keys") or {}).values())):
        assert service.readable(path), path
    if name in SITES:
        assert said["name"] == name
    for mount in service.secrets:  # none that the command does not read
        assert any(str(mount.target) in word for word in words)


def paths(said: Mapping[str, Any], names: tuple[str, ...]) -> list[PurePosixPath]:
    return [PurePosixPath(said[name]) for name in names if said.get(name) is not None]


@pytest.mark.parametrize("site", SITES)
def test_node_is_started_as_a_site_would_start_it(composed: Compose, site: str) -> None:
    """With options that `fedsrc site --superlink` gives it, at the socket where the site listens."""
    node, own = composed.services[f"{site}-node"], parsed(composed.services[site].words[1:])
    assert node.words[0] == "flower-supernode"
    given = dict(word.split("=", 1) for word in node.words[1:])
    check_node(given, site, str(own["socket"]))
    for name in ("--root-certificates", "--auth-supernode-private-key"):
        assert node.readable(PurePosixPath(given[name]))
    assert node.writable(PurePosixPath(node.said["environment"]["FLWR_HOME"]))


def check_node(given: Mapping[str, str], site: str, socket: str) -> None:
    known = set(re.findall(r'"(--[a-z-]+)"', inspect.getsource(supernode.supernode_command)))
    assert given.keys() <= known
    assert given["--node-config"] == f"site='{site}' socket='{socket}'"


def test_volumes_start_with_the_owner_that_writes_them(composed: Compose) -> None:
    """A new volume takes over owner and rights of the image's folder at its place."""
    _, _, final = dockerfile()
    text = " ".join(each.text for each in final if each.name == "RUN")
    made = {
        place: owner
        for owner, places in re.findall(r"install -d -o (\d+) -g \d+ -m \d+ ((?:/[\w/]+ ?)+)", text)
        for place in places.split()
    }
    for service in composed.services.values():
        for mount in service.volumes:
            if mount.writable:
                assert made[str(mount.target)] == str(service.ids[0])


def test_compose_asks_for_what_it_was_not_told() -> None:
    for name in ENVIRONMENT:
        with pytest.raises(KeyError, match=name):
            compose({key: value for key, value in ENVIRONMENT.items() if key != name})


def test_rehearsal_makes_every_file(tmp_path: Path) -> None:
    """Each with the rights that its service needs, and, made by root, its owner."""
    folder = tmp_path / "files"
    made = subprocess.run(
        ["sh", str(DEPLOY / "prepare.sh"), str(folder)],
        env={**os.environ, "FEDSRC": f"{sys.executable} -m fedsrc.cli"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    environment = dict(line.split("=", 1) for line in (folder / "compose.env").read_text().splitlines())
    found = compose(environment)
    assert environment.keys() <= found.used
    for service in found.services.values():
        for mount in service.secrets:
            about = Path(mount.source).stat()
            private = mount.source.endswith((".key", ".csv"))
            assert stat.S_IMODE(about.st_mode) == (0o400 if private else 0o644), mount
            if private and os.geteuid() == 0:
                assert about.st_uid == service.ids[0], mount
    (registered,) = {m.source for s in found.services.values() for m in s.secrets if m.target.suffix == ".toml"}
    assert environment["FEDSRC_TRUST"] in Path(registered).read_text()


# systemd


@pytest.mark.parametrize("name", UNITS)
def test_unit_is_locked_in(name: str) -> None:
    assert set(units()) == set(UNITS)
    unit = units()[name]
    for lock, value in LOCKS.items():
        assert unit.said.get(lock) == [value], lock
    assert unit.said["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert unit.said.get("DynamicUser") == ["yes"] or unit.one("User") == name
    families = set(unit.one("RestrictAddressFamilies").split())
    assert families <= {"AF_UNIX", "AF_INET", "AF_INET6"}
    if name == "fedsrc-site":
        assert (unit.one("PrivateNetwork"), families) == ("yes", {"AF_UNIX"})
    if name == "fedsrc-gate":
        assert (unit.one("IPAddressDeny"), unit.one("IPAddressAllow")) == ("any", "localhost")
        assert "--host 127.0.0.1" in unit.one("ExecStart")


@pytest.mark.parametrize("name", [name for name in UNITS if name != "fedsrc-node"])
def test_unit_starts_a_command_that_can_write_what_it_writes(name: str) -> None:
    unit = units()[name]
    program, *words = unit.words(SAMPLE)
    said = parsed(words)
    assert program == "/opt/fedsrc/bin/fedsrc"
    for path in paths(said, WRITTEN):
        assert any(path.is_relative_to(place) for place in owned(unit)), path
    for path in paths(said, READ):
        if path.name.endswith(".key"):
            assert f"{path.name}:/etc/fedsrc/{path.name}" in unit.said["LoadCredential"]


def owned(unit: Unit) -> list[PurePosixPath]:
    roots = {"StateDirectory": PurePosixPath("/var/lib"), "RuntimeDirectory": PurePosixPath("/run")}
    found = [root / name for kind, root in roots.items() for name in unit.said.get(kind, [])]
    return [*found, *([PurePosixPath(SAMPLE["STATE_DIRECTORY"])] if "StateDirectory" in unit.said else [])]


def test_unit_of_the_node_finds_the_socket_and_nothing_else() -> None:
    node, site = units()["fedsrc-node"], units()["fedsrc-site"]
    program, *words = node.words(SAMPLE)
    assert program == "/opt/fedsrc/bin/flower-supernode"
    socket = parsed(site.words(SAMPLE)[1:])["socket"]
    check_node(dict(zip(words[::2], words[1::2], strict=True)), SAMPLE["SITE"], str(socket))
    assert node.one("SupplementaryGroups") == site.one("Group")
    assert node.one("InaccessiblePaths") == f"-/var/lib/{site.one('StateDirectory')}"
    users = re.findall(r"^u (\S+)", (DEPLOY / "systemd/fedsrc.sysusers.conf").read_text(), re.MULTILINE)
    assert set(users) == {unit.one("User") for unit in units().values() if "User" in unit.said}


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_reads_the_unit(name: str, tmp_path: Path) -> None:
    """Nothing in it is unknown to systemd, whose own measure calls it well protected."""
    place = tmp_path / "etc/systemd/system" / f"{name}.service"
    place.parent.mkdir(parents=True)
    shutil.copy(DEPLOY / "systemd" / place.name, place)
    for program in ("fedsrc", "flower-supernode"):
        target = tmp_path / "opt/fedsrc/bin" / program
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", target)
    installed = Path("/lib/systemd/system")
    shutil.copytree(installed, tmp_path / installed.relative_to("/"), symlinks=True)
    where = f"--root={tmp_path}"
    about = analyze("verify", where, "--man=no", f"/etc/systemd/system/{place.name}")
    assert (about.returncode, place.name in about.stderr) == (0, False), about.stderr
    level = analyze("security", "--offline=yes", where, "--threshold=20", place.name)
    assert level.returncode == 0, level.stdout[-200:]


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


# The proxy


@needs_nginx
def test_proxy_passes_decisions_and_nothing_else(tmp_path: Path) -> None:
    """A real nginx with this file, but for places and ports, before a real gate."""
    gate = Gate(copied_run(tmp_path), trusted=TRUSTED, claim=CLAIM)
    keys = certificates(tmp_path / "proxy")
    with serving(gate) as port, proxied(tmp_path, port, keys) as proxy:
        accepted = proxy.ask("POST", "/v1/decide", {"score": 1.0})
        assert (accepted.status, accepted.json["accepted"]) == (200, True)
        assert proxy.ask("POST", "/v1/decide", {"score": 0.0}).json["accepted"] is False
        assert proxy.ask("POST", "/v1/decide/batch", {"scores": [1.0, None]}).status == 200
        assert proxy.ask("GET", "/healthz").status == 200
        assert proxy.ask("GET", "/v1/certificate").status == 200
        for method, path, status in [
            ("GET", "/metrics", 404), ("GET", "/", 404), ("GET", "/docs", 404), ("DELETE", "/v1/certificate", 403),
            ("PUT", "/v1/decide", 403), ("GET", "/v1/../metrics", 404),
        ]:  # fmt: skip
            assert proxy.ask(method, path).status == status, path
        assert proxy.ask("POST", "/v1/decide", b"x" * 70_000).status == 413
        assert proxy.ask("POST", "/v1/decide?secret-in-a-query", {"score": 1.0}).status == 200
        assert proxy.ask("POST", "/v1/decide", {"score": 1.0}, client=False).status == 400
        assert proxy.handshake(name="other.example.org") is False
        assert proxy.handshake(name="gate.example.org") is True
    logs = "".join(path.read_text() for path in (tmp_path / "log").iterdir())
    assert len(logs.splitlines()) >= 12
    assert "secret-in-a-query" not in logs
    assert "score" not in logs
    assert "decide" not in logs


@needs_nginx
def test_proxy_without_a_gate_accepts_nothing(tmp_path: Path) -> None:
    with proxied(tmp_path, 1, certificates(tmp_path / "proxy")) as proxy:
        assert proxy.ask("POST", "/v1/decide", {"score": 1.0}).status == 502


def test_ports_are_the_same_everywhere(composed: Compose) -> None:
    gate = {
        parsed(composed.services["gate"].words[1:])["port"],
        parsed(units()["fedsrc-gate"].words(SAMPLE)[1:])["port"],
    }
    (default,) = {parsed(["gate", "serve", "run", "--trust", "ab" * 32])["port"]}
    (behind,) = re.findall(r"server 127\.0\.0\.1:(\d+);", (DEPLOY / "nginx.conf").read_text())
    assert gate == {default} == {int(behind)}
    assert composed.services["gate"].said["ports"] == [f"127.0.0.1:{default}:{default}"]
    assert parsed(composed.services["server"].words[1:])["port"] == 8000


# The page


def test_checklist_is_one_page_and_its_commands_are_real() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    found = list(commands(text))
    assert {words[0] for words in found} >= {"allow", "keys", "register", "site-status", "verify"}
    for words in found:
        parsed(["ab" * 32 if word == "KEY" else word for word in words])
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert (DEPLOY / target).exists(), target


# All of it


@pytest.mark.thorough
@on_request
def test_three_sites_in_the_image_certify_and_the_gate_serves_it(tmp_path: Path) -> None:
    """The whole way of compose.yaml, without a container engine: see tests/support/deploy_replay.py."""
    if (why := missing()) is not None:
        pytest.skip(why)
    image = build(tmp_path / "image")
    found = outcome(tmp_path, image)
    assert found["status"] == "CERTIFIED"
    assert found["verified"] == 0
    assert found["accepted"] is True
    assert found["halted"] == ["gate halted", "gate halted"]  # and after a restart
    assert found["uids"] == {name: [10002 if name.endswith("-node") else 10001] for name in SERVICES}
    assert found["spent"] == dict.fromkeys(SITES, True)
    assert found["wrote"] == {name: [] for name in SERVICES}  # outside of what was declared
    assert found["node_reads"] == []
