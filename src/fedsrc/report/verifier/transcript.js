// The chained lines of a transcript. docs/format.md, "transcript.jsonl".
"use strict";
import { sha256, textOf, utf8 } from "./bytes.js";
import { canonical, parseJson } from "./json.js";
import { must } from "./outcome.js";
import { conforms } from "./schema.js";

export const NOTHING = "0".repeat(64);

/**
 * Read the lines: each the one text of its value, numbered, naming the one before.
 * @param {Uint8Array<ArrayBuffer>} data @param {any} schema @param {(done: number) => Promise<void>} progress
 */
export async function readTranscript(data, schema, progress) {
  const lines = textOf(data, "transcript").split("\n");
  const torn = lines.pop() !== ""; // a crash while writing: the last line is left out
  const entries = [];
  const root = { ...schema, texts: ["check"] };
  let before = NOTHING;
  for (let i = 0; i < lines.length; i++) {
    const where = `transcript, line ${i + 1}`;
    const value = /** @type {any} */ (parseJson(lines[i], where));
    must(canonical(value) === lines[i], "is not canonical JSON", where);
    must(value !== null && typeof value === "object", "is not an entry", where);
    must(value.n === i + 1, "has another number", where);
    must(value.prev === before, "does not follow the line before: the chain is broken", where);
    const { n: _, prev: __, ...entry } = value;
    conforms(entry, root, root, where);
    entries.push(entry);
    before = await sha256(utf8(lines[i]));
    if (i % 64 === 0) await progress(i / lines.length);
  }
  return { entries, head: before, torn };
}
