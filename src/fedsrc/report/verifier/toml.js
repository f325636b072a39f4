// The part of TOML that a TOML writer emits, and whether it says what registration.json says. docs/format.md,
// "The registration".
"use strict";
import { Beyond } from "./outcome.js";

const UNUSUAL = "registration.toml: it is not as fedsrc writes it";
const QUOTED =
  /"(?:[^"\\\u0000-\u0008\u000a-\u001f\u007f]|\\(?:[btnfr"\\]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))*"/y;
const NUMERAL = /[+-]?(?:inf|nan|[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?(?:[eE][+-]?[0-9]+)?)/y;
const ESCAPES = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };

class TomlReader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
    /** Tables written in one line: nothing is added to them. */
    this.whole = new Set();
  }

  /** @returns {never} */
  fail() {
    const line = this.text.slice(0, this.at).split("\n").length;
    throw new Beyond(`${UNUSUAL} (line ${line})`);
  }

  /** Skip blanks and, where lines may end, comments and ends of lines. @param {boolean} lines */
  skip(lines) {
    const pattern = lines ? /(?:[ \t\n]|\r\n|#[^\u0000-\u0008\u000a-\u001f\u007f]*)*/y : /[ \t]*/y;
    this.at += this.found(pattern).length;
  }

  /** @param {RegExp} pattern */
  found(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text)?.[0] ?? "";
  }

  /** @param {RegExp} pattern */
  take(pattern) {
    const found = this.found(pattern);
    if (found === "") this.fail();
    this.at += found.length;
    return found;
  }

  /** @param {string} letter */
  has(letter) {
    if (!this.text.startsWith(letter, this.at)) return false;
    this.at += letter.length;
    return true;
  }

  string() {
    if (this.text.startsWith('"""', this.at) || this.text.startsWith("'''", this.at)) this.fail();
    if (this.text[this.at] === "'") return this.take(/'[^'\u0000-\u0008\u000a-\u001f\u007f]*'/y).slice(1, -1);
    const raw = this.take(QUOTED).slice(1, -1);
    return raw.replace(/\\(?:u(.{4})|U(.{8})|(.))/gs, (_, four, eight, one) => {
      if (one) return ESCAPES[/** @type {keyof typeof ESCAPES} */ (one)];
      const point = parseInt(four ?? eight, 16);
      if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) this.fail();
      return String.fromCodePoint(point);
    });
  }

  key() {
    const path = [];
    do {
      this.skip(false);
      path.push(/["']/.test(this.text[this.at] ?? "") ? this.string() : this.take(/[A-Za-z0-9_-]+/y));
      this.skip(false);
    } while (this.has("."));
    return path;
  }

  number() {
    const text = this.take(NUMERAL).replaceAll("_", "");
    if (text.endsWith("nan")) this.fail();
    if (text.endsWith("inf")) return text.startsWith("-") ? -Infinity : Infinity;
    if (/^[+-]?0[0-9]/.test(text)) this.fail();
    const value = Number(text);
    if (!/^[+-]?[0-9]+$/.test(text)) return Number.isInteger(value) ? Object(value) : value; // 30.0 is no integer
    return Number.isSafeInteger(value) ? value : BigInt(text.replace("+", ""));
  }

  /** @returns {any} */
  value() {
    const letter = this.text[this.at];
    if (letter === '"' || letter === "'") return this.string();
    if (letter === "[") return this.array();
    if (letter === "{") return this.inline();
    if (this.has("true")) return true;
    if (this.has("false")) return false;
    return this.number();
  }

  array() {
    const found = [];
    this.at++;
    for (;;) {
      this.skip(true);
      if (this.has("]")) return found;
      found.push(this.value());
      this.skip(true);
      if (!this.has(",")) {
        if (!this.has("]")) this.fail();
        return found;
      }
    }
  }

  inline() {
    const found = Object.create(null);
    this.whole.add(found);
    this.at++;
    this.skip(false);
    if (this.has("}")) return found;
    do this.pair(found);
    while (this.has(","));
    if (!this.has("}")) this.fail();
    return found;
  }

  /** @param {Record<string, any>} table */
  pair(table) {
    const [name, ...more] = this.key();
    if (more.length || name in table || !this.has("=")) this.fail(); // no writer of registrations dots keys
    this.skip(false);
    table[name] = this.value();
    this.skip(false);
  }

  /** The table under a name, the last one of an array of tables. @param {any} table @param {string} name */
  child(table, name) {
    if (!(name in table)) table[name] = Object.create(null);
    const found = Array.isArray(table[name]) ? table[name].at(-1) : table[name];
    if (found === null || typeof found !== "object" || found instanceof Number || this.whole.has(found)) this.fail();
    return found;
  }

  /** @param {any} root @param {Set<string>} seen headers so far */
  header(root, seen) {
    const many = this.has("[[");
    if (!many) this.has("[");
    const path = this.key();
    if (!this.has(many ? "]]" : "]")) this.fail();
    const last = /** @type {string} */ (path.at(-1));
    const place = path.slice(0, -1).reduce((table, name) => this.child(table, name), root);
    if (many) {
      if (last in place && !seen.has(`*${path.join("\n")}`)) this.fail();
      seen.add(`*${path.join("\n")}`);
      (place[last] ??= []).push(Object.create(null));
      return place[last].at(-1);
    }
    if (last in place && (Array.isArray(place[last]) || seen.has(path.join("\n")))) this.fail();
    if (!path.some((_, i) => seen.has(`*${path.slice(0, i + 1).join("\n")}`))) seen.add(path.join("\n"));
    return this.child(place, last);
  }

  document() {
    const root = Object.create(null);
    const seen = new Set();
    let table = root;
    for (this.skip(true); this.at < this.text.length; this.skip(true)) {
      if (this.text[this.at] === "[") table = this.header(root, seen);
      else this.pair(table);
      this.take(/[ \t]*(?:#[^\u0000-\u0008\u000a-\u001f\u007f]*)?(?:\r?\n|$)/y);
    }
    return root;
  }
}

/** @param {string} text */
export function parseToml(text) {
  return new TomlReader(/[\n\r]$/.test(text) ? text : `${text}\n`).document();
}

/** Whether a field of these types is so written in TOML. @param {any} value @param {Set<string>} [types] */
function isWritten(value, types) {
  if (types === undefined || types.size === 0) return true;
  const [decimal, whole] = [value instanceof Number || (typeof value === "number" && !Number.isInteger(value)),
    typeof value === "number" || typeof value === "bigint"];
  if (decimal) return types.has("number");
  if (whole) return types.has("number") || types.has("integer");
  return typeof value !== "string" || types.has("string");
}

/**
 * Return the first place at which TOML says something else than JSON, or "". What TOML leaves out is null in JSON.
 * @param {any} toml @param {any} json @param {Map<string, Set<string>>} [types] of fields by name: a number is no
 * text, and a decimal no integer, though canonical JSON writes them alike
 * @param {string} [path] @param {string} [field] @returns {string}
 */
export function difference(toml, json, types = new Map(), path = "", field = "") {
  const here = path || "the whole";
  if (Array.isArray(toml) || Array.isArray(json)) {
    if (!Array.isArray(toml) || !Array.isArray(json) || toml.length !== json.length) return here;
    return toml.map((value, i) => difference(value, json[i], types, `${path}[${i + 1}]`, field)).find(Boolean) ?? "";
  }
  if (!isWritten(toml, types.get(field))) return here;
  if (toml instanceof Number) return toml.valueOf() === json ? "" : here;
  if (toml !== null && typeof toml === "object") {
    if (json === null || typeof json !== "object") return here;
    for (const name of new Set([...Object.keys(toml), ...Object.keys(json)])) {
      const inner = path ? `${path}.${name}` : name;
      if (!(name in toml) ? json[name] !== null : !(name in json)) return inner;
      const found = name in toml ? difference(toml[name], json[name], types, inner, name) : "";
      if (found) return found;
    }
    return "";
  }
  if (typeof toml === "bigint") return json === toml.toString() ? "" : here;
  if (toml === Infinity || toml === -Infinity) return json === (toml > 0 ? "inf" : "-inf") ? "" : here;
  return toml === json ? "" : here;
}
