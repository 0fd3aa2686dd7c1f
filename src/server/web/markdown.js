// A small part of Markdown as DOM nodes. Text only ever becomes text nodes, so nothing that a model writes can become
// markup: headings, lists, quotes, tables, fenced code, rules, emphasis, inline code, and links of a few harmless
// kinds. Images and HTML stay text; nothing is loaded.

const kDepth = 8; // of quotes and lists in each other, and of emphasis
const kItem = /^( {0,12})([-*+]|\d{1,9}[.)])(?: +|$)/;
const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;
const kDelimiters = /^ *\|?( *:?-+:? *\|)+( *:?-+:?)? *\|? *$/;

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function button(kind, label, onclick, more = {}) {
  return element("button", { type: "button", class: kind, onclick, ...more }, label);
}

// Makes `parent` show `text`. Blocks that have not changed since the last call keep their nodes: an answer that grows
// costs its last block.
export function showMarkdown(parent, text) {
  const blocks = split(text.replace(/\r\n?/g, "\n").split("\n"));
  const known = parent.markdown ?? [];
  let same = 0;
  while (same < blocks.length && same < known.length && known[same] === blocks[same].lines.join("\n")) ++same;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  for (const block of blocks.slice(same)) parent.append(nodeOf(block, 0));
  parent.markdown = blocks.map((block) => block.lines.join("\n"));
}

// Lines to blocks {kind, lines}; every line that is not blank is in one.
function split(lines) {
  const blocks = [];
  let i = 0;
  const take = (kind, goes_on) => {
    const begin = i++;
    while (i < lines.length && goes_on(lines[i])) ++i;
    blocks.push({ kind, lines: lines.slice(begin, i) });
  };
  while (i < lines.length) {
    const line = lines[i];
    const fence = kFence.exec(line);
    if (line.trim() === "") ++i;
    else if (fence) {
      const end = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},} *$`);
      let open = true;
      take("code", (next) => open && ((open = !end.test(next)), true));
    } else if (kHeading.test(line)) take("heading", () => false);
    else if (kRule.test(line)) take("rule", () => false);
    else if (/^ {0,3}>/.test(line)) take("quote", (next) => /^ {0,3}>/.test(next));
    else if (kItem.test(line)) takeList();
    else if (line.includes("|") && kDelimiters.test(lines[i + 1] ?? "")) take("table", (next) => next.includes("|"));
    else take("text", (next) => next.trim() !== "" && !begins(next));
  }
  return blocks;

  function begins(line) {
    return kFence.test(line) || kHeading.test(line) || kRule.test(line) || /^ {0,3}>/.test(line) || kItem.test(line);
  }
  function takeList() {
    const ordered = /\d/.test(kItem.exec(line(i))[2]);
    take("list", (next) => {
      const item = kItem.exec(next);
      if (item) return item[1].length > 1 || ordered === /\d/.test(item[2]);
      if (next.trim() !== "") return /^\s{2,}/.test(next) || (line(i - 1).trim() !== "" && !begins(next));
      const after = line(i + 1);
      return /^\s{2,}\S/.test(after) || (kItem.test(after) && ordered === /\d/.test(kItem.exec(after)[2]));
    });
  }
  function line(at) {
    return lines[at] ?? "";
  }
}

function nodeOf({ kind, lines }, depth) {
  if (depth > kDepth) kind = "text";
  switch (kind) {
    case "code": return codeBlock(lines);
    case "heading": {
      const [, marks, text] = kHeading.exec(lines[0]);
      // Below the page's own headings.
      return inline(element(`h${Math.min(marks.length + 2, 6)}`), text);
    }
    case "rule": return element("hr");
    case "quote": {
      const inner = split(lines.map((line) => line.replace(/^ {0,3}> ?/, "")));
      return element("blockquote", {}, ...inner.map((block) => nodeOf(block, depth + 1)));
    }
    case "list": return list(lines, depth);
    case "table": return table(lines);
    default: return inline(element("p"), lines.map((line) => line.trim()).join("\n"));
  }
}

function codeBlock(lines) {
  const [, marks, language] = kFence.exec(lines[0]);
  const closed = lines.length > 1 && new RegExp(`^ {0,3}${marks[0]}{${marks.length},} *$`).test(lines.at(-1));
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  return element("figure", { class: "code" },
    element("figcaption", {}, language.trim().slice(0, 40) || "text", copyButton(() => text)),
    element("pre", { tabindex: "0" }, element("code", {}, text)));
}

export function copyButton(text) {
  return button("act", "Copy", async ({ currentTarget }) => {
    // Only pages of this machine or over TLS may.
    const done = await navigator.clipboard?.writeText(text()).then(() => true, () => false);
    currentTarget.textContent = done ? "Copied" : "Not allowed";
    setTimeout(() => { currentTarget.textContent = "Copy"; }, 1200);
  });
}

function list(lines, depth) {
  const first = kItem.exec(lines[0]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  for (const line of lines) {
    const item = kItem.exec(line);
    const item_here = item && item[1].length <= first[1].length + 1;
    if (item_here) items.push({ indent: item[0].length, lines: [] });
    const { indent, lines: of } = items.at(-1);
    of.push(line.slice(item_here ? indent : Math.min(indent, line.length - line.trimStart().length)));
  }
  const node = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : {});
  for (const item of items) {
    const blocks = split(item.lines);
    // One paragraph is the item itself.
    const tight = blocks.length > 0 && blocks[0].kind === "text";
    const entry = element("li");
    if (tight) inline(entry, blocks[0].lines.map((line) => line.trim()).join("\n"));
    entry.append(...blocks.slice(tight ? 1 : 0).map((block) => nodeOf(block, depth + 1)));
    node.append(entry);
  }
  return node;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const columns = cells(lines[1]).length;
  const row = (line, name) => element("tr", {},
    ...cells(line).slice(0, columns).map((cell) => inline(element(name), cell)));
  return element("div", { class: "table", tabindex: "0" }, element("table", {},
    element("thead", {}, row(lines[0], "th")),
    element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

const kUrl = /^https?:\/\/[^\s<>"'`]+/;
const kHarmless = /^(https?:\/\/|mailto:)/i;

function link(url, label, depth) {
  const node = element("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank" });
  return typeof label === "string" ? inline(node, label, depth + 1) : node;
}

// Adds `text` with its emphasis, code and links to `parent`. Marks without their other half are text.
function inline(parent, text, depth = 0) {
  let plain = "";
  const missing = new Set(); // marks of which no further one follows
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  const add = (node) => {
    flush();
    parent.append(node);
  };
  const find = (mark, from) => {
    if (missing.has(mark)) return -1;
    const at = text.indexOf(mark, from);
    if (at < 0) missing.add(mark);
    return at;
  };
  const is_word = (at) => /[\p{L}\p{N}]/u.test(text[at] ?? "");
  let i = 0;
  while (i < text.length) {
    const c = text[i];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    if (c === "\n") {
      add(element("br"));
      ++i;
      continue;
    }
    if (c === "`") {
      const marks = /^`+/.exec(text.slice(i, i + 64))[0];
      const end = find(marks, i + marks.length);
      if (end > 0) {
        add(element("code", {}, text.slice(i + marks.length, end).replace(/^ (.*\S.*) $/s, "$1")));
        i = end + marks.length;
        continue;
      }
      plain += marks;
      i += marks.length;
      continue;
    }
    if (depth < kDepth && "*_~".includes(c)) {
      const double = text[i + 1] === c;
      const mark = double ? c + c : c;
      const begin = i + mark.length;
      // Between letters and digits they are none: 2*3*4, snake_case.
      const opens = !is_word(i - 1) && /\S/.test(text[begin] ?? "") && (double || c !== "~") && text[begin] !== c;
      let end = opens ? find(mark, begin + 1) : -1;
      while (end > 0 && (/\s/.test(text[end - 1]) || is_word(end + mark.length))) end = find(mark, end + 1);
      if (end > 0) {
        const name = c === "~" ? "del" : double ? "strong" : "em";
        add(inline(element(name), text.slice(begin, end), depth + 1));
        i = end + mark.length;
        continue;
      }
      plain += mark;
      i = begin;
      continue;
    }
    if (depth < kDepth && c === "[") {
      const middle = find("](", i + 1);
      const end = middle > 0 ? find(")", middle + 2) : -1;
      const url = end > 0 ? text.slice(middle + 2, end).trim().split(/\s/)[0] : "";
      if (kHarmless.test(url)) {
        add(link(url, text.slice(i + 1, middle), depth));
        i = end + 1;
        continue;
      }
    }
    if (c === "h" && !is_word(i - 1) && text.startsWith("http", i)) {
      const found = kUrl.exec(text.slice(i, i + 2048));
      if (found) {
        const url = found[0].replace(/[.,:;!?)\]*_]+$/, "");
        const node = link(url);
        node.append(url);
        add(node);
        i += url.length;
        continue;
      }
    }
    plain += c;
    ++i;
  }
  flush();
  return parent;
}
