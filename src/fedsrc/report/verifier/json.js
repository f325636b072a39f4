// JSON read strictly, and written in the canonical form that digests are made of. docs/format.md, "Canonical JSON".
"use strict";
import { utf8 } from "./bytes.js";
import { Wrong } from "./outcome.js";

/** @typedef {null | boolean | number | bigint | string | Array<any> | Record<string, any>} Json */

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const LONE = /[\ud800-\udbff](?![\udc00-\udfff])|(?:[^\ud800-\udbff]|^)[\udc00-\udfff]/;
const DEEPEST = 64;

/** Reads one value after another of a text. */
class JsonReader {
  /** @param {string} text @param {string} where */
  constructor(text, where) {
    this.text = text;
    this.where = where;
    this.at = 0;
  }

  /** @returns {never} */
  fail() {
    throw new Wrong(`is not valid JSON at character ${this.at + 1}`, this.where);
  }

  space() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at++;
  }

  /** @param {string} letter */
  take(letter) {
    if (this.text[this.at] !== letter) return false;
    this.at++;
    this.space();
    return true;
  }

  /** @param {RegExp} pattern */
  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return this.fail();
    this.at += found[0].length;
    this.space();
    return found;
  }

  string() {
    const value = JSON.parse(this.match(STRING)[0]);
    if (LONE.test(value)) this.fail();
    return value;
  }

  number() {
    const [text, fraction, exponent] = this.match(NUMBER);
    const value = Number(text);
    if (!Number.isFinite(value)) this.fail();
    return fraction || exponent || Number.isSafeInteger(value) ? value : BigInt(text);
  }

  /** @param {number} depth @returns {Json} */
  value(depth) {
    if (depth > DEEPEST) this.fail();
    const letter = this.text[this.at];
    if (letter === "{") return this.object(depth);
    if (letter === "[") return this.array(depth);
    if (letter === '"') return this.string();
    for (const [word, value] of [["null", null], ["true", true], ["false", false]])
      if (this.text.startsWith(/** @type {string} */ (word), this.at)) {
        this.at += /** @type {string} */ (word).length;
        this.space();
        return value;
      }
    return this.number();
  }

  /** @param {number} depth */
  array(depth) {
    const found = [];
    this.take("[");
    if (this.take("]")) return found;
    do found.push(this.value(depth + 1));
    while (this.take(","));
    if (!this.take("]")) this.fail();
    return found;
  }

  /** @param {number} depth */
  object(depth) {
    const found = Object.create(null);
    this.take("{");
    if (this.take("}")) return found;
    do {
      const name = this.string();
      if (name in found) throw new Wrong(`names ${JSON.stringify(name)} twice`, this.where);
      if (!this.take(":")) this.fail();
      found[name] = this.value(depth + 1);
    } while (this.take(","));
    if (!this.take("}")) this.fail();
    return found;
  }
}

/**
 * Parse JSON: no duplicate names, no lone surrogates; integers beyond 2^53 are kept as BigInt.
 * @param {string} text @param {string} where
 */
export function parseJson(text, where) {
  const reader = new JsonReader(text, where);
  reader.space();
  const value = reader.value(0);
  if (reader.at !== text.length) reader.fail();
  return value;
}

/**
 * Write canonical JSON (RFC 8785; integers beyond 2^53 and infinity as strings).
 * @param {Json} value @returns {string}
 */
export function canonical(value) {
  if (typeof value === "bigint") return JSON.stringify(value.toString());
  if (typeof value === "number" && !Number.isFinite(value)) return JSON.stringify(value > 0 ? "inf" : value < 0 ? "-inf"
    : "nan");
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** @param {Json} value */
export function canonicalBytes(value) {
  return utf8(canonical(value));
}

/** @param {Json} a @param {Json} b */
export function sameJson(a, b) {
  return canonical(a) === canonical(b);
}
