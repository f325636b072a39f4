// Tails of binomial laws, for exact counts. docs/theory/13-sealed.md, "Exact counts".
"use strict";
import { halving } from "./numbers.js";

/** log of n!, by its product below 20 and Stirling's series above. @param {number} n */
function logFactorial(n) {
  if (n < 20) {
    let product = 1;
    for (let i = 2; i <= n; i++) product *= i;
    return Math.log(product);
  }
  const x = n + 1;
  return (x - 0.5) * Math.log(x) - x + 0.91893853320467274178 + 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5);
}

/** The largest p at which P(Bin(n, p) <= k) is alpha (Clopper and Pearson). @param {number} k @param {number} n
 * @param {number} alpha */
export function binomialUpper(k, n, alpha) {
  if (k >= n) return 1;
  return halving((p) => Math.log(alpha) - logBinomialTail(k, n, p), 0, 1);
}

/** log P(Bin(n, p) <= k). @param {number} k @param {number} n @param {number} p */
export function logBinomialTail(k, n, p) {
  if (k >= n) return 0;
  if (k < 0) return -Infinity;
  const choices = (i) => logFactorial(n) - logFactorial(i) - logFactorial(n - i);
  const at = (i) => choices(i) + i * Math.log(p) + (n - i) * Math.log1p(-p);
  let [total, term] = [1, 1];
  if (k < n * p) {
    for (let i = k; i > 0 && term > 1e-18 * total; i--) total += term *= (i * (1 - p)) / ((n - i + 1) * p);
    return Math.min(0, at(k) + Math.log(total));
  }
  for (let i = k + 1; i < n && term > 1e-18 * total; i++) total += term *= ((n - i) * p) / ((i + 1) * (1 - p));
  return Math.log1p(-Math.min(1, Math.exp(at(k + 1)) * total));
}
