// Whether a registration is valid, and what follows from it. docs/format.md, "Bytes", "A registration is valid if".
"use strict";
import { shapedMechanism } from "./contrasts.js";
import { massGrid, openMechanism } from "./mechanism.js";
import { sum } from "./numbers.js";
import { Beyond, must } from "./outcome.js";
import { rhoWithin, scaleFor } from "./privacy.js";
import { quantiles } from "./quantiles.js";
import { roundSizes } from "./recruit.js";
import { numberIn } from "./schema.js";

/** @typedef {any} Registration its canonical JSON, parsed */

const WHERE = "registration";
/** @param {number[]} values */
const isOne = (values) => Math.abs(sum(values) - 1) <= 1e-9;
/** @param {number[]} values */
const rises = (values) => values.every((value, i) => i === 0 || values[i - 1] < value);

/** Refuse what this verifier does not reach: it says nothing of such runs. @param {Registration} registration */
export function withinReach({ certificate, aggregation, claims, labelling, privacy, unlabelled }) {
  if (certificate.method === "monitor") throw new Beyond("the method monitor");
  if (aggregation.kind === "cohorts") throw new Beyond("sums of cohorts");
  if (claims.kind !== "one") throw new Beyond(`a panel of ${claims.kind}`);
  if (unlabelled) throw new Beyond("unlabelled records");
  if (privacy.adjacency === "same-group") throw new Beyond("the adjacency same-group");
}

/** @param {Registration} registration */
export function deploymentWeights({ sites }) {
  return sites[0].weight === null ? null : sites.map((site) => site.weight);
}

/** The mixture is fixed with declared weights or one site. @param {Registration} registration */
export function isFixed(registration) {
  return registration.sites.length === 1 || deploymentWeights(registration) !== null;
}

/** @param {Registration} registration */
export function validRegistration(registration) {
  const { claim, thresholds, certificate, sites, privacy, aggregation } = registration;
  const given = sites.map((site) => site.weight !== null);
  const names = Object.keys(certificate).filter((name) => name.endsWith("_budget"));
  const budgets = sum(names.map((name) => certificate[name]));
  must(budgets <= claim.failure_probability * (1 + 1e-9), "its budgets exceed the failure probability", WHERE);
  must(thresholds.values.length > 0 && thresholds.weights.length === thresholds.values.length,
    "its thresholds have other weights", WHERE);
  must(thresholds.weights.every((w) => w > 0) && isOne(thresholds.weights), "its threshold weights do not sum to one",
    WHERE);
  must(rises(thresholds.values) && thresholds.values[0] >= 0 && thresholds.values.at(-1) <= 1,
    "its thresholds do not rise in [0, 1]", WHERE);
  must(new Set(sites.map((site) => site.name)).size === sites.length, "two sites have one name", WHERE);
  must(given.every((is) => is === given[0]), "only some sites have weights", WHERE);
  must(!given[0] || isOne(sites.map((site) => site.weight)), "its site weights do not sum to one", WHERE);
  const ends = claim.scale ? [claim.scale.worst, claim.scale.best].map((end) => numberIn(end) ?? NaN) : [0, 1];
  must(ends[0] !== ends[1] && Number.isFinite(ends[1] - ends[0]), "its score has no scale", WHERE);
  must(privacy.unit === "source" || privacy.max_answers === 1, "a record has several answers", WHERE);
  must(aggregation.kind !== "holder" || sites.every((site) => site.key === null), "a holder's sites have keys", WHERE);
  goTogether(registration);
  if (certificate.method === "betting") validBetting(registration);
  if (certificate.method === "sealed") validSealed(registration);
  validOrigin(registration);
}

/** docs/format.md, "What goes with what", within reach. @param {Registration} registration */
function goTogether({ certificate, encoding, schedule, sites, privacy }) {
  const { method, line, refusal_budget: refusals } = certificate;
  const charged = schedule.dropout === "adversarial";
  must((method === "sealed") === (encoding.kind === "contrasts"), "its encoding and its certificate do not go together",
    WHERE);
  must(schedule.policy !== "enough" || (method === "betting" && isFixed({ sites })),
    "the policy enough needs betting and a mixture that is fixed", WHERE);
  must(schedule.policy !== "recruit" || method !== "sealed" || line === "hybrid",
    "a sealed certificate that recruits needs the hybrid line", WHERE);
  must(["betting", "sealed"].includes(method) || (["paired", "complementary"].includes(encoding.kind) && !charged),
    "the paper's methods read histograms, and charge nothing", WHERE);
  must(encoding.kind !== "moments" || massGrid(privacy) > 1, "units of one yes-or-no answer have no moments", WHERE);
  must(encoding.kind !== "levels" || (privacy.max_answers === 1 && privacy.loss_grid > 1 && privacy.loss_grid <= 20),
    "levels need one graded answer", WHERE);
  must(!charged || (refusals > 0 && sites.every((site) => site.capacity !== null)),
    "charged dropout needs a refusal budget and all capacities", WHERE);
}

/** @param {Registration} registration */
function validBetting({ claim, thresholds, certificate }) {
  const { ladder, bets } = certificate;
  must(rises(ladder) && ladder[0] > 0 && ladder.at(-1) < 1 && ladder.includes(claim.target_risk),
    "its ladder does not rise in (0, 1) with the target on it", WHERE);
  if (bets.priors) {
    must(bets.priors.length === thresholds.values.length, "its priors are for other thresholds", WHERE);
    for (const prior of bets.priors)
      must(prior.length === bets.count && prior.every((p) => p > 0) && isOne(prior), "a prior does not sum to one",
        WHERE);
  }
}

/** @param {Registration} registration */
function validSealed({ claim, thresholds, certificate, encoding, schedule, sites, privacy }) {
  const { looks, targets } = certificate;
  const rows = targets.length * thresholds.values.length;
  must(rises(looks.map((look) => look.round)) && looks.at(-1).round === schedule.rounds,
    "its looks do not rise to the last round", WHERE);
  must(isOne(looks.map((look) => look.share)) && isOne(targets.map((target) => target.share)),
    "shares do not sum to one", WHERE);
  must(targets[0].risk === claim.target_risk, "its first target is not the claim's", WHERE);
  must(targets.every(({ risk }) => Math.round(risk * 1e4) / 1e4 === risk),
    "a target has more than 4 decimals", WHERE);
  must(targets.length === 1 || Math.abs(targets[0].risk - targets[1].risk) >= 0.005 - 1e-12,
    "its targets are too close", WHERE);
  const some = targets.some((target) => target.bets.length > 0);
  for (const { bets, risk } of targets)
    must(bets.length === (some ? thresholds.values.length : 0)
      && bets.every((theta) => theta > 0 && theta * (1 - risk) < 1), "a bet is missing or too large", WHERE);
  must(some || (sites.length === 1 && sites[0].drift === 0 && privacy.epsilon === "inf" && massGrid(privacy) === 1
    && certificate.line !== "hybrid"), "exact counts need one site, no drift, no privacy, yes-or-no answers", WHERE);
  must(encoding.matrix.length === rows && encoding.matrix.every((row) => row.length === rows),
    "its matrix has another size", WHERE);
  must(encoding.second.length === (some ? rows : 0) && encoding.second.every((c) => c > 0),
    "its second moments are of other rows", WHERE);
  must([0, thresholds.values.length].includes(encoding.accepted.length) && encoding.accepted.every((c) => c > 0),
    "its accepted masses are of other thresholds", WHERE);
}

/** Thresholds and where they come from. @param {Registration} registration */
function validOrigin({ thresholds, development, privacy }) {
  const release = development?.release ?? null;
  must((thresholds.origin === "noised") === (release !== null) && (release !== null) === (thresholds.asked !== null),
    "its development release and thresholds do not go together", WHERE);
  must(thresholds.origin !== "development" || privacy.epsilon === "inf", "exact quantiles with privacy", WHERE);
  if (!release) return;
  if (release.blocks) throw new Beyond("a development release of a panel");
  must((release.labels ?? "people") === (development.labels ?? "people"),
    "its development part and release have other labels", WHERE);
  must(release.privacy.unit === "source" || release.privacy.max_answers === 1, "a record has several answers", WHERE);
  must([...release.first, ...release.second].every((value) => Math.abs(Number(value)) < 2 ** 61),
    "an integer of its development release is too large", WHERE);
  const own = scaleOf(openMechanism({ kind: "complementary", basis: "suffix", basis_bits: 8 }, release.privacy,
    release.grid.length, 1).squared, release.privacy);
  must(rises(release.grid) && release.grid[0] > 0 && release.grid.at(-1) < 1,
    "its development grid does not rise inside (0, 1)", WHERE);
  must([release.first, release.second].every((vector) => vector.length === release.grid.length),
    "its development release has another length", WHERE);
  must(Math.abs(release.scale - own) <= 1e-9 * own, "its development release has another noise than stated", WHERE);
  const among = new Set(quantiles(release, thresholds.asked));
  must(thresholds.values.every((value) => among.has(value)),
    "its thresholds do not follow from the development release", WHERE);
}

/** The scale that a privacy loss needs. @param {Record<string, number>} squared @param {any} privacy */
export function scaleOf(squared, privacy) {
  return scaleFor(squared[privacy.adjacency], rhoWithin(/** @type {number} */ (numberIn(privacy.epsilon)),
    privacy.delta, privacy.conversion));
}

/**
 * The mechanism of a registration, at the scale that the requests carry; refused if it is another than registered.
 * @param {Registration} registration @param {number | null} asked
 */
export function mechanismOf(registration, asked) {
  const make = (scale) => (registration.encoding.kind === "contrasts" ? shapedMechanism(registration, scale)
    : openMechanism(registration.encoding, registration.privacy, registration.thresholds.values.length, scale));
  const own = scaleOf(make(1).squared, registration.privacy);
  const scale = asked ?? own;
  must(own === 0 ? scale === 0 : Math.abs(scale - own) <= 1e-9 * own,
    "the requests carry another noise than registered");
  must(scale <= Number.MAX_SAFE_INTEGER, "its noise is too large", WHERE);
  must(Number.isInteger(scale * 2 ** 20), "the requests carry a noise that is no multiple of 2^-20");
  const made = make(scale);
  if (registration.encoding.kind === "contrasts") validShape(registration,
    /** @type {ReturnType<typeof shapedMechanism>} */ (made), scale);
  noOverflow(registration, made.largest);
  return { ...made, scale };
}

/** @param {Registration} registration @param {ReturnType<typeof shapedMechanism>} shaped @param {number} scale */
function validShape({ encoding }, shaped, scale) {
  must(shaped.condition <= 1e4 * (1 + 1e-9), "its matrix is too close to singular", WHERE);
  must(encoding.accepted.length > 0 || (shaped.g === 1 && encoding.second.length > 0), "it has no accepted masses",
    WHERE);
  must(shaped.g === 1 || shaped.G * Math.max(...encoding.second) <= Math.SQRT2 * (1 - 1e-9) * shaped.least,
    "its second moments weigh too much", WHERE);
  must(scale === 0 || scale >= 1000, "its noise is too coarse", WHERE);
}

/** @param {Registration} registration @param {number} largest */
function noOverflow({ encoding, privacy, schedule, sites }, largest) {
  must(encoding.kind === "contrasts" || massGrid(privacy) * 2 ** encoding.basis_bits <= 2 ** 28,
    "its masses are too fine", WHERE);
  if (encoding.kind === "complementary" || encoding.kind === "paired") return;
  let [slots, round] = [0, 0];
  for (const size of roundSizes(schedule)) {
    if (++round > schedule.rounds) break;
    slots += size * (schedule.policy === "recruit" ? 1 : sites.length);
  }
  must(2 * slots * largest < 2 ** 61, "its sums could overflow", WHERE);
}
