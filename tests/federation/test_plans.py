"""Plans of a live run over Flower: what an operator asks for is checked before anything is started.

Mutants killed: a node key of a stranger or of one site only, node keys without TLS, one key for two sites, half a set
of certificates, certificates for a SuperLink that runs already, another machine without encryption.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.signing import load, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.plans import node_name, node_plan, server_plan
from fedsrc.federation.flower.processes import Tls
from fedsrc.federation.flower.superlink import Address, ServerPlan
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.planning.register import Choices, register_grid

SITES = ("north", "south")


class Trial:
    def __init__(self, folder: Path) -> None:
        self.folder, self.public = folder, make_trial(folder / "t", SITES)
        self.registration = register_grid(
            Choices(
                0.2, 4.0, grid=True, server_key=self.public["server"], site_keys={s: self.public[s] for s in SITES}
            ),
            SITES,
        )
        self.tls = Tls(*(folder / "t" / name for name in ("ca.pem", "server/tls.pem", "server/tls.key")))
        self.node_keys = {name: folder / "t" / name / "node.pub" for name in SITES}

    def plan(self, **changes: Any) -> ServerPlan:
        how = {"address": Address(), "tls": self.tls, "node_keys": self.node_keys, **changes}
        return server_plan(self.registration, self.folder / "run", self.folder / "t" / "server" / "server.key", **how)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("plans"))


def test_a_plan_names_node_keys_and_places(trial: Trial) -> None:
    plan = trial.plan()
    assert plan.settings.node_keys == {s: node_name(path, private=False) for s, path in trial.node_keys.items()}
    assert node_name(trial.folder / "t" / "north" / "node.key", private=True) == plan.settings.node_keys["north"]
    assert plan.settings.folder == (trial.folder / "run").resolve()
    assert public_hex(load(plan.settings.key)) == trial.registration.server_key
    assert trial.plan(node_keys={}, tls=Tls()).settings.node_keys == {}
    assert trial.plan(tls=Tls(trial.tls.ca), running=True).running


def test_what_does_not_fit_is_refused(trial: Trial) -> None:
    north, south = trial.node_keys["north"], trial.node_keys["south"]
    for changes, message in (
        ({"node_keys": {"north": north}}, "site 'south' has no `node_key=`"),
        ({"node_keys": {**trial.node_keys, "mars": north}}, "`node_key=`: 'mars' is not a registered site"),
        ({"node_keys": {"north": south, "south": south}}, "two sites have the same node key"),
        ({"tls": Tls()}, "`node_key=` needs `ca=`"),
        ({"tls": Tls(trial.tls.ca)}, "belong together"),
        ({"running": True}, "belongs to the SuperLink"),
        ({"tls": Tls(), "node_keys": {}, "address": Address("10.0.0.1")}, "would not be encrypted"),
    ):
        with pytest.raises(FedsrcError, match=message):
            trial.plan(**changes)
    insecure = trial.plan(tls=Tls(), node_keys={}, address=Address("10.0.0.1"), insecure=True)
    assert insecure.address.host == "10.0.0.1"


def test_a_node_beside_a_site(tmp_path: Path, trial: Trial) -> None:
    key = trial.folder / "t" / "north" / "node.key"
    there = ("north", tmp_path / "records.csv", tmp_path / "socket")
    plan = node_plan(*there, "10.0.0.1:8000", Tls(trial.tls.ca), key, False)
    assert (plan.home, plan.node_key) == (tmp_path / "records.csv.flower", key)
    with pytest.raises(FedsrcError, match="`node_key=` needs `ca=`"):
        node_plan(*there, "127.0.0.1:8000", Tls(), key, False)
    with pytest.raises(FedsrcError, match="would not be encrypted"):
        node_plan(*there, "10.0.0.1:8000", Tls(), None, False)
    assert node_name(None, private=True) is None
