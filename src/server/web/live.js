// The live view: what /metrics says, once a second while somebody looks.
import { metrics } from "./api.js";
import { element } from "./markdown.js";

const kSeconds = 60; // that the curve shows
const kCells = 192;  // of the picture of the cache's blocks

const panel = document.getElementById("live");
const one = (selector) => panel.querySelector(selector);
const text = (name, value) => { one(`[data-live=${name}]`).textContent = value; };
const cells = Array.from({ length: kCells }, () => element("i"));
one(".blocks").append(...cells);

const rates = []; // tokens/s of the last seconds
let timer = 0;
let before = null; // {now, made} of the last look

function verdict(word, kind = "") {
  one(".verdict").textContent = word;
  one(".verdict").className = `verdict ${kind}`;
}

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–");
const time = (seconds) => (!Number.isFinite(seconds) ? "–" : seconds < 0.1 ? `${(1000 * seconds).toFixed(1)} ms`
  : seconds < 10 ? `${seconds.toFixed(2)} s` : `${seconds.toFixed(0)} s`);

function show(samples) {
  const sum = (name, labels = {}) => samples
    .filter((s) => s.name === name && Object.entries(labels).every(([key, value]) => s.labels[key] === value))
    .reduce((total, s) => total + s.value, 0);
  const by_place = (name) => samples.filter((s) => s.name === name).map((s) => s.value);

  const made = sum("vllm:generation_tokens_total");
  const now = performance.now() / 1000;
  if (before && made >= before.made) {
    rates.push((made - before.made) / (now - before.now));
    if (rates.length > kSeconds) rates.shift();
    text("rate", number(rates.at(-1)));
  }
  before = { now, made };
  const top = Math.max(...rates, 1);
  const points = rates.map((rate, i) => `${kSeconds - rates.length + i},${(19.5 - 18.5 * rate / top).toFixed(2)}`);
  one("polyline").setAttribute("points", points.join(" "));
  one("path").setAttribute("d", points.length > 0
    ? `M${kSeconds - rates.length},20 L${points.join(" L")} L${kSeconds - 1},20 Z` : "");

  const running = sum("vllm:num_requests_running");
  const waiting = sum("vllm:num_requests_waiting");
  const blocks = {};
  for (const state of ["used", "cached", "free"]) blocks[state] = sum("lantern:kv_blocks", { state });
  const all = blocks.used + blocks.cached + blocks.free;
  text("running", number(running));
  text("waiting", number(waiting));
  text("made", number(made));
  for (const [state, count] of Object.entries(blocks)) text(state, number(count));
  // What is there at all shows as a cell at least.
  const share = (count) => (count > 0 ? Math.max(1, Math.round(kCells * count / all)) : 0);
  const used = share(blocks.used);
  const held = used + share(blocks.cached);
  cells.forEach((cell, i) => { cell.className = i < used ? "used" : i < held ? "cached" : ""; });
  one(".blocks").setAttribute("aria-label", `${blocks.used} of ${all} blocks in use, ${blocks.cached} hold prefixes`);

  const accepted = by_place("vllm:spec_decode_num_accepted_tokens_per_pos_total");
  const checked = by_place("lantern:spec_decode_num_draft_tokens_per_pos_total");
  one(".places").replaceChildren(...accepted.map((right, i) => element("div", {},
    element("span", {}, `${i + 1}.`),
    element("meter", { max: 1, value: checked[i] > 0 ? right / checked[i] : 0, "aria-label": `place ${i + 1}` }),
    element("span", {}, percent(right, checked[i])))));
  if (accepted.length === 0) {
    one(".places").append(element("p", { class: "note" }, "This server drafts nothing (--draft-tokens)."));
  }

  const mean = (name) => sum(`${name}_sum`) / sum(`${name}_count`);
  text("first", time(mean("vllm:time_to_first_token_seconds")));
  text("between", time(mean("vllm:inter_token_latency_seconds")));
  text("step", time(sum("lantern:step_seconds_total", { phase: "all" }) / sum("lantern:steps_total")));
  text("hits", percent(sum("vllm:prefix_cache_hits_total"), sum("vllm:prefix_cache_queries_total")));
  text("ended", number(sum("vllm:request_success_total")));
  text("refused", number(sum("vllm:admission_rejections_total")));
  if (waiting > 0 && waiting >= running) verdict("queue building", "bad");
  else if (blocks.used > 0.9 * all) verdict("cache nearly full", "bad");
  else if (running > 0) verdict("working", "good");
  else verdict("idle");
}

async function look() {
  if (!document.hidden) {
    try {
      show(await metrics());
    } catch {
      verdict("no answer", "bad");
      before = null;
    }
  }
  clearTimeout(timer);
  if (!panel.hidden) timer = setTimeout(look, 1000);
}

// The panel has been shown or hidden.
export function liveChanged() {
  clearTimeout(timer);
  before = null;
  if (!panel.hidden) look();
}
