// What sparse attention read for an answer: a strip of the context's tokens, the warmer the more tokens of the answer
// read them, or what the one token read that has the pointer or the focus.
import { element } from "./markdown.js";

const kMostCells = 2000; // of the strip; tokens of a longer context share them
const kMostRuns = 12;    // that are told in words
const kLevels = 8;       // of warmth

const shown = (text) => text.replaceAll("\n", "⏎");
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

// The tokens [begin, end) that a list says: how many are passed over, how many were read, in turn.
export function runsOf(list) {
  const runs = [];
  let at = 0;
  for (let i = 0; i + 1 < list.length; i += 2) {
    runs.push([at + list[i], at + list[i] + list[i + 1]]);
    [, at] = runs.at(-1);
  }
  return runs;
}

// `context` and `answer` are texts of tokens, `lists` as the server gives them for the answer's, {layer, most} of whom.
export function heatNode(context, answer, lists, { layer, most }) {
  const texts = [...context, ...answer];
  const read = lists.map((list) => (list ? runsOf(list) : null));
  const traced = read.filter((runs) => runs !== null);
  const times = new Uint32Array(texts.length);
  for (const runs of traced) {
    for (const [begin, end] of runs) for (let p = begin; p < end; ++p) ++times[p];
  }

  const size = Math.max(1, Math.ceil(texts.length / kMostCells));
  const cells = [];
  for (let begin = 0; begin < texts.length; begin += size) {
    cells.push(element("span", {}, texts.slice(begin, begin + size).map(shown).join("")));
  }
  const strip = element("div", { class: "strip", role: "img" }, ...cells);
  const words = element("p", { class: "words", "aria-live": "polite" });

  // `heat` of each token is 0 to `top`.
  function paint(heat, top, title) {
    cells.forEach((cell, c) => {
      const end = Math.min(texts.length, (c + 1) * size);
      let sum = 0;
      for (let p = c * size; p < end; ++p) sum += heat[p];
      const share = top > 0 ? sum / (end - c * size) / top : 0;
      cell.className = `h${Math.ceil(kLevels * share)}${end > context.length ? " made" : ""}`;
      cell.title = title(c * size, sum);
    });
  }
  function say(text) {
    words.textContent = text;
    strip.setAttribute("aria-label", text);
  }
  function showAll() {
    const highest = times.reduce((a, b) => Math.max(a, b), 0);
    paint(times, highest, (at, sum) => `token ${at + 1}, read ${sum} of ${plural(traced.length, "time")}`);
    const often = [...times.keys()].filter((p) => times[p] > 0).sort((a, b) => times[b] - times[a] || a - b)
      .slice(0, 5);
    const names = often.map((p) => `“${shown(texts[p])}” (token ${p + 1}) ${plural(times[p], "time")}`);
    const missing = read.length - traced.length;
    say(`${plural(traced.length, "token")} of the answer read the context`
      + `${missing > 0 ? `; of ${missing} it was not kept` : ""}.`
      + `${names.length > 0 ? ` Most read: ${names.join(", ")}.` : ""}`);
  }
  function showOne(i) {
    const runs = read[i];
    const name = `“${shown(answer[i])}”, token ${i + 1} of ${read.length}`;
    const heat = new Uint8Array(texts.length);
    if (runs === null) {
      paint(heat, 1, () => "");
      return say(`${name}: what was read for it was not kept: its step, or the answer, had no room for more.`);
    }
    let count = 0;
    for (const [begin, end] of runs) {
      heat.fill(1, begin, end);
      count += end - begin;
    }
    paint(heat, 1, (at, sum) => `token ${at + 1}${sum > 0 ? ", read" : ""}`);
    const before = context.length + i;
    if (count === before) return say(`${name}, read all ${before} tokens before it.`);
    const places = runs.slice(0, kMostRuns).map(([a, b]) => (b - a === 1 ? `${a + 1}` : `${a + 1}–${b}`));
    const more = runs.length - places.length;
    return say(`${name}, read ${count} of ${before} tokens before it: ${places.join(", ")}`
      + `${more > 0 ? ` and ${plural(more, "run")} more` : ""}.`);
  }

  // One stop of the tab key; arrows go from token to token.
  const buttons = answer.slice(0, read.length).map((text, i) => element("button", {
    type: "button", class: `token${read[i] === null ? " none" : ""}`, tabindex: i === 0 ? "0" : "-1",
    "aria-label": `“${shown(text)}”, token ${i + 1}`,
  }, shown(text)));
  const index = (node) => buttons.indexOf(node);
  const show = (i) => (i >= 0 ? showOne(i) : showAll());
  const row = element("div", { class: "reads", role: "group", "aria-label": "Tokens of the answer; arrow keys move" },
    ...buttons);
  row.addEventListener("focusin", ({ target }) => {
    for (const one of buttons) one.tabIndex = one === target ? 0 : -1;
    show(index(target));
  });
  row.addEventListener("focusout", ({ relatedTarget }) => { if (!row.contains(relatedTarget)) showAll(); });
  row.addEventListener("pointerover", ({ target }) => { if (index(target) >= 0) showOne(index(target)); });
  row.addEventListener("pointerleave", () => show(index(document.activeElement)));
  row.addEventListener("keydown", (event) => {
    const at = index(event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[to]?.focus();
  });

  showAll();
  const legend = element("p", { class: "legend" },
    element("span", {}, `Layer ${layer}, where a token reads ${most} before it at most`),
    element("span", {}, element("i", { class: "h1" }), "read seldom"),
    element("span", {}, element("i", { class: `h${kLevels}` }), "read most"));
  return [legend, row, words, strip];
}
