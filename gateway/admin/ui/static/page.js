// Keeps the page up to date: replaces the fragments of each event by id, and shows the age of the page. The page
// is complete without it. All HTML here was made, and escaped, by our own server.
"use strict";
{
  const SILENCE = 25_000; // milliseconds: the server says something every ten seconds
  const RETRY = 2_000;
  const POLL = 10_000;

  const body = document.body;
  const word = document.getElementById("connection");
  const fresh = new Map(); // new rows without a place
  let stream = null;
  let text = ""; // of an incomplete update
  let heard = Date.now();
  let opened = heard;
  let ahead = Number(body.dataset.now) * 1000 - Date.now(); // of the server's clock
  let retry = 0;
  let waits = RETRY;

  // --- changes

  const parsed = html => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const element = template.content.firstElementChild;
    tellTimes(element);
    return element;
  };

  // Make `old` what `next` is, and keep its nodes: the focus, an open <details> and typed text stay.
  const become = (old, next) => {
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName || old.id !== next.id) {
      old.replaceWith(next);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    for (const {name} of [...old.attributes])
      if (!next.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
    for (const {name, value} of next.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (old.nodeName === "TEXTAREA") return;
    const olds = [...old.childNodes], nexts = [...next.childNodes];
    nexts.forEach((each, index) => index < olds.length ? become(olds[index], each) : old.append(each));
    olds.slice(nexts.length).forEach(each => each.remove());
  };

  const update = change => {
    for (const [id, html] of Object.entries(change.set ?? {})) {
      const next = parsed(html), old = document.getElementById(id);
      if (old) become(old, next);
      else fresh.set(id, next);
    }
    for (const [id, rows] of Object.entries(change.lists ?? {})) arrange(document.getElementById(id), rows);
    showMatches();
  };

  const arrange = (list, rows) => {
    if (!list) return;
    const wanted = new Set(rows);
    for (const row of [...list.children]) if (!wanted.has(row.id)) row.remove();
    let place = list.firstElementChild;
    for (const id of rows) {
      if (place && place.id === id) {
        place = place.nextElementSibling;
        continue;
      }
      const row = document.getElementById(id) ?? fresh.get(id);
      if (row) list.insertBefore(row, place);
    }
    fresh.clear();
  };

  // --- the filter of many backends

  const filter = document.getElementById("filter");

  const showMatches = () => {
    if (!filter) return;
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...document.getElementById("backend-rows").children];
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(each => text.includes(each));
      if (!row.hidden) shown += 1;
    }
    const told = words.length ? `${shown} of ${rows.length}` : "";
    const place = document.getElementById("filtered");
    if (place.textContent !== told) place.textContent = told;
  };

  // --- times

  const AGES = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

  const age = seconds => {
    const [unit, name] = AGES.find(([size]) => seconds >= size) ?? [1, "s"];
    return `${Math.max(0, Math.floor(seconds / unit))} ${name} ago`;
  };

  const tellTimes = root => {
    for (const time of root.querySelectorAll("time:not([data-keep])")) {
      if (!time.title) time.title = time.textContent.trim();
      const told = age((Date.now() + ahead - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== told) time.textContent = told;
    }
  };

  const clock = () => new Date(heard + ahead).toLocaleTimeString("en-GB", {timeZone: "UTC"});

  // --- the connection

  const say = (state, sentence) => {
    if (word.dataset.state === state && word.dataset.said === sentence) return;
    word.dataset.state = state;
    word.dataset.said = sentence;
    word.querySelector(".word").textContent = sentence;
  };

  const stale = why => say("stale", `stale since ${clock()} UTC, ${why}`);

  const hear = now => {
    heard = Date.now();
    waits = RETRY;
    if (now) ahead = now * 1000 - heard;
    say("live", "live");
  };

  const close = () => {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
  };

  const open = () => {
    close();
    text = "";
    opened = Date.now();
    const source = stream = new EventSource(body.dataset.events);
    const on = (name, act) => source.addEventListener(name, event => {
      if (source === stream) act(event.data);
    });
    on("hello", data => {
      const {stamp, now} = JSON.parse(data);
      if (stamp !== body.dataset.stamp) location.reload();
      text = "";
      hear(now);
    });
    on("alive", data => hear(JSON.parse(data).now));
    on("more", data => {
      text += data;
    });
    on("update", data => {
      const change = JSON.parse(text + data);
      text = "";
      update(change);
      hear();
    });
    on("reload", () => location.reload());
    source.onerror = () => {
      if (source !== stream) return;
      if (source.readyState === EventSource.CLOSED) fall();
      else stale("reconnecting");
    };
  };

  // The server refuses a stream: load the page itself, and then ask for a stream again.
  const fall = async () => {
    close();
    const source = stream;
    let sentence = "reconnecting";
    try {
      const response = await fetch(location.href, {headers: {Accept: "text/html"}, cache: "no-store"});
      const html = await response.text();
      if (response.redirected && new URL(response.url).pathname.endsWith("/sign-in")) {
        say("stale", "signed out");
        location.assign(response.url);
        return;
      }
      if (response.ok && adopt(new DOMParser().parseFromString(html, "text/html"))) {
        heard = Date.now();
        say("still", `not live, too many pages are open; as of ${clock()} UTC`);
        waits = POLL;
        sentence = "";
      } else if (response.status === 404) sentence = "the service is not configured any more";
    } catch {
      waits = RETRY;
    }
    if (sentence) stale(sentence);
    if (source === stream) retry = setTimeout(open, waits);
  };

  // Take over the content of another copy of the page.
  const adopt = page => {
    const main = page.getElementById("main");
    if (!main || !page.body.dataset.events) return false;
    tellTimes(main);
    become(document.getElementById("main"), main);
    showFilter();
    return true;
  };

  const tick = () => {
    if (document.hidden) return;
    tellTimes(document);
    if (stream && Date.now() - Math.max(heard, opened) > SILENCE) {
      stale("reconnecting");
      open();
    }
  };

  // A browser has six connections to a server: hidden pages leave theirs to others.
  const shownOrHidden = () => {
    if (document.hidden) close();
    else {
      tellTimes(document);
      if (Date.now() - heard > RETRY) stale("reconnecting");
      open();
    }
  };

  const showFilter = () => {
    if (!filter) return;
    filter.closest(".filter").hidden = false;
    showMatches();
  };

  if (filter) filter.addEventListener("input", showMatches);
  showFilter();
  document.addEventListener("visibilitychange", shownOrHidden);
  addEventListener("pagehide", close);
  addEventListener("pageshow", event => {
    if (event.persisted) shownOrHidden();
  });
  addEventListener("online", open);
  setInterval(tick, 1_000);
  tellTimes(document);
  if (!document.hidden) open();
}
