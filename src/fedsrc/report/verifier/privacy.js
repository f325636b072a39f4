// What discrete noise costs, and the scale that a privacy loss needs. docs/theory/03-accounting.md; docs/format.md,
// "Mechanism".
"use strict";
import { halving, valley } from "./numbers.js";

/** Epsilon of rho-zCDP at delta. @param {number} rho @param {number} delta @param {"tight" | "paper"} conversion */
export function epsilonOf(rho, delta, conversion) {
  if (rho === Infinity) return Infinity;
  if (conversion === "paper") return rho + 2 * Math.sqrt(rho * Math.log(1 / delta));
  /** @param {number} t log(order - 1) */
  const at = (t) => {
    const [less, order] = [Math.exp(t), 1 + Math.exp(t)];
    return order * rho - (Math.log(delta) + Math.log1p(less)) / less + t - Math.log1p(less);
  };
  return Math.max(0, valley(at, -25, 25));
}

/** The largest zCDP within a privacy loss. @param {number} epsilon @param {number} delta
 * @param {"tight" | "paper"} conversion */
export function rhoWithin(epsilon, delta, conversion) {
  if (epsilon === Infinity) return Infinity;
  let high = 1;
  while (epsilonOf(high, delta, conversion) <= epsilon) high *= 2;
  return halving((rho) => epsilonOf(rho, delta, conversion) - epsilon, 0, high);
}

/** The least multiple of 2^-20 at which squared / 2 s^2 <= rho. @param {number} squared @param {number} rho */
export function scaleFor(squared, rho) {
  return rho === Infinity ? 0 : Math.ceil(Math.sqrt(squared / (2 * rho)) * 2 ** 20) / 2 ** 20;
}
