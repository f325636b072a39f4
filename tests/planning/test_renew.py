"""A renewal: the same registration but for validity, keys and capacities; fresh units alone; the certificate says it.

Mutants killed: a threshold, weight or privacy that changes, a development rule dropped, a key or capacity of another
site lost, a renewal of what was not certified or was edited, a renewal that lets a unit be released twice.

Chance of a false alarm: none of its own; runs made here have no noise.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from fedsrc.common.canonical import file_digest
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.planning.renew import renew
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION
from fedsrc.protocol.registration import Registration
from fedsrc.server.verify import verify
from tests.support.gate_certificates import KEY, original_run
from tests.support.helpers import registration, table

OLD = Registration.read(original_run() / REGISTRATION)


def test_everything_else_stays(tmp_path: Path) -> None:
    new = renew(original_run())
    assert new.renews == file_digest(original_run() / CERTIFICATE)
    assert new.model_copy(update={"renews": None}) == OLD
    assert new.digest != OLD.digest
    assert Registration.from_toml(new.to_toml()) == new


def test_validity_keys_and_capacities_may_change() -> None:
    key, server = public_hex(Key.generate()), public_hex(Key.generate())
    new = renew(original_run(), validity_days=30, server_key=server, site_keys={"north": key}, capacities={"south": 7})
    assert (new.claim.validity_days, new.server_key) == (30, server)
    assert [(site.key, site.capacity) for site in new.sites] == [(key, None), (None, 7)]
    assert [(site.name, site.weight) for site in new.sites] == [(site.name, site.weight) for site in OLD.sites]
    assert (new.thresholds, new.privacy, new.development) == (OLD.thresholds, OLD.privacy, OLD.development)


def test_what_cannot_be_renewed(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="'west' is not a site"):
        renew(original_run(), site_keys={"west": "0" * 64})
    with pytest.raises(FedsrcError, match="this renewal cannot be registered"):
        renew(original_run(), site_keys={"north": "stolen"})
    edited = Path(shutil.copytree(original_run(), tmp_path / "edited"))
    (edited / REGISTRATION).write_text((edited / REGISTRATION).read_text().replace("batch = 50", "batch = 51"))
    with pytest.raises(FedsrcError, match="is not the registration that was signed"):
        renew(edited)
    records = table(100)
    abstained = registration(records, target_risk=0.02, epsilon=math.inf)  # 80 log(1 + 0.95 * 0.02 / 0.98) < log 444
    certify_table(abstained, records, tmp_path / "run", tmp_path / "ledger", KEY)
    with pytest.raises(FedsrcError, match="no certificate to renew: status ABSTAIN"):
        renew(tmp_path / "run")


def test_a_renewal_calibrates_on_units_that_were_not_released(tmp_path: Path) -> None:
    """On the same table it finds what the first run left, which here is nothing; on a fresh one, all of it."""
    records, fresh = table(1500, ids=True), table(1500, seed=1)
    first = registration(records, policy="final", batch=2000, epsilon=math.inf)
    certify_table(first, records, tmp_path / "run", tmp_path / "ledger", KEY)
    new = renew(tmp_path / "run")
    with pytest.raises(FedsrcError, match="every unit of this table has been released before"):
        certify_table(new, records, tmp_path / "again", tmp_path / "ledger", KEY)
    certify_table(new, fresh, tmp_path / "fresh", tmp_path / "ledger", KEY, fresh=True)
    found = verify(tmp_path / "fresh")
    assert found.certificate.renews == file_digest(tmp_path / "run" / CERTIFICATE)
    assert verify(tmp_path / "run").revoked is None, "a renewal revokes nothing"
