// Shaped releases of sealed certificates: contrasts, second moments, accepted masses. docs/format.md,
// "Mechanism"; (xiii).
"use strict";
import { inverse, singularValues } from "./matrix.js";
import { divisor, massGrid, secondSlope } from "./mechanism.js";
import { dot } from "./numbers.js";

/** The common denominator of targets of 4 decimals. @param {number[]} risks */
function denominator(risks) {
  return risks.map((risk) => 10000 / divisor(10000, Math.round(risk * 10000))).reduce((a, b) => (a * b) / divisor(a,
    b));
}

/**
 * How shaped releases are laid out and read, for one scale of noise.
 * @param {any} registration @param {number} scale
 */
export function shapedMechanism(registration, scale) {
  const { encoding, privacy, certificate } = registration;
  const m = registration.thresholds.values.length;
  const risks = certificate.targets.map((each) => each.risk);
  const [g, rho] = [massGrid(privacy), denominator(risks)];
  const G = g * rho;
  const { matrix, second, accepted } = encoding;
  const count = matrix.length;
  const rows = Array.from({ length: count }, (_, i) => ({ r: risks[Math.floor(i / m)], threshold: i % m }));
  const values = singularValues(matrix);
  const solved = inverse(matrix);
  const decoder = solved.map((row) => row.map((value) => value / G));
  const mass = Array.from({ length: m }, (_, j) => (accepted.length ? 1 / (accepted[j] * g) : second.length
    ? 1 / (second[j] * G * G * risks[0] * (1 - risks[0])) : 0));
  return {
    lengths: [count, second.length + accepted.length], rows, G, g,
      counts: certificate.targets.every((each) => each.bets.length === 0),
    condition: values[0] / /** @type {number} */ (values.at(-1)), least: /** @type {number} */ (values.at(-1)),
    largest: Math.max(...matrix.map((row) => G * row.reduce((total, value) => total + Math.abs(value), 0)),
      ...second.map((c) => G * G * c), ...accepted.map((c) => g * c)),
    squared: sensitivity(registration, rho, g, rows),
    /** @param {number[]} x */
    decode(x) {
      const A = Array.from({ length: m }, (_, j) => (accepted.length ? x[count + second.length + j] : second.length
        ? x[count + j] : 0) * mass[j]);
      const Q = rows.map((_, i) => (second.length ? x[count + i] / (second[i] * G * G) : 0));
      return { D: decoder.map((row) => dot(row, x)), Q, A };
    },
    /** Noise variances per release. */
    noise: {
      D: decoder.map((row) => scale * scale * dot(row, row)),
      Q: rows.map((_, i) => (second.length ? (scale / (second[i] * G * G)) ** 2 : 0)),
      A: mass.map((value) => (scale * value) ** 2),
    },
    /** The slopes of a D - b Q in the integers: variance per release and the sum of absolute values.
     * @param {number} i @param {number} a @param {number} b */
    slope(i, a, b) {
      const beta = [...decoder[i].map((value) => a * value), second.length ? -b / (second[i] * G * G) : 0];
      return { variance: scale * scale * dot(beta, beta), shift: scale > 0
        ? beta.reduce((total, value) => total + Math.abs(value), 0) : 0 };
    },
  };
}

/**
 * Squared sensitivities: the largest distances of the 2m + 1 one-answer binary types, (xiii) Shaped noise.
 * @param {any} registration @param {number} rho @param {number} g @param {{r: number, threshold: number}[]} rows
 */
function sensitivity({ encoding: { matrix, second, accepted }, thresholds }, rho, g, rows) {
  const types = [];
  for (let b = 0; b <= thresholds.values.length; b++)
    for (const bad of b ? [false, true] : [false]) {
      const d = rows.map(({ r, threshold }) => (threshold < b ? Math.round(rho * (bad ? r - 1 : r)) * g : 0));
      const image = matrix.map((row) => dot(row, d));
      const squares = second.map((c, i) => c * (d[i] ** 2 + Math.round(rho * (1 - 2 * rows[i].r)) * g * d[i]));
      types.push([...image, ...squares, ...accepted.map((c, j) => (j < b ? c * g : 0))]);
    }
  /** @param {number[]} a @param {number[]} b */
  const distance = (a, b) => a.reduce((total, value, i) => total + (value - b[i]) ** 2, 0);
  let replacement = 0;
  for (const a of types) for (const b of types) replacement = Math.max(replacement, distance(a, b));
  return { "zero-out": Math.max(...types.map((type) => distance(type, types[0]))), replacement };
}

/** a, b and the least and most of a unit's a d - b q, (xiii) Second moments, Refusal. @param {number} theta
 * @param {number} r */
export function bet(theta, r) {
  const b = secondSlope(theta, r);
  const at = (d) => theta * d - b * d * d;
  const top = theta / (2 * b);
  return { a: theta + (1 - 2 * r) * b, b, least: Math.min(Math.log1p(-theta * (1 - r)), at(r)),
    most: at(Math.min(top, r)) };
}
