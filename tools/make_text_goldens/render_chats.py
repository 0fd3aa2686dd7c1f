"""Renders tests/text/chat/conversations.json with the templates that the models were published with.

    python tools/make_text_goldens/render_chats.py TEMPLATES tests/text/chat

TEMPLATES is a folder outside of this repository with the published chat templates, one FORMAT.jinja per format
(deepseek_v2, deepseek_v3_0324, deepseek_r1, deepseek_v31, glm45, glm47, glm52, kimi_k2, kimi_k2_thinking, moonlight), and DeepSeek
V3.2's published encoding module as encoding_dsv32.py. Only what they render is kept: expected.json. Templates are compiled
exactly as transformers does it.

Four things are not in any template: the description of tools of V3.1 follows its model card; V3.2 declares tools in the
first system message (an empty one where there is none); R1's template is only given what it can express (one round of calls);
Kimi-K2's tokenizer class sorts the keys of tools before its template sees them.
"""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
FORMATS = ["deepseek_v2", "deepseek_v3_0324", "deepseek_r1", "deepseek_v31", "deepseek_v32", "glm45", "glm47", "glm52",
           "kimi_k2", "kimi_k2_thinking", "moonlight"]
HAS_TOOLS = {"deepseek_v31", "deepseek_v32", "glm45", "glm47", "glm52", "kimi_k2", "kimi_k2_thinking"}
HAS_RESULTS = HAS_TOOLS | {"deepseek_v3_0324", "deepseek_r1"}
HYBRID = {"deepseek_v31", "deepseek_v32", "glm45", "glm47", "glm52"}


def openai_messages(messages, arguments_as_object):
    out = []
    for message in copy.deepcopy(messages):
        for call in message.get("tool_calls", []):
            arguments = call.pop("arguments")
            call["type"] = "function"
            call["function"] = dict(name=call.pop("name"),
                                    arguments=json.loads(arguments) if arguments_as_object else arguments)
        out.append(message)
    return out


def sorted_keys(value):
    return json.loads(json.dumps(value, sort_keys=True))


def v31_tools(tools):
    parts = ["## Tools", "You have access to the following tools:"]
    for tool in tools:
        function = tool["function"]
        parts += ["", f"### {function['name']}", f"Description: {function['description']}", "",
                  f"Parameters: {json.dumps(function['parameters'], ensure_ascii=False)}"]
    parts += ["", "IMPORTANT: ALWAYS adhere to this exact format for tool use:",
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>"
              "{additional_tool_calls}<｜tool▁calls▁end｜>", "", "Where:",
              "- `tool_call_name` must be an exact match to one of the available tools",
              "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema",
              "- For multiple tool calls, chain them directly without separators or spaces"]
    return "\n".join(parts)


def render(name, templates, encoding, conversation, thinking, add_generation_prompt):
    messages = openai_messages(conversation["messages"], name.startswith("glm"))
    tools = conversation.get("tools")
    if name == "deepseek_v32":
        if tools:
            if messages[0]["role"] != "system":
                messages.insert(0, dict(role="system", content=""))
            messages[0]["tools"] = tools
        return encoding.encode_messages(messages, "thinking" if thinking else "chat")
    kwargs = dict(bos_token=BOS, eos_token=EOS, add_generation_prompt=add_generation_prompt)
    if name == "deepseek_v31" and tools:
        if messages[0]["role"] != "system":
            messages.insert(0, dict(role="system", content=""))
        messages[0]["content"] += "\n\n" + v31_tools(tools)
    elif tools:
        kwargs["tools"] = sorted_keys(tools) if name.startswith("kimi") else tools
    if thinking is not None:
        kwargs["thinking" if name == "deepseek_v31" else "enable_thinking"] = thinking
    if "reasoning_effort" in conversation:
        kwargs["reasoning_effort"] = conversation["reasoning_effort"]
    return templates[name].render(messages=messages, **kwargs)


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    spec = importlib.util.spec_from_file_location("encoding_dsv32", folder / "encoding_dsv32.py")
    encoding = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(encoding)
    templates = {name: _compile_jinja_template((folder / f"{name}.jinja").read_text("utf-8").removesuffix("\n"))
                 for name in FORMATS if name != "deepseek_v32"}
    conversations = json.loads((out / "conversations.json").read_text("utf-8"))
    cases = []
    for title, conversation in conversations.items():
        for name in FORMATS:
            roles = {m["role"] for m in conversation["messages"]}
            uses_calls = "tool" in roles or any("tool_calls" in m for m in conversation["messages"])
            if conversation.get("tools") and name not in HAS_TOOLS or uses_calls and name not in HAS_RESULTS:
                continue
            if "only" in conversation and name not in conversation["only"] or name in conversation.get("not", []):
                continue
            for thinking in (None, False, True) if name in HYBRID else (None,):
                # The V3.2 encoder loses count of its messages when it drops thinking and a developer message came first.
                if conversation.get("chat_only") and thinking:
                    continue
                for add_generation_prompt in (True, False):
                    # The V3.2 encoder has no such choice; for the others one case each keeps this file small.
                    if not add_generation_prompt and (name == "deepseek_v32" or thinking is not None):
                        continue
                    try:
                        text = render(name, templates, encoding, conversation, thinking, add_generation_prompt)
                    except AssertionError:  # the V3.2 encoder refuses it
                        text = None
                    case = dict(conversation=title, format=name, add_generation_prompt=add_generation_prompt, text=text)
                    if thinking is not None:
                        case["thinking"] = thinking
                    cases.append(case)
    document = dict(versions=dict(transformers=transformers.__version__, jinja2=jinja2.__version__), cases=cases)
    (out / "expected.json").write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n", "utf-8")
    print(len(cases), "cases,", sum(c["text"] is None for c in cases), "refused")


if __name__ == "__main__":
    main()
