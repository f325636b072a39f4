// The sentences of a certificate, put together from words.json. docs/format.md, "Words".
"use strict";
import { sameJson } from "./json.js";
import { commas, general, labelled, percent, percentAtLeast, repr, widened } from "./printing.js";
import { Beyond } from "./outcome.js";
import { numberIn } from "./schema.js";

/**
 * What sentences need to know of a run.
 * @typedef {{registration: any, tries: number, others: number, shuffled: boolean, announced: boolean,
   complete: boolean, weights: boolean}} Facts
 */

/** Put values into the braces of a text. @param {string} text @param {Record<string, string | number>} values */
function filled(text, values) {
  return text.replace(/\{([^{}]*)\}/g, (_, name) => {
    if (!Object.hasOwn(values, name)) throw new Beyond(`the sentence with {${name}}`);
    return String(values[name]);
  });
}

/** @param {any} registration */
function kindOf(registration) {
  const { privacy, sites } = registration;
  const alike = privacy.unit === "source" && (privacy.answer_weight === "source" || privacy.max_answers === 1);
  return { alike, weighs: sites.length > 1 && privacy.unit === "source" && !alike, graded: privacy.loss_grid > 1 };
}

/** @param {any} claim @param {number} threshold */
function onScale(claim, threshold) {
  const { worst, best } = claim.scale ?? { worst: 0, best: 1 };
  if (worst === 0 && best === 1) return "";
  const end = (x) => repr(x).replace(/\.0$/, "");
  const side = best > worst ? "more" : "less";
  return `, that is ${general(worst + threshold * (best - worst))} or ${side} on the scale ${end(worst)}:${end(best)}`;
}

/** The statement that a row would have. @param {any} words @param {Facts} facts @param {number} threshold
 * @param {number} lower @param {number} stated the target, with room for what labels miss */
function certified({ statement: say }, { registration, tries, others }, threshold, lower, stated) {
  const { claim, labelling } = registration;
  const { alike, weighs, graded } = kindOf(registration);
  const missed = labelling.missed ?? 0;
  const values = { risk: percent(stated), accepted: percentAtLeast(lower),
    gate: `score >= ${repr(threshold)}${onScale(claim, threshold)}` };
  const whole = {
    ...values, share: filled(graded ? say.share_graded : say.share, values),
      bad: filled(graded ? say.bad_graded : say.bad, values),
    mixed: weighs ? say.mixed : "", as_labelled: missed > 0 ? filled(say.as_labelled,
      { labelled: percent(labelled(stated, missed)), missed: percent(missed) }) : "",
  };
  const fails = filled(say.fails, { "failure_probability as a percentage": percent(claim.failure_probability) });
  const together = percent(Math.min(1, claim.failure_probability + others));
  return filled(tries > 1 ? say.certified_again : say.certified,
    { claimed: filled(alike ? say.sources : say.answers, whole), fails, tries, fails_together: together });
}

/** @param {any} words @param {Facts} facts @param {string} status
 * @param {{threshold: number, lower: number} | null} row @param {any[]} also */
export function statement(words, facts, status, row, also) {
  const { claim, labelling } = facts.registration;
  const risk = widened(claim.target_risk, labelling.missed ?? 0);
  if (row !== null) return certified(words, facts, row.threshold, row.lower, risk);
  const none = filled(status === "OPEN" ? words.statement.none_open : words.statement.none_abstain,
    { risk: percent(risk) });
  if (status === "OPEN" || also.length === 0) return none;
  const weaker = certified(words, facts, also[0].threshold, also[0].acceptance_lower, also[0].target_risk);
  return `${none} The strongest claim that the evidence carries: ${weaker[0].toLowerCase()}${weaker.slice(1)}`;
}

/** Which conditions of words.json hold. @param {Facts} facts @returns {Record<string, boolean>} */
function conditions({ registration, tries, announced, complete }) {
  const { aggregation, sites, privacy, labelling, certificate, schedule, thresholds } = registration;
  const { alike, weighs } = kindOf(registration);
  const [holder, independent, sealed] = [aggregation.kind === "holder", schedule.dropout === "independent",
    certificate.method === "sealed"];
  const keys = sites.every((site) => site.key !== null);
  const [demand, timed, finite, missed] = [labelling.kind === "on demand", (labelling.hours ?? null) !== null,
    privacy.epsilon !== "inf", labelling.missed ?? 0];
  return {
    sources_alike: alike, weighs_sources: weighs, "not sources_alike and max_answers > 1": !alike
      && privacy.max_answers > 1,
    "labels on demand without hours, and epsilon finite": demand && !timed && finite, cohorts: false,
      "sealed, one claim": sealed, "a panel": false, groups: false,
    "groups, claim all": false, "scores, any with checkpoints": false, "missed = 0": missed === 0,
      "missed > 0": missed > 0,
    "holder with a key": holder && aggregation.key !== null, "holder without a key": holder && aggregation.key === null,
    "no holder, every site has a key": !holder && keys, "no holder, some site has no key": !holder && !keys, holder,
      "tries > 1": tries > 1,
    "privacy.independent": privacy.independent, "no cohorts, dropout adversarial": !independent,
    "no cohorts, dropout independent, some site never announced": independent && !announced,
    "no cohorts, dropout independent, all announced, something absent or refused": independent && announced
      && !complete,
    "no cohorts, dropout independent, all announced, nothing absent or refused": independent && announced && complete,
    "cohorts, dropout adversarial": false,
      "cohorts, dropout independent, all announced, nothing absent or refused": false,
      "cohorts, dropout independent, otherwise": false,
    "labels on demand": demand, "labels on demand with hours": demand && timed, sealed,
    "sealed, line not within, epsilon finite": sealed && certificate.line !== "within" && finite,
    "sealed, line not hybrid, dropout independent, and not (labels on demand without hours)": sealed
      && certificate.line !== "hybrid" && independent && !(demand && !timed),
    "sealed with unlabelled records": false, "several scores": false, "scores, only the claim's own": false,
    "thresholds.origin noised": thresholds.origin === "noised",
      "thresholds.origin public": thresholds.origin === "public",
    "loss_grid = 1": privacy.loss_grid === 1, "loss_grid > 1": privacy.loss_grid > 1,
  };
}

/** Values of the slots in lists. @param {Facts} facts @returns {Record<string, string | number>} */
function slots({ registration, tries, shuffled, weights }) {
  const { privacy, sites, labelling } = registration;
  const [source, twice, third] = [privacy.unit === "source", labelling.twice ?? 0, labelling.disagreement === "third"];
  return {
    unit: privacy.unit, tries, max_answers: privacy.max_answers, loss_grid: privacy.loss_grid,
    order: shuffled ? "in a recorded shuffled order" : "in the order of the table",
    mixed: weights ? `by the declared weights${source ? ", as shares of sources" : ""}`
      : `as calibration did (the shares${source ? " of sources" : ""} above)`,
    drift: sites.some((site) => site.drift !== 0) ? "within the declared drift" : "with no drift at any site",
    double: twice > 0 ? ` (${percent(twice)} of those that people labelled by two, drawn by hash)` : "",
    differ: twice > 0 || third ? `; where labels differ, ${third ? "a third person decides" : "the worse label counts"}`
      : "",
    "hours, as %g": general(labelling.hours ?? 0), missed: percent(labelling.missed ?? 0), everywhere: "",
  };
}

/** The entries of a list whose condition holds. @param {any[]} list @param {Facts} facts */
function listed(list, facts) {
  const [known, values] = [conditions(facts), slots(facts)];
  return list.filter(({ when }) => {
    if (when !== undefined && !Object.hasOwn(known, when)) throw new Beyond(`the sentence for "${when}"`);
    return when === undefined || known[when];
  }).map(({ how, text }) => ({ how, what: filled(text, values) }));
}

/** @param {any} words @param {Facts} facts */
export const assumptions = (words, facts) => listed(words.assumptions, facts);
/** @param {any} words @param {Facts} facts */
export const doesNotSay = (words, facts) => listed(words.does_not_say, facts).map(({ what }) => what);

/** Where thresholds come from. @param {any} words @param {any} registration */
export function originOf({ thresholds: say }, { thresholds, development, privacy }) {
  const labels = say.labels[development?.labels ?? "people"];
  if (thresholds.origin !== "noised") return filled(say[thresholds.origin], { labels });
  const release = development.release;
  const { epsilon, delta, adjacency, unit } = release.privacy;
  const also = adjacency !== privacy.adjacency ? filled(say.protected_earlier_also, { adjacency }) : "";
  const earlier = filled(say.protected_earlier, { "epsilon, as %g": general(/** @type {number} */ (numberIn(epsilon))),
    "delta, as %g": general(delta), also });
  return filled(say.noised, {
    units: commas(release.units), "unit of that release": unit, "s, unless units is 1": release.units === 1 ? "" : "s",
    labels: say.labels[release.labels ?? "people"], protected: sameJson(release.privacy, privacy) ? say.protected_same
      : earlier,
  });
}
