// Verify the files of a run: three verdicts, part by part. docs/format.md.
"use strict";
import { sha256, sameBytes, signatureFits, textOf, utf8 } from "./bytes.js";
import { certificateOf, compare } from "./certificate.js";
import { canonical, canonicalBytes, parseJson } from "./json.js";
import { Beyond, Wrong, must } from "./outcome.js";
import { commas, pretty } from "./printing.js";
import { validRegistration, withinReach } from "./registration.js";
import { Replay, isTime } from "./replay.js";
import { conforms, typesByName } from "./schema.js";
import { difference, parseToml } from "./toml.js";
import { readTranscript } from "./transcript.js";

export const VERIFIED = "VERIFIED";
export const WRONG = "DOES NOT VERIFY";
export const BEYOND = "CANNOT CHECK";
const LARGEST = 4_000_000; // bytes of registration.toml

/** @param {number} number @param {string} noun */
const count = (number, noun) => `${commas(number)} ${noun}${number === 1 ? "" : "s"}`;

/**
 * @typedef {{name: string, result: "checked" | "wrong" | "cannot check" | "note", words: string}} Part
 * @typedef {{verdict: string, why: string, parts: Part[], key: string | null, status: string | null,
   statement: string | null, about: string}} Outcome
 * @typedef {{schema: any, words: any}} Data schema.json and words.json
 * @typedef {{trusted?: string, progress?: (share: number) => Promise<void>, now?: number}} Options
 */

class Check {
  /** @param {Map<string, Uint8Array<ArrayBuffer>>} files @param {Data} data @param {Options} options */
  constructor(files, data, options) {
    this.files = files;
    this.data = data;
    this.trusted = (options.trusted ?? "").trim().toLowerCase();
    this.progress = options.progress ?? (async () => {});
    this.now = options.now ?? Date.now();
    /** @type {Part[]} */
    this.parts = [];
    /** @type {string | null} */
    this.key = null;
    /** @type {any} */
    this.certificate = null;
    /** @type {Beyond | null} */
    this.outside = null;
  }

  /** @param {string} name @param {string} words @param {Part["result"]} [result] */
  say(name, words, result = "checked") {
    this.parts.push({ name, result, words });
  }

  /** @param {string} name @returns {Uint8Array<ArrayBuffer>} */
  file(name) {
    const found = this.files.get(name);
    if (!found) throw new Wrong("is missing", name);
    return found;
  }

  async registration() {
    const written = this.file("registration.toml");
    must(written.length <= LARGEST, "is too large", "registration.toml");
    const toml = textOf(written, "registration.toml");
    const found = this.files.get("registration.json");
    if (!found) throw new Beyond("the registration: registration.json is not there");
    const text = textOf(found, "registration.json");
    const value = parseJson(text, "registration.json");
    must(canonical(value) === text, "is not canonical JSON", "registration.json");
    conforms(value, this.data.schema.registration, this.data.schema.registration, "registration");
    const place = difference(parseToml(toml), value, typesByName(this.data.schema.registration));
    const unlike = "registration.toml: it is not as fedsrc writes it, or says something else than registration.json";
    if (place) throw new Beyond(`${unlike}, at ${place}`);
    this.registered = /** @type {any} */ (value);
    this.digest = await sha256(found);
    const size = [...this.files.values()].reduce((total, each) => total + each.length, 0);
    const seen = `${count(this.files.size, "file")}, ${commas(size)} bytes`;
    this.say("files", `${seen}; registration.toml says what registration.json says`);
  }

  async signature() {
    const text = textOf(this.file("certificate.json"), "certificate.json");
    const value = /** @type {any} */ (parseJson(text, "certificate.json"));
    if (!this.outside) conforms(value, this.data.schema.certificate, this.data.schema.certificate, "certificate");
    must(`${pretty(value)}\n` === text, "is not printed as certificates are", "certificate.json");
    this.certificate = value;
    const { signature, ...rest } = value;
    must(typeof value.key === "string" && typeof signature === "string", "is not signed", "certificate.json");
    must(await signatureFits(value.key, signature, canonicalBytes(rest)), "its signature does not fit",
      "certificate.json");
    must(this.registered.server_key === null || this.registered.server_key === value.key,
      "is signed by another key than the registered one", "certificate.json");
    this.key = value.key;
    if (this.trusted) must(value.key === this.trusted, `is signed by ${value.key}, not by the key that you trust`,
      "certificate.json");
    this.say("signature", this.trusted ? `signed by the key that you trust, ${value.key}`
      : `signed by ${value.key}; compare it with the key you were given`);
  }

  /** Note what is registered but outside the reach of this verifier: signature and chain can still be checked. */
  reach() {
    try {
      withinReach(this.registered);
      validRegistration(this.registered);
    } catch (error) {
      if (!(error instanceof Beyond)) throw error;
      this.outside = error;
    }
  }

  async replay() {
    const { entries, head, torn } = await readTranscript(this.file("transcript.jsonl"), this.data.schema.entry,
      (done) => this.progress(0.3 * done));
    this.say("hash chain",
      `${count(entries.length, "line")}, each naming the one before${torn ? "; a torn last line is left out" : ""}`);
    if (this.outside) throw this.outside;
    const replay = new Replay(this.registered, /** @type {string} */ (this.digest));
    for (let i = 0; i < entries.length; i++) {
      await replay.take(entries[i], `transcript, line ${i + 1}`);
      await this.progress(0.3 + (0.6 * i) / entries.length);
    }
    must(replay.opened, "is empty: no run was opened", "transcript.jsonl");
    replay.begin(null);
    const { releases, ends } = replay;
    const gone = ends.absent + ends.refused ? `, ${ends.absent} absent, ${ends.refused} refused` : "";
    const asked = `${count(replay.rounds, "round")}, ${count(replay.number, "request")} as the rule has them`;
    const came = `${count(releases.length, "release")}${gone}; ${count(replay.signatures, "signature")} of sites`;
    this.say("protocol", `${asked}, ${came}; ${replay.ended ? `ended: ${replay.ended}` : "not ended"}`);
    return { replay, head, lines: entries.length };
  }

  async compare() {
    const { replay, head, lines } = await this.replay();
    const computed = certificateOf(this.data.words, replay, head, lines);
    const { key: _, signature: __, ...written } = this.certificate;
    const { values, difference: largest } = compare(written, computed);
    const far = largest.toExponential(1);
    this.say("bounds", `recomputed at ${count(replay.looks.length, "look")}; largest difference of a number ${far}`);
    this.say("certificate", `${values} values and sentences follow from registration and transcript`);
  }

  async notice() {
    const found = this.files.get("certificate.json.revoked");
    if (!found) return;
    const value = /** @type {any} */ (parseJson(textOf(found, "notice").replace(/\n$/, ""), "notice"));
    conforms(value, this.data.schema.revocation, this.data.schema.revocation, "notice");
    must(sameBytes(utf8(`${canonical(value)}\n`), found), "is not one canonical line", "notice");
    must(isTime(value.time), "has no valid time", "notice");
    must(value.certificate !== value.superseded_by, "supersedes itself", "notice");
    const { signature, ...rest } = value;
    const mine = await sha256(this.file("certificate.json"));
    must(value.key === this.key, "is of another key than the certificate", "notice");
    must(await signatureFits(value.key, signature ?? "", canonicalBytes(rest)), "its signature does not fit", "notice");
    if (value.certificate !== mine) return must(value.superseded_by === mine, "is of another certificate", "notice");
    this.say("REVOKED", `the issuer revoked this certificate on ${value.time}: ${value.reason}`, "note");
  }

  /** What the certificate is of, for a reader to compare with what a page says. */
  async about() {
    const { claim, calibrated, expires } = this.certificate;
    const { system = "", issuer = "", score, loss, population } = claim;
    const digest = await sha256(this.file("certificate.json"));
    return [system && `system ${system}`, issuer && `issuer ${issuer}`, `score ${score}`, `error ${loss}`,
      `population ${population}`, calibrated && `calibrated ${calibrated}`, expires && `expires ${expires}`,
      `certificate ${digest}`].filter(Boolean).join("; ");
  }

  validity() {
    const { expires } = this.certificate;
    if (expires && Date.parse(expires) <= this.now) this.say("EXPIRED", `the certificate expired on ${expires}`,
      "note");
  }

  async run() {
    if (!globalThis.crypto?.subtle) throw new Beyond("anything here: the browser gives this page no cryptography");
    await this.registration();
    this.reach();
    await this.signature();
    await this.notice();
    await this.compare();
    const watched = [...this.files.keys()].some((name) => name.startsWith("monitor/"));
    if (watched) throw new Beyond("the monitor's files; the certificate itself follows from its run");
    this.validity();
  }
}

/**
 * Verify a run.
 * @param {Map<string,
   Uint8Array<ArrayBuffer>>} files @param {Data} data @param {Options} [options] @returns {Promise<Outcome>}
 */
export async function verifyRun(files, data, options = {}) {
  const check = new Check(files, data, options);
  let [verdict, why] = [VERIFIED,
    "The certificate follows from the registration and the transcript, and its signature fits."];
  try {
    await check.run();
  } catch (error) {
    const known = error instanceof Wrong || error instanceof Beyond;
    [verdict, why] = [error instanceof Wrong ? WRONG : BEYOND, known ? /** @type {Error} */ (error).message
      : `an unexpected value stopped the check (${error})`];
    check.say(verdict === WRONG ? "wrong" : "not checked", why, verdict === WRONG ? "wrong" : "cannot check");
  }
  const { status = null, statement = null } = check.certificate ?? {};
  const about = verdict === VERIFIED ? await check.about() : "";
  return { verdict, why, parts: check.parts, key: check.key, status, statement, about };
}
