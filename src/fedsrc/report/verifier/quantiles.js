// Thresholds from a noised release of the development part. docs/format.md, "Mechanism", last paragraph.
"use strict";
import { inverseBasis, roundedBasis, decodeSuffix, suffixSquares } from "./basis.js";
import { massGrid } from "./mechanism.js";

/** The closest falling sequence in squares: neighbours that rise are pooled. @param {number[]} values */
function falling(values) {
  const pools = /** @type {{mean: number, size: number}[]} */ ([]);
  for (const value of values) {
    let pool = { mean: value, size: 1 };
    for (let last = pools.at(-1); last && last.mean < pool.mean; last = pools.at(-1)) {
      pools.pop();
      pool = { mean: (last.mean * last.size + pool.mean * pool.size) / (last.size + pool.size),
        size: last.size + pool.size };
    }
    pools.push(pool);
  }
  return pools.flatMap(({ mean, size }) => new Array(size).fill(mean));
}

/** @param {any} release @param {number} asked @returns {number[]} */
export function quantiles({ grid, first, second, units, scale, privacy }, asked) {
  const [p, g] = [grid.length, massGrid(privacy)];
  const inverse = inverseBasis(roundedBasis(p, 8), 8);
  const both = first.map((value, i) => Number(BigInt(value) + BigInt(second[i])));
  const A = decodeSuffix(inverse, both).map((value) => value / (256 * g));
  const n = privacy.unit === "record" || privacy.answer_weight === "source" ? units : Math.min(units, A[0]);
  const v = 2 * (scale / (256 * g)) ** 2 * Math.max(...suffixSquares(inverse));
  const weight = n <= 0 ? 1 : Math.min(1, (2 * Math.sqrt(v)) / n);
  const shares = falling(A).map((value, i) => {
    const seen = n <= 0 ? 0 : Math.min(1, Math.max(0, value / n));
    return Math.round(((1 - weight) * seen + weight * (1 - (i + 1) / (p + 1))) * 1e9) / 1e9;
  });
  const found = /** @type {number[]} */ ([]);
  for (let j = 1; j <= asked; j++) {
    const goal = 1 - j / (asked + 1);
    let best = 0;
    shares.forEach((share, i) => { if (Math.abs(share - goal) < Math.abs(shares[best] - goal)) best = i; });
    if (!found.includes(grid[best])) found.push(grid[best]);
  }
  return found;
}
