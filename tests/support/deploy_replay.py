"""The way of deploy/compose.yaml without a container engine: every service in a bubble of its own.

`build` runs the Dockerfile's steps as they stand, with /opt/fedsrc and the working folder inside one of the caller's.
`outcome` then plays a rehearsal: this module runs itself in namespaces of their own for network and processes, and
starts each service by bubblewrap as compose.yaml says: its user and groups, no capability, a read-only root that holds
the system's programs, the Python and the image's /opt/fedsrc, and its secrets, volumes and memory. A site has no
network; the others share one that leads nowhere, so that what a node reaches is not what is tested here, and that each
node is told a port of its own for its apps.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.deploy import DEPLOY, Compose, Service, compose, dockerfile

PATIENCE = 600.0
PYTHON = Path(sys.base_prefix).resolve()
SITES = ("ashford", "birch", "cedar")
PROBE = """
import json, os
def attempt(path, mode):
    try:
        os.close(os.open(path, mode, 0o600))
    except OSError:
        return False
    return True
places = ["/", "/opt/fedsrc", "/usr", "/etc", "/run/secrets", "/srv/run", "/data", "/socket", "/halt"]
wrote = [each for each in places if attempt(os.path.join(each, "probe"), os.O_CREAT | os.O_WRONLY)]
for each in wrote:
    os.remove(os.path.join(each, "probe"))
private = ["/run/secrets/records.csv", "/run/secrets/site.key", "/data/records.ledger", "/srv/run/transcript.jsonl"]
reads = [each for each in private if attempt(each, os.O_RDONLY)]
print(json.dumps({"uid": os.getuid(), "wrote": wrote, "reads": reads}))
"""


def missing() -> str | None:
    """Say what is needed and not here."""
    if os.geteuid() != 0:
        return "it gives files to users of their own, as root alone can"
    programs = [name for name in ("bwrap", "setpriv") if shutil.which(name) is None]
    if programs:
        return f"there is no {' and no '.join(programs)} on this machine"
    tried = subprocess.run(["bwrap", "--dev-bind", "/", "/", "--unshare-net", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"bwrap cannot make namespaces here: {tried.stderr.decode().strip()}"


def build(folder: Path) -> Path:
    """Run the steps of the Dockerfile's first stage; return what lies at /opt/fedsrc then."""
    image, work = folder / "fedsrc", folder / "build"
    for each in (image, work):
        each.mkdir(parents=True)
        each.chmod(0o755)
    _, steps, _ = dockerfile()
    for step in steps:
        if step.name == "COPY":
            *sources, target = step.text.split()
            for source in sources:
                _copy(ROOT / source, work / target / ("" if target != "./" else source))
        elif step.name == "RUN":
            others = [word for each in Path("/opt").iterdir() for word in ("--ro-bind", str(each), str(each))]
            root = ["--dev-bind", "/", "/", "--tmpfs", "/opt", *others, "--bind", str(image), "/opt/fedsrc"]
            root += ["--tmpfs", "/mnt", "--bind", str(work), "/mnt/build", "--chdir", "/mnt/build"]
            path = f"{PYTHON / 'bin'}:{os.environ['PATH']}"
            subprocess.run(["bwrap", *root, "sh", "-ec", step.text], env={**os.environ, "PATH": path}, check=True)
    return image


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def outcome(folder: Path, image: Path) -> dict[str, Any]:
    """Play a rehearsal in namespaces of its own, all of which ends with it; return what was seen."""
    folder.chmod(0o755)
    inner = [sys.executable, "-m", __name__, str(folder), str(image)]
    outer = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--unshare-pid", "--proc", "/proc", "--die-with-parent"]
    subprocess.run([*outer, *inner], cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return found


class Bubbles:
    """The services of compose.yaml, with folders in place of volumes."""

    def __init__(self, folder: Path, image: Path, composed: Compose) -> None:
        self._folder, self._image, self.services = folder, image, composed.services
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost server\n")
        for service in self.services.values():
            for mount in service.volumes:
                if mount.writable:
                    self._volume(mount.source, service, 0o2750 if mount.source.endswith("-socket") else 0o700)

    def _volume(self, name: str, service: Service, mode: int) -> None:
        place = self._place(name)
        place.mkdir(parents=True, exist_ok=True)
        os.chown(place, *service.ids)
        place.chmod(mode)

    def _place(self, name: str) -> Path:
        return self._folder / "volumes" / name

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def command(self, service: Service, words: Sequence[str]) -> list[str]:
        """Return the command that runs words as a service: user, root, network."""
        root = ["bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-uts", "--clearenv"]
        for above in _above(PYTHON, Path("/opt/fedsrc"), Path("/srv/run"), Path("/run/secrets/any")):
            root += ["--perms", "0755", "--dir", str(above)]
        for name in ("/usr", "/etc", str(PYTHON)):
            root += ["--ro-bind", name, name]
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                root += ["--symlink", f"usr/{name}", f"/{name}"]
        root += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(self._image), "/opt/fedsrc"]
        root += ["--ro-bind", str(self._hosts), "/etc/hosts"]
        for place in service.tmpfs:
            root += ["--perms", "1777", "--tmpfs", str(place)]
        for mount in service.secrets:
            root += ["--ro-bind", mount.source, str(mount.target)]
        for mount in service.volumes:
            how = "--bind" if mount.writable else "--ro-bind"
            root += [how, str(self._place(mount.source)), str(mount.target)]
        for name, value in {**_environment(), **service.said.get("environment", {})}.items():
            root += ["--setenv", name, value]
        root += ["--remount-ro", "/", "--chdir", str(service.said.get("working_dir", "/"))]
        if service.said.get("network_mode") == "none":
            root += ["--unshare-net"]
        user, group = service.ids
        groups = ",".join([str(group), *service.said.get("group_add", [])])
        locked = ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={groups}", "--no-new-privs"]
        return [*root, *locked, "--inh-caps=-all", "--bounding-set=-all", *words]

    def run(self, name: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run something as a service, to its end."""
        full = self.command(self.services[name], words)
        return subprocess.run(full, capture_output=True, text=True, check=False, timeout=PATIENCE)

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a service for a while."""
        service = self.services[name]
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(self.command(service, service.words), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _above(*places: Path) -> list[Path]:
    """The folders above places, upper ones first: a bubble's own folders could be entered by root alone."""
    return sorted({each for place in places for each in place.parents if each != Path("/")})


def _environment() -> dict[str, str]:
    """The environment that the image gives its processes."""
    _, _, final = dockerfile()
    (said,) = [each.text for each in final if each.name == "ENV"]
    return dict(each.split("=", 1) for each in said.split())


def _until(condition: Callable[[], bool], about: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, about()
        time.sleep(0.2)


def _ask(path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", 8321, timeout=30)
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, {"content-type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def _listening() -> bool:
    try:
        _ask("/healthz")
    except OSError:
        return False
    return True


class Kept:
    """Services that run until the end. One that ends before is started again, such as a node whose key is new."""

    def __init__(self, bubbles: Bubbles, names: Sequence[str]) -> None:
        self._bubbles, self._names = bubbles, names
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def look(self) -> None:
        """Start what does not run."""
        for name in self._names:
            if name not in self._running or self._running[name].poll() is not None:
                service = self._bubbles.services[name]
                apart = [f"--port={9100 + self._names.index(name)}"] if name.endswith("-node") else []
                command = self._bubbles.command(service, [*service.words, *apart])
                with self._bubbles.log(name).open("ab") as log:
                    self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(PATIENCE)


def _certify(bubbles: Bubbles) -> int:
    """Run sites, nodes and server until the server has ended; return its exit status."""
    kept = Kept(bubbles, [*SITES, *(f"{site}-node" for site in SITES)])
    kept.look()
    try:
        with bubbles.started("server") as server:
            end = time.monotonic() + PATIENCE
            while server.poll() is None:
                assert time.monotonic() < end, bubbles.log("server").read_text()[-2000:]
                kept.look()
                time.sleep(0.5)
            return int(server.wait())
    finally:
        kept.end()


def _gate(bubbles: Bubbles) -> dict[str, Any]:
    """Ask the gate, halt it, and ask again: before and after a restart."""
    halted, accepted = [], None
    for again in (False, True):
        with bubbles.started("gate") as gate:
            _until(_listening, lambda: bubbles.log("gate").read_text()[-2000:])
            if not again:
                accepted = _ask("/v1/decide", {"score": 1.0})[1]["accepted"]
                _signal(gate.pid, "USR1")
            _until(lambda: _ask("/healthz")[0] == 503, lambda: "the gate is not halted")
            halted.append(_ask("/v1/decide", {"score": 1.0})[1]["reason"])
    return {"accepted": accepted, "halted": halted}


def _signal(pid: int, name: str) -> None:
    """Send a signal to the process in a bubble, the last of its line."""
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            subprocess.run(["kill", f"-{name}", str(pid)], check=True)
            return
        pid = int(children[0])


def _allow(bubbles: Bubbles, site: str) -> None:
    words = ["fedsrc", "allow", "/run/secrets/registration.toml", "--site", site, "--ledger", "/data/records.ledger"]
    done = bubbles.run(site, [*words, "--max-epsilon", "4"])
    assert done.returncode == 0, done.stderr


def play(folder: Path, image: Path) -> dict[str, Any]:
    """Play a rehearsal from its files to a gate that serves the certificate."""
    files = folder / "files"
    prepared = {**os.environ, "FEDSRC": f"{sys.executable} -m fedsrc.cli"}
    subprocess.run(["sh", str(DEPLOY / "prepare.sh"), str(files)], env=prepared, check=True, stdout=subprocess.DEVNULL)
    lines = (files / "compose.env").read_text().splitlines()
    bubbles = Bubbles(folder, image, compose(dict(line.split("=", 1) for line in lines)))
    for site in SITES:
        _allow(bubbles, site)
    assert _certify(bubbles) == 0, bubbles.log("server").read_text()[-2000:]
    trust = (files / "server/server.pub").read_text().strip()
    verified = bubbles.run("gate", ["fedsrc", "verify", "/srv/run", "--trust", trust, "--format", "json"])
    probes = {name: json.loads(bubbles.run(name, ["python", "-c", PROBE]).stdout) for name in bubbles.services}
    spent = {
        site: bubbles.run(site, ["fedsrc", "site-status", "/data/records.ledger", "--format", "json"]).stdout
        for site in SITES
    }
    declared = {
        name: [str(mount.target) for mount in service.volumes if mount.writable]
        for name, service in bubbles.services.items()
    }
    return {
        "status": json.loads(verified.stdout)["status"],
        "verified": verified.returncode,
        "uids": {name: [said["uid"]] for name, said in probes.items()},
        "wrote": {name: sorted(set(said["wrote"]) - set(declared[name])) for name, said in probes.items()},
        "node_reads": [each for site in SITES for each in probes[f"{site}-node"]["reads"]],
        "spent": {site: json.loads(text)["sites"][site]["allowed"][0]["spent"] > 0 for site, text in spent.items()},
        **_gate(bubbles),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "outcome.json").write_text(json.dumps(play(place, Path(sys.argv[2]))))
