// The archive that a page carries: known names, each once, small, CRC checked. docs/format.md, "The page".
"use strict";
import { textOf } from "./bytes.js";
import { Wrong, must } from "./outcome.js";

export const MOST = 8_000_000;
const RUN = ["registration.toml", "transcript.jsonl", "certificate.json"];
const MONITOR = [...RUN, "status.json"].map((name) => `monitor/${name}`);
const KNOWN = new Set([...RUN, "registration.json", "certificate.json.revoked", ...MONITOR]);
export const LINK = ["data:application/zip", "base64,"].join(";"); // not found where pages look for their link
const DAMAGED = "the run that it carries is damaged";
const ELSE = "carries something else than a run";

const TABLE = Uint32Array.from({ length: 256 }, (_, i) => {
  let c = i;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});

/** @param {Uint8Array<ArrayBuffer>} data */
function crc32(data) {
  let c = 0xffffffff;
  for (const byte of data) c = TABLE[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

/**
 * Decompress to exactly `size` bytes; more is cut off as it comes.
 * @param {Uint8Array<ArrayBuffer>} packed @param {number} size @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function inflate(packed, size) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader();
  const out = new Uint8Array(size);
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) {
      await reader.cancel();
      throw new Wrong(DAMAGED);
    }
    out.set(value, at);
    at += value.length;
  }
  must(at === size, DAMAGED);
  return out;
}

/** Read the central directory. @param {Uint8Array<ArrayBuffer>} data */
function entries(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const end = data.length - 22; // no comment
  must(end >= 0 && view.getUint32(end, true) === 0x06054b50, DAMAGED);
  const [count, size, start] = [view.getUint16(end + 10, true), view.getUint32(end + 12, true),
    view.getUint32(end + 16, true)];
  must(view.getUint16(end + 8, true) === count && view.getUint32(end + 4, true) === 0, DAMAGED);
  must(start + size === end && view.getUint16(end + 20, true) === 0, DAMAGED);
  const found = [];
  let at = start;
  for (let i = 0; i < count; i++) {
    must(at + 46 <= end && view.getUint32(at, true) === 0x02014b50, DAMAGED);
    const [name, extra, comment] = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const entry = {
      flags: view.getUint16(at + 8, true), method: view.getUint16(at + 10, true), crc: view.getUint32(at + 16, true),
      packed: view.getUint32(at + 20, true), size: view.getUint32(at + 24, true), local: view.getUint32(at + 42, true),
      name: textOf(data.subarray(at + 46, at + 46 + name), "archive"),
    };
    found.push(entry);
    at += 46 + name + extra + comment;
  }
  must(at === end, DAMAGED);
  return found;
}

/**
 * Unpack the files of a run.
 * @param {Uint8Array<ArrayBuffer>} data @returns {Promise<Map<string, Uint8Array<ArrayBuffer>>>}
 */
export async function unzip(data) {
  const found = entries(data);
  must(found.every((each) => KNOWN.has(each.name)), ELSE);
  must(new Set(found.map((each) => each.name)).size === found.length, ELSE);
  must(found.every((each) => (each.method === 0 || each.method === 8) && (each.flags & ~0x0808) === 0), ELSE);
  must(found.reduce((sum, each) => sum + each.size, 0) <= MOST, ELSE);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const files = new Map();
  for (const each of found) {
    must(each.local + 30 <= data.length && view.getUint32(each.local, true) === 0x04034b50, DAMAGED);
    const start = each.local + 30 + view.getUint16(each.local + 26, true) + view.getUint16(each.local + 28, true);
    must(start + each.packed <= data.length, DAMAGED);
    const named = data.subarray(each.local + 30, each.local + 30 + view.getUint16(each.local + 26, true));
    must(textOf(named, "archive") === each.name, DAMAGED);
    const packed = data.subarray(start, start + each.packed);
    must(each.method === 8 || each.packed === each.size, DAMAGED);
    let file = packed;
    try {
      if (each.method === 8) file = await inflate(packed, each.size);
    } catch {
      throw new Wrong(DAMAGED, each.name);
    }
    must(crc32(file) === each.crc, DAMAGED, each.name);
    files.set(each.name, file);
  }
  return files;
}

/**
 * Find the archive in the text of a page. Exactly one link carries it.
 * @param {string} html @param {string} where @returns {string} base64
 */
export function linkIn(html, where) {
  const found = [...html.matchAll(/href="data:application\/zip;base64,([A-Za-z0-9+/=]*)"/g)];
  must(found.length < 2, "carries more than one run", where);
  must(found.length === 1, "carries no run", where);
  return found[0][1];
}
