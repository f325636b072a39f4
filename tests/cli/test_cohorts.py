"""Cohorts on the command line: keys, registration, and a run by files to its card.

Mutants killed: a mask key that others can read, a word that is not the key's, a mask key of one registration taken for
another, a choice of cohorts that is dropped in silence, a mask key beside a signing key that disturbs other releases,
a card, a status or a permission that hides who may collude, what is left then, or that a round was void.

Whether the run certifies depends on its noise: log-wealth was 24.3 above its line on average with a standard deviation
of 3.1, so that the line is 7.9 of them away (60 runs, the least at 17.1).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsrc.common.signing import load, public_hex
from fedsrc.protocol.mask_key import read_mask_key
from fedsrc.protocol.registration import Registration
from tests.support.gate_certificates import Terminal

SITES = ("ada", "bea", "cyr")


@pytest.fixture
def fedsrc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Terminal:
    """A terminal in a folder where three sites have their keys, mask keys and tables."""
    monkeypatch.chdir(tmp_path)
    call = Terminal(monkeypatch, capsys)
    call("keys", "server.key")
    for site in SITES:
        call("keys", f"{site}.key", "--mask", site)
        rows = "".join(f"{site}-{i},{0.9 if i % 8 else 0.2},{int(i % 8 == 0)}\n" for i in range(120))
        Path(f"{site}.csv").write_text("id,score,loss\n" + rows)
    return call


def asking(*more: str) -> list[str]:
    """The options of a registration on a public grid, with the mask key of every site."""
    keys = [part for site in SITES for part in ("--mask-key", f"{site}.mask.json")]
    return [
        "register", "-o", "r.toml", "--grid", "--thresholds", "4", "--sites", ",".join(SITES), "--target", "0.3",
        "--epsilon", "4", "--batch", "60", "--rounds", "2", "--server-key", public_hex(load(Path("server.key"))),
        *keys, *more,
    ]  # fmt: skip


COHORTS = ("--aggregation", "cohorts")
CAPACITIES = ("--capacities", "ada=120,bea=120,cyr=120")


def test_a_mask_key_lies_beside_the_site_s_key(fedsrc: Terminal, tmp_path: Path) -> None:
    private, word = tmp_path / "ada.key.mask", read_mask_key(tmp_path / "ada.mask.json")
    assert private.stat().st_mode & 0o777 == 0o600
    assert (word.site, word.key, word.mask) == (
        "ada", public_hex(load(tmp_path / "ada.key")), public_hex(load(private)),
    )  # fmt: skip
    assert word.genuine
    before = private.read_bytes(), (tmp_path / "ada.mask.json").read_bytes()
    again = fedsrc("keys", "ada.key", "--mask", "ada", "--format", "json")
    assert (private.read_bytes(), (tmp_path / "ada.mask.json").read_bytes()) == before
    assert json.loads(again.out)["fingerprint"] == word.fingerprint
    elsewhere = fedsrc("keys", "ada.key", "--mask", "ada", "-o", "stick.json")
    assert (word.fingerprint in elsewhere.out, (tmp_path / "stick.json").read_bytes()) == (True, before[1])
    refused = (("--mask", "ada"), ("ada.key", "-o", "x"), ("ada.key", "--mask", ""), ("ada.key", "--mask", "ada", "-o"))
    for args in refused:
        assert fedsrc("keys", *args, *(["ada.key"] if args[-1] == "-o" else [])).status == 2
    for place in ("new.key", "new.key.mask"):  # nor one that the same call makes
        assert fedsrc("keys", "new.key", "--mask", "new", "-o", place).status == 2
        assert load(tmp_path / place)
    assert load(tmp_path / "ada.key"), "no key was written over"


def test_cohorts_are_registered(fedsrc: Terminal, tmp_path: Path) -> None:
    assert fedsrc(*asking(*COHORTS, *CAPACITIES)).status == 0
    found = Registration.read(tmp_path / "r.toml")
    assert found.cohorts is not None
    assert [(each.name, each.members) for each in found.cohorts.cohorts] == [("all", SITES)]
    assert (found.cohorts.colluding, found.schedule.dropout) == (1, "adversarial")
    named = ("--cohort", "one=cyr,ada", "--cohort", "two=bea", "--colluding", "0", "--dropout", "independent")
    assert fedsrc(*asking(*COHORTS, *named, "-o", "named.toml")).status == 0
    found = Registration.read(tmp_path / "named.toml")
    assert found.cohorts is not None
    assert [(each.name, each.members) for each in found.cohorts.cohorts] == [("one", ("cyr", "ada")), ("two", ("bea",))]
    assert (found.cohorts.colluding, found.schedule.dropout) == (0, "independent")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (COHORTS, "cohorts need to know how many units each site will give"),
        (CAPACITIES, "--cohort, --colluding and --mask-key are for sites that add up"),
        ((*COHORTS, *CAPACITIES, "--mask-key", "ada.mask.json"), "one mask key of every site: look at 'ada'"),
        ((*COHORTS, *CAPACITIES, "--mask-key", "ada.key"), "ada.key: is not a site's word on its mask key"),
        ((*COHORTS, *CAPACITIES, "--cohort", "all"), "is not of the form NAME=VALUE"),
        ((*COHORTS, *CAPACITIES, "--cohort", "one=ada,bea"), "every site is in one cohort, once"),
        ((*COHORTS, *CAPACITIES, "--colluding", "3"), "more members than may collude"),
        ((*COHORTS, *CAPACITIES, "--policy", "recruit"), "a cohort answers together"),
        ((*COHORTS, *CAPACITIES, "--epsilon", "inf"), "without privacy there is none to share"),
    ],
)
def test_what_cannot_be_registered(fedsrc: Terminal, args: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = fedsrc(*asking(*args))
    assert (done.status, words in done.err) == (2, True), done.err
    assert not (tmp_path / "r.toml").exists()


def test_no_table_answers_for_a_cohort(fedsrc: Terminal, tmp_path: Path) -> None:
    fedsrc(*asking(*COHORTS, *CAPACITIES))
    for how in (("--registration", "r.toml"), ("--target", "0.3", "--epsilon", "4", *COHORTS)):
        done = fedsrc("certify", "ada.csv", *how)
        assert (done.status, "the sites of a cohort hold their own records" in done.err) == (2, True), done.err
    assert not (tmp_path / "run").exists()


def test_a_mask_key_beside_the_key_is_for_cohorts_alone(fedsrc: Terminal, tmp_path: Path) -> None:
    asked = [part for part in asking() if not part.endswith(".mask.json") and part != "--mask-key"]
    fedsrc(*asked, "--site-keys", ",".join(f"{site}={public_hex(load(Path(f'{site}.key')))}" for site in SITES),
           "--capacities", "ada=120,bea=120,cyr=120")  # fmt: skip
    assert fedsrc("request", "r.toml", "--key", "server.key").status == 0
    assert fedsrc("allow", "r.toml", "--site", "ada", "--ledger", "ada.csv.ledger").status == 0
    request = next((tmp_path / "run" / "requests").glob("*-000001-*"))
    done = fedsrc("release", str(request), "ada.csv", "--key", "ada.key", "-o", "ada.release.json")
    assert done.status == 0, done.err
    assert '"check"' not in Path("ada.release.json").read_text()


def answered(fedsrc: Terminal, round: int, sites: tuple[str, ...] = SITES) -> list[str]:
    """The release files of sites for the one request of a round."""
    request = next(Path("run/requests").glob(f"round-{round:04d}-*"))
    files = [f"{site}.{round}.release.json" for site in sites]
    for site, file in zip(sites, files, strict=True):
        assert fedsrc("release", str(request), f"{site}.csv", "--key", f"{site}.key", "-o", file).status == 0
    return files


def begun(fedsrc: Terminal, *more: str) -> None:
    """A run of two rounds that every site has allowed."""
    weights = ("--weights", "ada=0.25,bea=0.25,cyr=0.5", "--capacities", "ada=60,bea=60,cyr=120")
    assert fedsrc(*asking(*COHORTS, *weights, "--policy", "final", "--batch", "30", *more)).status == 0
    for site in SITES:
        allowed = fedsrc("allow", "r.toml", "--site", site, "--ledger", f"{site}.csv.ledger", "--max-epsilon", "4")
        assert allowed.status == 0, allowed.err
        for each in SITES:
            mine = " (this site)" if each == site else ""
            assert f"    {read_mask_key(Path(f'{each}.mask.json')).fingerprint}  {each!r}{mine}\n" in allowed.out
        assert "this holds against the server and 1 other member of the cohort together;" in allowed.out
        assert "if all other members side with the server: epsilon 5.912\n" in allowed.out
        assert " in a cohort's sum, to which every member adds its share\n" in allowed.out
        assert (
            "if all other members side with the server: epsilon 5.912\n"
            in fedsrc("site-status", f"{site}.csv.ledger").out
        )
    done = fedsrc("request", "r.toml", "--key", "server.key")
    assert "(for sites ada, bea, cyr of cohort 'all', " in done.out


def test_by_files_to_a_card(fedsrc: Terminal) -> None:
    begun(fedsrc)
    fedsrc("collect", "run", *answered(fedsrc, 1), "--key", "server.key")
    assert "1 opened sum, " in fedsrc("status", "run").out
    assert "  ada: in cohort all, 1 release, " in fedsrc("status", "run").out
    done = fedsrc("collect", "run", *answered(fedsrc, 2), "--key", "server.key")
    assert done.status == 0, done.out + done.err
    for form in ("text", "markdown", "html"):
        card = " ".join(fedsrc("view", "run", "--format", form).out.split())
        for words in (
            "2 opened sums", "if all other members side with the server: epsilon 5.912", "in a cohort&#39;s sum",
            "at most 1 member sides with the server, and all others add their share of the noise",
            "It does not check any site by itself", "X25519", "void for the whole cohort",
        ):  # fmt: skip
            assert words.replace("&#39;", "&#39;" if form == "html" else "'") in card, (form, words)
    found = json.loads(fedsrc("verify", "run", "--format", "json").out)
    assert (found["status"], found["colluding"]) == ("CERTIFIED", 1)
    assert 5.911 < found["epsilon_among"] <= 5.912
    renewed = ("register", "--renew", "run", "-o", "again.toml")
    assert "one mask key of every site" in fedsrc(*renewed).err
    keys = [part for site in SITES for part in ("--mask-key", f"{site}.mask.json")]
    assert "has masked with this key before" in fedsrc(*renewed, *keys).err
    for site in SITES:
        Path(f"{site}.key.mask").unlink()
        fedsrc("keys", f"{site}.key", "--mask", site)
    assert fedsrc(*renewed, *keys).status == 0
    old, new = (Registration.read(Path(name)) for name in ("r.toml", "again.toml"))
    assert (new.sites, new.schedule, old.mask_keys.keys()) == (old.sites, old.schedule, new.mask_keys.keys())
    assert not {each.mask for each in old.mask_keys.values()} & {each.mask for each in new.mask_keys.values()}


@pytest.mark.parametrize("dropout", ["adversarial", "independent"])
def test_a_void_is_said(fedsrc: Terminal, dropout: str) -> None:
    begun(fedsrc, "--dropout", dropout)
    done = fedsrc("collect", "run", *answered(fedsrc, 1, SITES[:2]), "--close", "--key", "server.key")
    assert "cohort 'all': round 1 is void, and what it asked for is spent: site 'cyr': no release arrived" in done.err
    assert "in cohort all, 0 releases, " in (state := fedsrc("status", "run").out)
    assert state.count(", 1 void, asked now (last: site 'cyr': no release arrived") == 3
    done = fedsrc("collect", "run", *answered(fedsrc, 2), "--key", "server.key")
    assert "void, as not all members of a cohort answered or their sum was refused: 1 absent, 0 refused" in done.out
    charged = "[checked] a round that a member of a cohort did not answer is void for the whole cohort"
    chosen = "neither the server nor any member chose it"
    assert (charged in done.out, chosen in done.out) == (dropout == "adversarial", dropout == "independent")
