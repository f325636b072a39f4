// The certificate computed again from registration and transcript, and compared. docs/format.md, "Certificate".
"use strict";
import { sum } from "./numbers.js";
import { Wrong, must } from "./outcome.js";
import { widened } from "./printing.js";
import { epsilonOf } from "./privacy.js";
import { openMechanism } from "./mechanism.js";
import { isFixed } from "./registration.js";
import { numberIn } from "./schema.js";
import { sameJson } from "./json.js";
import { assumptions, doesNotSay, originOf, statement } from "./words.js";

/** @typedef {import("./replay.js").Replay} Replay */

/** What a release costs, for either adjacency. @param {any} words @param {Replay} replay */
function privacyOf(words, { registration, mechanism, scale }) {
  const { privacy, encoding, development } = registration;
  const { squared } = /** @type {any} */ (mechanism);
  const finite = privacy.epsilon !== "inf";
  const cost = (adjacency) => {
    if (!finite || adjacency === privacy.adjacency) return privacy.epsilon;
    const costs = [squared[adjacency] / (2 * /** @type {number} */ (scale) ** 2)];
    const release = development?.release;
    if (release && sameJson(release.privacy, privacy))
      costs.push(openMechanism({ kind: "complementary", basis: "suffix", basis_bits: 8 }, privacy, release.grid.length,
        1).squared[/** @type {"replacement"} */ (adjacency)] / (2 * release.scale ** 2));
    return Math.ceil(epsilonOf(Math.max(...costs), privacy.delta, "tight") * 1e6) / 1e6;
  };
  return {
    adjacency: privacy.adjacency, basis: encoding.basis ?? null, conversion: privacy.conversion, delta: finite
      ? privacy.delta : 0,
    encoding: encoding.kind, epsilon: privacy.epsilon, mechanism: finite ? "discrete Gaussian" : "none",
      releases_per_unit: 1,
    replacement_epsilon: cost("replacement"), zero_out_epsilon: cost("zero-out"), scale,
    rho: finite ? squared[privacy.adjacency] / (2 * /** @type {number} */ (scale) ** 2) : "inf",
      thresholds: originOf(words, registration), unit: privacy.unit,
  };
}

/** Targets that some row shows, each with its best row. @param {Replay} replay @param {number} missed */
function alsoCertified({ registration, looks }, missed) {
  const { certificate, claim, thresholds } = registration;
  if (!looks.length || (certificate.method !== "sealed" && !(certificate.method === "betting"
    && isFixed(registration)))) return [];
  const risks = certificate.ladder ?? certificate.targets.map((each) => each.risk).sort((a, b) => a - b);
  const { rows } = looks[looks.length - 1];
  return risks.flatMap((risk) => {
    let best = -1;
    rows.forEach((row, j) => { if (row.risk <= risk && row.lower >= claim.min_acceptance
      && (best < 0 || row.lower > rows[best].lower)) best = j; });
    return best < 0 ? [] : [{ acceptance_lower: rows[best].lower, target_risk: widened(risk, missed),
      threshold: thresholds.values[best] }];
  });
}

/** The time of a release so many days later, as certificates write it. @param {string} time @param {number} days */
function later(time, days) {
  const found = new Date(Date.parse(time) + days * 86_400_000).toISOString();
  must(/^\d{4}-/.test(found), "it would expire after the year 9999", "certificate");
  return found.replace(/\.\d+Z$/, "+00:00");
}

/** Rows of the last look. @param {Replay} replay @param {number} missed */
function rowsOf({ registration, looks }, missed) {
  const look = looks.at(-1);
  if (!look) return [];
  const { target_risk: target, min_acceptance: least } = registration.claim;
  const bounds = look.report();
  return look.rows.map(({ risk, lower }, j) => ({
    ...bounds[j], acceptance_lower: lower, certified: risk <= target && lower >= least,
      risk_upper: widened(risk, missed), threshold: registration.thresholds.values[j],
  }));
}

/**
 * Compute the certificate of a run; its key and signature are not part of it.
 * @param {any} words @param {Replay} replay @param {string} head @param {number} lines
 */
export function certificateOf(words, replay, head, lines) {
  const { registration, releases, tally, looks } = replay;
  const { claim, labelling, sites, certificate } = registration;
  const missed = labelling.missed ?? 0;
  const [tries, others] = [Math.max(1, ...releases.map((each) => each.tries)),
    Math.max(0, ...releases.map((each) => each.others))];
  const weights = replay.weights !== null;
  const facts = {
    registration, tries, others, weights, shuffled: releases.every((each) => each.order === "shuffled"),
    announced: replay.left.every((units) => units !== null), complete: replay.ends.absent + replay.ends.refused === 0,
  };
  const rows = rowsOf(replay, missed);
  const best = replay.ended === null ? -1 : replay.claimed(looks.at(-1));
  const claimed = best < 0 ? null : rows[best];
  const also = alsoCertified(replay, missed);
  const status = replay.ended === null ? "OPEN" : claimed ? "CERTIFIED" : "ABSTAIN";
  const { times, charged } = replay;
  const arrived = tally?.arrived ?? sites.map(() => 0);
  const N = sum(arrived) + sum(charged);
  return {
    absent: replay.ends.absent, refused: replay.ends.refused, releases: releases.length, records: sum(arrived),
      rounds: replay.rounds,
    acceptance_lower: claimed?.acceptance_lower ?? null, contrast_upper: claimed?.contrast_upper ?? null,
    risk_upper: claimed?.risk_upper ?? null, threshold: claimed?.threshold ?? null, thresholds: rows,
      also_certified: also,
    assumptions: assumptions(words, facts), does_not_say: doesNotSay(words, facts), claim,
    calibrated: times.at(-1) ?? "", expires: times.length ? later(times[0], claim.validity_days) : "",
    eta: looks.at(-1)?.eta() ?? null, every_target: certificate.method !== "sealed" && isFixed(registration),
    evidence: looks.map(({ round, records, rows: seen }) => ({
      round, records,
        risk_upper: widened(Math.min(1,
        ...seen.filter((row) => row.lower >= claim.min_acceptance).map((row) => row.risk)), missed),
    })),
    failure_probability: claim.failure_probability, failure_probability_of_all_tries: Math.min(1,
      claim.failure_probability + others),
    format: 2, method: certificate.method, ...(missed > 0 ? { missed } : {}), mixture: weights ? "declared"
      : "as calibrated",
    privacy: privacyOf(words, replay), registration: replay.digest, renews: registration.renews,
    sites: sites.map(({ name, weight, drift }, k) => ({ name, weight, drift, records: arrived[k], charged: charged[k],
      share: N ? (arrived[k] + charged[k]) / N : 0 })),
    statement: statement(words, facts, status, claimed && { threshold: claimed.threshold,
      lower: claimed.acceptance_lower }, also),
    status, target_risk: widened(claim.target_risk, missed), transcript: head, transcript_lines: lines, tries,
  };
}

const CLOSE = new Set(["acceptance_lower", "contrast_upper", "risk_upper", "log_wealth", "privacy_width",
  "sampling_width", "eta", "share", "rho", "failure_probability_of_all_tries"]);
const SEARCHED = new Set(["replacement_epsilon", "zero_out_epsilon"]);

/**
 * Compare what is written with what was computed; return how many values, and the largest difference of a bound.
 * @param {any} written @param {any} computed @param {string} [where] @param {string} [name]
 * @returns {{values: number, difference: number}}
 */
export function compare(written, computed, where = "certificate", name = "") {
  if (Array.isArray(computed) || (computed !== null && typeof computed === "object")) {
    const [mine, theirs] = [Object.keys(computed).sort(), written !== null && typeof written === "object"
      ? Object.keys(written).sort() : []];
    if (Array.isArray(computed) !== Array.isArray(written)
      || mine.join("\n") !== theirs.join("\n")) throw new Wrong("has other entries than follow from the transcript",
      where);
    const parts = mine.map((each) => compare(written[each], computed[each], `${where}.${each}`, Array.isArray(computed)
      ? name : each));
    return { values: sum(parts.map((part) => part.values)), difference: Math.max(0,
      ...parts.map((part) => part.difference)) };
  }
  const [a, b] = [numberIn(written), numberIn(computed)];
  const slack = SEARCHED.has(name) ? 2e-6 : CLOSE.has(name) ? Math.max(2e-9, 1e-8 * Math.abs(b ?? 0)) : 0;
  const same = slack > 0 && a !== null && b !== null ? a === b || Math.abs(a - b) <= slack : written === computed;
  const [said, found] = [written, computed].map((each) => JSON.stringify(each));
  if (!same) throw new Wrong(`says ${said}; computed from the transcript: ${found}`, where);
  return { values: 1, difference: slack > 0 && !SEARCHED.has(name) && a !== b
    ? Math.abs(/** @type {number} */ (a) - /** @type {number} */ (b)) : 0 };
}
