"""Attacks by a server with every key registered and dropout charged (V1): what it can still publish.

Sites are honest: they answer each signed request of an allowed registration, once. The server may ask what it likes,
withhold, leave sites out, start again and cut off. First the three attacks with real files, keys and ledgers; then a
server that sees all releases of a run and publishes the best of all subsets of them, in many runs just above the
target risk. Under the rules of format 1 announcements were the server's own word: the control.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import slopes
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.messages import Release, Request, parse_release
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, Closed, Ended, Entry, Opened, Transcript
from fedsrc.records.stream import Table
from fedsrc.server.bounds import Sample, look
from fedsrc.server.issue import issue
from fedsrc.server.loop import record as write
from fedsrc.server.state import Replay
from fedsrc.server.tally import Masses, empty, lose, masses, plausible_margins, suffix_variance
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import Site
from fedsrc.site.streamed import open_table
from research.attacks.sections import Record, Row, Section, control, in_blocks, recorded, some, totals
from research.attacks.sections import table as words
from research.pages import markdown

Bools = NDArray[np.bool_]
TARGET, RISK = 0.2, 0.2005  # the promise, and the truth just above it
RUNS, PLAYED = 2_000, 40
SERVER = Key.from_private_bytes(b"\x09" * 32)


# ---------------------------------------------------------------- real runs


def site_key(name: str) -> Key:
    return Key.from_private_bytes(name.encode() * 32)


def registered(names: str, *, batch: int, rounds: int, capacity: int, policy: str = "first") -> Registration:
    """All keys and capacities registered, one threshold that accepts everything, dropout charged."""
    return register_grid(
        Choices(
            TARGET, 8.0, grid=True, thresholds=1, batch=batch, rounds=rounds, policy=policy, dropout="adversarial",
            server_key=public_hex(SERVER), site_keys={name: public_hex(site_key(name)) for name in names},
            capacities=dict.fromkeys(names, capacity), adjacency="zero-out",
        ),
        list(names),
    )  # fmt: skip


@dataclass
class Honest:
    """An honest site: a file, a ledger, a key, and one allowed registration."""

    reg: Registration
    name: str
    path: Path
    ledger: Ledger
    site: Site

    @classmethod
    def make(cls, reg: Registration, name: str, folder: Path, loss: Iterable[int]) -> Honest:
        path = folder / f"{name}.csv"
        lines = (f"{name}{i},0.9,{each}" for i, each in enumerate(loss))
        path.write_text("\n".join(["id,score,loss", *lines]) + "\n", encoding="utf-8")
        ledger = Ledger(folder / f"{name}.ledger")
        allow(ledger, name, reg)
        return cls(reg, name, path, ledger, open_table(reg, name, Table(path), ledger, key=site_key(name)))

    def answer(self, request: Request) -> Release:
        return parse_release(self.site.answer(request))

    def asked_for(self, slots: int, number: int = 1) -> Request:
        """A request of the server's own making, which the site cannot tell from the registered rule's."""
        scale = self.reg.mechanism.scale
        return Request(
            registration=self.reg.digest, number=number, round=number, site=self.name, slots=slots, scale=scale
        )


Answers = Callable[[Request], Release | None]


def publish(reg: Registration, folder: Path, answer: Answers, first: Sequence[Entry] = ()) -> Certificate:
    """Write a run by the registered rule, with these answers, sign its certificate, and verify it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / REGISTRATION).write_text(reg.to_toml(), encoding="utf-8")
    with closing(Transcript(folder / TRANSCRIPT)) as transcript:
        replay = Replay(reg)
        write(replay, transcript, Opened(registration=reg.digest), *first)
        while (reason := replay.why_over()) is None:
            asked = replay.plan()
            write(replay, transcript, *(Asked(request=each) for each in asked))
            write(replay, transcript, *(_entry(each, answer(each)) for each in asked))
            write(replay, transcript, Closed(round=replay.rounds + 1))
        write(replay, transcript, Ended(reason=reason))
        issue(reg, replay, transcript.chain).signed(SERVER).save(folder / CERTIFICATE)
    return verify(folder, trusted=(public_hex(SERVER),)).certificate


def _shown(releases: dict[str, Release], request: Request) -> Release | None:
    return releases.get(request.digest)


def _entry(request: Request, release: Release | None) -> Entry:
    if release is None:
        return Absent(request=request.digest, refused=False, reason="withheld")
    return Arrived(release=release)


def outcome(attempt: Callable[[], Certificate | None]) -> str:
    """What an attempt came to: the sentence of the refusal, or what the verified certificate says."""
    try:
        certificate = attempt()
    except FedsrcError as error:
        return error.what
    if certificate is None:
        return "accepted"
    charged = sum(site.charged for site in certificate.sites)
    return f"{certificate.status}, with {charged:,} units charged" if charged else str(certificate.status)


def attempts(folder: Path) -> dict[str, str]:
    """The attacks of V1 one by one, and others that come to mind, each with what verify says."""
    return {**_left_out(folder / "left out"), **_retries(folder / "retries"), **_tails(folder / "tails")}


def _left_out(folder: Path) -> dict[str, str]:
    """Site B is bad: a run without it."""
    folder.mkdir()
    reg, rng = registered("AB", batch=600, rounds=2, capacity=1200), np.random.default_rng(1)
    good, bad = (Honest.make(reg, n, folder, (rng.random(1200) < p) * 1) for n, p in (("A", 0.02), ("B", 0.7)))
    sites = {"A": good, "B": bad}

    def without_b(request: Request) -> Release | None:
        return good.answer(request) if request.site == "A" else None

    def never_asked() -> None:
        replay = Replay(reg, [Opened(registration=reg.digest)])
        request = replay.plan()[0]
        for entry in (Asked(request=request), Arrived(release=good.answer(request)), Closed(round=1)):
            replay.step(entry)

    announced = [Announced(site="A", units=1200)]
    return {
        "all of both sites' releases": outcome(
            lambda: publish(reg, folder / "run", lambda each: sites[each.site].answer(each))
        ),
        "B is not announced": outcome(lambda: publish(reg, folder / "run", without_b, announced)),
        "B is never asked": outcome(never_asked),
        "B is asked and said to be absent": outcome(lambda: publish(reg, folder / "run", without_b)),
    }


def _retries(folder: Path) -> dict[str, str]:
    """One site, first requests of 400, 401 and 402 units: all are answered, on fresh units."""
    folder.mkdir()
    reg, rng = registered("A", batch=400, rounds=5, capacity=2000), np.random.default_rng(2)
    site = Honest.make(reg, "A", folder, (rng.random(2000) < RISK) * 1)
    tries = {slots: site.answer(site.asked_for(slots)) for slots in (401, 402, 400)}

    def published(slots: int) -> None:
        replay = Replay(reg, [Opened(registration=reg.digest)])
        replay.step(Asked(request=site.asked_for(slots)))

    def third(request: Request) -> Release | None:
        return tries[400] if request.round == 1 else site.answer(request)

    announced = [Announced(site="A", units=401)]
    return {
        "401 units are announced": outcome(lambda: publish(reg, folder / "run", third, announced)),
        "the request for 401 is written down": outcome(lambda: published(401)),
        "the best try is shown as the first": outcome(lambda: publish(reg, folder / "run", third)),
        "the tries are charged as absent, then the rest": outcome(
            lambda: publish(reg, folder / "run", lambda each: site.answer(each) if each.round == 4 else None)
        ),
    }


def _tails(folder: Path) -> dict[str, str]:
    """What came later is cut off, left out of the middle, or comes from a ledger that was set back."""
    folder.mkdir()
    reg, rng = registered("A", batch=100, rounds=4, capacity=400, policy="final"), np.random.default_rng(3)
    site = Honest.make(reg, "A", folder, (rng.random(400) < 0.5) * 1)
    book, copy = folder / "A.ledger", folder / "copy"
    requests = _plan(reg)
    releases = {requests[0].digest: site.answer(requests[0])}
    shutil.copy(book, copy)
    releases |= {each.digest: site.answer(each) for each in requests[1:]}

    def cut() -> None:
        replay = Replay(reg, [Opened(registration=reg.digest)])
        _step(replay, releases)
        replay.step(Ended(reason="units used"))

    def reordered(request: Request) -> Release | None:
        return releases[requests[{1: 2, 2: 1}.get(request.round, request.round) - 1].digest]

    found = {
        "the run is cut off after a good round": outcome(cut),
        "a bad release is left out of the middle": outcome(
            lambda: publish(reg, folder / "run", lambda each: None if each.round == 2 else releases[each.digest])
        ),
        "releases change places": outcome(lambda: publish(reg, folder / "run", reordered)),
    }
    site.ledger.close()
    shutil.copy(copy, book)
    again = Honest(reg, "A", site.path, Ledger(book), site.site)
    again.site = open_table(reg, "A", Table(site.path), again.ledger, key=site_key("A"))
    late = again.answer(requests[1])
    again.ledger.close()
    found["the site's ledger is set back, and one later release is of the new ledger"] = outcome(
        lambda: publish(reg, folder / "run", lambda each: late if each.round == 2 else releases[each.digest])
    )
    return found


def _plan(reg: Registration) -> list[Request]:
    """Every request of a run: with dropout charged they follow from the registration alone."""
    replay, found = Replay(reg, [Opened(registration=reg.digest)]), []
    while replay.why_over() is None:
        found += replay.plan()
        _step(replay, {})
    return found


def _step(replay: Replay, releases: dict[str, Release]) -> None:
    """One round with the releases there are."""
    asked = replay.plan()
    for entry in (
        *(Asked(request=each) for each in asked),
        *(_entry(each, releases.get(each.digest)) for each in asked),
        Closed(round=replay.rounds + 1),
    ):
        replay.step(entry)


# ---------------------------------------------------------------- runs played whole


def played(first: int, count: int, folder: Path) -> dict[str, int]:
    """Real runs just above the target: every subset of the releases is published and verified, and so are runs after
    releases that were asked for beside the registered rule."""
    return totals(_play(number, folder / str(number)) for number in range(first, first + count))


def _play(number: int, folder: Path) -> dict[str, int]:
    folder.mkdir()
    rng = np.random.default_rng([20_301, number])
    reg = registered("A", batch=300, rounds=4, capacity=1200)
    site = Honest.make(reg, "A", folder, (rng.random(1250) < RISK) * 1)
    beside = number % 2
    for extra in range(beside):
        site.answer(site.asked_for(25, number=50 + extra))
    plan = _plan(reg)
    fits = plan[: 4 - beside]  # a unit asked for beside the rule is one fewer for it
    releases = {each.digest: site.answer(each) for each in fits}
    published = refused = certified = 0
    for kept in (set(chosen) for size in range(len(fits) + 1) for chosen in combinations(releases, size)):
        shown = {name: release for name, release in releases.items() if name in kept}
        said = outcome(partial(publish, reg, folder / "run", partial(_shown, shown)))
        published += 1
        refused += "breaks the protocol" in said
        certified += said.startswith("CERTIFIED")
    site.ledger.close()
    return {"runs": 1, "releases": len(releases) + beside, "published": published, "refused": refused,
            "false": int(certified > 0)}  # fmt: skip


# ---------------------------------------------------------------- many runs, vectorised on the shipped bounds


@dataclass(frozen=True)
class Game:
    """So many releases of so many units each, at an epsilon."""

    slots: int
    releases: int
    epsilon: float

    @property
    def registration(self) -> Registration:
        return register_grid(
            Choices(
                TARGET, self.epsilon, grid=True, thresholds=1, batch=self.slots, rounds=self.releases,
                dropout="adversarial", capacities={"A": self.slots * self.releases}, adjacency="zero-out",
            ),
            ["A"],
        )  # fmt: skip


GAMES = (Game(300, 8, 8.0), Game(300, 8, 1.0), Game(40, 8, 4.0))  # every subset of 8 releases
LONG = (Game(300, 40, 8.0), Game(2, 600, 1.0))  # too many subsets
TRIES, TRY = 266, 300  # of the control: 80,000 units
CHUNK = 50


def releases_of(game: Game, reg: Registration, runs: int, rng: np.random.Generator) -> Masses:
    """Masses of releases with simulated noise, (runs, releases, 1)."""
    rule = reg.mechanism
    bad = rng.binomial(game.slots, RISK, (runs, game.releases))
    counts = np.zeros((runs, game.releases, 2, 2), dtype=np.int64)
    counts[..., 0, 1], counts[..., 1, 1] = game.slots - bad, bad
    exact = rule.basis.encode(counts * rule.grid)
    return masses(reg, exact + np.rint(rng.normal(0.0, rule.scale, exact.shape)), 1)


def charges(game: Game, reg: Registration, *, margins: bool) -> Floats:
    """What each missing release is charged as, (releases, 3): unsupported, supported and accepted mass."""
    if not margins:
        return np.asarray([[game.slots, 0, 0]] * game.releases, dtype=np.float64)
    lost = [lose(reg, empty(reg), [(0, game.slots)], number).charge for number in range(1, game.releases + 1)]
    return np.asarray([[float(x[0]) for x in (each.unsupported, each.supported, each.accepted)] for each in lost])


def best_published(game: Game, runs: int, seed: int, *, margins: bool = True) -> dict[str, int]:
    """Of so many runs, those in which everything arriving certifies, and those in which any subset of releases does."""
    reg, rng = game.registration, np.random.default_rng([20_302, seed])
    seen = releases_of(game, reg, runs, rng)
    subsets = np.asarray(list(product([True, False], repeat=game.releases)))  # the first: all arrive
    arrive = subsets[None, :, :] & _plausible(game, reg, seen)[:, None, :]
    certified = _ever_shown(game, reg, seen, arrive, margins=margins)
    return {"runs": runs, "honest": int(certified[:, 0].sum()), "false": int(certified.any(axis=1).sum())}


def greedy(game: Game, runs: int, seed: int, *, margins: bool = True) -> dict[str, int]:
    """The same where subsets are too many: a release is withheld where it would take more wealth than its charge."""
    reg, rng = game.registration, np.random.default_rng([20_304, seed])
    seen, charged = releases_of(game, reg, runs, rng), charges(game, reg, margins=margins)
    x, y = (float(each) for each in slopes(TARGET, 0.1))
    variance = _variance(reg) if margins else 0.0

    def gained(u: Floats, s: Floats, v: float) -> Floats:
        return np.asarray(x * u + y * s - (x * x + y * y) * v / 2)

    kept = gained(seen.unsupported[..., 0], seen.supported[..., 0], _variance(reg))
    worth = kept >= gained(charged[:, 0], charged[:, 1], variance)
    plausible = _plausible(game, reg, seen)
    arrive = np.stack([plausible, worth & plausible], axis=1)
    certified = _ever_shown(game, reg, seen, arrive, margins=margins, step=20)
    return {"runs": runs, "honest": int(certified[:, 0].sum()), "false": int(certified.any(axis=1).sum())}


def _plausible(game: Game, reg: Registration, seen: Masses) -> Bools:
    """Releases that verify does not refuse, (runs, releases)."""
    margin = [plausible_margins(reg, number) for number in range(1, game.releases + 1)]
    low_u, low_s, high = (
        np.asarray([float(getattr(each, name)[0]) for each in margin])
        for name in ("low_unsupported", "low_supported", "high")
    )
    fits = seen.accepted[..., 0] <= game.slots + high
    return np.asarray((seen.unsupported[..., 0] >= -low_u) & (seen.supported[..., 0] >= -low_s) & fits)


def _ever_shown(game: Game, reg: Registration, seen: Masses, arrive: Bools, *, margins: bool, step: int = 1) -> Bools:
    """Whether any look on the way shows the target risk, (runs, versions); what does not arrive is charged.

    A certificate needs the acceptance bound, too: so many claims are at least as many as certificates.

    Without margins: the control, in which a missing release is charged for its units and its noise is forgotten.
    """
    charged, before, proxy = charges(game, reg, margins=margins), None, _variance(reg)
    folded = [
        np.where(arrive, each[:, None, :, 0], charged[:, i]).cumsum(axis=-1)
        for i, each in enumerate((seen.unsupported, seen.supported, seen.accepted))
    ]
    noisy = (np.ones_like(arrive) if margins else arrive).cumsum(axis=-1) * proxy
    for at in range(step, game.releases + 1, step):
        u, s, a, v = (each[..., at - 1, None] for each in (*folded, noisy))
        before = look(reg, Sample(Masses(u, s, a, covariance("complementary", v)), at * game.slots, 0.0), before)
    assert before is not None
    return np.asarray(before.risk_upper[..., 0] <= TARGET)


def _variance(reg: Registration) -> float:
    """Of the noise on one suffix mass of one release."""
    return float(suffix_variance(reg.mechanism)[0])


def free_retries(runs: int, seed: int) -> dict[str, int]:
    """The control, format 1: each announcement gets a first request answered, and the first that certifies is shown."""
    game = Game(TRY, 1, 8.0)
    reg, rng = game.registration, np.random.default_rng([20_303, seed])
    seen = releases_of(game, reg, runs * TRIES, rng)
    found = _ever_shown(game, reg, seen, np.ones((runs * TRIES, 1, 1), dtype=bool), margins=True)
    return {"runs": runs, "false": int(found.reshape(runs, TRIES).any(axis=1).sum())}


def _best(number: int, margins: bool, first: int, count: int, _: Path) -> dict[str, int]:
    game = (*GAMES, *LONG)[number]
    published = best_published if game in GAMES else greedy
    return published(game, count, 10_000 * number + first, margins=margins)


def _free(first: int, count: int, _: Path) -> dict[str, int]:
    return free_retries(count, first)


# ---------------------------------------------------------------- the section


def run(scale: float = 1.0) -> Record:
    """The attacks one by one, runs played whole, and many runs on the bounds."""
    runs = some(RUNS, scale)
    with tempfile.TemporaryDirectory() as folder:
        said = attempts(Path(folder))
    games = []
    for number, game in enumerate((*GAMES, *LONG)):
        found = totals(in_blocks(partial(_best, number, True), runs, CHUNK))
        without = totals(in_blocks(partial(_best, number, False), runs, CHUNK)) if game in LONG else {}
        games.append({"slots": game.slots, "releases": game.releases, "epsilon": game.epsilon,
                      "runs": runs, "honest": found["honest"], "false": found["false"],
                      "false_without_margins": without.get("false")})  # fmt: skip
    return {
        "attempts": said,
        "games": games,
        "played": totals(in_blocks(played, some(PLAYED, scale), 4)),
        "free": totals(in_blocks(_free, runs, CHUNK)),
        "tries": TRIES,
    }


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    said, free, real = record["attempts"], record["free"], record["played"]
    worst = max(record["games"], key=lambda each: each["false"])
    limit = clopper_pearson(worst["false"], worst["runs"]).high
    return [
        Row(
            "V1: the server leaves a bad site out",
            recorded("CERTIFIED, nothing charged, verify accepts"),
            f"“{said['B is not announced']}”; “{said['B is never asked']}”; said to be absent:"
            f" {said['B is asked and said to be absent']}",
            f"What verify says. With all releases of both sites: {said[next(iter(said))]}.",
        ),
        Row(
            "V1: it announces 400, 401, 402 and gets three first requests answered",
            recorded("three runs, each verifies, none tells of the others"),
            f"“{said['401 units are announced']}”; “{said['the request for 401 is written down']}”",
            "Registered capacities and the registered rule leave one first request.",
        ),
        Row(
            "V1: it retries on fresh units and shows the best try",
            recorded("verify accepts"),
            f"“{said['the best try is shown as the first']}”; with the tries charged:"
            f" {said['the tries are charged as absent, then the rest']}",
            "Every release names its place and the one before it.",
        ),
        Row(
            f"V1: false claims of a server that publishes the best it can; true risk {RISK}, target {TARGET}",
            control(f"{free['false']:,} of {free['runs']:,}, by {record['tries']} free announcements each")
            + "; " + recorded("11 of 60"),
            f"{worst['false']} of {worst['runs']:,} in the worst of {len(record['games'])} games"
            f" ({worst['false'] / worst['runs']:.1%}, at most {limit:.1%} with 97.5% confidence)",
            "At most 5% is promised. Simulated, on the shipped bounds: see the games below. Claims on risk are counted;"
            " a certificate needs the acceptance, too.",
        ),
        Row(
            "V1: the same with real files, ledgers, transcripts and `verify`",
            "not tried",
            f"{real['false']} of {real['runs']} runs; {real['published']:,} versions published,"
            f" {real['refused']:,} of them refused",
            "In every second run a release was asked for beside the registered rule: its place in the site's chain is"
            " then missing, and what comes after it is refused.",
        ),
    ]  # fmt: skip


GAMES_TEXT = f"""\
Runs in which a risk of at most {TARGET} is shown, which is false: the truth is {RISK}. Noise is simulated, and the
bounds are the shipped ones. *Best that can be published*: of 8 releases any set may be said to be absent and is
charged, and the best of the 256 versions counts; of more, a greedy choice: those are withheld that would take more
wealth than their charge. *Charged without noise*: the control, in which a missing release is charged for its units
and its noise is forgotten."""


def more(record: Record) -> list[str]:
    """What each attempt came to, and the games."""
    return [
        "What `verify` says to each version that the server signs:",
        words(("the server's version", "what becomes of it"), record["attempts"].items()),
        GAMES_TEXT,
        markdown(
            ("releases", "runs", "all arrive", "best that can be published", "charged without noise"),
            [_game(each) for each in record["games"]],
        ),
    ]


def _game(each: Record) -> list[str]:
    what = f"{each['releases']} of {each['slots']} units, epsilon {each['epsilon']:g}"
    without = each["false_without_margins"]
    counts = [f"{each[name]:,}" for name in ("runs", "honest", "false")]
    return [what, *counts, "–" if without is None else f"{without:,}"]


SECTION = Section("server", "What a server can publish", run, rows, more)
