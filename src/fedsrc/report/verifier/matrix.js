// Small dense matrices: inverse with partial pivoting, singular values by one-sided rotations.
"use strict";
import { Wrong } from "./outcome.js";
import { dot } from "./numbers.js";

/** @param {number[][]} matrix @returns {number[][]} */
export function inverse(matrix) {
  const n = matrix.length;
  const rows = matrix.map((row, i) => [...row, ...row.map((_, j) => (i === j ? 1 : 0))]);
  for (let k = 0; k < n; k++) {
    let best = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[best][k])) best = i;
    [rows[k], rows[best]] = [rows[best], rows[k]];
    const pivot = rows[k][k];
    if (!(Math.abs(pivot) > 0)) throw new Wrong("the registered matrix has no inverse");
    for (let j = k; j < 2 * n; j++) rows[k][j] /= pivot;
    for (let i = 0; i < n; i++) {
      const factor = rows[i][k];
      if (i === k || factor === 0) continue;
      for (let j = k; j < 2 * n; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  return rows.map((row) => row.slice(n));
}

/** @param {number[][]} matrix @returns {number[]} singular values, largest first */
export function singularValues(matrix) {
  const columns = matrix[0].map((_, j) => matrix.map((row) => row[j]));
  for (let sweep = 0, turned = true; turned && sweep < 100; sweep++) {
    turned = false;
    for (let p = 0; p < columns.length; p++)
      for (let q = p + 1; q < columns.length; q++) turned = rotate(columns[p], columns[q]) || turned;
  }
  return columns.map((column) => Math.sqrt(dot(column, column))).sort((a, b) => b - a);
}

/** Turn two columns until they are orthogonal; return whether they were not. @param {number[]} a @param {number[]} b */
function rotate(a, b) {
  const [aa, bb, ab] = [dot(a, a), dot(b, b), dot(a, b)];
  if (Math.abs(ab) <= 1e-15 * Math.sqrt(aa * bb)) return false;
  const zeta = (bb - aa) / (2 * ab);
  const t = Math.sign(zeta || 1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
  const c = 1 / Math.sqrt(1 + t * t);
  for (let i = 0; i < a.length; i++) [a[i], b[i]] = [c * (a[i] - t * b[i]), c * (t * a[i] + b[i])];
  return true;
}
