// How numbers are printed in sentences and files. docs/format.md, "certificate.json", "Words".
"use strict";

/** Python's repr of a float that is no whole number, or of an integer. @param {number} x */
export function printed(x) {
  const [digits, exponent] = x.toExponential().split("e");
  if (Number.isInteger(x) || (Number(exponent) >= -4 && Number(exponent) < 16)) return String(x);
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

/** Python's repr of a float. @param {number} x */
export function repr(x) {
  return Number.isInteger(x) && Math.abs(x) < 1e16 ? `${x}.0` : printed(x);
}

/** Python's %g with so many digits. @param {number} x @param {number} [digits] */
export function general(x, digits = 6) {
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  if (power >= -4 && power < digits) return String(Number(x.toPrecision(digits)));
  return `${Number(mantissa)}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

/** @param {number} share */
export const percent = (share) => `${general(share * 100)}%`;
/** A lower bound, floored to tenths. @param {number} share */
export const percentAtLeast = (share) => `${general(Math.floor(share * 1000) / 10)}%`;
/** @param {number} count */
export const commas = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

/** A decimal number as a fraction of integers. @param {number} x @returns {[bigint, bigint]} */
function fraction(x) {
  const [mantissa, exponent] = x.toExponential().split("e");
  const [whole, rest = ""] = mantissa.split(".");
  const power = Number(exponent) - rest.length;
  return power >= 0 ? [BigInt(whole + rest) * 10n ** BigInt(power), 1n] : [BigInt(whole + rest), 10n ** BigInt(-power)];
}

/** risk / (1 - missed), rounded up to 9 decimals in exact decimals; no bound stays none. @param {number} risk
 * @param {number} missed */
export function widened(risk, missed) {
  if (missed === 0 || risk >= 1) return risk;
  const [[a, b], [c, d]] = [fraction(risk), fraction(missed)];
  const [top, low] = [a * d * 10n ** 9n, b * (d - c)];
  return Math.min(1, Number((top + low - 1n) / low) / 1e9);
}

/** risk (1 - missed), rounded down to 9 decimals in exact decimals. @param {number} risk @param {number} missed */
export function labelled(risk, missed) {
  const [[a, b], [c, d]] = [fraction(risk), fraction(missed)];
  return Number((a * (d - c) * 10n ** 9n) / (b * d)) / 1e9;
}

/** certificate.json: sorted keys, one space of indentation. @param {any} value
 * @param {string} [indent] @returns {string} */
export function pretty(value, indent = "") {
  const inner = `${indent} `;
  if (typeof value === "number") return printed(value);
  if (typeof value === "bigint") return JSON.stringify(value.toString());
  if (Array.isArray(value)) return value.length
    ? `[\n${value.map((each) => inner + pretty(each, inner)).join(",\n")}\n${indent}]` : "[]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort((a, b) => comparePoints(a, b));
  return names.length ? `{\n${names.map((name) => `${inner}${JSON.stringify(name)}: ${pretty(value[name],
    inner)}`).join(",\n")}\n${indent}}` : "{}";
}

/** By code points, as Python sorts. @param {string} a @param {string} b */
function comparePoints(a, b) {
  const [x, y] = [[...a], [...b]];
  for (let i = 0; i < Math.min(x.length, y.length); i++)
    if (x[i] !== y[i]) return /** @type {number} */ (x[i].codePointAt(0)) - /** @type {number} */ (y[i].codePointAt(0));
  return x.length - y.length;
}
