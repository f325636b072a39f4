// Releases in plain and suffix bins: layout, decoding, noise, sensitivity. docs/format.md, "Mechanism"; (i), (ii),
// (xiv).
"use strict";
import { columnDistance, decodeSuffix, inverseBasis, roundedBasis, suffixSquares } from "./basis.js";

/**
 * A statistic of a release that honest ones keep at or below `most` per slot, but for noise.
 * @typedef {{values: number[], most: number, noise: number[]}} Statistic
 * @typedef {{slots: number, margins: number[][]}} Missing margins by statistic and threshold
 * @typedef {Record<string, number[]>} Totals noised masses by name and threshold
 */

/** The mass grid: masses are multiples of 1/g. @param {any} privacy */
export function massGrid(privacy) {
  if (privacy.answer_weight === "answer") return privacy.loss_grid * privacy.max_answers;
  let least = 1;
  for (let n = 2; n <= privacy.max_answers; n++) least = (least * n) / divisor(least, n);
  return privacy.loss_grid * least;
}

/** @param {number} a @param {number} b @returns {number} */
export function divisor(a, b) {
  return b === 0 ? a : divisor(b, a % b);
}

/**
 * How releases of the open encodings are laid out and read, for one scale of noise.
 * @param {any} encoding @param {any} privacy @param {number} m @param {number} scale
 */
export function openMechanism(encoding, privacy, m, scale) {
  const g = massGrid(privacy);
  const plain = encoding.basis === "bins";
  const bits = encoding.basis_bits;
  const f = plain ? [] : roundedBasis(m, bits);
  const inverse = plain ? [] : inverseBasis(f, bits);
  const width = plain ? m + 1 : m;
  const squares = plain ? Array.from({ length: m }, (_, j) => m - j) : suffixSquares(inverse);
  /** @param {number[]} x @param {number} unit */
  const suffix = (x, unit) => (plain ? tails(x.slice(1)) : decodeSuffix(inverse, x)).map((value) => value / unit);
  /** @param {number} unit proxies of a suffix on that lattice */
  const proxy = (unit) => squares.map((value) => (scale / unit) ** 2 * value);
  const norm = plain ? 1 : f.reduce((total, value) => total + value * value, 0);
  const kinds = { complementary: histograms, paired: histograms, moments, levels };
  const make = kinds[/** @type {keyof typeof kinds} */ (encoding.kind)];
  return make({ kind: encoding.kind, g, m, width, bits, plain, suffix, proxy, norm, distance: plain ? 2
    : columnDistance(f) });
}

/** @param {number[]} bins */
function tails(bins) {
  const found = [...bins];
  for (let j = found.length - 2; j >= 0; j--) found[j] += found[j + 1];
  return found;
}

/** @param {number[]} a @param {number[]} b */
const plus = (a, b) => a.map((value, j) => value + b[j]);
/** @param {number[]} a @param {number} factor */
const times = (a, factor) => a.map((value) => value * factor);
/** @param {number[]} x @param {number} width @param {number} i */
const part = (x, width, i) => x.slice(width * i, width * (i + 1));

/** @param {any} base */
function histograms({ kind, g, m, width, bits, plain, suffix, proxy, norm, distance }) {
  const paired = kind === "paired";
  const unit = plain ? g : 2 ** bits * g;
  const v = proxy(unit);
  const noise = { U: v, S: paired ? times(v, 2) : v, A: paired ? v : times(v, 2), US: paired ? times(v, -1)
    : times(v, 0) };
  return {
    lengths: [width, width],
    largest: unit,
    squared: { "zero-out": (paired ? 2 : 1) * norm * g * g, replacement: paired
      ? Math.max(2 * distance, distance + norm) * g * g : 2 * norm * g * g },
    noise,
    /** @param {number[]} x @returns {Totals} */
    decode(x) {
      const [first, U] = [suffix(part(x, width, 0), unit), suffix(part(x, width, 1), unit)];
      return { U, S: paired ? first.map((value, j) => value - U[j]) : first };
    },
    /** Refusal, (iv). @param {Totals} t @returns {Statistic[]} */
    statistics: ({ U, S }) => [
      { values: times(U, -1), most: 0, noise: noise.U }, { values: times(S, -1), most: 0, noise: noise.S },
      { values: plus(U, S), most: 1, noise: noise.A },
    ],
    events: 3 * m,
    /** Withheld releases, (iv). @param {Missing} missing @returns {Totals} */
    charge: ({ slots, margins: [sU, sS, sA] }) => ({ U: sA.map((a, j) => slots + a + sS[j]), S: times(sS, -1),
      A: sU.map((u, j) => -u - sS[j]) }),
    /** @param {Totals} t */
    accepted: ({ U, S }) => plus(U, S),
    /** D = (1 - r) U - r S. @param {Totals} t @param {number} r */
    contrast: ({ U, S }, r) => U.map((u, j) => (1 - r) * u - r * S[j]),
    /** L of a bet at every threshold, and its noise's proxy per release, (iv). @param {number} theta
     * @param {number} r */
    bet(theta, r) {
      const [x, y] = [Math.log1p(-theta * (1 - r)), Math.log1p(theta * r)];
      return {
        wealth: ({ U, S }, j) => x * U[j] + y * S[j],
        proxy: (j) => x * x * noise.U[j] + 2 * x * y * noise.US[j] + y * y * noise.S[j],
        slopes: /** @type {number[]} */ ([]),
      };
    },
  };
}

/** kappa(c) theta^2 with c = theta (1 - r), (xiii) Second moments. @param {number} theta @param {number} r */
export function secondSlope(theta, r) {
  const c = theta * (1 - r);
  if (c > 0.1) return ((-Math.log1p(-c) - c) / (c * c)) * theta * theta;
  let kappa = 0;
  for (let n = 40; n >= 2; n--) kappa = kappa * c + 1 / n;
  return kappa * theta * theta;
}

/** @param {any} base */
function moments({ g, m, width, bits, suffix, proxy, norm }) {
  const [unit, second] = [2 ** (bits + 1) * g * g, 2 ** bits * g * g];
  const v = proxy(unit);
  const noise = { U: v, S: v, A: times(v, 2), UU: times(v, 4), US: times(v, 4 / 36), SS: times(v, 4),
    T: times(v, 4 * (2 + 4 / 36)) };
  return {
    lengths: [2 * width, 3 * width],
    largest: unit,
    squared: { "zero-out": 5 * g ** 4 * norm, replacement: 10 * g ** 4 * norm },
    noise,
    /** @param {number[]} x @returns {Totals} */
    decode(x) {
      const [S, U] = [0, 1].map((i) => suffix(part(x, width, i), unit));
      const [UU, US, SS] = [1, 6, 1].map((factor, i) => suffix(part(x, width, i + 2), second * factor));
      return { U, S, UU, US, SS, ...Object.fromEntries(["Q1", "Q2", "Q3"].map((name) => [name, times(U, 0)])) };
    },
    /** Refusal, (xiv). @param {Totals} t @returns {Statistic[]} */
    statistics: (t) => [
      ...["U", "S", "UU", "US", "SS"].map((name) => ({ values: times(t[name], -1), most: 0,
        noise: noise[/** @type {"U"} */ (name)] })),
      { values: plus(t.U, t.S), most: 1, noise: noise.A },
      { values: t.UU.map((value, j) => value + 2 * t.US[j] + t.SS[j]), most: 1, noise: noise.T },
    ],
    events: 7 * m,
    /** Withheld releases, (xiv): Q1, Q2, Q3 are what charges add to Q. @param {Missing} missing @returns {Totals} */
    charge: ({ slots, margins: [sU, sS, , sUS, sSS, sA, sT] }) => ({
      U: sA.map((a, j) => slots + a + sS[j]), S: times(sS, -1), A: sU.map((u, j) => -u - sS[j]),
      Q1: sT.map((t) => slots + t), Q2: sUS, Q3: sSS,
    }),
    /** @param {Totals} t */
    accepted: ({ U, S }) => plus(U, S),
    /** @param {Totals} t @param {number} r */
    contrast: ({ U, S }, r) => U.map((u, j) => (1 - r) * u - r * S[j]),
    /** (xiv) Bets. @param {number} theta @param {number} r */
    bet(theta, r) {
      const [b, q, R] = [secondSlope(theta, r), 1 - r, Math.max(r, 1 - r)];
      return {
        wealth: (t, j) =>
          theta * (r * t.S[j] - q * t.U[j])
          - b * (q * q * t.UU[j] - 2 * r * q * t.US[j] + r * r * t.SS[j])
          - b * (R * R * t.Q1[j] + 2 * R * t.Q2[j] + Math.abs(1 - 2 * r) * t.Q3[j]),
        proxy: (j) =>
          theta * theta * v[j] * (r * r + q * q) + b * b * 4 * v[j] * (q ** 4 + ((2 * r * q) / 6) ** 2 + r ** 4),
        slopes: [theta * q, theta * r, b * q * q, 2 * b * r * q, b * r * r, b * R * R, 2 * b * R,
          b * Math.abs(1 - 2 * r)],
      };
    },
  };
}

/** @param {any} base */
function levels({ g, m, width, bits, suffix, proxy, norm }) {
  const unit = 2 ** bits;
  const v = proxy(unit);
  const all = Array.from({ length: g + 1 }, (_, level) => level);
  const name = (level) => `C${level}`;
  return {
    lengths: [width, g * width],
    largest: unit,
    squared: { "zero-out": norm, replacement: 2 * norm },
    noise: { A: times(v, g + 1) },
    /** @param {number[]} x @returns {Totals} */
    decode: (x) => Object.fromEntries(all.map((level) => [name(level), suffix(part(x, width, level), unit)])),
    /** (xiv) Levels. @param {Totals} t @returns {Statistic[]} */
    statistics: (t) => [
      ...all.map((level) => ({ values: times(t[name(level)], -1), most: 0, noise: v })),
      { values: all.map((level) => t[name(level)]).reduce(plus), most: 1, noise: times(v, g + 1) },
    ],
    events: (g + 2) * m,
    /** @param {Missing} missing @returns {Totals} */
    charge: ({ slots, margins }) => ({
      ...Object.fromEntries(all.map((level) => [name(level), level < g ? times(margins[0], -1)
        : margins[g + 1].map((a, j) => slots + a + g * margins[0][j])])),
      A: times(margins[0], -(g + 1)),
    }),
    /** @param {Totals} t */
    accepted: (t) => all.map((level) => t[name(level)]).reduce(plus),
    /** @param {Totals} t @param {number} r */
    contrast: (t, r) => all.map((level) => times(t[name(level)], level / g - r)).reduce(plus),
    /** @param {number} theta @param {number} r */
    bet(theta, r) {
      const x = all.map((level) => Math.log1p(theta * (r - level / g)));
      return {
        wealth: (t, j) => x.reduce((total, value, level) => total + value * t[name(level)][j], 0),
        proxy: (j) => v[j] * x.reduce((total, value) => total + value * value, 0),
        slopes: /** @type {number[]} */ ([]),
      };
    },
  };
}
