"""What `fedsrc attest` writes, read by the tools that it is for: in-toto and securesystemslib, MLflow, the hub's cards.

Mutants killed: a signature over the payload without its type or lengths, in hexadecimal, under another key's id; a
field that the schema of a test result or a statement does not have, a subject without a digest; a group's threshold
lost or under another's name; a tag that MLflow refuses, or one of an earlier certificate that is left; metadata that
the hub does not read, a group in it that is not certified.

Chance of a false alarm: none; runs here have no noise, but for one that certifies whatever the noise is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf import json_format
from huggingface_hub import ModelCard
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from fedsrc.cli.main import cli
from fedsrc.common.signing import Key, public_hex
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE
from tests.cli.test_life import save
from tests.support import ROOT
from tests.support.gate_certificates import copied_run
from tests.support.panel_runs import ODD, played, registered

KINDS = ("one", "each", "all", "none", "scores")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: played(tmp_path_factory.mktemp("run"), registered(kind)) for kind in KINDS[1:]}
    return {**made, "one": copied_run(tmp_path_factory.mktemp("run"))}


def attest(run: Path, target: Path, *more: object) -> Path:
    done = CliRunner().invoke(cli, ["attest", str(run), "-o", str(target), *map(str, more)])
    assert done.exit_code in (0, 1), done.output
    return target


def sslib(key: Key) -> SSlibKey:
    """A key as securesystemslib has it, under the id that fedsrc gives it."""
    made = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(key.public_key().public_bytes_raw()))
    return SSlibKey(public_hex(key), made.keytype, made.scheme, made.keyval)


@pytest.mark.parametrize("kind", KINDS)
def test_an_attestation_verifies_and_fits_its_schemas(runs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    key = Key.generate()
    file = save(tmp_path / "my.key", key)
    found = attest(runs[kind], tmp_path / "a.json", "--key", file, "--subject", f"model=sha256:{'0f' * 32}")
    envelope = Envelope.from_dict(json.loads(found.read_bytes()))
    assert list(envelope.verify([sslib(key)], 1)) == [public_hex(key)]
    with pytest.raises(VerificationError):
        envelope.verify([sslib(Key.generate())], 1)
    assert envelope.payload_type == "application/vnd.in-toto+json"
    read = json_format.Parse(envelope.payload, statement_pb2.Statement())  # unknown fields are errors
    Statement.copy_from_pb(read).validate()
    assert [each.name for each in read.subject] == [CERTIFICATE, "model"]
    assert all(len(each.digest["sha256"]) == 64 for each in read.subject)
    said = json_format.ParseDict(json_format.MessageToDict(read.predicate), test_result_pb2.TestResult())
    certificate = Certificate.read(runs[kind] / CERTIFICATE)
    passed, failed = {
        "one": (["risk<=0.2"], []),
        "each": (["risk<=0.2 group=day"], [f"risk<=0.2 group={ODD}", "risk<=0.2 group=rare"]),
        "all": ([], ["risk<=0.2 in every group"]),
        "none": ([], [f"risk<=0.2 group={ODD}"]),
        "scores": (["risk<=0.2"], []),
    }[kind]
    assert (list(said.passed_tests), list(said.failed_tests)) == (passed, failed)
    assert said.result == ("FAILED" if failed else "PASSED")
    assert [each.name for each in said.configuration] == ["registration.toml", "transcript.jsonl"]
    assert read.subject[0].digest["sha256"] == certificate.digest
    assert read.subject[0].annotations["fedsrc.status"] == certificate.status


@pytest.mark.parametrize("kind", KINDS)
def test_the_hub_reads_what_is_certified(runs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    card = ModelCard.load(attest(runs[kind], tmp_path / "README.md", "--as", "model-card"))
    certificate = Certificate.read(runs[kind] / CERTIFICATE)
    members = [] if certificate.by_group is None else certificate.by_group.members
    rows = [(f"group: {each.name}", each.acceptance_lower) for each in members if each.status == "CERTIFIED"]
    rows = rows or ([(None, certificate.acceptance_lower)] if certificate.threshold is not None else [])
    shown = [(each.dataset_config, each.metric_type, each.metric_value) for each in card.data.eval_results or []]
    wanted = [[(config, "selective_risk", 0.2), (config, "acceptance_rate", value)] for config, value in rows]
    assert shown == [each for pair in wanted for each in pair]
    assert bool(shown) == (certificate.status == "CERTIFIED")
    assert f"**{certificate.status}**" in card.text
    assert certificate.digest in card.text


@pytest.mark.filterwarnings("ignore")  # of MLflow's libraries
def test_mlflow_keeps_the_tags(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(store)
    client = mlflow.MlflowClient()
    client.create_registered_model("answers")
    version = client.create_model_version("answers", source=str(tmp_path)).version
    client.set_model_version_tag("answers", version, "team", "ours")
    logged = mlflow.initialize_logged_model("answers").model_id
    for kind in ("each", "scores", "one"):
        file = attest(runs[kind], tmp_path / f"{kind}.json", "--as", "mlflow-tags")
        said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for model in (f"answers/{version}", logged):
            script = ROOT / "examples" / "adapters" / "mlflow_tags.py"
            done = subprocess.run([sys.executable, script, file, model], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (0, f"{model}: CERTIFIED, {len(said)} tags\n"), done.stderr
        assert client.get_model_version("answers", version).tags == {**said, "team": "ours"}
        kept = client.get_logged_model(logged).tags
        assert {name: text for name, text in kept.items() if name.startswith("fedsrc.")} == said
