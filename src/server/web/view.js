// A message as it is shown. What can be done with it is handed in: {regenerate, edit, answerCall}, each called with the
// message; edit and answerCall with a text as well.
import { tokenTexts } from "./api.js";
import { heatNode } from "./heat.js";
import { button, copyButton, element, showMarkdown } from "./markdown.js";

const kUnsure = 0.5; // tokens that were less likely are marked

export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.node = element("li", { class: `message ${message.role}` });
    if (message.role === "user") this.showUser();
    else if (message.role === "tool") this.showResult();
    else this.buildAnswer();
  }

  showUser() {
    const { message } = this;
    this.editButton = button("act edit", "Edit", () => this.openEditor());
    this.node.replaceChildren(element("span", { class: "hidden" }, "You:"),
      element("div", { class: "body" }, message.content),
      element("div", { class: "foot" }, copyButton(() => message.content), this.editButton));
  }

  openEditor() {
    const { content } = this.message;
    const rows = Math.min(12, content.split("\n").length + 1);
    const text = element("textarea", { rows, "aria-label": "Your message" });
    text.value = content;
    const close = () => {
      this.showUser();
      this.editButton.focus();
    };
    const form = element("form", { onsubmit: (event) => {
      event.preventDefault();
      if (text.value.trim()) this.actions.edit(this.message, text.value);
    } }, text, element("div", { class: "buttons" }, element("button", { class: "main" }, "Send again"),
      button("plain", "Cancel", close)));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && event.target === text && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      } else return;
      event.stopPropagation();
    });
    this.node.replaceChildren(form);
    text.focus();
  }

  showResult() {
    this.node.replaceChildren(element("p", { class: "who" }, "Result of the call"),
      element("div", { class: "body" }, this.message.content));
  }

  buildAnswer() {
    this.thoughtsText = element("div", { class: "body" });
    this.thoughtsLabel = element("summary", {}, "Thinking");
    this.thoughts = element("details", { class: "thoughts" }, this.thoughtsLabel, this.thoughtsText);
    this.thoughts.addEventListener("click", () => { this.touched = true; });
    this.body = element("div", { class: "body" });
    this.calls = element("div");
    this.error = element("p", { class: "notice", role: "alert", hidden: true });
    this.tokens = element("div", { class: "tokens", hidden: true });
    this.heat = element("div", { class: "heat", hidden: true });
    this.foot = element("div", { class: "foot" });
    this.node.append(element("span", { class: "hidden" }, "Model:"), this.thoughts, this.body, this.calls, this.error,
      this.foot, this.tokens, this.heat);
    this.update(false);
  }

  // `busy`: more of the answer comes. `open`: results of its calls are waited for.
  update(busy, open = false) {
    const { message } = this;
    this.node.classList.toggle("busy", busy);
    this.node.setAttribute("aria-busy", String(busy));
    this.thoughts.hidden = !message.reasoning;
    if (message.reasoning) {
      showMarkdown(this.thoughtsText, message.reasoning);
      const thinking = busy && !message.content && message.calls.length === 0;
      this.thoughtsLabel.textContent = thinking ? "Thinking…" : "Thoughts";
      if (!this.touched) this.thoughts.open = thinking;
    }
    showMarkdown(this.body, message.content);
    this.body.hidden = !busy && !message.content;
    this.calls.replaceChildren(...message.calls.map((call) => this.callNode(call, open && !busy)));
    this.error.hidden = !message.error;
    this.error.textContent = message.error ?? "";
    this.foot.replaceChildren();
    if (busy) {
      this.foot.append(statistics(message.stats));
      return;
    }
    const acts = element("span", {}, button("act again", "Regenerate", () => this.actions.regenerate(message)));
    if (message.content) acts.prepend(copyButton(() => message.content));
    this.foot.append(statistics(message.stats), acts);
    if (message.tokens?.length > 0) {
      acts.append(button("act show-tokens", "Tokens", ({ currentTarget }) => {
        this.tokens.hidden = !this.tokens.hidden;
        currentTarget.setAttribute("aria-expanded", String(!this.tokens.hidden));
        if (!this.tokens.hidden) this.tokens.replaceChildren(...tokenNodes(message.tokens));
      }, { "aria-expanded": String(!this.tokens.hidden) }));
    }
    if (message.trace?.lists.length > 0) {
      acts.append(button("act show-heat", "Attention", ({ currentTarget }) => {
        this.heat.hidden = !this.heat.hidden;
        currentTarget.setAttribute("aria-expanded", String(!this.heat.hidden));
        if (!this.heat.hidden) this.showHeat();
      }, { "aria-expanded": String(!this.heat.hidden) }));
    }
  }

  async showHeat() {
    const { trace, tokens } = this.message;
    try {
      const context = await tokenTexts(trace.body);
      this.heat.replaceChildren(...heatNode(context, tokens.map(({ text }) => text), trace.lists, trace));
    } catch (error) {
      this.heat.replaceChildren(element("p", { class: "notice", role: "alert" }, error.message));
    }
  }

  callNode(call, open) {
    const node = element("div", { class: "call" }, element("p", {}, "Calls ", element("b", {}, call.name)),
      element("pre", {}, pretty(call.arguments)));
    if (!open) return node;
    const label = `Result of ${call.name}`;
    const result = element("input", { "aria-label": label, placeholder: label, required: true });
    node.append(element("form", { onsubmit: (event) => {
      event.preventDefault();
      this.actions.answerCall(this.message, call, result.value);
    } }, result, element("button", { class: "plain" }, "Give")));
    return node;
  }
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 1).replace(/\n\s*/g, " ");
  } catch {
    return json; // not complete
  }
}

// stats: {rate, first, output, prompt, cached, thought, drafted, finish}; first in ms, as this page saw it.
function statistics(stats) {
  const node = element("span", { class: "stats" });
  const add = (value, label, title) => node.append(element("span", { title }, element("b", {}, value), ` ${label}`));
  if (!stats?.output) return node;
  if (stats.rate) add(stats.rate.toFixed(stats.rate < 100 ? 1 : 0), "tokens/s", "behind the first token");
  add(`${stats.first.toFixed(0)} ms`, "to the first", "from sending to the first token");
  add(stats.output, stats.output === 1 ? "token" : "tokens", `${stats.thought ?? 0} of them thoughts`);
  if (stats.drafted) add(stats.drafted, "drafted", "tokens that drafts had foretold");
  if (stats.prompt) add(`${stats.cached}/${stats.prompt}`, "cached", "of the prompt, found in the prefix cache");
  if (stats.finish === "length") add("cut off", "by the most tokens");
  if (stats.finish === "stopped") add("stopped", "");
  return node;
}

function tokenNodes(tokens) {
  const drafted = tokens.filter((token) => token.drafted).length;
  const mark = (kind, text) => element("span", {}, element("i", { class: kind }), text);
  const legend = element("p", { class: "legend" },
    mark("drafted", `foretold by a draft (${drafted} of ${tokens.length})`),
    mark("unsure", `less likely than ${100 * kUnsure} %`));
  return [legend, ...tokens.map(({ text, probability, drafted: right }) => {
    const kind = `token${right ? " drafted" : ""}${probability < kUnsure ? " unsure" : ""}`;
    const title = `${(100 * probability).toFixed(1)} %${right ? ", foretold by a draft" : ""}`;
    return element("span", { class: kind, title }, text.replaceAll("\n", "⏎\n"));
  })];
}
