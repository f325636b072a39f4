// What arrived and what is charged, added up exactly; whether a release is plausible. docs/format.md, "Tally".
"use strict";
import { bet } from "./contrasts.js";
import { sum } from "./numbers.js";
import { Beyond } from "./outcome.js";
import { deploymentWeights } from "./registration.js";

/** @typedef {any} Mechanism */

export class Tally {
  /** @param {any} registration @param {Mechanism} mechanism */
  constructor(registration, mechanism) {
    const count = registration.sites.length;
    this.registration = registration;
    this.mechanism = mechanism;
    this.integers = new Array(mechanism.lengths[0] + mechanism.lengths[1]).fill(0n);
    this.arrived = new Array(count).fill(0);
    this.charged = new Array(count).fill(0);
    /** Noise: answers folded and charged; and up to the round before the last. */
    this.noises = 0;
    this.noisesBefore = 0;
    /** @type {Record<string, number[]>} what charges add, by name */
    this.charges = {};
  }

  /** @param {any} release @param {number[]} parts slots by site */
  fold(release, parts) {
    integersOf(release).forEach((value, i) => { this.integers[i] += value; });
    parts.forEach((slots, k) => { this.arrived[k] += slots; });
    this.noises++;
  }

  /** A missing answer, where dropout is adversarial. @param {any} request @param {number[]} parts */
  charge(request, parts) {
    const found = this.sealed ? chargeShaped(this, request) : this.mechanism.charge({ slots: request.slots,
      margins: this.margins(request) });
    for (const [name, values] of Object.entries(found)) this.charges[name] = values.map((value,
      j) => value + (this.charges[name]?.[j] ?? 0));
    parts.forEach((slots, k) => { this.charged[k] += slots; });
    this.noises++;
  }

  get sealed() {
    return this.registration.certificate.method === "sealed";
  }

  /** N: slots that arrived or are charged. */
  get slots() {
    return sum(this.arrived) + sum(this.charged);
  }

  /** eta of (vi). */
  get eta() {
    const slots = this.slots;
    const shares = this.arrived.map((value, k) => (value + this.charged[k]) / slots);
    const weights = deploymentWeights(this.registration) ?? shares;
    const drift = this.registration.sites.reduce((total, site, k) => total + weights[k] * site.drift, 0);
    return 0.5 * sum(weights.map((w, k) => Math.abs(w - shares[k]))) + drift;
  }

  /** Decoded masses, with what charges add. */
  get totals() {
    const found = this.mechanism.decode(this.integers.map(Number));
    for (const [name, values] of Object.entries(this.charges))
      if (name !== "A" && name !== "L") found[name] = found[name].map((value, j) => value + values[j]);
    return found;
  }

  /** Noised accepted masses, with charges of their own. */
  get accepted() {
    const found = this.mechanism.decode(this.integers.map(Number));
    const A = this.sealed ? found.A : this.mechanism.accepted(found);
    return A.map((value, j) => value + (this.charges.A?.[j] ?? 0));
  }

  /** log(M pi^2 s^2 / 6 alpha_f) of request number s. @param {number} number */
  reach(number) {
    const budget = this.registration.certificate.refusal_budget;
    if (!(budget > 0)) throw new Beyond("charges without a refusal budget");
    return Math.log((this.events * Math.PI ** 2 * number ** 2) / (6 * budget));
  }

  get events() {
    return this.sealed ? 9 * this.mechanism.rows.length + 2 * this.registration.thresholds.values.length
      : this.mechanism.events;
  }

  /** Margins of an open release's statistics. @param {any} request @returns {number[][]} */
  margins(request) {
    const reach = this.reach(request.number);
    const zero = this.mechanism.decode(this.integers.map(() => 0));
    return this.mechanism.statistics(zero).map(({ noise }) => noise.map((nu) => Math.sqrt(2 * nu * reach) + 1e-9));
  }

  /** Whether an answer fits its slots, but for noise. @param {any} release @param {any} request */
  isPlausible(release, request) {
    if (!(this.registration.certificate.refusal_budget > 0)) return true;
    const totals = this.mechanism.decode(integersOf(release).map(Number));
    if (this.sealed) return shapedStatistics(this, totals, request).every(({ value, most,
      margin }) => value <= most + margin);
    const margins = this.margins(request);
    return this.mechanism.statistics(totals).every(({ values, most }, i) =>
      values.every((value, j) => value <= most * request.slots + margins[i][j]));
  }
}

/** @param {any} release @returns {bigint[]} */
export function integersOf(release) {
  return [...release.first, ...release.second].map(BigInt);
}

/** What a sealed row needs of its bet. @param {any} registration @param {Mechanism} mechanism */
export function sealedBets({ certificate, thresholds }, mechanism) {
  const m = thresholds.values.length;
  return mechanism.rows.map(({ r }, i) => {
    const theta = certificate.targets[Math.floor(i / m)].bets[i % m] ?? 1;
    const found = mechanism.counts ? { a: 1, b: 0, least: r - 1, most: r } : bet(theta, r);
    const loss = 1e-15 * mechanism.rows.length * (1 + found.a + found.b) * mechanism.condition;
    return { theta, r, ...found, ...mechanism.slope(i, found.a, found.b), loss };
  });
}

/** Refusal of (xiii). @param {Tally} tally @param {any} totals @param {any} request */
function shapedStatistics(tally, totals, request) {
  const { registration, mechanism } = tally;
  const bets = sealedBets(registration, mechanism);
  const [n, far] = [request.slots, tally.reach(request.number)];
  const slack = 1e-9 + n * Math.max(...bets.map((each) => each.loss));
  const found = /** @type {{value: number, most: number, margin: number}[]} */ ([]);
  /** @param {number} value @param {number} low @param {number} high @param {number} nu */
  const within = (value, low, high, nu) => {
    const margin = Math.sqrt(2 * nu * far) + slack;
    found.push({ value, most: high, margin }, { value: -value, most: -low, margin });
  };
  const { D, Q, A } = totals;
  const { noise } = mechanism;
  bets.forEach(({ r, a, b, least, most, variance }, i) => {
    const j = mechanism.rows[i].threshold;
    within(a * D[i] - b * Q[i], n * least, n * most, variance);
    within(D[i], -(1 - r) * n, r * n, noise.D[i]);
    within(Q[i], (-((1 - 2 * r) ** 2) / 4) * n, r * (1 - r) * n, noise.Q[i]);
    if (!registration.encoding.accepted.length) return;
    within(D[i] - r * A[j], -Infinity, 0, noise.D[i] + r * r * noise.A[j]);
    within(-(D[i] + (1 - r) * A[j]), -Infinity, 0, noise.D[i] + (1 - r) ** 2 * noise.A[j]);
    within(Q[i] - r * (1 - r) * A[j], -Infinity, 0, noise.Q[i] + (r * (1 - r)) ** 2 * noise.A[j]);
  });
  A.forEach((value, j) => within(value, 0, n, noise.A[j]));
  return found;
}

/** Charge of (xiii): L at its least, A at its least, beyond their margins. @param {Tally} tally @param {any} request */
function chargeShaped(tally, request) {
  const { registration, mechanism } = tally;
  const bets = sealedBets(registration, mechanism);
  const slack = 1e-9 + request.slots * Math.max(...bets.map((each) => each.loss));
  const margin = (nu) => Math.sqrt(2 * nu * tally.reach(request.number)) + slack;
  return {
    L: bets.map(({ least, variance }) => request.slots * least - margin(variance)),
    A: mechanism.noise.A.map((nu) => -margin(nu)),
  };
}
