// Open certificates: wealth of bets, the ladder of targets, acceptance. docs/format.md, "Betting"; (iv), (xiv).
"use strict";
import { down9, geometric, logSumExp, mixtureRoot, up9 } from "./numbers.js";
import { isFixed } from "./registration.js";

/**
 * A row of bounds at a look.
 * @typedef {{risk: number, lower: number}} Row
 * @typedef {{rows: Row[], eta: () => number, report: () => any[]}} Look
 */

/** Lower bounds on acceptance by (iv), at every threshold. @param {any} registration @param {any} tally
 * @param {number} loss */
export function acceptance({ claim, certificate, thresholds }, tally, loss) {
  const { count, low, high, top } = certificate.centres;
  const centres = [];
  for (let i = 0; i <= Math.log2(top / claim.min_acceptance) + 1e-9; i++) centres.push(claim.min_acceptance * 2 ** i);
  const pairs = centres.flatMap((c) => geometric(Math.min(low, high / c), high / c,
    count).map((theta) => ({ c, theta })));
  const [N, eta, A] = [tally.slots, tally.eta, tally.accepted];
  const lower = A.map((mass, j) => {
    const nu = tally.mechanism.noise.A[j] * tally.noises;
    const constants = pairs.map(({ c, theta }) => {
      const [x, y] = [Math.log1p(theta * (1 - c)), Math.log1p(-theta * c)];
      return x * mass + y * (N - mass) - 0.5 * (x - y) ** 2 * nu + theta * N * c - Math.log(pairs.length);
    });
    const root = -mixtureRoot(constants, pairs.map(({ theta }) => theta * N),
      -Math.log(certificate.acceptance_budget * thresholds.weights[j]));
    return Math.max(0, down9(Math.max(0, root - eta) - loss));
  });
  for (let j = lower.length - 2; j >= 0; j--) lower[j] = Math.max(lower[j], lower[j + 1]);
  return lower;
}

export class Betting {
  /** @param {any} registration @param {any} mechanism */
  constructor(registration, mechanism) {
    const { certificate, thresholds, claim } = registration;
    this.registration = registration;
    this.fixed = isFixed(registration);
    this.m = thresholds.values.length;
    this.lower = new Array(this.m).fill(0);
    this.rejected = thresholds.values.map(() => certificate.ladder.map(() => false));
    const { count, low, high } = certificate.bets;
    this.bets = certificate.ladder.map((r) => geometric(low, high / (1 - r),
      count).map((theta) => ({ theta, ...mechanism.bet(theta, r) })));
    this.priors = thresholds.values.map((_,
      j) => (certificate.bets.priors?.[j] ?? new Array(count).fill(1 / count)).map(Math.log));
    this.target = certificate.ladder.indexOf(claim.target_risk);
    /** @param {{slopes: number[]}[]} bets */
    const steepness = (bets) => Math.max(0, ...bets.flatMap((each) => each.slopes)) + 1;
    this.steepness = steepness(this.bets.flat());
    this.steepnessOfTarget = steepness(this.bets[this.target]);
    this.lines = thresholds.weights.map((w) => up9(-Math.log(certificate.risk_budget * w)));
  }

  /** L_b of the bets at a rung; noise proxies count so many releases. @param {any} tally @param {any} totals
   * @param {number} j @param {number} g @param {number} noises */
  wealth(tally, totals, j, g, noises) {
    return this.bets[g].map((each, b) => this.priors[j][b] + each.wealth(totals, j) - 0.5 * each.proxy(j) * noises);
  }

  /** @param {any} tally @param {any} totals @param {number} j @param {number} g */
  logE(tally, totals, j, g) {
    const shift = tally.slots * tally.eta;
    return logSumExp(this.wealth(tally, totals, j, g, tally.noises).map((value,
      b) => value - this.bets[g][b].theta * shift));
  }

  /** Look after a round. @param {any} tally @returns {Look} */
  look(tally) {
    const { ladder } = this.registration.certificate;
    const loss = 1e-9 + 1e-15 * tally.slots * this.m;
    const totals = tally.totals;
    if (!this.fixed) this.rejected = this.rejected.map((row) => row.map(() => false));
    for (let j = 0; j < this.m; j++)
      for (let g = 0; g < ladder.length; g++)
        this.rejected[j][g] ||= this.logE(tally, totals, j, g) >= this.lines[j] + loss * this.steepness;
    const lower = acceptance(this.registration, tally, loss);
    this.lower = this.fixed ? lower.map((value, j) => Math.max(value, this.lower[j])) : lower;
    const rows = this.rejected.map((row, j) => ({ risk: this.ladder(row), lower: this.lower[j] }));
    return { rows, eta: () => tally.eta, report: () => this.reports(tally) };
  }

  /** What is reported of every row, with what was charged since. @param {any} tally */
  reports(tally) {
    const [totals, loss] = [tally.totals, 1e-9 + 1e-15 * tally.slots * this.m];
    return this.lines.map((_, j) => this.report(tally, totals, j, loss));
  }

  /** (iv) Ladder: the smallest rung from which on every one is rejected. @param {boolean[]} row */
  ladder(row) {
    const { ladder } = this.registration.certificate;
    let g = row.length;
    while (g > 0 && row[g - 1]) g--;
    const risk = g < row.length ? ladder[g] : 1;
    return this.fixed ? risk : risk <= ladder[this.target] ? ladder[this.target] : 1;
  }

  /** @param {any} tally @param {any} totals @param {number} j @param {number} loss */
  report(tally, totals, j, loss) {
    const [r, N, eta] = [this.registration.claim.target_risk, tally.slots, tally.eta];
    const slopes = this.bets[this.target].map((each) => each.theta * N);
    const line = -Math.log(this.registration.certificate.risk_budget * this.registration.thresholds.weights[j]);
    const bound = (noises) => up9(Math.min(1 - r, mixtureRoot(this.wealth(tally, totals, j, this.target, noises),
      slopes, line) + eta));
    const [upper, plain] = [bound(tally.noises), bound(0)];
    return {
      contrast_upper: upper, privacy_width: upper - plain, sampling_width: plain - tally.mechanism.contrast(totals,
        r)[j] / N - eta,
      log_wealth: down9(this.logE(tally, totals, j, this.target) - loss * this.steepnessOfTarget),
    };
  }
}
