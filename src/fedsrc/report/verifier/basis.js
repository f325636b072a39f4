// The suffix basis: a rounded public matrix, inverted exactly. docs/theory/02-suffix-basis.md; docs/format.md,
// "Mechanism".
"use strict";
import { rint } from "./numbers.js";

/** f rounded to multiples of 2^-bits, in those multiples. @param {number} m @param {number} bits */
export function roundedBasis(m, bits) {
  const found = [];
  for (let q = 0, f = 1; q < m; q++, f *= (2 * q - 1) / (2 * q)) found.push(rint(f * 2 ** bits));
  return found;
}

/** The power series g with f g = 1 + z + z^2 + ..., f(0) = 1. @param {number[]} rounded @param {number} bits */
export function inverseBasis(rounded, bits) {
  const f = rounded.map((value) => value / 2 ** bits);
  const g = /** @type {number[]} */ ([]);
  for (let q = 0; q < f.length; q++) {
    let value = 1;
    for (let i = 1; i <= q; i++) value -= f[i] * g[q - i];
    g.push(value);
  }
  return g;
}

/** Suffix masses of integers in the suffix basis, before the lattice's unit. @param {number[]} g @param {number[]} x */
export function decodeSuffix(g, x) {
  return x.map((_, j) => {
    let total = 0;
    for (let i = j; i < x.length; i++) total += g[i - j] * x[i];
    return total;
  });
}

/** sum_{q <= m - j} g(q)^2 for every threshold j. @param {number[]} g */
export function suffixSquares(g) {
  const found = new Array(g.length);
  for (let q = 0, total = 0; q < g.length; q++) found[g.length - 1 - q] = total += g[q] * g[q];
  return /** @type {number[]} */ (found);
}

/** Squared distances of columns: the largest of two, column 0 being zero. @param {number[]} f */
export function columnDistance(f) {
  let most = 0;
  for (let h = 1, head = 0; h <= f.length; h++) {
    head += f[h - 1] ** 2;
    let total = head;
    for (let q = 0; q < f.length - h; q++) total += (f[q] - f[q + h]) ** 2;
    most = Math.max(most, total);
  }
  return most;
}
