// The page of `shortlist serve`: type, and see the best labels, and which words speak for them.
//
// Three things happen here, in this order below: asking the server (one request under way, and only the newest question
// waits), drawing its answer, and listening to keys, clicks and the address. Whatever comes from the server is put in
// place as text, never as markup.

const PATIENCE_MS = 20_000; // a request that takes longer is given up
const BUSY_WAIT_S = { usual: 1, most: 30 }; // when the server is busy and does not, or wildly, say for how long
const ANNOUNCE_AFTER_MS = 900; // what is read aloud waits for a pause in typing
const ADDRESS_AFTER_MS = 400;
const EXAMPLES_SHOWN = 8;
const FAINTEST = 0.12; // the colour of a word that moved a label hardly at all, of 1

const $ = (id) => document.getElementById(id);
const field = $("text");
const list = $("labels");

const state = {
  typed: null, // the text as it was before its words were shuffled; null when they are not
  answer: null, // what is on show: {text, labels, before, tookMs, tripMs}; `before` only when shuffled
  chosen: null, // the label that was last focused or tapped
  hovered: null, // the label under the mouse
};

// Asking ---------------------------------------------------------------------------------------------------------------

class Problem extends Error {
  constructor(title, { detail = "", status = 0, retryAfter = null } = {}) {
    super(title);
    Object.assign(this, { title, detail, status, retryAfter });
  }
}

const token = {
  value: null,
  read() {
    try {
      this.value ??= sessionStorage.getItem("token");
    } catch {
      // Storage is switched off: the token lives as long as the page.
    }
    return this.value;
  },
  keep(value) {
    this.value = value;
    try {
      sessionStorage.setItem("token", value);
    } catch {
      // As above.
    }
  },
};

/** The JSON that the server answers with; anything else is thrown as a Problem. */
async function call(path, { body, signal } = {}) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token.read()) headers.Authorization = `Bearer ${token.read()}`;
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new Problem("The server cannot be reached.", { detail: "Your next key stroke tries again." });
  }
  const content = await response.json().catch(() => null);
  if (signal?.aborted) throw signal.reason;
  if (response.ok && content) return content;
  throw new Problem(sentence(content?.title ?? "The server answered with something unexpected"), {
    detail: sentence(content?.detail ?? (response.ok ? "" : `Its status was ${response.status}`)),
    status: response.status,
    retryAfter: response.headers.get("Retry-After"),
  });
}

let underWay = null; // the AbortController of the request that is out
let waiting = false; // the question has changed since it went out
let retry = 0; // the timer of a retry, while the server is busy

/** Ask the server what stands on the page now, or as soon as it has answered what is under way. */
async function ask() {
  if (underWay || retry) {
    waiting = true;
    return;
  }
  waiting = false;
  const question = questionNow();
  if (!question) return;
  const controller = new AbortController();
  const patience = setTimeout(
    () => controller.abort(new Problem("The server takes too long to answer.")),
    PATIENCE_MS,
  );
  underWay = controller;
  const sent = performance.now();
  let outcome;
  try {
    const content = await call("v1/predict", { body: question, signal: controller.signal });
    const tripMs = performance.now() - sent;
    outcome = () => showAnswer(answerFrom(question, content, tripMs));
  } catch (problem) {
    outcome = () => showProblem(problem);
  }
  clearTimeout(patience);
  if (underWay !== controller) return; // the text was cleared meanwhile
  underWay = null;
  outcome();
  if (waiting) ask();
}

/** Forget what was asked: its answer will not be shown. */
function stopAsking() {
  const controller = underWay;
  underWay = null;
  waiting = false;
  stopRetry();
  controller?.abort();
}

function stopRetry() {
  clearTimeout(retry);
  retry = 0;
}

function askNow() {
  stopRetry();
  ask();
}

/** What to ask; nothing when there is no text. Shuffled words are compared with the text as typed, in one request. */
function questionNow() {
  if (!field.value.trim()) return null;
  const texts = state.typed === null ? [field.value] : [field.value, state.typed];
  return {
    texts: texts.map((text) => text.toWellFormed?.() ?? text),
    k: Number(document.querySelector("input[name=k]:checked").value),
    min_score: Number($("least").value),
    explain: true,
  };
}

function answerFrom(question, content, tripMs) {
  const [labels, before = null] = content.predictions ?? [];
  if (!Array.isArray(labels)) return null;
  return { text: question.texts[0], least: question.min_score, labels, before, tookMs: content.took_ms, tripMs };
}

// Drawing --------------------------------------------------------------------------------------------------------------

function showAnswer(answer) {
  if (!answer) {
    showProblem(new Problem("The server's answer was not understood."));
    return;
  }
  state.answer = answer;
  $("notice").hidden = true;
  $("token").hidden = true;
  $("invitation").hidden = true;
  $("answer").hidden = false;
  $("answer").classList.remove("stale");
  $("timing").textContent = timing(answer);
  drawLabels();
  drawWords();
  drawComparison();
  announce(summary(answer));
}

function showEmpty() {
  stopAsking();
  state.answer = null;
  $("answer").hidden = true;
  $("notice").hidden = true;
  $("shuffled").hidden = true;
  $("timing").textContent = "";
  $("invitation").hidden = false;
  announce("");
}

function showProblem(problem) {
  $("answer").classList.add("stale");
  $("timing").textContent = "";
  $("shuffled").hidden = true;
  if (problem.status === 401) {
    showTokenForm();
    return;
  }
  const busy = isBusy(problem);
  if (busy) {
    waiting = false;
    retry = setTimeout(askNow, 1000 * secondsToWait(problem.retryAfter));
  }
  $("invitation").hidden = true;
  $("notice-title").textContent = busy ? "The server is busy." : problem.title;
  $("notice-detail").textContent = busy ? "Trying again by itself." : (problem.detail ?? "");
  $("notice").hidden = false;
}

function showTokenForm() {
  $("token-detail").textContent = token.read() ? "The one it was given is not accepted." : "";
  $("notice").hidden = true;
  $("invitation").hidden = true;
  $("token").hidden = false;
}

function isBusy({ status }) {
  return status === 429 || status === 503;
}

/** Seconds from a Retry-After header, which holds seconds or a date. */
function secondsToWait(header) {
  const seconds = Number(header ?? NaN);
  const wait = Number.isNaN(seconds) ? (Date.parse(header) - Date.now()) / 1000 : seconds;
  return Number.isNaN(wait) ? BUSY_WAIT_S.usual : Math.min(Math.max(wait, 0.1), BUSY_WAIT_S.most);
}

/** The labels, in rows that stay where they are from answer to answer, so that focus stays and bars glide. */
function drawLabels() {
  const { labels, before, least } = state.answer;
  const focused = [...list.children].indexOf(document.activeElement);
  while (list.children.length > labels.length) list.lastElementChild.remove();
  while (list.children.length < labels.length) list.append(newRow());
  labels.forEach((prediction, rank) => fillRow(list.children[rank], prediction, wasAt(prediction, rank, before)));
  list.hidden = labels.length === 0;
  $("none").hidden = labels.length > 0;
  $("none").textContent =
    least > 0 ? `No label scores ${percent(least, 0)} or more.` : "No word of it is known to the model.";
  if (focused >= 0) keepFocus(focused);
}

/** Focus goes with its label to the label's new row; if the label is gone, it stays where it is. */
function keepFocus(focused) {
  const { labels } = state.answer;
  const moved = labels.findIndex(({ label }) => label === state.chosen);
  const rank = moved >= 0 ? moved : Math.min(focused, labels.length - 1);
  state.chosen = labels[rank]?.label ?? null;
  (list.children[rank] ?? field).focus();
}

function newRow() {
  const row = element("li", { role: "option", tabindex: "-1" });
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  row.append(element("span", { class: "name" }), element("span", { class: "score" }));
  row.append(element("span", { class: "id" }), element("span", { class: "was" }), bar);
  return row;
}

function fillRow(row, prediction, was) {
  const { label, name = label, score } = prediction;
  const [nameSpan, scoreSpan, idSpan, wasSpan, bar] = row.children;
  nameSpan.textContent = name;
  scoreSpan.textContent = percent(score);
  idSpan.replaceChildren(...(name === label ? [] : [element("code", {}, label)]));
  wasSpan.textContent = was;
  bar.style.setProperty("--share", Math.min(Math.max(score, 0), 1));
}

/** How a label stood before the words were shuffled, if it stood elsewhere. */
function wasAt(prediction, rank, before) {
  if (!before) return "";
  const then = before.findIndex(({ label }) => label === prediction.label);
  if (then === rank) return "";
  return then < 0 ? "new" : `${then < rank ? "▼" : "▲"} was number ${then + 1}`;
}

/** The label whose words are coloured: under the mouse, else chosen, else the best. */
function shownRank() {
  const rankOf = (wanted) => state.answer.labels.findIndex(({ label }) => label === wanted);
  return [rankOf(state.hovered), rankOf(state.chosen)].find((rank) => rank >= 0) ?? 0;
}

function drawWords() {
  if (!state.answer) return;
  const { text, labels } = state.answer;
  const rank = shownRank();
  [...list.children].forEach((row, i) => {
    row.setAttribute("aria-selected", String(i === rank));
    row.tabIndex = i === rank ? 0 : -1;
  });
  const shown = labels[rank];
  const pieces = piecesOf(text, shown?.words ?? []);
  const moves = labels.flatMap(({ words = [] }) => words.map(({ moved }) => Math.abs(moved)));
  const strongest = Math.max(0, ...moves.filter((moved) => !isNothing(moved)));
  drawPieces(pieces, strongest);
  $("why-title").hidden = !shown;
  $("why-label").textContent = shown?.name ?? shown?.label ?? "";
  $("words-told").textContent = strongestWords(pieces);
  $("unknown").hidden = !shown?.words || moves.some((moved) => moved > 1e-6);
  $("legend").hidden = strongest === 0;
}

/** The text cut at its words. Positions count code points, as Python does; strings here count UTF-16 units. */
function piecesOf(text, words) {
  const characters = Array.from(text);
  const cut = (start, end) => characters.slice(start, end).join("");
  const pieces = [];
  let at = 0;
  for (const { start, end, moved } of [...words].sort((a, b) => a.start - b.start)) {
    if (!(start >= at && end > start)) continue;
    if (start > at) pieces.push({ text: cut(at, start) });
    pieces.push({ text: cut(start, end), moved });
    at = end;
  }
  if (at < characters.length) pieces.push({ text: cut(at) });
  return pieces;
}

/** The same spans again if the words are the same, so that colours change smoothly. */
function drawPieces(pieces, strongest) {
  const line = $("words");
  const same = line.childNodes.length === pieces.length
    && pieces.every((piece, i) => (piece.moved !== undefined) === (line.childNodes[i].nodeType === Node.ELEMENT_NODE));
  if (!same) {
    line.replaceChildren(...pieces.map((piece) => (piece.moved === undefined ? new Text() : element("span"))));
  }
  pieces.forEach((piece, i) => {
    const node = line.childNodes[i];
    if (node.textContent !== piece.text) node.textContent = piece.text;
    if (piece.moved !== undefined) colour(node, piece.moved, strongest);
  });
}

function colour(span, moved, strongest) {
  const side = isNothing(moved) ? "neutral" : moved > 0 ? "for" : "against";
  span.className = `word ${side}`;
  span.dataset.moved = side === "neutral" ? "" : signed(moved);
  span.title = { for: "speaks for it", against: "speaks against it", neutral: "makes no difference" }[side];
  span.style.setProperty("--strength", FAINTEST + (1 - FAINTEST) * Math.abs(moved) / (strongest || 1));
}

function strongestWords(pieces) {
  const told = (side, words) =>
    words.length ? `${side}: ${words.map((word) => `${word.text} ${signed(word.moved)}`).join(", ")}.` : "";
  const moving = pieces.filter(({ moved = 0 }) => !isNothing(moved)).sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved));
  return [
    told("Strongest words for it", moving.filter(({ moved }) => moved > 0).slice(0, 3)),
    told("Against it", moving.filter(({ moved }) => moved < 0).slice(0, 3)),
  ].filter(Boolean).join(" ");
}

function drawComparison() {
  const { labels, before } = state.answer;
  $("shuffled").hidden = !before;
  if (!before) return;
  const now = new Map(labels.map(({ label, score }) => [label, score]));
  const kept = before.filter(({ label }) => now.has(label));
  const most = Math.max(...kept.map(({ label, score }) => Math.abs(now.get(label) - score)), 0);
  const sameBest = labels[0]?.label === before[0]?.label;
  const scores = most < 0.0005 ? "no score moved" : `no score of theirs moved by more than ${points(most)}`;
  $("shuffled").replaceChildren(
    element("b", {}, sameBest ? "Same best label" : "Another best label"),
    `: ${kept.length} of ${before.length} labels kept, ${scores}.`,
  );
}

function timing({ tookMs, tripMs }) {
  const server = Number.isFinite(tookMs) ? `${milliseconds(tookMs)} in the server, ` : "";
  return `${server}${milliseconds(tripMs)} there and back`;
}

function summary({ labels, before }) {
  if (!labels.length) return $("none").textContent;
  const [best] = labels;
  const count = labels.length === 1 ? "1 label" : `${labels.length} labels`;
  return `${count}. Best: ${best.name ?? best.label}, ${percent(best.score, 0)}. ${before ? $("shuffled").textContent : ""}`;
}

let announcing = 0;

/** Have a line read aloud, once things have been quiet for a moment. */
function announce(line) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("told").textContent = line; }, ANNOUNCE_AFTER_MS);
}

// The model's card -----------------------------------------------------------------------------------------------------

async function loadCard() {
  let card;
  try {
    card = await call("v1/model");
  } catch (problem) {
    if (problem.status === 401) showTokenForm();
    else if (isBusy(problem)) setTimeout(loadCard, 1000 * secondsToWait(problem.retryAfter)); // loading, say
    return; // the page works without its card
  }
  const labels = card.n_labels ? `${counted(card.n_labels)} labels` : "";
  $("tagline").textContent = [card.title ?? card.recipe, labels].filter(Boolean).join(" · ");
  $("invitation").textContent = invitation(card.n_labels);
  drawExamples(card.examples ?? []);
  $("card-body").replaceChildren(...cardParts(card));
  $("card").hidden = false;
}

function invitation(nLabels) {
  return nLabels
    ? `The best of ${counted(nLabels)} labels appear here at every key.`
    : "The best labels appear here at every key.";
}

function drawExamples(examples) {
  const chips = examples.slice(0, EXAMPLES_SHOWN).map((text) => element("button", { type: "button" }, text));
  $("examples").replaceChildren(...chips);
  $("examples").hidden = chips.length === 0;
}

function cardParts(card) {
  const facts = factList({
    Recipe: card.recipe,
    Labels: card.n_labels,
    Words: card.n_words,
    Size: card.size_bytes && megabytes(card.size_bytes),
    Trained: card.created && day(card.created),
    "Shortlist version": card.shortlist_version,
    Searched: searched(card.search_effort),
  });
  const parts = [facts];
  if (card.title && card.title !== card.recipe) parts.unshift(element("p", { class: "model-title" }, card.title));
  const scores = Object.entries(card.scores ?? {}).map(([name, score]) => [name, score?.toFixed?.(2) ?? score]);
  parts.push(...section("Scores", factList(Object.fromEntries(scores))));
  parts.push(...section("Data", factList(card.data)));
  parts.push(...section("Are the scores right?", reliabilityPlot(card.calibration?.table ?? card.calibration)));
  const options = factList(card.options);
  if (options) {
    const details = element("details");
    details.append(element("summary", {}, "Options"), options);
    parts.push(details);
  }
  return parts.filter(Boolean);
}

function section(title, content) {
  return content ? [element("h3", {}, title), content] : [];
}

/** How much of the model is looked at for a text. */
function searched(search_effort) {
  if (!isObject(search_effort)) return effort;
  return Number.isFinite(search_effort.searched) && Number.isFinite(search_effort.of)
    ? `${counted(search_effort.searched)} of ${counted(search_effort.of)}`
    : null;
}

/** Names and values as a list; nothing when there are none. What lies deeper is shown with both names. */
function factList(values) {
  const entries = Object.entries(values ?? {}).flatMap(([name, value]) =>
    isObject(value) ? Object.entries(value).map(([inner, deep]) => [`${name} ${inner}`, deep]) : [[name, value]],
  );
  const facts = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!facts.length) return null;
  const shown = element("dl");
  for (const [name, value] of facts) {
    shown.append(element("dt", {}, name.replace(/_/g, " ").replace(/^n /, "")), element("dd", {}, plain(value)));
  }
  return shown;
}

function plain(value) {
  if (typeof value === "number") return counted(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (isObject(value)) return Object.entries(value).map(([name, inner]) => `${name} ${plain(inner)}`).join(", ");
  return String(value);
}

/** How often labels were right against how sure the model was of them; on the dashed line, the scores can be trusted. */
function reliabilityPlot(rows) {
  const points = (Array.isArray(rows) ? rows : [])
    .map((row) => ({ x: row.mean_score, y: row.right, count: row.labels ?? 1 }))
    .filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  if (points.length < 2) return null;
  const most = Math.max(...points.map(({ count }) => count));
  const [left, top, side] = [24, 4, 100];
  const place = ({ x, y }) => [left + side * x, top + side * (1 - y)];
  const plot = drawing("svg", { viewBox: "0 0 130 118", role: "img" });
  plot.setAttribute("aria-label", points.map(({ x, y }) => `score ${percent(x, 0)}, right ${percent(y, 0)}`).join("; "));
  plot.append(
    drawing("rect", { class: "frame", x: left, y: top, width: side, height: side }),
    drawing("line", { class: "ideal", x1: left, y1: top + side, x2: left + side, y2: top }),
    drawing("polyline", { class: "curve", points: points.map((point) => place(point).join(",")).join(" ") }),
    ...points.map((point) => {
      const [cx, cy] = place(point);
      return drawing("circle", { cx, cy, r: 1.5 + 2.5 * Math.sqrt(point.count / most) });
    }),
    drawing("text", { x: left - 3, y: top + 5, "text-anchor": "end" }, "100%"),
    drawing("text", { x: left - 3, y: top + side / 2 + 2, "text-anchor": "end" }, "right"),
    drawing("text", { x: left - 3, y: top + side, "text-anchor": "end" }, "0%"),
    drawing("text", { x: left, y: top + side + 9 }, "0%"),
    drawing("text", { x: left + side / 2, y: top + side + 9, "text-anchor": "middle" }, "score"),
    drawing("text", { x: left + side, y: top + side + 9, "text-anchor": "end" }, "100%"),
  );
  const figure = element("figure");
  figure.append(element("figcaption", {}, "How often a label was right, by its score. Dashed: just as often as the score says."), plot);
  return figure;
}

// Listening ------------------------------------------------------------------------------------------------------------

/** The text has changed, by whatever means: look again, and let buttons and address follow. */
function textChanged() {
  growField();
  $("undo").hidden = state.typed === null;
  $("shuffle").disabled = new Set(wordsOf(field.value)).size < 2;
  if (field.value.trim()) ask();
  else showEmpty();
}

function setText(text, { typed = null } = {}) {
  field.value = text;
  state.typed = typed;
  if (typed === null && !list.contains(document.activeElement)) state.chosen = null;
  textChanged();
}

function growField() {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + field.offsetHeight - field.clientHeight}px`;
}

function wordsOf(text) {
  return text.split(/\s+/).filter(Boolean);
}

function shuffle() {
  const words = wordsOf(field.value);
  if (new Set(words).size < 2) return;
  let mixed;
  do mixed = shuffledCopy(words);
  while (mixed.every((word, i) => word === words[i]));
  setText(mixed.join(" "), { typed: state.typed ?? field.value });
  keepInAddress({ asNewEntry: true });
}

function shuffledCopy(words) {
  const copy = [...words];
  for (let i = copy.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [copy[i], copy[j]] = [copy[j], copy[i]];
  }
  return copy;
}

function undoShuffle() {
  if (state.typed === null) return;
  if (document.activeElement === $("undo")) $("shuffle").focus(); // the button is about to go
  setText(state.typed);
  keepInAddress({ asNewEntry: true });
}

let addressing = 0;

/** The address holds the text, so that it can be shared, and found again by going back. */
function keepInAddress({ asNewEntry }) {
  clearTimeout(addressing);
  const text = field.value.trim() ? field.value : "";
  const address = text ? `#${new URLSearchParams({ q: text })}` : location.pathname + location.search;
  document.title = text ? `${text} · Shortlist` : "Shortlist";
  if (text === textInAddress()) return;
  if (asNewEntry) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

function textInAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("q") ?? "";
}

function focusRow(rank) {
  const rows = list.children;
  rows[Math.min(Math.max(rank, 0), rows.length - 1)]?.focus();
}

field.addEventListener("input", () => {
  state.typed = null;
  state.chosen = null;
  state.hovered = null;
  textChanged();
  clearTimeout(addressing);
  addressing = setTimeout(keepInAddress, ADDRESS_AFTER_MS, { asNewEntry: false });
});

field.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const atEnd = field.selectionStart === field.value.length;
  if (event.key === "Enter" && !event.shiftKey) event.preventDefault(); // texts are short: no new line by accident
  if (event.key === "ArrowDown" && atEnd && state.answer?.labels.length) {
    event.preventDefault();
    focusRow(0);
  }
});

document.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    shuffle();
  }
  if (event.key === "Escape" && !$("token").contains(event.target)) {
    if (state.typed !== null) undoShuffle();
    else if (list.contains(document.activeElement)) field.focus();
  }
});

list.addEventListener("keydown", (event) => {
  const rank = [...list.children].indexOf(document.activeElement);
  if (rank === 0 && event.key === "ArrowUp") {
    event.preventDefault();
    field.focus();
    return;
  }
  const to = { ArrowDown: rank + 1, ArrowUp: rank - 1, Home: 0, End: list.children.length - 1 }[event.key];
  if (to === undefined || rank < 0) return;
  event.preventDefault();
  focusRow(to);
});

function labelOf(node) {
  const row = node.closest?.("#labels > li");
  return row ? (state.answer?.labels[[...list.children].indexOf(row)]?.label ?? null) : null;
}

list.addEventListener("focusin", (event) => {
  state.chosen = labelOf(event.target);
  state.hovered = null;
  drawWords();
  announce($("words-told").textContent);
});

// Movement, not arrival: a row that comes to lie under a resting mouse while one types is not meant.
list.addEventListener("pointermove", (event) => {
  const label = labelOf(event.target);
  if (event.pointerType === "touch" || label === state.hovered) return;
  state.hovered = label;
  drawWords();
});

list.addEventListener("pointerleave", () => {
  if (state.hovered === null) return;
  state.hovered = null;
  drawWords();
});

$("shuffle").addEventListener("click", shuffle);
$("undo").addEventListener("click", undoShuffle);
$("again").addEventListener("click", askNow);
window.addEventListener("online", askNow);

$("examples").addEventListener("click", (event) => {
  const chip = event.target.closest("button");
  if (!chip) return;
  setText(chip.textContent);
  keepInAddress({ asNewEntry: true });
});

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token.keep($("token-value").value.trim());
  $("token-value").value = "";
  $("token").hidden = true;
  field.focus();
  if ($("card").hidden) loadCard();
  ask();
});

document.querySelectorAll("input[name=k]").forEach((radio) => radio.addEventListener("change", ask));

$("least").addEventListener("input", () => {
  $("least-shown").textContent = percent(Number($("least").value), 0);
  ask();
});

window.addEventListener("hashchange", () => setText(textInAddress()));
window.addEventListener("resize", growField);

// Small helpers --------------------------------------------------------------------------------------------------------

function element(name, attributes = {}, text = null) {
  return furnished(document.createElement(name), attributes, text);
}

function drawing(name, attributes = {}, text = null) {
  return furnished(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text);
}

function furnished(node, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function counted(number) {
  return number.toLocaleString("en", { maximumFractionDigits: Math.abs(number) < 1 ? 4 : 2 });
}

function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)}%`;
}

function points(share) {
  return `${(100 * share).toFixed(1)} points`;
}

/** Whether a word moved a label so little that it would be shown as 0.0. */
function isNothing(moved) {
  return Math.abs(moved) < 0.05;
}

function signed(number) {
  return `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(Math.abs(number) < 9.95 ? 1 : 0)}`;
}

function milliseconds(number) {
  return `${number.toFixed(number < 1 ? 2 : number < 10 ? 1 : 0)} ms`;
}

function megabytes(bytes) {
  return `${counted(Number((bytes / 1e6).toPrecision(3)))} MB`;
}

function day(timestamp) {
  const date = new Date(timestamp);
  return Number.isNaN(date.valueOf()) ? String(timestamp) : date.toLocaleDateString("en", { dateStyle: "medium" });
}

function sentence(text) {
  return /[.!?…]$/.test(text) || !text ? text : `${text}.`;
}

// The start ------------------------------------------------------------------------------------------------------------

$("invitation").textContent = invitation(null);
$("card").open = matchMedia("(min-width: 66rem)").matches;
loadCard();
setText(textInAddress());
