// How a check ends other than well. docs/format.md, "Verdicts".
"use strict";

/** Something is wrong: the run does not verify. */
export class Wrong extends Error {
  /** @param {string} what @param {string} [where] */
  constructor(what, where = "") {
    super(where ? `${where}: ${what}` : what);
    this.name = "Wrong";
  }
}

/** Something is outside the reach of this verifier: nothing is said about it. */
export class Beyond extends Error {
  /** @param {string} what */
  constructor(what) {
    super(what);
    this.name = "Beyond";
  }
}

/**
 * Refuse unless a condition holds. Written so that NaN refuses.
 * @param {boolean} holds @param {string} what @param {string} [where]
 */
export function must(holds, what, where = "") {
  if (holds !== true) throw new Wrong(what, where);
}
