// Sealed certificates: registered looks, exact lines, weights passed on. docs/format.md, "Sealed"; (xiii).
"use strict";
import { acceptance } from "./betting.js";
import { binomialUpper, logBinomialTail } from "./binomial.js";
import { exactLine, hybridLine } from "./normal.js";
import { down9, sum, up9 } from "./numbers.js";
import { Beyond } from "./outcome.js";
import { isFixed } from "./registration.js";
import { sealedBets } from "./tally.js";

/** Weights of the rows left: a rejected row's goes to the one before it that is left, else to the next.
 * @param {number[]} weights @param {boolean[]} rejected */
export function passedOn(weights, rejected) {
  const left = weights.map(() => 0);
  weights.forEach((weight, i) => {
    let k = i;
    while (k >= 0 && rejected[k]) k--;
    if (k < 0) for (k = i; k < weights.length && rejected[k]; ) k++;
    if (k < weights.length) left[k] += weight;
  });
  return left;
}

export class Sealed {
  /** @param {any} registration @param {any} mechanism */
  constructor(registration, mechanism) {
    this.registration = registration;
    this.fixed = isFixed(registration);
    this.m = registration.thresholds.values.length;
    this.bets = sealedBets(registration, mechanism);
    const { targets } = registration.certificate;
    this.weights = mechanism.rows.map(({ threshold }, i) =>
      targets[Math.floor(i / this.m)].share * registration.thresholds.weights[threshold]);
    this.rejected = this.weights.map(() => false);
    this.lower = new Array(this.m).fill(0);
    /** @type {{share: number, evidence: number[], noises: number, before: number}[]} */
    this.looks = [];
  }

  /** The share of a look after a round, or 0. @param {number} round @param {boolean} last whether no request follows */
  share(round, last) {
    const { looks } = this.registration.certificate;
    if (last) return sum(looks.filter((look) => look.round >= round).map((look) => look.share));
    return looks.find((look) => look.round === round)?.share ?? 0;
  }

  /** The line of a row at a look. @param {number} i @param {number} weight
   * @param {{share: number, noises: number, before: number}} look */
  line(i, weight, { share, noises, before }) {
    const { line, risk_budget: budget } = this.registration.certificate;
    const [alpha, variance] = [budget * share * weight, this.bets[i].variance];
    if (line === "hybrid") {
      const last = variance * (noises - before);
      return up9(hybridLine(alpha, variance * before, last) + (last > 0 ? 1e-9 : 0));
    }
    const nu = variance * noises;
    const exact = nu > 0 ? exactLine(alpha, nu) + 1e-9 : -Math.log(alpha);
    return up9(line === "within" ? Math.max(exact, -Math.log(alpha)) : exact);
  }

  /** @param {any} tally @param {number} share @returns {import("./betting.js").Look} */
  look(tally, share) {
    const [N, eta, { D, Q, A }] = [tally.slots, tally.eta, tally.totals];
    const evidence = this.bets.map(({ a, b, r, theta, shift, loss }, i) => {
      if (tally.mechanism.counts) return this.counted(A[i % this.m], D[i], r, sum(tally.charged));
      const noised = a * D[i] - b * Q[i] - theta * N * eta + (tally.charges.L?.[i] ?? 0);
      return down9(noised - shift * tally.noises - 1e-9 - loss * N);
    });
    const look = { share, evidence, noises: tally.noises, before: tally.noisesBefore };
    this.looks.push(look);
    if (!this.fixed) this.rejected = this.weights.map(() => false);
    const weights = this.reject(this.fixed ? this.looks : [look]);
    const lower = acceptance(this.registration, tally, 1e-9 + 1e-15 * N * this.weights.length);
    this.lower = this.fixed ? lower.map((value, j) => Math.max(value, this.lower[j])) : lower;
    const rejected = [...this.rejected];
    const rows = this.lower.map((value, j) => ({ risk: this.risk(rejected, j), lower: value }));
    const report = this.report(tally, { D, A }, rejected, weights, look);
    return { rows, eta: () => eta, report: () => report };
  }

  /** Exact counts: what is charged counts as accepted and unsupported. @param {number} A @param {number} D
   * @param {number} r @param {number} charged */
  counted(A, D, r, charged) {
    return down9(-logBinomialTail(Math.round(r * A - D) + charged, Math.round(A) + charged, r) - 1e-9);
  }

  /** Reject until nothing more is rejected; return the weights left. @param {Sealed["looks"]} looks */
  reject(looks) {
    const passing = this.fixed || this.registration.certificate.line !== "hybrid";
    for (;;) {
      const weights = passing ? passedOn(this.weights, this.rejected) : this.weights;
      const more = this.rejected.map((is, i) => !is && looks.some((look) => look.evidence[i] >= this.line(i, weights[i],
        look)));
      if (!more.some(Boolean)) return weights;
      this.rejected = this.rejected.map((is, i) => is || more[i]);
    }
  }

  /** The least target rejected at a threshold, else 1. @param {boolean[]} rejected @param {number} j */
  risk(rejected, j) {
    const risks = this.registration.certificate.targets.filter((_,
      t) => rejected[t * this.m + j]).map((target) => target.risk);
    return Math.min(1, ...risks);
  }

  /** What exact counts leave of the contrast at a level. @param {number} A @param {number} D @param {number} r
   * @param {number} charged @param {number} alpha */
  left(A, D, r, charged, alpha) {
    const [bad, all] = [Math.round(r * A - D) + charged, Math.round(A) + charged];
    if (!(bad >= 0 && all >= 0)) throw new Beyond("counts below zero");
    return Math.max(0, binomialUpper(bad, all, Math.max(alpha, 1e-12)) - r);
  }

  /** Bounds at the claim's target. @param {any} tally @param {{D: number[], A: number[]}} totals
   * @param {boolean[]} rejected @param {number[]} weights @param {Sealed["looks"][0]} look */
  report(tally, { D, A }, rejected, weights, look) {
    const [N, eta, { counts }, charged] = [tally.slots, tally.eta, tally.mechanism, sum(tally.charged)];
    const budget = this.registration.certificate.risk_budget * look.share;
    return this.lower.map((_, j) => {
      const { theta, r, variance } = this.bets[j];
      const width = Math.sqrt(variance * look.noises) / (theta * N);
      const gap = () => (counts ? this.left(A[j], D[j], r, charged, budget * weights[j])
        : (this.line(j, weights[j], look) - look.evidence[j]) / (theta * N));
      const upper = rejected[j] ? 0 : Math.min(1 - r, up9(gap()));
      const contrast = D[j] - (counts ? (1 - r) * charged : 0);
      return { contrast_upper: upper, privacy_width: width, sampling_width: Math.max(0,
        upper + contrast / N - eta - width) };
    });
  }
}
