"""The anthropic package against the server: whole messages, streams, tools, errors."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="EMPTY", max_retries=0)
ask = dict(
    model="tiny",
    max_tokens=200,
    messages=[{"role": "user", "content": "What is 6 times 7?"}],
    extra_body={"temperature": 0},  # the package has no name for it any more
)
calculator = {
    "name": "calculator",
    "description": "Evaluate an arithmetic expression.",
    "input_schema": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "The expression to evaluate, such as 12*7."}},
        "required": ["expression"],
    },
}


def messages():
    whole = client.messages.create(**ask)
    assert "42" in whole.content[0].text and whole.stop_reason == "end_turn", whole
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model="tiny", messages=ask["messages"])
    assert counted.input_tokens == whole.usage.input_tokens


def tools():
    request = {**ask, "tools": [calculator], "messages": [{"role": "user", "content": "What is 9818*847?"}]}
    whole = client.messages.create(**request)
    assert whole.stop_reason == "tool_use" and whole.content[0].input == {"expression": "9818*847"}, whole
    with client.messages.stream(**request) as stream:
        final = stream.get_final_message()
    assert final.content[0].name == "calculator" and final.content[0].input == whole.content[0].input, final


def errors():
    try:
        client.messages.create(**{**ask, "extra_body": {"temperature": -1}})
        raise AssertionError("no error")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error", error.body


for step in [messages, tools, errors]:
    step()
    print(step.__name__, "ok")
