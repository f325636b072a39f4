"use strict";
(() => {
  const shown = new Map();
  const news = document.getElementById("news");
  let tag = null;
  for (const part of document.querySelectorAll("[data-part]")) shown.set(part.id, part.outerHTML);

  const say = (words) => { if (news.textContent !== words) news.textContent = words; };

  const swap = (part) => {
    const old = document.getElementById(part.id);
    const open = [...old.querySelectorAll("details[open]")].map((each) => each.id);
    const closed = [...old.querySelectorAll("details:not([open])")].map((each) => each.id);
    const places = [...old.querySelectorAll(".scroll")].map((each) => [each.id, each.scrollLeft]);
    const focus = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(document.adoptNode(part));
    const find = (id) => id && document.getElementById(id);
    for (const id of open) if (find(id)) find(id).open = true;
    for (const id of closed) if (find(id)) find(id).open = false;
    for (const [id, left] of places) if (find(id)) find(id).scrollLeft = left;
    if (find(focus)) find(focus).focus({ preventScroll: true });
  };

  const take = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const parts = [...next.querySelectorAll("[data-part]")];
    if (parts.map((part) => part.id).join() !== [...shown.keys()].join()) { location.reload(); return; }
    for (const part of parts) {
      const html = part.outerHTML;
      if (shown.get(part.id) !== html) { shown.set(part.id, html); swap(part); }
    }
    const heard = next.getElementById("next-news");
    document.title = heard.dataset.title;
    say(heard.content.textContent);
  };

  const poll = async () => {
    try {
      const found = await fetch("card", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (found.status === 200) { tag = found.headers.get("ETag"); take(await found.text()); }
      else if (found.status !== 304) throw new Error("no answer");
    } catch {
      tag = null;
      say("The page has lost its server. What it shows may be old; it tries again by itself.");
    }
    setTimeout(poll, 1000);
  };
  poll();
})();
