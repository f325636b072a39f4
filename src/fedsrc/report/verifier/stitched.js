// The paper's certificates: contrast, variance-adaptive, ratio, over doubling epochs. docs/theory/07-paper.md.
"use strict";
import { down9, up9 } from "./numbers.js";
import { isFixed } from "./registration.js";

export class Stitched {
  /** @param {any} registration @param {any} mechanism */
  constructor(registration, mechanism) {
    const { certificate, thresholds } = registration;
    this.registration = registration;
    this.fixed = isFixed(registration);
    this.m = thresholds.values.length;
    this.families = certificate.method === "variance-adaptive" ? 3 : 2;
    this.unit = mechanism.scale > 0 ? (mechanism.scale / mechanism.largest) ** 2 : 1; // v_0
  }

  /** x_q at a budget. @param {number} q @param {number} budget */
  level(q, budget) {
    return Math.log((this.families * this.m * Math.PI ** 2 * (q + 1) ** 2) / (6 * budget));
  }

  /** H_c(n). @param {number} n */
  sampling(n) {
    const q = Math.ceil(Math.log2(n));
    return Math.sqrt((2 ** q / 2) * this.level(q, this.registration.certificate.sampling_budget));
  }

  /** G_c(v). @param {number} v */
  noise(v) {
    if (v === 0) return 0;
    const q = Math.max(0, Math.ceil(Math.log2(v / this.unit) - 1e-12));
    return Math.sqrt(2 * this.unit * 2 ** q * this.level(q, this.registration.certificate.noise_budget));
  }

  /** F_3(u). @param {number} u */
  variation(u) {
    const q = Math.ceil(Math.log2(Math.max(u, 1)));
    const x = this.level(q, this.registration.certificate.sampling_budget);
    return Math.sqrt(2 ** (q + 1) * x) + (2 / 3) * x;
  }

  /** @param {any} tally @returns {import("./betting.js").Look} */
  look(tally) {
    const { target_risk: target } = this.registration.claim;
    const [totals, A] = [tally.totals, tally.accepted];
    const found = A.map((mass, j) => this.row(tally, totals, mass, j));
    const rows = found.map(({ risk, lower }) => ({ risk: this.fixed ? risk : risk <= target ? target : 1, lower }));
    return { rows, eta: () => tally.eta, report: () => found.map(({ bounds }) => bounds) };
  }

  /** @param {any} tally @param {any} totals @param {number} mass @param {number} j */
  row(tally, { U, S }, mass, j) {
    const [r, N, eta, { noise }] = [this.registration.claim.target_risk, tally.slots, tally.eta, tally.mechanism];
    const proxy = (x, y) => tally.noises * (x * x * noise.U[j] + 2 * x * y * noise.US[j] + y * y * noise.S[j]);
    const [H, gA] = [this.sampling(N), this.noise(tally.noises * noise.A[j])];
    const lower = Math.max(0, (mass - H - gA) / N - eta);
    const down = Math.max(0, down9(lower));
    if (this.registration.certificate.method === "ratio") {
      const gU = this.noise(proxy(1, 0));
      const [above, below] = [(U[j] + H + gU) / N, (mass - H - gA) / N].map((value) => Math.min(1, Math.max(0, value)));
      const risk = below > eta ? up9(Math.min(1, (above + eta) / (below - eta))) : 1;
      return { risk, lower: down9(Math.max(0, below - eta)), bounds: { contrast_upper: up9(Math.min(1 - r,
        above + eta - r * (below - eta))), privacy_width: gU / N, sampling_width: H / N } };
    }
    const width = this.families === 3 ? this.variation(Math.min(N, Math.max(0, mass + H + gA))) : H;
    const gD = this.noise(proxy(1 - r, -r));
    const upper = up9(Math.min(1 - r, ((1 - r) * U[j] - r * S[j] + width + gD) / N + eta));
    const risk = upper <= 0 ? r + upper : lower > 0 ? Math.min(1, r + upper / down) : 1;
    return { risk: Math.min(1, Math.max(0, up9(risk))), lower: down, bounds: { contrast_upper: upper,
      privacy_width: gD / N, sampling_width: width / N } };
  }
}
