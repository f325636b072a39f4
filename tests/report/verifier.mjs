// Runs the verifier's modules under Node, for tests: JSON on standard input, JSON on standard output.
//   {"verify": [{"registration.toml": base64, ...}, ...], "trusted": ""}  ->  outcomes
//   {"archives": [base64, ...]}                       ->  outcomes of archives and pages
//   {"registrations": [canonical JSON, ...]}          ->  {"error": name or null, "message": words}
//   {"calls": [["module.js", "function", [arguments]], ...]}  ->  values, or {"error": name, "message": words};
//                                                       an argument {"base64": text} stands for bytes
"use strict";
import { readFileSync } from "node:fs";

const folder = new URL("../../src/fedsrc/report/verifier/", import.meta.url);
const module = (name) => import(new URL(name, folder));
const data = Object.fromEntries(["schema", "words"].map((name) => [name, JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"))]));
const asked = JSON.parse(readFileSync(0, "utf8"));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const plain = (value) => JSON.parse(JSON.stringify(value, (_, each) => (typeof each === "bigint" ? `${each}n` : each === Infinity ? "inf" : each)));

async function verified(files) {
  const { verifyRun } = await module("verify.js");
  return verifyRun(new Map(Object.entries(files).map(([name, text]) => [name, bytes(text)])), data, { trusted: asked.trusted, now: asked.now });
}

async function unpacked(text) {
  const [{ linkIn, unzip }, { fromBase64, textOf }, { verifyRun }] = await Promise.all(["zip.js", "bytes.js", "verify.js"].map(module));
  try {
    const found = bytes(text);
    const archive = found[0] === 0x50 ? found : fromBase64(linkIn(textOf(found, "page"), "page"), "page");
    return await verifyRun(await unzip(archive), data, { now: asked.now });
  } catch (error) {
    return { verdict: error.name === "Wrong" ? "DOES NOT VERIFY" : "CANNOT CHECK", why: error.message, parts: [] };
  }
}

// Whether a registration, given by its canonical JSON, is refused.
async function registered(value) {
  const [{ conforms }, { mechanismOf, validRegistration, withinReach }] = await Promise.all(["schema.js", "registration.js"].map(module));
  try {
    conforms(value, data.schema.registration, data.schema.registration, "registration");
    withinReach(value);
    validRegistration(value);
    mechanismOf(value, null);
    return { error: null, message: "" };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

async function called([name, what, args]) {
  try {
    return plain(await (await module(name))[what](...args.map((each) => (each?.base64 === undefined ? each : bytes(each.base64)))));
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

const answer = [];
for (const value of asked.registrations ?? []) answer.push(await registered(value));
for (const files of asked.verify ?? []) answer.push(await verified(files));
for (const text of asked.archives ?? []) answer.push(await unpacked(text));
for (const call of asked.calls ?? []) answer.push(await called(call));
process.stdout.write(JSON.stringify(answer));
