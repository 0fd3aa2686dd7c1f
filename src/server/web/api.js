// Talks to the server that the page came from, by the API that every client has.

const kKey = "lantern.key";

export const key = {
  get: () => sessionStorage.getItem(kKey) ?? "",
  set: (value) => (value ? sessionStorage.setItem(kKey, value) : sessionStorage.removeItem(kKey)),
};

// What the server refused; status 0: it was not there.
export class ApiError extends Error {
  constructor(status, message, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server cannot be reached");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const { message = `the server answered ${response.status}`, code } = told?.error ?? {};
  throw new ApiError(response.status, message, code);
}

export async function models() {
  return (await (await ask("v1/models")).json()).data;
}

// The texts of the tokens that a conversation is to the model.
export async function tokenTexts(body) {
  const answer = await ask("tokenize", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, return_token_strs: true }),
  });
  return (await answer.json()).token_strs;
}

// The samples of /metrics: [{name, labels, value}].
export async function metrics() {
  return parseMetrics(await (await ask("metrics")).text());
}

export function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const labels = {};
    for (const [, name, value] of (parts[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: parts[1], labels, value: Number(parts[3].replace("Inf", "Infinity")) });
  }
  return samples;
}

// The events of a streamed answer, each the object behind "data: ". Throws ApiError for those that tell of an error.
export async function* chat(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "the connection to the server broke");
    }
    if (read.done) throw new ApiError(0, "the answer ended before it was complete");
    text += read.value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end);
      if (!line.startsWith("data: ")) continue; // a comment, while nothing comes
      if (line === "data: [DONE]") return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new ApiError(event.error.status ?? 500, event.error.message, event.error.code);
      yield event;
    }
  }
}
