"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  // milliseconds: before a word counts, before a retry, between looks, until a silent server counts as lost
  const SOON = 250, LATER = 1000, LOOK = 3000, SILENT = 30000;
  const KEYS = { s: "supported", u: "unsupported", "?": "unsure", n: "unsure" };
  const SAID = { 0: "supported", 1: "unsupported", unsure: "unsure" };
  const unsent = "unsent " + location.pathname;
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const say = (words) => { if (at("news").textContent !== words) at("news").textContent = words; };
  const by = () => localStorage.getItem("by") || "";
  let screen = null, busy = true, since = 0, marks = [], here = 0;

  // Send until it is answered: the server keeps a word once, however often it comes.
  const send = async (path, fields) => {
    for (;;) {
      try {
        const found = await fetch(path, { method: "POST", body: JSON.stringify(fields), signal: AbortSignal.timeout(SILENT) });
        if (found.status === 404) throw new TypeError("gone");
        if (found.status < 500) return { status: found.status, ...(await found.json()) };
        say(`${path === "label" ? "Not saved yet" : "Waiting"}: ${(await found.json()).words}. The page tries again by itself.`);
      } catch {
        say(`${path === "label" ? "Not saved yet" : "Waiting"}: the page has lost its server. It tries again by itself; or open the address that the terminal shows.`);
      }
      await wait(LATER);
    }
  };

  const ask = async (fields = {}) => {
    busy = true;
    show(await send("ask", { by: by(), ...fields }));
  };

  const tell = async (fields) => {
    busy = true;
    sessionStorage.setItem(unsent, JSON.stringify(fields)); // a page that is loaded again sends it first
    const found = await send("label", fields);
    sessionStorage.removeItem(unsent);
    if (found.status === 200) { show(found); return; }
    await ask();
    say(`Not saved: ${found.words}.`);
  };

  const show = (next) => {
    const kind = next.status === 400 ? "name" : next.kind;
    screen = next;
    for (const [id, on] of [["who", kind === "name"], ["task", kind === "answer"], ["words", kind === "answer"]]) at(id).hidden = !on;
    say(kind === "answer" ? (next.said ? `You said: ${SAID[next.said] || next.said}.` : "") : next.words || "");
    if (kind === "name") at("by").focus();
    if (kind === "done") setTimeout(ask, LOOK);
    if (kind !== "answer") return;
    for (const id of ["question", "response", "note"]) at(id).textContent = next[id];
    at("asked").hidden = !next.question;
    for (const each of document.querySelectorAll("[data-word]")) each.setAttribute("aria-pressed", String(each.dataset.word === SAID[next.said]));
    at("find").value = "";
    at("find").blur(); // keys are words again
    look();
    at("evidence").scrollTop = 0;
    window.scrollTo(0, 0);
    document.body.dataset.shown = next.shown;
    since = performance.now();
    busy = false;
  };

  const word = (said) => {
    if (busy || performance.now() - since < SOON) return; // a second press of the key that labelled the answer before
    tell({ by: by(), answer: screen.answer, word: said, shown: screen.shown, head: screen.head });
  };
  const back = () => { if (!busy) ask({ back: screen.answer }); };

  const look = () => {
    const text = screen.evidence, wanted = at("find").value.trim();
    const parts = [];
    let place = 0;
    marks = [];
    if (wanted) {
      const pattern = wanted.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replace(/\s+/g, "\\s+");
      for (const match of text.matchAll(new RegExp(pattern, "giu"))) {
        const mark = document.createElement("mark");
        mark.textContent = match[0];
        parts.push(text.slice(place, match.index), mark);
        marks.push(mark);
        place = match.index + match[0].length;
      }
    }
    at("evidence").replaceChildren(...parts, text.slice(place));
    here = 0;
    point();
    if (!wanted) at("matches").textContent = "";
  };

  const point = () => {
    at("matches").textContent = marks.length ? `${here + 1} of ${marks.length}` : "none";
    marks.forEach((mark, i) => mark.classList.toggle("here", i === here));
    if (marks.length) marks[here].scrollIntoView({ block: "nearest" });
  };
  const step = (by) => { if (marks.length) { here = (here + by + marks.length) % marks.length; point(); } };

  document.addEventListener("keydown", (event) => {
    if (event.repeat && event.target.tagName === "BUTTON") event.preventDefault(); // a key that is held presses once
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !screen || screen.kind !== "answer") return;
    const typing = event.target.tagName === "INPUT";
    if (typing && event.key === "Escape") at("evidence").focus();
    else if (typing && event.key === "Enter" && event.shiftKey) { event.preventDefault(); step(-1); }
    else if (typing) return;
    else if (event.key === "/") { event.preventDefault(); at("find").focus(); }
    else if (event.key.toLowerCase() === "b") back();
    else if (KEYS[event.key.toLowerCase()]) word(KEYS[event.key.toLowerCase()]);
  });
  for (const each of document.querySelectorAll("[data-word]")) each.addEventListener("click", () => word(each.dataset.word));
  at("back").addEventListener("click", back);
  at("find").addEventListener("input", look);
  at("up").addEventListener("click", () => step(-1));
  at("search").addEventListener("submit", (event) => { event.preventDefault(); step(1); });
  at("who").addEventListener("submit", (event) => {
    event.preventDefault();
    localStorage.setItem("by", at("by").value);
    at("by").blur();
    ask();
  });

  const left = sessionStorage.getItem(unsent);
  if (left) tell(JSON.parse(left)); else ask();
})();
