// Who is asked next, and for how many. docs/format.md, "Who is asked".
"use strict";
import { rint, sum } from "./numbers.js";

/**
 * @typedef {{drawn: number[], left: number[], weights: number[] | null, size: number, target: number, policy: string}}
 * Standing
 */

/** Sizes of rounds 1, 2, ..., one after the other. @param {{batch: number, growth?: number}} schedule */
export function* roundSizes({ batch, growth = 1 }) {
  for (let size = batch; ; size = Math.min(size * growth, 1e7)) yield growth === 1 ? batch : Math.floor(size + 0.5);
}

/** Size of round t = 1, 2, .... @param {{batch: number, growth?: number}} schedule @param {number} round */
export function roundSize(schedule, round) {
  let t = 0;
  for (const size of roundSizes(schedule)) if (++t === round || schedule.growth === undefined) return size;
  return 0;
}

/** The least level at which sites that are used up weigh the target. @param {number[]} ends
 * @param {number[]} weights @param {number} target */
function levelOfLoss(ends, weights, target) {
  const order = ends.map((_, k) => k).sort((a, b) => (ends[a] === ends[b] ? a - b : ends[a] < ends[b] ? -1 : 1));
  let weight = 0;
  for (const k of order) {
    weight += weights[k];
    if (weight >= target - 1e-12) return ends[k];
  }
  return Infinity;
}

/** @param {Standing} standing @param {number[]} weights */
function byWeights({ drawn, left, size, target }, weights) {
  const sites = weights.map((_, k) => k);
  const step = size * weights.length;
  const large = sites.map((k) => weights[k] > 0 && left[k] > 0 && left[k] >= (weights[k] * step) / 2);
  const open = sites.map((k) => large[k] || (weights[k] > 0 && drawn[k] === 0 && left[k] > 0));
  const whole = large.every((is, k) => is || weights[k] === 0) || !large.some(Boolean);
  const drawnLarge = sum(sites.filter((k) => large[k]).map((k) => drawn[k]));
  const level = drawnLarge / (whole ? 1 : sum(sites.filter((k) => large[k]).map((k) => weights[k])));
  const ends = sites.map((k) => (weights[k] > 0 && drawn[k] + left[k] > 0
    ? (drawn[k] + (open[k] ? left[k] : 0)) / weights[k] : Infinity));
  const top = Math.min(levelOfLoss(ends, weights, target), ...sites.filter((k) => large[k]).map((k) => ends[k]));
  const next = top < level + 1.5 * step ? top : level + step;
  return sites.map((k) => (open[k] ? Math.min(left[k], Math.max(0, rint(weights[k] * next) - drawn[k])) : 0));
}

/** @param {Standing} standing */
function recruited({ drawn, left, weights, size, target }) {
  const shares = weights ?? drawn.map(() => 1 / drawn.length);
  let worth = left;
  if (weights) {
    const ends = drawn.map((d, k) => (weights[k] > 0 && d + left[k] > 0 ? (d + left[k]) / weights[k] : Infinity));
    const top = levelOfLoss(ends, weights, target);
    worth = left.map((l, k) => Math.max(0, Math.min(l, top === Infinity ? l : rint(weights[k] * top) - drawn[k])));
  }
  const total = sum(drawn);
  let best = -1;
  worth.forEach((value, k) => {
    if (value <= 0) return;
    const [mine, theirs] = [shares[k] * total - drawn[k], best < 0 ? -Infinity : shares[best] * total - drawn[best]];
    if (mine > theirs || (mine === theirs && shares[k] > shares[best])) best = k;
  });
  return worth.map((value, k) => (k !== best ? 0 : value < 1.5 * size ? value : size));
}

/** Slots of every site in the next round. @param {Standing} standing @returns {number[]} */
export function nextSlots(standing) {
  if (standing.policy === "recruit") return recruited(standing);
  if (standing.weights) return byWeights(standing, standing.weights);
  return standing.left.map((left) => (left < 1.5 * standing.size ? left : standing.size));
}
