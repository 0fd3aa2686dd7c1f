"""DeepSeek-V3.2 chat encoding, as far as the training data needs it.

The encoding (turn tokens, tool instructions, DSML calls, result blocks) is the published wire format of DeepSeek-V3.2
(encoding_dsv32, MIT licence): a model is only useful to a server if it was trained on exactly these strings.
A conversation becomes segments (text, weight): each segment is tokenised on its own, because at run time the prompt and
the completion are tokenised apart too. Weight is in tenths: 10 for what the model must produce, 0 for what it is given.
"""

import json

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"

TOOLS_TEXT = """## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{d}function_calls>" block like the following as part of your reply to the user:
<{d}function_calls>
<{d}invoke name="$FUNCTION_NAME">
<{d}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{d}parameter>
...
</{d}invoke>
<{d}invoke name="$FUNCTION_NAME2">
...
</{d}invoke>
</{d}function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<{d}function_calls>
...
</{d}function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
{schemas}
</functions>
"""

CONTEXT, OUTPUT = 0, 10


def system_text(content: str, tools: list[dict]) -> str:
    if not tools:
        return content
    schemas = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
    return content + "\n\n" + TOOLS_TEXT.format(d=DSML, schemas=schemas)


def call_text(name: str, arguments: dict) -> str:
    """One DSML call block, with the blank line that separates it from the content before it."""
    lines = []
    for key, value in arguments.items():
        is_string = isinstance(value, str)
        text = value if is_string else json.dumps(value, ensure_ascii=False)
        lines.append(f'<{DSML}parameter name="{key}" string="{"true" if is_string else "false"}">{text}</{DSML}parameter>')
    body = f'<{DSML}invoke name="{name}">\n' + "\n".join(lines) + f"\n</{DSML}invoke>"
    return f"\n\n<{DSML}function_calls>\n{body}\n</{DSML}function_calls>"


def result_text(content: str) -> str:
    return f"\n\n<function_results>\n<result>{content}</result>\n</function_results>\n\n"


def user_text(content: str) -> str:
    return f"{USER}{content}{ASSISTANT}"


class Conversation:
    """Builds the segments of one conversation. Thinking of earlier turns is dropped, as the encoder does."""

    def __init__(self, system: str = "", tools: list[dict] | None = None, bos: bool = True):
        self.segments = [((BOS if bos else "") + system_text(system, tools or []), CONTEXT)]

    def user(self, content: str, thinking: bool = False) -> None:
        self.segments.append((user_text(content) + (THINK if thinking else END_THINK), CONTEXT))

    def assistant(self, content: str, reasoning: str | None = None) -> None:
        text = content if reasoning is None else reasoning + END_THINK + content
        self.segments.append((text + EOS, OUTPUT))

    def call(self, name: str, arguments: dict, reasoning: str | None = None) -> None:
        self.assistant(call_text(name, arguments), reasoning)

    def result(self, content: str, thinking: bool = False) -> None:
        self.segments.append((result_text(content) + (THINK if thinking else END_THINK), CONTEXT))
