"""What lies beside docs/format.md: the schema of every file, and test vectors for other implementations.

`python -m tests.support.format_files` writes docs/format/{schema,vectors}.json anew; tests/test_format.py compares.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import TypeAdapter

from fedsrc.common.canonical import canonical_bytes, digest
from fedsrc.common.signing import public_hex, sign
from fedsrc.maths import betting, sealed, tail
from fedsrc.maths.basis import Basis, suffix_numerators, suffix_series
from fedsrc.maths.panels import weights_left
from fedsrc.maths.quantiles import released_quantiles, score_grid
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.judgements import in_decimals
from fedsrc.protocol.mechanism import mechanism, sealed_mechanism
from fedsrc.protocol.messages import Release, Request, SignedRequest
from fedsrc.protocol.monitor_status import MonitorStatus
from fedsrc.protocol.notices import Revocation
from fedsrc.protocol.protection import Contrasts, Histograms, Levels, Moments, Privacy
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import Succession
from fedsrc.protocol.transcript import ENTRIES, Absent, Announced, Arrived, Asked, Chain, Closed, Ended, Opened
from fedsrc.server.bounds import down, up
from fedsrc.server.panel_words import percent
from fedsrc.server.recruiter import asked

FOLDER = Path(__file__).parents[2] / "docs" / "format"
SECRET = bytes(range(32))  # of the key that signs the vectors
FILES: dict[str, TypeAdapter[Any]] = {
    "registration.toml": TypeAdapter(Registration),
    "transcript.jsonl, a line without n and prev": ENTRIES,
    "certificate.json": TypeAdapter(Certificate),
    "certificate.json of a monitor": TypeAdapter(MonitorAccount),
    "status.json of a monitor": TypeAdapter(MonitorStatus),
    "certificate.json.revoked": TypeAdapter(Revocation),
    "a succession": TypeAdapter(Succession),
    "a request as it travels": TypeAdapter(SignedRequest),
}
TOML = """format = 2
sites = [{ name = "north", weight = 0.5 }, { name = "south", weight = 0.5, capacity = 400 }]

[claim]
target_risk = 0.2

[thresholds]
values = [0.25, 0.5]
weights = [0.5, 0.5]

[certificate]
method = "betting"
ladder = [0.1, 0.2]

[privacy]
epsilon = 4.0
"""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of every file: types, limits and defaults."""
    return {name: kind.json_schema() for name, kind in FILES.items()}


def vectors() -> dict[str, Any]:
    """Return inputs and what must come out, part by part."""
    return {
        "canonical": [{"value": text, "bytes": canonical_bytes(value).decode()} for text, value in _values()],
        "printed": [{"number": x, "text": json.dumps(x)} for x in (0.1, 1e-6, 1e-4, 123456789.5, 1e16, 4)],
        "percent": [{"share": x, "text": percent(x), "lower": percent(x, down=True)} for x in (0.2, 0.123456789, 0.05)],
        "registration": _registration(),
        "signed": _signed(),
        "suffix basis": [_basis(m, k) for m, k in ((1, 8), (5, 8), (20, 8), (7, 12))],
        "scale": _scales(),
        "quantiles": _quantiles(),
        "slots": _slots(),
        "betting": _betting(),
        "bets": [_bet(r, theta) for r, theta in ((0.2, 0.14), (0.2, 1.2), (0.6, 2.3), (0.05, 1e-5))],
        "lines": [_line(alpha, nu) for alpha in (0.045, 0.0054, 1e-6) for nu in (0.0, 0.01, 0.5, 3.0, 40.0)],
        "passed on": _passed_on(),
        "rounded": [
            {"x": x, "up": float(up(np.asarray(x))), "down": float(down(np.asarray(x)))} for x in (0.1, -1.23e-10, 2.5)
        ],
    }


def write(folder: Path = FOLDER) -> None:
    """Write both files."""
    folder.mkdir(exist_ok=True)
    for name, made in (("schema", schema()), ("vectors", vectors())):
        (folder / f"{name}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _values() -> list[tuple[str, Any]]:
    """Values as a reader writes them, and in Python."""
    return [
        ("4.0", 4.0), ("-0.0", -0.0), ("1e-07", 1e-7), ("1e16", 1e16), ("1e21", 1e21), ("0.1", 0.1),
        ("2^53 - 1", 2**53 - 1), ("2^53", 2**53), ("-2^61", -(2**61)), ("infinity", math.inf),
        ("keys sorted by UTF-16", {"\U0001f600": 1, "\ufb01": 2, "b": [None, True, "\u20ac\n\""], "a": {}}),
    ]  # fmt: skip


def _registration() -> dict[str, Any]:
    found = Registration.from_toml(TOML)
    return {
        "toml": TOML, "canonical": canonical_bytes(found.model_dump()).decode(), "digest": found.digest,
        "scale": found.mechanism.scale,
    }  # fmt: skip


def _signed() -> dict[str, Any]:
    """A key, what it signs, and a transcript of one round."""
    key, registered = Ed25519PrivateKey.from_private_bytes(SECRET), Registration.from_toml(TOML)
    request = Request(
        registration=registered.digest, number=1, round=1, site="north", slots=200, scale=registered.mechanism.scale
    )
    release = Release(
        request=request.digest, site="north", slots=200, scale=request.scale, order="shuffled",
        time="2026-01-02T03:04:05Z", place=1, before="0" * 64, tries=1, first=(20_000, 9_000), second=(-3, 2**60),
    ).signed(key)  # fmt: skip
    hello = Hello(registration=registered.digest, site="north", units=300).signed(key)
    lines, chain = [], Chain()
    for entry in (
        Opened(registration=registered.digest), Announced(site="north", units=300, hello=hello), Asked(request=request),
        Arrived(release=release), Absent(request="1" * 64, refused=False, reason="too late"), Closed(round=1),
        Ended(reason="units used"),
    ):  # fmt: skip
        data, chain = chain.line(entry)
        lines.append(data.decode())
    return {
        "secret": SECRET.hex(), "public": public_hex(key), "message": "fedsrc", "signature": sign(key, b"fedsrc"),
        "request digest": request.digest, "release signs": release.signed_part().decode(),
        "release digest": release.digest, "hello signs": hello.signed_part().decode(), "lines": lines,
        "head": chain.head, "digest of a text": digest("fedsrc"),
    }  # fmt: skip


def _basis(m: int, k: int) -> dict[str, Any]:
    basis = Basis("suffix", m, k)
    return {
        "m": m, "k": k, "f": suffix_numerators(m, k).tolist(), "g": suffix_series(m, k).tolist(),
        "variance": basis.variance_factor().tolist(), "sum of squares": basis.column_norm_squared(),
    }  # fmt: skip


def _scales() -> list[dict[str, Any]]:
    found = []
    plain = Privacy(epsilon=4.0)
    graded = Privacy(epsilon=2.0, unit="source", max_answers=3, loss_grid=2)
    for settings, encoding in (
        (plain, Histograms()), (plain, Histograms(kind="paired", basis="bins")), (graded, Moments()),
        (Privacy(epsilon=1.0, adjacency="zero-out", conversion="paper"), Histograms(kind="paired")),
        (Privacy(epsilon=8.0, loss_grid=4), Levels()),
    ):  # fmt: skip
        rule = mechanism(settings, encoding, 5)
        found.append({
            "privacy": json.loads(canonical_bytes(settings.model_dump())), "encoding": encoding.model_dump(),
            "thresholds": 5, "scale": rule.scale, "sensitivity squared": round(rule.sensitivity**2), "rho": rule.rho,
        })  # fmt: skip
    contrasts = Contrasts(matrix=((3_000_000, -900_000), (0, 2_800_000)), second=(700_000, 650_000))
    rule = sealed_mechanism(plain, contrasts, (in_decimals(0.2),))
    found.append({
        "privacy": json.loads(canonical_bytes(plain.model_dump())), "encoding": contrasts.model_dump(),
        "targets": [0.2], "thresholds": 2, "scale": rule.scale, "rho": rule.rho,
        "sensitivity squared": round(rule.sensitivity**2), "inverse": rule.contrasts.inverse.tolist(),
        "condition": rule.contrasts.condition,
    })  # fmt: skip
    return found


def _quantiles() -> dict[str, Any]:
    grid = score_grid()
    n, s = 2_000, 734.9276857376099
    first = [round(256 * 90 * (1 - x) + 300 * math.sin(50 * x)) for x in grid]
    second = [round(256 * 60 * (1 - x) ** 3 - 250 * math.cos(40 * x)) for x in grid]
    found = released_quantiles(grid, (first, second), 20, k=8, g=1, s=s, n=n, known=True)
    return {"grid": grid, "first": first, "second": second, "scale": s, "units": n, "asked": 20, "thresholds": found}


def _slots() -> list[dict[str, Any]]:
    cases = [
        (None, 0.2, "first", [0, 0], [500, 220], 200), ([0.5, 0.5], 0.2, "first", [0, 0], [500, 220], 200),
        ([0.7, 0.3], 0.2, "final", [140, 60], [300, 1000], 100), ([0.9, 0.1], 0.2, "first", [180, 20], [900, 3], 100),
        ([0.25, 0.25, 0.5], 0.2, "recruit", [100, 60, 150], [100, 90, 400], 80),
        (None, 0.2, "recruit", [0, 9], [5, 5], 4),
    ]  # fmt: skip
    found = []
    for weights, target, policy, drawn, left, size in cases:
        registration = SimpleNamespace(
            weights=weights, sites=[None] * len(left), claim=SimpleNamespace(target_risk=target),
            schedule=SimpleNamespace(policy=policy, size=lambda _, size=size: size),
        )  # fmt: skip
        slots = asked(cast("Registration", registration), np.asarray([drawn]), np.asarray([left]))[0].tolist()
        found.append({
            "weights": weights, "target": target, "policy": policy, "drawn": drawn, "left": left, "size": size,
            "slots": slots,
        })  # fmt: skip
    return found


def _betting() -> dict[str, Any]:
    U, S, v = np.array([60.0, 12.5]), np.array([400.0, 210.25]), np.array([30.0, 21.0])
    N, eta, w = 800, 0.01, np.array([0.4, 0.6])
    V = betting.Covariance(v, np.zeros(2), v)
    rungs, bets = betting.ladder([0.1, 0.2]), betting.centres(0.05)
    return {
        "U": U.tolist(), "S": S.tolist(), "v": v.tolist(), "N": N, "eta": eta, "w": w.tolist(), "rungs": [0.1, 0.2],
        "risk budget": 0.045, "acceptance budget": 0.0049, "min_acceptance": 0.05, "theta": rungs.theta.tolist(),
        "centres": bets.c.tolist(), "centre bets": bets.theta.tolist(),
        "log E": betting.log_wealth(U, S, V, N, eta=eta, rungs=rungs).tolist(),
        "d_upper": betting.d_upper(
            U, S, V, N, eta=eta, r_star=0.2, theta=rungs.theta[1], p=rungs.p, alpha_d=0.045, w=w
        ).tolist(),
        "a_lower": betting.a_lower(U + S, 2 * v, N, eta=eta, bets=bets, alpha_a=0.0049, w=w).tolist(),
    }  # fmt: skip


def _bet(r: float, theta: float) -> dict[str, float]:
    found = sealed.bet(r, theta)
    return {
        "r": r, "theta": theta, "a": found.a, "b": found.b, "least": sealed.least(r, theta),
        "most": sealed.most(r, theta),
    }  # fmt: skip


def _line(alpha: float, nu: float) -> dict[str, float]:
    return {
        "alpha": alpha, "nu": nu, "exact": tail.critical(alpha, nu), "within": tail.critical_within(alpha, nu),
        "hybrid after variance 2": tail.critical_hybrid(alpha, 2.0, nu),
    }  # fmt: skip


def _passed_on() -> list[dict[str, Any]]:
    w = np.array([[0.1, 0.2, 0.3], [0.2, 0.1, 0.1]])
    sets = ([[0, 1, 0], [0, 0, 0]], [[1, 1, 0], [0, 0, 1]], [[1, 1, 1], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]])
    return [
        {
            "weights": w.tolist(), "rejected": done, "keep": keep,
            "left": weights_left(w, np.asarray(done, dtype=np.bool_), keep).tolist(),
        }
        for done in sets for keep in (1.0, 0.5)
    ]  # fmt: skip


if __name__ == "__main__":
    write()
