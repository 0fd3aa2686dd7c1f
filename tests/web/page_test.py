"""The web page in headless Chromium: page_test.py LANTERN MODEL."""

import json
import re
import sys

from browser import Page, Server, wait
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

lantern, model = sys.argv[1:]
# A busy machine finds that drafts do not pay; here they are to be seen.
server = Server(lantern, model, "--draft-tokens", "3", "--no-adaptive-drafts")
ATTACK = ('<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> [a](javascript:window.hacked=1) '
          '![b](http://127.0.0.1:9/x.png) <a href="javascript:hacked=1">c</a> <style>*{display:none}</style>')
MATHS = ("What is 6 times 7?", "6*7=42. The answer is 42.")
APPLES = "Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?"
TWELVE = "What is 3 times 4?"

# Answers go on to their limit: long enough to be looked at while they come.
LONG_ANSWERS = """
    const ask = window.fetch;
    window.fetch = (url, options = {}) => ask(url, !options.body ? options : {
      ...options, body: JSON.stringify({ ...JSON.parse(options.body), ignore_eos: true, max_tokens: arguments_most }) });
"""


def greedy():
    """A page whose answers are always the same."""
    page = Page(server.url)
    page.ready()
    page.set(temperature="0")
    return page


def answers_come_in_pieces():
    page = greedy()
    assert page.ask(MATHS[0]) == MATHS[1]
    assert "27" in page.ask(APPLES)
    stats = page.all(".stats")[-1].text
    for part in [r"\d ms to the first", r"\d/\d+ cached", r"\d drafted"]:
        assert re.search(part, stats), stats
    assert re.search(r"^\d+ of 2048 tokens of context$", page.one("#context").text)
    # Each token with its colour; as many as the statistics say.
    page.all(".show-tokens")[-1].click()
    tokens = page.all(".assistant:last-child .token")
    assert len(tokens) == int(re.search(r"(\d+) tokens\b(?!/)", stats)[1]), stats
    drafted = page.all(".assistant:last-child .token.drafted")
    assert 0 < len(drafted) == int(re.search(r"(\d+) drafted", stats)[1]), stats
    text = page.run("return arguments[0].map((token) => token.textContent).join('')", tokens)
    assert text.startswith(page.all(".assistant > .body")[-1].text), text
    # It stays open while the conversation goes on.
    shown = page.all(".tokens")[-1]
    page.ask(TWELVE)
    assert shown.is_displayed()
    # What is on the screen grows while the answer comes.
    page.run(LONG_ANSWERS.replace("arguments_most", "1000"))
    page.run("""
        window.lengths = new Set();
        new MutationObserver(() => {
          if (document.querySelector("#stop").hidden) return;
          window.lengths.add(document.querySelector(".assistant:last-child > .body").textContent.length);
        }).observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true });""")
    page.ask(APPLES)
    assert page.run("return window.lengths.size") > 5
    assert re.search(r"\d tokens/s", page.all(".stats")[-1].text)
    page.close()


def stops_and_goes_on():
    page = greedy()
    page.run(LONG_ANSWERS.replace("arguments_most", "1900"))
    page.one("#prompt").send_keys(APPLES, Keys.ENTER)
    wait(lambda: page.all(".assistant") and len(page.one(".assistant > .body").text) > 20, "some text")
    assert server.metric("vllm:num_requests_running") == 1
    page.press(Keys.ESCAPE)
    wait(page.idle, "the answer has stopped")
    wait(lambda: server.metric("vllm:num_requests_running") == 0, "the server has stopped as well", 5)
    text = page.one(".assistant > .body").text
    assert len(text) > 20 and "stopped" in page.one(".stats").text
    assert page.focused().get_attribute("id") == "prompt"
    # The button does the same, and what was said stays after the page is loaded anew.
    page.press(Keys.ALT, "n")
    page.one("#prompt").send_keys(TWELVE, Keys.ENTER)
    wait(lambda: page.all(".assistant > .body") and len(page.one(".assistant > .body").text) > 5, "some text")
    page.one("#stop").click()
    wait(page.idle, "the answer has stopped")
    texts = [node.text for node in page.all("#log > li > .body")]
    assert len(texts) == 2
    page.driver.refresh()
    page.ready()
    assert [node.text for node in page.all("#log > li > .body")] == texts and len(page.all("#chat-list li")) == 2
    assert page.ask(MATHS[0]) and len(page.all(".assistant")) == 2
    page.close()


def works_without_a_mouse():
    page = greedy()
    # The first stop of the tab key leads to the message.
    skip = page.tab_to("a", Keys.SHIFT)
    assert skip.text == "Skip to the message" and skip.location["x"] >= 0, "it shows when it has the focus"
    page.press(Keys.ENTER)
    assert page.focused().get_attribute("id") == "prompt"
    page.focused().send_keys("line one", Keys.SHIFT + Keys.ENTER, "line two")
    page.press(Keys.CONTROL, "a")
    page.press(MATHS[0])
    page.press(Keys.ENTER)
    assert page.answer(1) == MATHS[1]
    assert "over" in page.one("#announce").get_attribute("textContent")

    asked = server.metric("vllm:request_success_total")
    page.tab_to(".again", Keys.SHIFT)
    page.press(Keys.ENTER)
    wait(lambda: server.metric("vllm:request_success_total") == asked + 1, "it was asked again")
    assert page.answer(1) == MATHS[1] and len(page.all("#log > li")) == 2

    # The arrow opens the last message; Escape leaves it as it was, Enter asks anew and forgets what came of it.
    page.tab_to("#prompt")
    page.press(Keys.ARROW_UP)
    page.press(" and more")
    page.press(Keys.ESCAPE)
    assert page.one(".user > .body").text == MATHS[0]
    page.press(Keys.ENTER)  # on the button that has the focus again
    page.press(Keys.CONTROL, "a")
    page.press(TWELVE)
    page.press(Keys.ENTER)
    assert "12" in page.answer(1)
    assert [node.text for node in page.all(".user > .body")] == [TWELVE]

    page.press(Keys.ALT, "l")
    assert page.one("#live").is_displayed()
    page.press(Keys.ALT, "s")
    assert page.one("#settings").is_displayed() and not page.one("#live").is_displayed()
    page.press(Keys.ESCAPE)
    assert not page.one("#settings").is_displayed()
    assert page.focused().get_attribute("id") == "show-settings"
    page.press(Keys.ALT, "n")
    assert page.one("#welcome").is_displayed() and page.focused().get_attribute("id") == "prompt"
    page.tab_to("#examples button", Keys.SHIFT)
    page.press(Keys.ENTER)
    page.answer(1)
    assert len(page.all("#chat-list li")) == 2
    # A conversation is deleted by pressing twice.
    page.tab_to("#chat-list .icon", Keys.SHIFT)
    page.press(Keys.ENTER)
    assert len(page.all("#chat-list li")) == 2
    page.press(Keys.ENTER)
    assert len(page.all("#chat-list li")) == 1
    page.close()


def tools_and_thoughts():
    page = greedy()
    page.set(thinking="enabled")
    page.press(Keys.ALT, "s")
    page.one("#example-tool").click()
    page.ask("What is 9818*847?")
    call = page.one(".call")
    assert "calculator" in call.text and "9818*847" in call.text, call.text
    thoughts = page.one(".thoughts")
    assert thoughts.get_attribute("open") is None, "folded once the thinking is over"
    page.one(".thoughts summary").send_keys(Keys.ENTER)
    assert len(page.one(".thoughts .body").text) > 5
    call.find_element("css selector", "input").send_keys("8315846", Keys.ENTER)
    assert "8315846" in page.answer(2)
    assert page.one(".tool > .body").text == "8315846"
    # What is no list of functions is not sent.
    page.set(tools="[{]")
    assert page.one("#tools-error").is_displayed()
    answers = len(page.all(".assistant"))
    page.one("#prompt").send_keys("Hello", Keys.ENTER)
    assert page.one("#notice").is_displayed() and len(page.all(".assistant")) == answers
    page.set(tools="", stop="42", max_completion_tokens="30")
    page.press(Keys.ALT, "n")
    page.set(thinking="")
    assert page.ask(MATHS[0]) == "6*7="
    page.close()


def what_attention_read():
    page = greedy()
    # What the same question is told without the page: how often each token was read.
    body = {"messages": [{"role": "user", "content": 6 * (APPLES + " ")}], "temperature": 0, "return_selections": True,
            "cache_salt": "other"}  # so that neither finds what the other computed
    choice = json.loads(server.post("/v1/chat/completions", body))["choices"][0]
    context = json.loads(server.post("/tokenize", {**body, "return_token_strs": True}))["token_strs"]
    reads = []
    for numbers in choice["selections"]:
        at, read = 0, []
        for passed, taken in zip(numbers[::2], numbers[1::2]):
            read += range(at + passed, at + passed + taken)
            at += passed + taken
        reads.append(read)
    assert len(context) > 128 == len(reads[-1])
    times = [sum(p in read for read in reads) for p in range(len(context) + len(reads))]

    page.ask(body["messages"][0]["content"])
    page.tab_to(".show-heat", Keys.SHIFT)
    page.press(Keys.ENTER)
    wait(lambda: page.all(".strip span"), "the strip is there")
    heat, words, strip = page.one(".heat"), page.one(".words"), page.one(".strip")
    assert page.one(".show-heat").get_attribute("aria-expanded") == "true"
    titles = page.run("return [...document.querySelectorAll('.strip span')].map((cell) => cell.title)")
    assert titles == [f"token {p + 1}, read {count} of {len(reads)} times" for p, count in enumerate(times)], titles
    text = page.run("return [...document.querySelectorAll('.strip span')].map((cell) => cell.textContent).join('')")
    assert text.startswith("".join(context).replace("\n", "⏎")) and APPLES in text
    hottest = max(times)
    warm = page.run("return [...document.querySelectorAll('.strip span')].map((cell) => cell.classList[0])")
    assert warm == [f"h{-(-8 * count // hottest)}" for count in times], warm
    assert f"{len(reads)} tokens of the answer read the context. Most read: " in words.text
    assert f"(token {times.index(hottest) + 1}) {hottest} times" in words.text, words.text
    assert "Layer 4" in heat.text and "128" in heat.text

    # Token by token, by keys alone and then by the pointer; in words what colours say.
    def shows(i):
        assert words.text.startswith("“") and f", token {i + 1} of {len(reads)}, " in words.text, (i, words.text)
        assert f"read 128 of {len(context) + i} tokens before it: " in words.text, words.text
        assert strip.get_attribute("role") == "img" and strip.accessible_name == words.text
        shown = page.run("return [...document.querySelectorAll('.strip span')].flatMap((cell, p) => "
                         "cell.classList.contains('h8') ? [p] : [])")
        assert shown == reads[i], (i, shown)
    page.tab_to(".reads .token")
    shows(0)
    page.press(Keys.ARROW_RIGHT)
    shows(1)
    page.press(Keys.END)
    shows(len(reads) - 1)
    page.press(Keys.TAB)
    assert not page.run("return document.activeElement.matches('.reads .token')"), "they are one stop of the tab key"
    assert "Most read" in words.text
    ActionChains(page.driver).move_to_element(page.all(".reads .token")[3]).perform()
    shows(3)
    ActionChains(page.driver).move_to_element(page.one(".bar")).perform()
    wait(lambda: "Most read" in words.text, "all again")

    # Warm is another colour than cold, and text is to be read on both, light and dark.
    colours = """
        const seen = (name) => {
          const cell = document.createElement("span");
          cell.className = name;
          document.querySelector(".strip").append(cell);
          const { backgroundColor, color } = getComputedStyle(cell);
          const paint = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          const light = [backgroundColor, color].map((one) => {
            paint.fillStyle = one;
            paint.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          });
          cell.remove();
          return [backgroundColor, (Math.max(...light) + 0.05) / (Math.min(...light) + 0.05)];
        };
        return ["h0", "h4", "h8"].map(seen);"""
    for scheme in ["light", "dark"]:
        page.prefer(scheme)
        seen = page.run(colours)
        assert len({colour for colour, _ in seen}) == 3 and all(contrast >= 4.5 for _, contrast in seen), (scheme, seen)

    # A short context is read whole; nothing of it is kept for another visit, or where it is switched off.
    page.press(Keys.ALT, "n")
    page.ask(TWELVE)
    page.one(".show-heat").click()
    wait(lambda: page.all(".strip span"), "the strip is there")
    page.tab_to(".reads .token")
    assert re.search(r"read all \d+ tokens before it", page.one(".words").text)
    assert page.run("return JSON.stringify({ ...localStorage }).includes('lists')") is False
    page.set(trace=False)
    page.ask(TWELVE)
    assert len(page.all(".show-heat")) == 1
    page.close()

    # A server that keeps none is not asked.
    without = Server(lantern, model, "--max-traced-rows", "0")
    page = Page(without.url)
    page.ready()
    assert page.ask(TWELVE) and not page.all(".show-heat")
    page.close()
    without.stop()


def live_view():
    page = greedy()
    page.one("#show-live").click()
    page.run(LONG_ANSWERS.replace("arguments_most", "1900"))
    page.one("#prompt").send_keys(APPLES, Keys.ENTER)
    tiles = lambda: [node.text for node in page.all("#live dd")]  # noqa: E731
    wait(lambda: tiles()[0] == "1", "one request runs")
    assert page.one(".verdict").text == "working"
    wait(lambda: page.all(".blocks .used"), "blocks are in use")
    page.answer(1)
    wait(lambda: page.one(".verdict").text == "idle", "all is done")
    made = server.metric("vllm:generation_tokens_total")
    wait(lambda: int(tiles()[2].replace(",", "")) == made, "as many tokens as the metrics tell")
    assert len(page.all(".places > div")) == 3
    shown = float(page.all(".places span")[1].text.rstrip(" %"))
    first = [line for line in server.get("/metrics")[2].splitlines() if 'position="0"' in line]
    accepted, checked = (float(next(line for line in first if name in line).rsplit(" ", 1)[1])
                         for name in ["num_accepted_tokens_per_pos", "num_draft_tokens_per_pos"])
    assert abs(shown - 100 * accepted / checked) < 0.06, (shown, accepted, checked)
    assert page.run("return document.querySelector('.spark polyline').points.length") > 1
    page.close()


def light_and_dark():
    colour = "return getComputedStyle(document.documentElement).backgroundColor"
    page = Page(server.url)
    page.ready()
    light = page.run(colour)
    page.prefer("dark")
    dark = page.run(colour)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light))), (dark, light)
    page.one("#theme").click()  # against the system
    assert page.run(colour) == light
    page.driver.refresh()
    assert page.run(colour) == light, "it is remembered"
    page.press(Keys.ALT, "t")
    assert page.run(colour) == dark
    page.prefer("light")
    assert page.run(colour) == light, "and follows the system again"

    # WCAG 2.1, 1.4.3: 4.5 to 1 for text.
    def luminance(name):
        parts = page.run("""
            document.body.style.color = `var(--${arguments[0]})`;
            return getComputedStyle(document.body).color.match(/[\\d.]+/g).slice(0, 3);""", name)
        linear = [((float(part) / 255 + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    pairs = [(text, ground) for text in ["ink", "quiet", "accent"] for ground in ["paper", "raised", "sunk", "tint"]]
    for scheme in ["light", "dark"]:
        page.prefer(scheme)
        for text, ground in pairs + [("bad", "bad-tint"), ("good", "good-tint"), ("on-accent", "accent")]:
            low, high = sorted([luminance(text), luminance(ground)])
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {ground}, {scheme}"
    page.close()


def everything_has_a_name():
    page = greedy()
    page.ask(MATHS[0])
    for panel in ["#show-live", "#show-settings"]:
        page.one(panel).click()
        for control in page.all("button, input, select, textarea, a[href], summary"):
            if control.is_displayed():
                assert control.accessible_name, control.get_attribute("outerHTML")
    page.close()


def text_is_never_markup():
    page = greedy()
    page.ask(ATTACK)
    assert page.one(".user > .body").text == ATTACK
    # The same from the server: answer, thoughts, the name and arguments of a call, an error.
    page.run("""
        const attack = arguments[0];
        const pieces = [{ role: "assistant", reasoning_content: attack }, { content: attack },
          { content: "\\n\\n# " + attack + "\\n\\n- " + attack + "\\n\\n> " + attack + "\\n\\n|a|\\n|-|\\n|" + attack
            + "|\\n\\n```" + attack + "\\n" + attack + "\\n```\\n\\n**" + attack + "** `" + attack + "`" },
          { tool_calls: [{ index: 0, id: attack, function: { name: attack, arguments: attack } }] }];
        const events = pieces.map((delta) => ({ choices: [{ index: 0, delta,
          logprobs: { content: [{ token: attack, logprob: -1 }] }, finish_reason: null, drafted: [0] }] }));
        events.push({ error: { message: attack } });
        const real = window.fetch;
        window.fetch = (url, options) => String(url).includes("chat")
          ? Promise.resolve(new Response(events.map((event) => `data: ${JSON.stringify(event)}\\n\\n`).join("")))
          : real(url, options);""", ATTACK)
    page.ask("again")
    page.all(".show-tokens")[-1].click()
    last = page.all(".assistant")[-1]
    assert page.run("return arguments[0].textContent", last).count("onerror=") >= 12
    made = page.run("""
        const nodes = [...document.querySelectorAll("#log *, #chat-list *")];
        return nodes.flatMap((node) => [node.localName, ...node.getAttributeNames().map((name) => "@" + name)]);""")
    harmful = {"img", "script", "style", "iframe", "object", "embed", "svg", "math", "base", "link", "meta"}
    assert not harmful & set(made), set(made)
    assert not [name for name in made if name.startswith("@on") or name in ("@style", "@src", "@srcdoc")], set(made)
    links = page.run("return [...document.querySelectorAll('#log a')].map((node) => node.href)")
    assert links and all(link.startswith(("http://", "https://")) for link in links), links
    assert page.run("return window.hacked") is None
    assert page.one("#log").is_displayed()

    # Odd Markdown, whole and while it grows: the same text in the end, and quickly.
    wrong = page.driver.execute_async_script("""
        const [attack, done] = arguments;
        import("/web/markdown.js").then(({ showMarkdown }) => {
          const wrong = [];
          const show = (text) => {
            const node = document.createElement("div");
            showMarkdown(node, text);
            return node;
          };
          const cases = { "2*3*4 a_b_c": "<p>2*3*4 a_b_c</p>", "**a *b* c**": "<p><strong>a <em>b</em> c</strong></p>",
            "a\\nb\\n\\nc": "<p>a<br>b</p><p>c</p>", "- a\\n  - b\\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
            "3. a\\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>', "> a\\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
            "# a `<b>`": "<h3>a <code>&lt;b&gt;</code></h3>", "\\\\*a\\\\*": "<p>*a*</p>", "**a": "<p>**a</p>", "---": "<hr>",
            "&lt;b&gt; &amp;": "<p>&amp;lt;b&amp;gt; &amp;amp;</p>" };
          for (const [text, expected] of Object.entries(cases)) {
            if (show(text).innerHTML !== expected) wrong.push([text, show(text).innerHTML]);
          }
          for (const url of ["javascript:a", "JaVaScRiPt:a", "data:text/html,x", " javascript:a", "vbscript:a", "//x.y", "/x",
            "java\\tscript:a", "&#106;avascript:a", "file:///etc/passwd", "blob:x"]) {
            if (show(`[a](${url}) [a](<${url}>) <${url}>`).querySelector("a")) wrong.push(url);
          }
          const text = "# a\\n\\n- b **c\\n- d** `e`\\n\\n```js\\n" + attack + "\\n```\\n\\n|a|b|\\n|-|-|\\n|" + attack + "|f|\\n\\n> g\\n" + attack;
          const growing = document.createElement("div");
          for (let end = 1; end <= text.length; ++end) showMarkdown(growing, text.slice(0, end));
          if (growing.innerHTML !== show(text).innerHTML) wrong.push(growing.innerHTML);
          for (const piece of ["*a ", "[a](", "`", "> ", "- ", "_a_", "**a ", "|-", "![", "~~a", "http://", "\\\\", "a`b``c"]) {
            const begin = performance.now();
            show(piece.repeat(20000));
            if (performance.now() - begin > 2000) wrong.push(`${piece}: ${performance.now() - begin} ms`);
          }
          done(wrong);
        });""", ATTACK)
    assert not wrong, wrong
    page.close()


def only_this_server_is_asked():
    page = greedy()
    page.ask(MATHS[0])
    asked = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(asked) > 8 and all(name.startswith(server.url + "/") for name in asked), asked
    # The policy is enforced: neither a script nor markup can be put in.
    blocked = page.run("""
        try { document.body.innerHTML = "<b>x</b>"; return false; } catch (error) { return error.name === "TypeError"; }""")
    assert blocked
    assert "trusted" in page.driver.get_log("browser")[-1]["message"].lower()
    page.close()


def api_keys():
    guarded = Server(lantern, model, "--api-key", "secret")
    page = Page(guarded.url)
    wait(lambda: page.one("#key-dialog").is_displayed(), "it asks for the key")
    assert "needs an API key" in page.one("#state").text
    page.press("wrong")
    page.press(Keys.ENTER)
    wait(lambda: "does not know" in page.one("#key-why").text, "it asks again")
    page.press("secret")
    page.press(Keys.ENTER)
    page.ready()
    page.set(temperature="0")
    assert page.ask(MATHS[0]) == MATHS[1]
    assert page.run("return JSON.stringify({ ...localStorage }).includes('secret')") is False
    page.driver.refresh()
    page.ready()
    refused = [entry["message"] for entry in page.driver.get_log("browser")]
    assert len(refused) == 2 and all("401" in message for message in refused), refused
    page.close()
    guarded.stop()


def can_be_switched_off():
    without = Server(lantern, model, "--no-ui")
    assert without.get("/")[0] == 404 and without.get("/health")[0] == 200
    without.stop()


def a_lost_server():
    lost = Server(lantern, model)
    page = Page(lost.url)
    page.ready()
    lost.stop()
    page.one("#prompt").send_keys(MATHS[0], Keys.ENTER)
    wait(lambda: page.all(".assistant .notice") and "cannot be reached" in page.one(".assistant .notice").text, "an error")
    assert "cannot be reached" in page.one("#state").text
    assert all("ERR_CONNECTION" in entry["message"] for entry in page.driver.get_log("browser"))
    page.driver.quit()


for step in [answers_come_in_pieces, stops_and_goes_on, works_without_a_mouse, tools_and_thoughts, what_attention_read, live_view,
             light_and_dark, everything_has_a_name, text_is_never_markup, only_this_server_is_asked, api_keys,
             can_be_switched_off, a_lost_server]:
    step()
    print(step.__name__, "ok", flush=True)
server.stop()
