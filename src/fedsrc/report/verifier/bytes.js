// Bytes, hexadecimal and base64, SHA-256 and Ed25519 by WebCrypto.
"use strict";
import { Beyond, Wrong, must } from "./outcome.js";

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function utf8(text) {
  return new TextEncoder().encode(text);
}

/** Read UTF-8; anything else, and a byte order mark, is refused. @param {Uint8Array<ArrayBuffer>} data
 * @param {string} where */
export function textOf(data, where) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Wrong("is not UTF-8", where);
  }
}

/** @param {Uint8Array<ArrayBuffer>} data @returns {string} */
export function toHex(data) {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {unknown} text @param {number} length bytes @returns {text is string} */
export function isHex(text, length) {
  return typeof text === "string" && text.length === 2 * length && /^[0-9a-f]*$/.test(text);
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromHex(text) {
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

/** @param {string} text @param {string} where @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text, where) {
  must(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text),
    "the run that it carries is damaged", where);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array<ArrayBuffer>} a @param {Uint8Array<ArrayBuffer>} b */
export function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** @param {Uint8Array<ArrayBuffer>} data @returns {Promise<string>} the digest in hexadecimal */
export async function sha256(data) {
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", data)));
}

/**
 * Return whether an Ed25519 signature fits. A browser without Ed25519 cannot say, and does not pass.
 * @param {string} key @param {string} signature both in hexadecimal @param {Uint8Array<ArrayBuffer>} data
 */
export async function signatureFits(key, signature, data) {
  if (!isHex(key, 32) || !isHex(signature, 64)) return false;
  let imported;
  try {
    imported = await crypto.subtle.importKey("raw", fromHex(key), { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    if (error instanceof DOMException
      && error.name === "NotSupportedError") throw new Beyond("the signature, in this browser: it has no Ed25519");
    return false; // not a point of the curve
  }
  return crypto.subtle.verify({ name: "Ed25519" }, imported, fromHex(signature), data);
}
