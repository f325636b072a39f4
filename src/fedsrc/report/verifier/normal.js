// The upper tail of the normal law, its logarithm and its inverse; the lines of sealed looks. docs/theory/13-sealed.md,
// "Exact tail".
"use strict";

// Rational approximations of W. J. Cody, Mathematics of Computation 23 (1969), 631-637.
const A = [3.1611237438705656, 113.864154151050156, 377.485237685302021, 3209.37758913846947, 0.185777706184603153];
const B = [23.6012909523441209, 244.024637934444173, 1282.61652607737228, 2844.23683343917062];
const C = [0.564188496988670089, 8.88314979438837594, 66.1191906371416295, 298.635138197400131, 881.95222124176909,
  1712.04761263407058, 2051.07837782607147, 1230.33935479799725, 2.15311535474403846e-8];
const D = [15.7449261107098347, 117.693950891312499, 537.181101862009858, 1621.38957456669019, 3290.79923573345963,
  4362.61909014324716, 3439.36767414372164, 1230.33935480374942];
const P = [0.305326634961232344, 0.360344899949804439, 0.125781726111229246, 0.0160837851487422766,
  6.58749161529837803e-4,
  0.0163153871373020978];
const Q = [2.56852019228982242, 1.87295284992346725, 0.527905102951428412, 0.0605183413124413191,
  0.00233520497626869185];
const ROOT_PI = 0.56418958354775628695; // 1 / sqrt(pi)

/** exp(x^2) erfc(x) for x >= 0.46875. @param {number} x */
function scaledTail(x) {
  if (x <= 4) {
    let [top, low] = [C[8] * x, x];
    for (let i = 0; i < 7; i++) [top, low] = [(top + C[i]) * x, (low + D[i]) * x];
    return (top + C[7]) / (low + D[7]);
  }
  const y = 1 / (x * x);
  let [top, low] = [P[5] * y, y];
  for (let i = 0; i < 4; i++) [top, low] = [(top + P[i]) * y, (low + Q[i]) * y];
  return (ROOT_PI - (y * (top + P[4])) / (low + Q[4])) / x;
}

/** erf(x) for |x| <= 0.46875. @param {number} x */
function smallErf(x) {
  const y = x * x;
  let [top, low] = [A[4] * y, y];
  for (let i = 0; i < 3; i++) [top, low] = [(top + A[i]) * y, (low + B[i]) * y];
  return (x * (top + A[3])) / (low + B[3]);
}

/** log of the normal law's upper tail at y. @param {number} y */
export function logTail(y) {
  const x = y * Math.SQRT1_2;
  if (Math.abs(x) <= 0.46875) return Math.log1p(-(1 + smallErf(x)) / 2);
  if (x > 0) return Math.log(scaledTail(x) / 2) - x * x;
  return Math.log1p(-Math.exp(-x * x) * scaledTail(-x) / 2);
}

/** The normal law's hazard: density over upper tail. @param {number} y */
export function hazard(y) {
  return Math.exp(-(y * y) / 2 - 0.91893853320467274178 - logTail(y));
}

/** The point whose upper tail is alpha. @param {number} alpha */
export function tailPoint(alpha) {
  const goal = Math.log(alpha);
  let y = alpha < 0.5 ? Math.sqrt(Math.max(0, -2 * Math.log(2 * alpha))) : 0;
  for (let step = 0; step < 60; step++) {
    const change = (logTail(y) - goal) / hazard(y);
    y += change;
    if (Math.abs(change) <= 1e-15 * Math.max(1, Math.abs(y))) break;
  }
  return y;
}

/** The point at which log tail(y) + y root is largest: where the hazard is `root` > 0. @param {number} root */
function peak(root) {
  let [low, high] = [-1, 1];
  while (hazard(low) > root) low *= 2;
  while (hazard(high) < root) high *= 2;
  for (let step = 0; step < 200; step++) {
    const middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    if (hazard(middle) < root) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** c(alpha, nu) of (xiii): the exact line. @param {number} alpha @param {number} nu */
export function exactLine(alpha, nu) {
  if (nu === 0) return -Math.log(alpha);
  const [root, end] = [Math.sqrt(nu), tailPoint(alpha)];
  if (hazard(end) <= root) return end * root; // still rising at the end: log tail(end) = log alpha
  const y = peak(root);
  return -Math.log(alpha) + logTail(y) + y * root;
}

/** The hybrid line of (xiii). @param {number} alpha @param {number} before @param {number} nu */
export function hybridLine(alpha, before, nu) {
  if (nu === 0) return -Math.log(alpha) + before / 2;
  const root = Math.sqrt(nu);
  const y = peak(root);
  return -Math.log(alpha) + before / 2 + logTail(y) + y * root;
}
