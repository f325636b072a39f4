// The check on a page: its own run, or a card or archive that the reader chooses. Nothing is sent anywhere.
"use strict";
import { fromBase64, textOf } from "./bytes.js";
import { Wrong, must } from "./outcome.js";
import { BEYOND, VERIFIED, WRONG, verifyRun } from "./verify.js";
import { LINK, linkIn, unzip } from "./zip.js";

const LONGEST = 20_000_000; // bytes of a page that is read
const LOOKS = { [VERIFIED]: "certified", [WRONG]: "problem", [BEYOND]: "expired" };
const SIGNS = { checked: "checked", wrong: "wrong", "cannot check": "not checked", note: "note" };

/**
 * Make an element with text or children in it; text is never read as markup.
 * @param {string} tag @param {(Node | string)[]} children @param {string} [kind]
 */
function made(tag, children, kind = "") {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children);
  return element;
}

/** @param {string} id */
const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Let the page breathe, and show how far the check is. */
function pacer() {
  const bar = /** @type {HTMLProgressElement} */ (at("recompute-progress"));
  let last = performance.now();
  bar.hidden = false;
  return async (share) => {
    if (performance.now() - last < 40) return;
    bar.value = share;
    await new Promise((go) => setTimeout(go, 0));
    last = performance.now();
  };
}

/** @param {import("./verify.js").Outcome} outcome @param {string} of what was checked */
function show(outcome, of) {
  const notes = outcome.parts.filter((part) => part.result === "note");
  const verdict = made("p", [made("strong", [outcome.verdict]), " ", made("span", [outcome.why])],
    `status ${LOOKS[/** @type {keyof typeof LOOKS} */ (outcome.verdict)]}`);
  const said = notes.map((part) => made("p", [made("strong", [part.name]), " ", made("span", [part.words])],
    "status revoked"));
  const lines = outcome.parts.filter((part) => part.result !== "note").map((part) =>
    made("li", [made("span", [SIGNS[part.result]], `how ${part.result === "checked" ? "checked" : ""}`),
      made("span", [`${part.name}: ${part.words}`])]));
  const claim = outcome.verdict === VERIFIED && outcome.statement && notes.length === 0
    ? [made("p", [`The certificate (${outcome.status}) says: `, made("bdi", [outcome.statement])]),
      made("p", ["It is of: ", made("bdi", [outcome.about])])] : [];
  at("recompute-result").replaceChildren(made("p", [of]), verdict, ...said, made("ul", lines, "known"), ...claim);
}

/** @param {() => Promise<Uint8Array<ArrayBuffer>>} archive @param {string} of @param {any} data */
async function check(archive, of, data) {
  const button = /** @type {HTMLButtonElement | null} */ (document.getElementById("recompute-now"));
  if (button) button.disabled = true;
  at("recompute-result").replaceChildren(made("p", ["Recomputing ..."]));
  const trusted = /** @type {HTMLInputElement} */ (at("trusted")).value;
  let outcome;
  try {
    outcome = await verifyRun(await unzip(await archive()), data, { trusted, progress: pacer() });
  } catch (error) {
    const wrong = error instanceof Wrong;
    outcome = { verdict: wrong ? WRONG : BEYOND, why: wrong ? error.message : `the file could not be read (${error})`,
      parts: [], key: null, status: null, statement: null, about: "" };
  }
  at("recompute-progress").hidden = true;
  if (button) button.disabled = false;
  show(outcome, of);
}

/** The archive in a page's own link. */
async function ownArchive() {
  const all = [...document.querySelectorAll("a")].map((each) => each.getAttribute("href") ?? "");
  const links = all.filter((href) => href.startsWith(LINK));
  must(links.length === 1, links.length ? "this page carries more than one run" : "this page carries no run");
  return fromBase64(links[0].slice(LINK.length), "this page");
}

/** The archive in a file: a card, or what was saved from one. @param {File} file */
async function archiveIn(file) {
  must(file.size <= LONGEST, "is too large", file.name);
  const data = new Uint8Array(await file.arrayBuffer());
  return data[0] === 0x50 && data[1] === 0x4b ? data : fromBase64(linkIn(textOf(data, file.name), file.name),
    file.name);
}

/** @param {any} data schema.json and words.json */
export function startPage(data) {
  at("recompute").hidden = false;
  const chosen = /** @type {HTMLInputElement | null} */ (document.getElementById("chosen"));
  const take = (files) => {
    const file = files?.[0];
    if (file) void check(() => archiveIn(file), `Checked: ${file.name}`, data);
  };
  if (!chosen) {
    at("recompute-now").addEventListener("click", () => void check(ownArchive,
      "Checked: the run that this page carries. The page's own words are not checked.", data));
    return;
  }
  chosen.addEventListener("change", () => take(chosen.files));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer?.files);
  });
}
