// The page: conversations, the one that is open, and what its keys and buttons do.
import { ApiError, chat as streamChat, key, models } from "./api.js";
import { liveChanged } from "./live.js";
import { button, element } from "./markdown.js";
import { chats, newChat, numbers, parseTools, requestOf, saveChats, saveSettings, settings } from "./store.js";
import { MessageView } from "./view.js";

const $ = (id) => document.getElementById(id);
const on = (id, event, run) => $(id).addEventListener(event, run);
const kExamples = ["What is 6 times 7?", "Sort: pear apple fig"];
const kExampleTool = `[{
 "name": "calculator",
 "description": "Evaluate an arithmetic expression.",
 "parameters": {
  "type": "object",
  "properties": {
   "expression": {"type": "string", "description": "The expression to evaluate, such as 12*7."}
  },
  "required": ["expression"]
 }
}]`;

let current = null; // the chat that is open
let running = null; // {message, abort}: the answer that comes
let cards = [];     // of the models
const views = new WeakMap(); // of the messages that were shown

// --- The server

function setState(text, kind = "") {
  $("state").textContent = text;
  $("state").className = `state ${kind}`;
}

// Of the model that is asked.
function card() {
  return cards.find(({ id }) => id === $("model").value);
}

async function connect() {
  try {
    cards = await models();
    const chosen = $("model").value;
    $("model").replaceChildren(...cards.map(({ id }) => element("option", { selected: id === chosen }, id)));
    $("model").disabled = cards.length < 2;
    setState("ready", "ready");
    showContext();
  } catch (error) {
    if (error.status === 401) {
      setState("needs an API key", "lost");
      $("key-why").textContent = key.get() ? "This server does not know that key. Another one?"
        : "This server wants an API key. It is kept until this tab is closed.";
      if (!$("key-dialog").open) $("key-dialog").showModal();
      return;
    }
    setState(error.code === "loading_model" ? "loading the model" : error.message, "lost");
    setTimeout(connect, 2000);
  }
}

on("key-form", "submit", (event) => {
  event.preventDefault();
  key.set($("key").value.trim());
  $("key").value = "";
  $("key-dialog").close();
  connect();
});
on("key-cancel", "click", () => $("key-dialog").close());

// --- Conversations

function save() {
  notice(saveChats() ? "" : "This browser has no room left for conversations; delete some.");
}

function notice(text) {
  $("notice").hidden = !text;
  $("notice").textContent = text;
}

function openChat(chat) {
  stop();
  current = chat;
  $("chats").classList.remove("shown");
  render();
  showChats();
}

function showChats() {
  $("chat-list").replaceChildren(...chats.map((chat) => {
    const title = chat.title || "New chat";
    const open = chat === current;
    const remove = button("icon", "✕", () => {
      // What cannot be undone is asked for twice.
      if (remove.textContent === "✕") {
        remove.textContent = "Sure?";
        return;
      }
      chats.splice(chats.indexOf(chat), 1);
      save();
      if (open) openChat(chats[0] ?? newChat());
      else showChats();
    }, { "aria-label": `Delete ${title}` });
    return element("li", { class: open ? "current" : "" },
      button("open", title, () => openChat(chat), { title, "aria-current": open && "true" }), remove);
  }));
}

function startChat() {
  openChat(chats.find((chat) => chat.messages.length === 0) ?? newChat());
  $("prompt").focus();
}

const actions = {
  regenerate(message) {
    cutFrom(message);
    answer();
  },
  edit(message, content) {
    cutFrom(message);
    send(content);
  },
  answerCall(message, call, content) {
    current.messages.push({ role: "tool", call: call.id, content });
    const open = message.calls.some((one) => !current.messages.some((m) => m.role === "tool" && m.call === one.id));
    if (open) {
      save();
      render();
    } else {
      answer();
    }
  },
};

// Forgets `message` and all behind it.
function cutFrom(message) {
  stop();
  current.messages.length = current.messages.indexOf(message);
  $("prompt").focus();
}

// --- What is shown

function render() {
  const { messages } = current;
  $("welcome").hidden = messages.length > 0;
  $("log").replaceChildren(...messages.map((message, i) => {
    const view = views.get(message) ?? new MessageView(message, actions);
    views.set(message, view);
    if (message.role === "assistant") {
      const answered = (call) => messages.slice(i).some((m) => m.role === "tool" && m.call === call.id);
      const last = messages.slice(i + 1).every((m) => m.role === "tool");
      view.update(running?.message === message, last && message.calls.some((call) => !answered(call)));
    }
    return view.node;
  }));
  showContext();
  scroll(true);
}

function scroll(always = false) {
  const area = $("scroller");
  if (always || area.scrollHeight - area.scrollTop - area.clientHeight < 120) area.scrollTop = area.scrollHeight;
}

function showContext() {
  const most = card()?.max_model_len;
  const stats = current.messages.findLast((message) => message.stats?.prompt !== undefined)?.stats;
  $("context").textContent = most && stats ? `${stats.prompt + stats.output} of ${most} tokens of context` : "";
}

function showRunning() {
  $("send").hidden = running !== null;
  $("stop").hidden = running === null;
  $("log").setAttribute("aria-busy", String(running !== null));
}

// --- Asking

function send(content) {
  current.messages.push({ role: "user", content });
  if (!current.title) {
    current.title = content.trim().split("\n")[0].slice(0, 60);
    showChats();
  }
  answer();
}

function stop() {
  running?.abort.abort();
}

// The answer to what stands in the open chat.
async function answer() {
  const chat = current;
  const { traced_layer: traced = null, index_topk: most } = card()?.meta ?? {};
  let body;
  try {
    body = requestOf(cards.length > 0 ? $("model").value : undefined, chat.messages, traced !== null);
  } catch (error) {
    notice(`The tools in the settings cannot be read: ${error.message}`);
    return render();
  }
  const message = { role: "assistant", content: "", reasoning: "", calls: [], stats: { output: 0 }, tokens: [] };
  if (body.return_selections) message.trace = { lists: [], layer: traced, most, body };
  chat.messages.push(message);
  const mine = { message, abort: new AbortController() };
  running = mine;
  render();
  showRunning();
  let drawn = 0;
  const draw = () => {
    drawn ||= requestAnimationFrame(() => {
      drawn = 0;
      if (mine.abort.signal.aborted || running !== mine) return;
      views.get(message).update(true);
      scroll();
    });
  };
  const sent = performance.now();
  let last = 0;  // when tokens came last, in ms since then
  let timed = 0; // tokens of the first event
  try {
    for await (const event of streamChat(body, mine.abort.signal)) {
      take(message, event);
      if (!message.stats.output) continue;
      const { stats } = message;
      if (event.choices?.length > 0) last = performance.now() - sent;
      if (stats.first === undefined) {
        stats.first = last;
        timed = stats.output;
      }
      // What comes at once says nothing of how fast it was made.
      if (last > stats.first + 5) stats.rate = 1000 * (stats.output - timed) / (last - stats.first);
      draw();
    }
  } catch (error) {
    if (error.name === "AbortError") message.stats.finish = "stopped";
    else if (error instanceof ApiError) message.error = error.message;
    else throw error;
    if (error.status === 401 || error.status === 0) connect();
  } finally {
    if (running === mine) running = null;
    save();
    views.get(message).update(false, true);
    if (chat === current) showContext();
    showRunning();
    $("announce").textContent = message.error ? "" : `The answer is over, ${message.stats.output} tokens`;
  }
}

// Adds an event of the stream to the answer.
function take(message, event) {
  const { stats } = message;
  if (event.usage) {
    stats.prompt = event.usage.prompt_tokens;
    stats.cached = event.usage.prompt_tokens_details.cached_tokens;
    stats.output = event.usage.completion_tokens;
    stats.thought = event.usage.completion_tokens_details.reasoning_tokens;
  }
  const choice = event.choices?.[0];
  if (!choice) return;
  const { delta } = choice;
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? delta.reasoning ?? "";
  for (const piece of delta.tool_calls ?? []) {
    const call = (message.calls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= piece.id ?? "";
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
  const drafted = choice.drafted ?? [];
  const tokens = choice.logprobs?.content ?? [];
  stats.drafted = (stats.drafted ?? 0) + drafted.length;
  // Without tokens an event counts as one, until usage says better.
  stats.output += tokens.length || (choice.finish_reason ? 0 : 1);
  tokens.forEach(({ token, logprob }, i) => {
    message.tokens.push({ text: token, probability: Math.exp(logprob), drafted: drafted.includes(i) });
  });
  message.trace?.lists.push(...(choice.selections ?? []));
  if (choice.finish_reason) stats.finish = choice.finish_reason;
}

// --- Keys and buttons

on("composer", "submit", (event) => {
  event.preventDefault();
  const text = $("prompt").value;
  if (running || !text.trim()) return;
  $("prompt").value = "";
  fit();
  notice("");
  send(text);
});
on("prompt", "keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && $("prompt").value === "" && !running) {
    const edits = $("log").querySelectorAll(".edit");
    if (edits.length === 0) return;
    event.preventDefault();
    edits[edits.length - 1].click();
  }
});
on("prompt", "input", fit);
function fit() {
  $("prompt").style.height = "auto";
  $("prompt").style.height = `${$("prompt").scrollHeight}px`;
}
on("stop", "click", () => {
  stop();
  $("prompt").focus();
});
on("new-chat", "click", startChat);
on("model", "change", showContext);
on("show-chats", "click", (event) => {
  const shown = $("chats").classList.toggle("shown");
  event.currentTarget.setAttribute("aria-expanded", String(shown));
});

const kPanels = ["live", "settings"];
function togglePanel(name, show = $(name).hidden) {
  for (const panel of kPanels) {
    $(panel).hidden = panel !== name || !show;
    $(`show-${panel}`).setAttribute("aria-expanded", String(!$(panel).hidden));
  }
  liveChanged();
}
function closePanel(name) {
  togglePanel(name, false);
  $(`show-${name}`).focus();
}
for (const panel of kPanels) {
  on(`show-${panel}`, "click", () => togglePanel(panel));
  document.querySelector(`[data-close=${panel}]`).addEventListener("click", () => closePanel(panel));
}

function changeTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (document.documentElement.dataset.theme ?? system) === "dark" ? "light" : "dark";
  // What is as the system has it goes on following the system.
  if (next === system) {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("lantern.theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("lantern.theme", next);
  }
}
on("theme", "click", changeTheme);

const kKeys = {
  KeyN: startChat,
  KeyL: () => togglePanel("live"),
  KeyS: () => togglePanel("settings"),
  KeyT: changeTheme,
};
document.addEventListener("keydown", (event) => {
  if (event.altKey && !event.ctrlKey && !event.metaKey && kKeys[event.code]) {
    event.preventDefault();
    kKeys[event.code]();
  } else if (event.key === "Escape" && !$("key-dialog").open) {
    if (running) stop();
    else for (const panel of kPanels) if (!$(panel).hidden) closePanel(panel);
  }
});

// --- Settings

const fields = $("fields");
fields.querySelector("label:has([name=thinking])").after(...Object.entries(numbers).map(([name, [label, min, max]]) => (
  element("label", {}, label, element("input", { name, min, max, type: "number", step: "any" })))));
function showSettings() {
  for (const field of fields.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") field.checked = Boolean(settings[field.name]);
    else field.value = settings[field.name] ?? "";
  }
  checkTools();
}
function checkTools() {
  let fault = "";
  try {
    parseTools(settings.tools);
  } catch (error) {
    fault = error.message;
  }
  $("tools-error").hidden = !fault;
  $("tools-error").textContent = fault;
}
fields.addEventListener("submit", (event) => event.preventDefault());
fields.addEventListener("input", ({ target }) => {
  settings[target.name] = target.type === "checkbox" ? target.checked : target.value;
  saveSettings();
  checkTools();
});
on("example-tool", "click", () => {
  settings.tools = kExampleTool;
  saveSettings();
  showSettings();
});

$("examples").append(...kExamples.map((text) => button("plain", text, () => send(text))));
addEventListener("pagehide", saveChats);
showSettings();
current = chats[0] ?? newChat();
render();
showChats();
connect();
$("prompt").focus();
