// Conversations and settings, which this browser alone keeps. A chat is {title, messages}; a message is
//   {role: "user", content}
//   {role: "assistant", content, reasoning, calls: [{id, name, arguments}], stats, error, tokens, trace}
//   {role: "tool", call, content}      the result of the call of that id

const kChats = "lantern.chats";
const kSettings = "lantern.settings";

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const settings = { tokens: true, trace: true, ...read(kSettings, {}) };

export function saveSettings() {
  localStorage.setItem(kSettings, JSON.stringify(settings));
}

export const chats = read(kChats, []).filter((chat) => chat && Array.isArray(chat.messages));

// Tokens, and what they read, are for the moment: they take many times the room of their text. False: the browser has no
// room left.
export function saveChats() {
  const kept = chats.filter((chat) => chat.messages.length > 0);
  try {
    const passing = new Set(["tokens", "trace"]);
    localStorage.setItem(kChats, JSON.stringify(kept, (name, value) => (passing.has(name) ? undefined : value)));
    return true;
  } catch {
    return false;
  }
}

export function newChat() {
  const chat = { title: "", messages: [] };
  chats.unshift(chat);
  return chat;
}

// Fields of a request that are numbers: what they are called here, from where to where they go.
export const numbers = {
  temperature: ["Temperature", 0, 100],
  top_p: ["Top p", 0, 1],
  top_k: ["Top k", 0],
  min_p: ["Min p", 0, 1],
  max_completion_tokens: ["Most tokens", 1],
  seed: ["Seed"],
  repetition_penalty: ["Repetition penalty", 0],
  presence_penalty: ["Presence penalty", -2, 2],
  frequency_penalty: ["Frequency penalty", -2, 2],
};

// Functions, or OpenAI's objects around them. Throws where the text is neither.
export function parseTools(text) {
  if (!text?.trim()) return [];
  const list = JSON.parse(text);
  if (!Array.isArray(list)) throw new Error("the tools must be a list: [...]");
  return list.map((tool) => {
    const whole = tool?.type === "function" ? tool : { type: "function", function: tool };
    if (typeof whole.function?.name !== "string") throw new Error("each tool must be a function with a name");
    return whole;
  });
}

// The request for the answer that follows `messages`. `traces`: the server can tell what attention read.
export function requestOf(model, messages, traces) {
  const body = { model, messages: [] };
  if (settings.system?.trim()) body.messages.push({ role: "system", content: settings.system });
  for (const message of messages) {
    if (message.role === "tool") {
      body.messages.push({ role: "tool", tool_call_id: message.call, content: message.content });
    } else if (message.role === "user") {
      body.messages.push({ role: "user", content: message.content });
    } else if (message.content || message.calls.length > 0) {
      const answer = { role: "assistant", content: message.content };
      if (message.reasoning) answer.reasoning_content = message.reasoning;
      if (message.calls.length > 0) {
        answer.tool_calls = message.calls.map(({ id, name, arguments: args }) => (
          { id, type: "function", function: { name, arguments: args } }));
      }
      body.messages.push(answer);
    }
  }
  for (const name of Object.keys(numbers)) {
    if (settings[name]) body[name] = Number(settings[name]);
  }
  const stop = (settings.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length > 0) body.stop = stop;
  if (settings.thinking) body.thinking = { type: settings.thinking };
  const tools = parseTools(settings.tools);
  if (tools.length > 0) body.tools = tools;
  body.return_drafted = true;
  if (traces && settings.trace) body.return_selections = true;
  if (settings.tokens || body.return_selections) body.logprobs = true;
  return body;
}
