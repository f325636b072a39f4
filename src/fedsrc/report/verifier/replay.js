// The protocol, entry by entry: who may say what when, and what follows from it. docs/format.md, "Transcript".
"use strict";
import { Betting } from "./betting.js";
import { sha256, signatureFits } from "./bytes.js";
import { canonicalBytes, sameJson } from "./json.js";
import { sum } from "./numbers.js";
import { Beyond, Wrong, must } from "./outcome.js";
import { nextSlots, roundSize } from "./recruit.js";
import { deploymentWeights, mechanismOf } from "./registration.js";
import { Sealed } from "./sealed.js";
import { Stitched } from "./stitched.js";
import { Tally, integersOf } from "./tally.js";
import { NOTHING } from "./transcript.js";

/** @param {string} text UTC to the second, of the years 1000 to 9999 */
export function isTime(text) {
  const when = /^[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text) ? new Date(text) : new Date(NaN);
  return !Number.isNaN(when.valueOf()) && when.toISOString().replace(".000", "") === text;
}

/** @param {bigint} total */
function isBeyond(total) {
  return total >= 2n ** 62n || total <= -(2n ** 62n);
}

export class Replay {
  /** @param {any} registration @param {string} digest */
  constructor(registration, digest) {
    this.registration = registration;
    this.digest = digest;
    this.charging = registration.schedule.dropout === "adversarial";
    this.holder = registration.aggregation.kind === "holder";
    this.weights = deploymentWeights(registration);
    /** @type {(number | null)[]} unspent units of every site; null before it announced */
    this.left = registration.sites.map((site) => (this.charging ? site.capacity : null));
    this.askedSlots = registration.sites.map(() => 0);
    this.rounds = 0;
    this.number = 0;
    /** @type {any[] | null} requests of the present round that are still to be asked */
    this.planned = null;
    /** @type {Map<string, {request: any, parts: number[]}>} */
    this.open = new Map();
    /** @type {(() => void)[]} what is folded when the round closes */
    this.pending = [];
    /** @type {Map<string, {place: number, digest: string, missed: number}>} */
    this.chains = new Map();
    /** @type {any[]} */
    this.releases = [];
    this.ends = { absent: 0, refused: 0 };
    this.charged = registration.sites.map(() => 0);
    /** @type {string[]} times of releases in closed rounds */
    this.times = [];
    this.signatures = 0;
    /** Noise up to the last closed round. */
    this.noises = 0;
    /** @type {bigint[]} of every integer of every accepted release */
    this.sums = [];
    /** @type {string | null} */
    this.ended = null;
    /** @type {{round: number, records: number, rows: any[], report: () => any[]}[]} */
    this.looks = [];
    /** @type {number | null} */
    this.scale = null;
    this.opened = false;
  }

  /** The mechanism, tally and bounds, once the noise is known. @param {number | null} scale */
  begin(scale) {
    if (this.tally) return;
    this.mechanism = mechanismOf(this.registration, scale);
    this.scale = this.mechanism.scale;
    this.tally = new Tally(this.registration, this.mechanism);
    const kinds = { sealed: Sealed, betting: Betting };
    const Bounds = kinds[/** @type {keyof typeof kinds} */ (this.registration.certificate.method)] ?? Stitched;
    this.bounds = new Bounds(this.registration, this.mechanism);
  }

  /** @param {any} entry @param {string} where */
  async take(entry, where) {
    must(this.ended === null, "an entry after the end", where);
    must((entry.kind === "opened") === !this.opened, "a transcript is opened once, by its first line", where);
    try {
      await this[/** @type {"opens"} */ (ACTS[/** @type {keyof typeof ACTS} */ (entry.kind)])](entry);
    } catch (error) {
      if (error instanceof Wrong) throw new Wrong(error.message, where);
      throw error;
    }
  }

  /** @param {any} entry */
  async opens({ registration }) {
    must(registration === this.digest, "the transcript is of another registration");
    this.opened = true;
  }

  /** @param {any} entry */
  async announces({ site, units, hello }) {
    const k = this.registration.sites.findIndex((each) => each.name === site);
    must(k >= 0, "an unknown site announces itself");
    const { capacity, key } = this.registration.sites[k];
    must(this.planned === null, "a site announces itself within a round");
    must(!this.charging, "a site announces itself, where dropout is charged");
    must(this.left[k] === null, "a site announces itself twice");
    must(this.registration.certificate.method !== "sealed" || this.number === 0,
      "a site announces itself after the first request");
    must(capacity === null || units <= capacity - this.askedSlots[k], "a site announces more than its capacity");
    const signer = this.holder ? this.registration.aggregation.key : key;
    if (hello === null) must(signer === null || units === capacity,
      "a site with a key announces itself without its signature");
    else {
      must(signer !== null, "a site without a key signs its announcement");
      must(hello.registration === this.digest && hello.site === site && hello.units === units,
        "a signed announcement says something else");
      const { signature, ...rest } = hello;
      must(await signatureFits(signer, signature ?? "", canonicalBytes({ ...rest, fedsrc: "hello" })),
        "an announcement's signature does not fit");
      this.signatures++;
    }
    this.left[k] = units;
  }

  /** Requests of the next round, by the rule. docs/format.md, "Who is asked". */
  plan() {
    const { sites, schedule, claim } = this.registration;
    const [drawn, left] = [sites.map((_, k) => (this.tally?.arrived[k] ?? 0) + (this.tally?.charged[k] ?? 0)),
      this.left.map((units) => units ?? 0)];
    const round = this.rounds + 1;
    const slots = nextSlots({ drawn, left, weights: this.weights, size: roundSize(schedule, round),
      target: claim.target_risk, policy: schedule.policy });
    const base = { registration: this.digest, round, scale: this.scale };
    if (this.holder) return sum(slots) ? [{ ...base, site: "holder", slots: sum(slots), parts: slots }] : [];
    return sites.map((site, k) => ({ ...base, site: site.name, slots: slots[k] })).filter((each) => each.slots > 0);
  }

  /** @param {any} entry */
  async asks({ request }) {
    this.begin(request.scale);
    if (this.planned === null) {
      must(this.reason() === null, "a request after a reason to end");
      this.planned = this.plan();
    }
    const next = /** @type {any[]} */ (this.planned).shift();
    must(next !== undefined, "a request that does not follow from the rule");
    this.number++;
    must(sameJson({ ...next, scale: this.scale, number: this.number }, request),
      `a request is not the one that follows from the rule (${next.slots} slots of ${next.site})`);
    const parts = request.parts ?? this.registration.sites.map((site) => (site.name === request.site ? request.slots
      : 0));
    parts.forEach((slots, k) => { this.askedSlots[k] += slots; });
    this.open.set(await sha256(canonicalBytes(request)), { request, parts });
  }

  /** @param {string} digest */
  settle(digest) {
    const found = this.open.get(digest);
    if (!found) throw new Wrong("an answer to no open request");
    this.open.delete(digest);
    found.parts.forEach((slots, k) => { if (slots) this.left[k] = (this.left[k] ?? 0) - slots; });
    return found;
  }

  /** Why a release is refused, or "". docs/format.md, "Checks of a release". @param {any} release */
  async problem(release) {
    const found = this.open.get(release.request);
    if (!found) return "it answers no open request";
    const { request } = found;
    const key = this.holder ? this.registration.aggregation.key
      : this.registration.sites.find((site) => site.name === request.site).key;
    const { signature, ...rest } = release;
    if (key !== null && !(await signatureFits(key, signature ?? "",
      canonicalBytes(rest)))) return "its signature does not fit";
    if (key !== null) this.signatures++;
    if (release.site !== request.site || release.slots !== request.slots
      || release.scale !== request.scale) return "it answers something else";
    if ((release.check ?? null) !== null) return "it has a check";
    const [first, second] = /** @type {any} */ (this.mechanism).lengths;
    if (release.first.length !== first || release.second.length !== second) return "it has another length";
    if (integersOf(release).some((value) => value >= 2n ** 61n
      || value <= -(2n ** 61n))) return "an integer is too large";
    const demanded = this.registration.labelling.kind === "on demand";
    if (((release.labels ?? null) !== null) !== demanded) return "its labels are missing or not asked for";
    const { place, digest, missed } = this.chain(request.site);
    const skipped = release.place - place - 1;
    if (!(skipped >= 0 && skipped <= missed) || (skipped === 0
      && release.before !== digest)) return "its chain does not fit";
    if (integersOf(release).some((value, i) => isBeyond((this.sums[i] ?? 0n) + value))) return "its sums are too large";
    return /** @type {Tally} */ (this.tally).isPlausible(release, request) ? "" : "it is not plausible";
  }

  /** @param {string} site */
  chain(site) {
    return this.chains.get(site) ?? { place: 0, digest: NOTHING, missed: 0 };
  }

  /** @param {any} entry */
  async arrives({ release }) {
    must(isTime(release.time), "a release has no valid time");
    const problem = await this.problem(release);
    must(problem === "", `a release was accepted, but ${problem}`);
    const { parts } = this.settle(release.request);
    this.chains.set(release.site, { place: release.place, digest: await sha256(canonicalBytes(release)), missed: 0 });
    this.releases.push({ ...release, first: null, second: null });
    this.sums = integersOf(release).map((value, i) => (this.sums[i] ?? 0n) + value);
    this.pending.push(() => this.tally?.fold(release, parts));
  }

  /** @param {any} entry */
  async misses({ request: digest, refused, release, members }) {
    const { labelling } = this.registration;
    if (members) throw new Beyond("sums of cohorts");
    must(labelling.kind !== "on demand" || (labelling.hours ?? null) !== null || this.charging,
      "a release is missing, where labels decide when it comes");
    must(refused || release === null, "a release is kept, but not refused");
    if (release !== null) {
      must(isTime(release.time), "a release has no valid time");
      must(release.request === digest, "a refused release answers another request");
      must((await this.problem(release)) !== "", "a release was refused, but nothing is wrong with it");
    }
    const { request, parts } = this.settle(digest);
    const chain = this.chain(request.site);
    this.chains.set(request.site, { ...chain, missed: chain.missed + 1 });
    this.ends[refused ? "refused" : "absent"]++;
    if (!this.charging) return;
    parts.forEach((slots, k) => { this.charged[k] += slots; });
    this.tally?.charge(request, parts); // at once: what is reported includes it
  }

  /** @param {any} entry */
  async closes({ round }) {
    must(round === this.rounds + 1, "a round is closed out of turn");
    must(this.planned !== null && this.planned.length === 0 && this.open.size === 0,
      "a round is closed before all its requests are asked and settled");
    const tally = /** @type {Tally} */ (this.tally);
    tally.noisesBefore = this.noises;
    for (const fold of this.pending) fold();
    this.pending = [];
    this.noises = tally.noises;
    this.times = this.releases.map((each) => each.time).sort();
    this.planned = null;
    this.rounds = round;
    if (tally.slots === 0) return;
    const share = this.bounds instanceof Sealed ? this.bounds.share(round, this.isLast()) : 1;
    if (share > 0) this.looks.push({ round, records: sum(tally.arrived),
      .../** @type {any} */ (this.bounds).look(tally, share) });
  }

  isLast() {
    return this.rounds === this.registration.schedule.rounds || this.plan().length === 0;
  }

  /** The claimed row at a look: of the certified ones that with the largest acceptance, or -1. @param {any} look */
  claimed(look) {
    const { target_risk: target, min_acceptance: least } = this.registration.claim;
    let best = -1;
    look?.rows.forEach(({ risk, lower }, j) => {
      if (risk <= target && lower >= least && (best < 0 || lower > look.rows[best].lower)) best = j;
    });
    return best;
  }

  /** Whether the policy stops, now that there is a threshold. */
  stops() {
    const { policy } = this.registration.schedule;
    const now = this.looks.at(-1);
    if (this.claimed(now) < 0 || now?.round !== this.rounds || policy === "final") return false;
    if (policy !== "enough") return true;
    const half = this.looks.filter((look) => 2 * look.records <= now.records).at(-1);
    const best = (look) => (this.claimed(look) < 0 ? 0 : look.rows[this.claimed(look)].lower);
    return half !== undefined && best(half) > 0 && best(now) - best(half) < 0.05;
  }

  /** The reason to end that holds between rounds, or null. @returns {string | null} */
  reason() {
    if (this.stops()) return "certified";
    if (this.rounds >= this.registration.schedule.rounds) return "rounds used";
    return this.plan().length === 0 ? "units used" : null;
  }

  /** @param {any} entry */
  async finishes({ reason }) {
    must(this.planned === null, "the run ends within a round");
    must(reason === this.reason(), `the run ends for a reason that does not hold: ${reason}`);
    this.ended = reason;
  }

  /** @param {any} entry @returns {Promise<void>} */
  async beyond(entry) {
    throw new Beyond(`entries of kind ${entry.kind}`);
  }
}

const ACTS = { opened: "opens", announced: "announces", asked: "asks", arrived: "arrives", summed: "beyond",
  absent: "misses", closed: "closes", ended: "finishes" };
