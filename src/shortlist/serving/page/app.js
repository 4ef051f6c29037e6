// The page of `shortlist serve`: type a text, see its best labels and which words support them.
//
// The sections below: requests to the server (one in flight; of later ones only the newest is kept), rendering the
// response, the model card, and event handlers. Everything from the server is inserted as text, never as markup.

const TIMEOUT_MS = 20_000;
const RETRY_SECONDS = { default: 1, max: 30 }; // when the server is busy and Retry-After is missing or too large
const ANNOUNCE_AFTER_MS = 900; // screen readers hear a result after a pause in typing
const URL_AFTER_MS = 400;
const MAX_EXAMPLES = 8;
const MIN_STRENGTH = 0.12; // of the colour of a word with little effect; the maximum is 1

const $ = (id) => document.getElementById(id);
const field = $("text");
const list = $("labels");

const state = {
  typed: null, // the text before its words were shuffled; null if they are not
  answer: null, // what is shown: {text, labels, before, tookMs, tripMs}; `before` only if shuffled
  selected: null, // the label that was last focused or tapped
  hovered: null, // the label under the mouse
  threshold: 0, // the model's own minimum score, from its card
  ownLabels: 0, // labels with a threshold of their own
  autoTail: null, // what training chose for `tail`
  takesFeedback: false, // from the card, too
  moved: false, // whether the user has set a minimum score; until then the model's applies
};

// Requests -------------------------------------------------------------------------------------------------------------

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
      // Storage is disabled: the token is kept until the page closes.
    }
    return this.value;
  },
  store(value) {
    this.value = value;
    try {
      sessionStorage.setItem("token", value);
    } catch {
      // As above.
    }
  },
};

/** Call the API and return its JSON. Throws a Problem for everything else. */
async function call(path, { body, signal } = {}) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token.read()) headers.Authorization = `Bearer ${token.read()}`;
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new Problem("The server cannot be reached.", { detail: "Type to try again." });
  }
  const content = await response.json().catch(() => null);
  if (signal?.aborted) throw signal.reason;
  if (response.ok && content) return content;
  throw new Problem(sentence(content?.title ?? "Unexpected response from the server"), {
    detail: sentence(content?.detail ?? (response.ok ? "" : `Status ${response.status}`)),
    status: response.status,
    retryAfter: response.headers.get("Retry-After"),
  });
}

let inFlight = null; // the AbortController of the request in flight
let waiting = false; // the input has changed since that request
let retry = 0; // the timer of a retry while the server is busy

/** Send the current input to the server, or as soon as the request in flight is answered. */
async function predict() {
  if (inFlight || retry) {
    waiting = true;
    return;
  }
  waiting = false;
  const request = currentRequest();
  if (!request) return;
  const controller = new AbortController();
  const timeout = setTimeout(
    () => controller.abort(new Problem("The server did not answer in time.")),
    TIMEOUT_MS,
  );
  inFlight = controller;
  const sent = performance.now();
  let outcome;
  try {
    const content = await call("v1/predict", { body: request, signal: controller.signal });
    const tripMs = performance.now() - sent;
    outcome = () => showAnswer(answerFrom(request, content, tripMs));
  } catch (problem) {
    outcome = () => showProblem(problem);
  }
  clearTimeout(timeout);
  if (inFlight !== controller) return; // the text has been cleared
  inFlight = null;
  outcome();
  if (waiting) predict();
}

/** Cancel the request in flight; its answer will not be shown. */
function cancelRequest() {
  const controller = inFlight;
  inFlight = null;
  waiting = false;
  stopRetry();
  controller?.abort();
}

function stopRetry() {
  clearTimeout(retry);
  retry = 0;
}

function predictNow() {
  stopRetry();
  predict();
}

/** The request for the current input; null without text. Shuffled and typed text go into one request, to compare them. */
function currentRequest() {
  if (!field.value.trim()) return null;
  const texts = state.typed === null ? [field.value] : [field.value, state.typed];
  return {
    texts: texts.map((text) => text.toWellFormed?.() ?? text),
    k: Number(document.querySelector("input[name=k]:checked").value),
    min_score: state.moved ? Number($("min-score").value) : null,
    tail: Number($("tail").value),
    allow: entriesOf($("allow")),
    deny: entriesOf($("deny")),
    explain: true,
  };
}

/** The labels in a field, or null if it is empty. */
function entriesOf(input) {
  const entries = input.value.split(";").map((entry) => entry.trim()).filter(Boolean);
  return entries.length ? entries : null;
}

function answerFrom(request, content, tripMs) {
  const [labels, before = null] = content.predictions ?? [];
  if (!Array.isArray(labels)) return null;
  return { text: request.texts[0], minScore: request.min_score, labels, before, tookMs: content.took_ms, tripMs };
}

// Rendering ------------------------------------------------------------------------------------------------------------

function showAnswer(answer) {
  if (!answer) {
    showProblem(new Problem("The server sent an invalid response."));
    return;
  }
  state.answer = answer;
  $("feedback-status").textContent = "";
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
  cancelRequest();
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
    retry = setTimeout(predictNow, 1000 * secondsToWait(problem.retryAfter));
  }
  $("invitation").hidden = true;
  $("notice-title").textContent = busy ? "The server is busy." : problem.title;
  $("notice-detail").textContent = busy ? "Retrying automatically." : (problem.detail ?? "");
  $("notice").hidden = false;
}

function showTokenForm() {
  $("token-detail").textContent = token.read() ? "The token was not accepted." : "";
  $("notice").hidden = true;
  $("invitation").hidden = true;
  $("token").hidden = false;
}

function isBusy({ status }) {
  return status === 429 || status === 503;
}

/** Seconds to wait by a Retry-After header, which holds seconds or a date. */
function secondsToWait(header) {
  const seconds = Number(header ?? NaN);
  const wait = Number.isNaN(seconds) ? (Date.parse(header) - Date.now()) / 1000 : seconds;
  return Number.isNaN(wait) ? RETRY_SECONDS.default : Math.min(Math.max(wait, 0.1), RETRY_SECONDS.max);
}

/** Update the rows in place, so that focus stays and bars animate. */
function drawLabels() {
  const { labels, before, minScore } = state.answer;
  const focused = [...list.children].indexOf(document.activeElement);
  while (list.children.length > labels.length) list.lastElementChild.remove();
  while (list.children.length < labels.length) list.append(newRow());
  labels.forEach((prediction, rank) => fillRow(list.children[rank], prediction, wasAt(prediction, rank, before)));
  list.hidden = labels.length === 0;
  $("no-labels").hidden = labels.length > 0;
  $("no-labels").replaceChildren(...whyEmpty(minScore));
  if (focused >= 0) keepFocus(focused);
}

/** Why a text has no labels: none reaches the threshold, or there is nothing to go by. */
function whyEmpty(minScore) {
  const least = minScore ?? state.threshold;
  if (minScore === null && state.ownLabels) return [element("b", {}, "Not sure."), " No label reaches its threshold."];
  if (least > 0) return [element("b", {}, "Not sure."), ` No label scores ${threshold(least)} or more.`];
  return ["The model knows none of these words."];
}

/** Move the focus with its label. If the label is gone, the focus stays where it was. */
function keepFocus(focused) {
  const { labels } = state.answer;
  const moved = labels.findIndex(({ label }) => label === state.selected);
  const rank = moved >= 0 ? moved : Math.min(focused, labels.length - 1);
  state.selected = labels[rank]?.label ?? null;
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

/** The rank of a label before the words were shuffled, if it was another. */
function wasAt(prediction, rank, before) {
  if (!before) return "";
  const then = before.findIndex(({ label }) => label === prediction.label);
  if (then === rank) return "";
  return then < 0 ? "new" : `${then < rank ? "▼" : "▲"} was #${then + 1}`;
}

/** The label whose words are coloured: under the mouse, else selected, else the best. */
function shownRank() {
  const rankOf = (wanted) => state.answer.labels.findIndex(({ label }) => label === wanted);
  return [rankOf(state.hovered), rankOf(state.selected)].find((rank) => rank >= 0) ?? 0;
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
  const strongest = Math.max(0, ...moves.filter((moved) => !isNegligible(moved)));
  drawPieces(pieces, strongest);
  $("why-title").hidden = !shown;
  $("feedback").hidden = !shown || !state.takesFeedback;
  $("why-label").textContent = shown?.name ?? shown?.label ?? "";
  $("words-summary").textContent = strongestWords(pieces);
  $("unknown").hidden = !shown?.words || moves.some((moved) => moved > 1e-6);
  $("legend").hidden = strongest === 0;
}

/** Split the text at its words. Positions count code points, as in Python; JavaScript strings count UTF-16 units. */
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

/** Reuse the spans if the words are the same, so that colours change smoothly. */
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
  const side = isNegligible(moved) ? "neutral" : moved > 0 ? "for" : "against";
  span.className = `word ${side}`;
  span.dataset.moved = side === "neutral" ? "" : signed(moved);
  span.title = { for: "for the label", against: "against the label", neutral: "no effect" }[side];
  span.style.setProperty("--strength", MIN_STRENGTH + (1 - MIN_STRENGTH) * Math.abs(moved) / (strongest || 1));
}

function strongestWords(pieces) {
  const listed = (side, words) =>
    words.length ? `${side}: ${words.map((word) => `${word.text} ${signed(word.moved)}`).join(", ")}.` : "";
  const moving = pieces.filter(({ moved = 0 }) => !isNegligible(moved)).sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved));
  return [
    listed("For", moving.filter(({ moved }) => moved > 0).slice(0, 3)),
    listed("Against", moving.filter(({ moved }) => moved < 0).slice(0, 3)),
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
  const scores = most < 0.0005 ? "no score changed" : `scores changed by up to ${points(most)}`;
  $("shuffled").replaceChildren(
    element("b", {}, sameBest ? "Same best label" : "Different best label"),
    `: ${kept.length} of ${before.length} labels kept, ${scores}.`,
  );
}

function timing({ tookMs, tripMs }) {
  const server = Number.isFinite(tookMs) ? `${milliseconds(tookMs)} in the server, ` : "";
  return `${server}${milliseconds(tripMs)} round trip`;
}

function summary({ labels, before }) {
  if (!labels.length) return $("no-labels").textContent;
  const [best] = labels;
  const count = labels.length === 1 ? "1 label" : `${labels.length} labels`;
  return `${count}. Best: ${best.name ?? best.label}, ${percent(best.score, 0)}. ${before ? $("shuffled").textContent : ""}`;
}

let announcing = 0;

/** Tell screen readers, after a short pause. */
function announce(line) {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $("announcement").textContent = line; }, ANNOUNCE_AFTER_MS);
}

// Feedback -------------------------------------------------------------------------------------------------------------

/** Say that the label under "Why" is right or wrong. The server stores it; the model learns from it later. */
async function sendFeedback(verdict) {
  const { text, labels } = state.answer;
  const { label, name = label } = labels[shownRank()];
  let outcome = `Thank you: ${name} is ${verdict}.`;
  try {
    await call("v1/feedback", { body: { text, [verdict]: [label] } });
  } catch (problem) {
    outcome = `${problem.title} ${problem.detail}`;
  }
  $("feedback-status").textContent = outcome;
}

// The model's card -----------------------------------------------------------------------------------------------------

async function loadCard() {
  let card;
  try {
    card = await call("v1/model");
  } catch (problem) {
    if (problem.status === 401) showTokenForm();
    else if (isBusy(problem)) setTimeout(loadCard, 1000 * secondsToWait(problem.retryAfter)); // the model may be loading
    return; // the page works without the card
  }
  const labels = card.n_labels ? `${counted(card.n_labels)} labels` : "";
  $("tagline").textContent = [card.title ?? card.recipe, labels].filter(Boolean).join(" · ");
  showThreshold(card);
  state.takesFeedback = card.feedback === true;
  if (state.answer) drawWords(); // it may have come first
  const takesFeatures = /features$/.test(card.inputs ?? "");
  $("text").disabled = takesFeatures;
  $("invitation").textContent = takesFeatures
    ? `This model takes ${counted(card.n_columns)} features instead of texts. Send them to POST /v1/predict.`
    : invitation(card.n_labels);
  drawExamples(card.examples ?? []);
  $("lists").replaceChildren(...Object.keys(card.lists ?? {}).map((name) => element("option", { value: `@${name}` })));
  $("card-body").replaceChildren(...cardParts(card));
  $("card").hidden = false;
}

/** Start at the threshold of the model, which the server applies unless a request says otherwise. */
function showThreshold(card) {
  state.threshold = card.min_score ?? 0;
  state.ownLabels = card.threshold?.labels_with_own ?? 0;
  state.autoTail = card.tail ?? null;
  drawSliders();
  if (state.answer) $("no-labels").replaceChildren(...whyEmpty(state.answer.minScore)); // it may have come first
}

function drawSliders() {
  const [score, tail] = [$("min-score"), Number($("tail").value)];
  if (!state.moved) score.value = state.threshold;
  const own = !state.moved && (state.threshold > 0 || state.ownLabels > 0);
  const value = state.moved ? Number(score.value) : state.threshold;
  $("min-score-value").textContent = own ? `${state.ownLabels ? "by label" : threshold(value)} · model` : threshold(value);
  $("reset-min-score").hidden = !state.moved || !(state.threshold > 0 || state.ownLabels > 0);
  $("tail-value").textContent = tail === 0 ? "off" : `${tail.toFixed(1)}${tail === state.autoTail ? " · auto" : ""}`;
}

function invitation(nLabels) {
  return nLabels
    ? `Start typing: the best of ${counted(nLabels)} labels appear here.`
    : "Start typing: the best labels appear here.";
}

function drawExamples(examples) {
  const chips = examples.slice(0, MAX_EXAMPLES).map((text) => element("button", { type: "button" }, text));
  $("examples").replaceChildren(...chips);
  $("examples").hidden = chips.length === 0;
}

function cardParts(card) {
  const facts = factList({
    Recipe: card.recipe,
    Labels: card.n_labels,
    Words: card.n_words,
    Features: card.n_columns,
    Size: card.size_bytes && megabytes(card.size_bytes),
    Trained: card.created && day(card.created),
    "Shortlist version": card.shortlist_version,
    Searched: searched(card.search_effort),
    Threshold: card.min_score ? threshold(card.min_score) : null,
    "Chosen for": card.threshold?.goal,
    "Tail, if auto": card.tail,
  });
  const parts = [facts];
  if (card.title && card.title !== card.recipe) parts.unshift(element("p", { class: "model-title" }, card.title));
  const scores = Object.entries(card.scores ?? {}).map(([name, score]) => [name, score?.toFixed?.(2) ?? score]);
  parts.push(...section("On held-out texts, in %", factList(Object.fromEntries(scores))));
  parts.push(...section("Data", factList(card.data)));
  parts.push(...section("Calibration", reliabilityPlot(card.calibration?.table ?? card.calibration)));
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

/** How much of the candidate index is searched for a text. */
function searched(effort) {
  const known = Number.isFinite(effort?.searched) && Number.isFinite(effort?.of);
  return known ? `${counted(effort.searched)} of ${counted(effort.of)}` : null;
}

/** Names and values as a list, or null if there are none. Nested values are shown with both names. */
function factList(values) {
  const entries = Object.entries(values ?? {}).flatMap(([name, value]) =>
    isObject(value) ? Object.entries(value).map(([inner, deep]) => [`${name} ${inner}`, deep]) : [[name, value]],
  );
  const facts = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!facts.length) return null;
  const shown = element("dl");
  for (const [name, value] of facts) {
    shown.append(element("dt", {}, name.replace(/_/g, " ").replace(/^n /, "")), element("dd", {}, formatted(value)));
  }
  return shown;
}

function formatted(value) {
  if (typeof value === "number") return counted(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(formatted).join(", ");
  if (isObject(value)) return Object.entries(value).map(([name, inner]) => `${name} ${formatted(inner)}`).join(", ");
  return String(value);
}

/** A reliability diagram: how often labels were right, by score. */
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
  figure.append(element("figcaption", {}, "How often labels were right, by score. Dashed: perfect calibration."), plot);
  return figure;
}

// Events ---------------------------------------------------------------------------------------------------------------

/** Call this after every change of the text: it updates the labels and the buttons. */
function textChanged() {
  growField();
  $("undo").hidden = state.typed === null;
  $("shuffle").disabled = new Set(wordsOf(field.value)).size < 2;
  if (field.value.trim()) predict();
  else showEmpty();
}

function setText(text, { typed = null } = {}) {
  field.value = text;
  state.typed = typed;
  if (typed === null && !list.contains(document.activeElement)) state.selected = null;
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
  updateUrl({ asNewEntry: true });
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
  if (document.activeElement === $("undo")) $("shuffle").focus(); // the button will be hidden
  setText(state.typed);
  updateUrl({ asNewEntry: true });
}

let urlTimer = 0;

/** Store the text in the URL, so that it can be shared and the back button works. */
function updateUrl({ asNewEntry }) {
  clearTimeout(urlTimer);
  const text = field.value.trim() ? field.value : "";
  const url = text ? `#${new URLSearchParams({ q: text })}` : location.pathname + location.search;
  document.title = text ? `${text} · Shortlist` : "Shortlist";
  if (text === textInUrl()) return;
  if (asNewEntry) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
}

function textInUrl() {
  return new URLSearchParams(location.hash.slice(1)).get("q") ?? "";
}

function focusRow(rank) {
  const rows = list.children;
  rows[Math.min(Math.max(rank, 0), rows.length - 1)]?.focus();
}

field.addEventListener("input", () => {
  state.typed = null;
  state.selected = null;
  state.hovered = null;
  textChanged();
  clearTimeout(urlTimer);
  urlTimer = setTimeout(updateUrl, URL_AFTER_MS, { asNewEntry: false });
});

field.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const atEnd = field.selectionStart === field.value.length;
  if (event.key === "Enter" && !event.shiftKey) event.preventDefault(); // texts are single lines
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
  state.selected = labelOf(event.target);
  state.hovered = null;
  drawWords();
  announce($("words-summary").textContent);
});

// Only when the mouse moves: a row that appears under a resting mouse is not meant.
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
$("retry").addEventListener("click", predictNow);
for (const verdict of ["right", "wrong"]) $(verdict).addEventListener("click", () => sendFeedback(verdict));
window.addEventListener("online", predictNow);

$("examples").addEventListener("click", (event) => {
  const chip = event.target.closest("button");
  if (!chip) return;
  setText(chip.textContent);
  updateUrl({ asNewEntry: true });
});

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token.store($("token-value").value.trim());
  $("token-value").value = "";
  $("token").hidden = true;
  field.focus();
  if ($("card").hidden) loadCard();
  predict();
});

document.querySelectorAll("input[name=k]").forEach((radio) => radio.addEventListener("change", predict));

function setMinScore(moved) {
  state.moved = moved;
  drawSliders();
  predict();
}

$("min-score").addEventListener("input", () => setMinScore(true));
$("reset-min-score").addEventListener("click", () => {
  $("min-score").focus(); // the button will be hidden
  setMinScore(false);
});
$("tail").addEventListener("input", () => {
  drawSliders();
  predict();
});

for (const input of [$("allow"), $("deny")]) {
  input.addEventListener("change", predictNow); // on Enter, or when the field is left: half a label is an error
}

window.addEventListener("hashchange", () => setText(textInUrl()));
window.addEventListener("resize", growField);

// Helpers --------------------------------------------------------------------------------------------------------------

function element(name, attributes = {}, text = null) {
  return withContent(document.createElement(name), attributes, text);
}

function drawing(name, attributes = {}, text = null) {
  return withContent(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text);
}

function withContent(node, attributes, text) {
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

function percent(fraction, digits = 1) {
  return `${(100 * fraction).toFixed(digits)}%`;
}

/** A minimum score: as many digits as it has, up to one. */
function threshold(score) {
  return percent(score, Number((100 * score).toFixed(1)) % 1 ? 1 : 0);
}

function points(fraction) {
  return `${(100 * fraction).toFixed(1)} points`;
}

/** Whether the effect of a word would be shown as 0.0. */
function isNegligible(moved) {
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

// Start ----------------------------------------------------------------------------------------------------------------

$("invitation").textContent = invitation(null);
$("card").open = matchMedia("(min-width: 66rem)").matches;
loadCard();
setText(textInUrl());
