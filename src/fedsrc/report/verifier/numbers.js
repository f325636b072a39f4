// Numbers: rounding outward, geometric grids, log-sum-exp, roots of mixtures. docs/format.md, "Bounds".
"use strict";

/** Round up to 9 decimals. @param {number} x */
export const up9 = (x) => Math.ceil(x * 1e9) / 1e9;
/** Round down to 9 decimals. @param {number} x */
export const down9 = (x) => Math.floor(x * 1e9) / 1e9;

/** Round halves to even. @param {number} x */
export function rint(x) {
  const low = Math.floor(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}

/** @param {number[]} values */
export const sum = (values) => values.reduce((total, value) => total + value, 0);
/** @param {number[]} a @param {number[]} b */
export const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);

/** `count` points from low to high, geometrically. @param {number} low @param {number} high @param {number} count */
export function geometric(low, high, count) {
  const step = count > 1 ? Math.log(high / low) / (count - 1) : 0;
  return Array.from({ length: count }, (_, i) => (i === 0 ? low : i === count - 1 ? high : low * Math.exp(step * i)));
}

/** @param {number[]} terms */
export function logSumExp(terms) {
  const most = terms.reduce((a, b) => (a > b ? a : b), -Infinity);
  if (!Number.isFinite(most)) return most;
  let total = 0;
  for (const term of terms) total += Math.exp(term - most);
  return most + Math.log(total);
}

/**
 * The root x of log sum_b exp(constants_b + slopes_b x) = line, all slopes positive: convex and rising in x,
   so Newton's
 * steps from the right fall to it.
 * @param {number[]} constants @param {number[]} slopes @param {number} line
 */
export function mixtureRoot(constants, slopes, line) {
  let x = Infinity;
  for (let b = 0; b < slopes.length; b++) if (constants[b] > -Infinity) x = Math.min(x,
    (line - constants[b]) / slopes[b]);
  for (let step = 0; step < 200; step++) {
    const terms = constants.map((constant, b) => constant + slopes[b] * x);
    const value = logSumExp(terms);
    let slope = 0;
    for (let b = 0; b < terms.length; b++) slope += slopes[b] * Math.exp(terms[b] - value);
    const next = x - (value - line) / slope;
    if (!(next < x)) return x;
    if (x - next <= 1e-16 * Math.abs(x)) return next;
    x = next;
  }
  return x;
}

/**
 * The place at which a function that rises from negative to positive changes sign, by halving.
 * @param {(x: number) => number} rising @param {number} low @param {number} high
 */
export function halving(rising, low, high) {
  for (let step = 0; step < 200; step++) {
    const middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    if (rising(middle) > 0) high = middle;
    else low = middle;
  }
  return high;
}

/** Least value of a function with one valley, by the golden section. @param {(x: number) => number} f
 * @param {number} low @param {number} high */
export function valley(f, low, high) {
  const golden = (Math.sqrt(5) - 1) / 2;
  let [a, b] = [low, high];
  let [c, d] = [b - golden * (b - a), a + golden * (b - a)];
  let [fc, fd] = [f(c), f(d)];
  for (let step = 0; step < 200 && b - a > 1e-14 * (Math.abs(a) + Math.abs(b)); step++) {
    if (fc < fd) [b, d, fd, c] = [d, c, fc, d - golden * (d - a)], fc = f(c);
    else [a, c, fc, d] = [c, d, fd, c + golden * (b - c)], fd = f(d);
  }
  return Math.min(fc, fd);
}
