"""The openai package against the server: whole answers, streams, async, errors, cancellation."""

import asyncio
import json
import sys
import time
import typing
import urllib.request

import openai
import pydantic

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="EMPTY", max_retries=0)
chat = dict(model="tiny", messages=[{"role": "user", "content": "What is 6 times 7?"}], temperature=0)
question = "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?"


def gauge(name):
    for line in urllib.request.urlopen(url + "/metrics").read().decode().splitlines():
        if line.startswith(name + "{"):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name}")


def models():
    listed = client.models.list().data
    assert listed[0].id == "tiny", listed
    assert client.models.retrieve("tiny").id == "tiny"


def whole_and_streamed_chats():
    whole = client.chat.completions.create(**chat)
    assert "42" in whole.choices[0].message.content, whole
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.completion_tokens_details.reasoning_tokens == 0
    assert whole._request_id
    text, usage = "", None
    for chunk in client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content
    assert usage.completion_tokens == whole.usage.completion_tokens


def logprobs():
    answer = client.chat.completions.create(**chat, logprobs=True, top_logprobs=3, max_completion_tokens=5)
    content = answer.choices[0].logprobs.content
    assert len(content) == 5 and all(len(t.top_logprobs) == 3 for t in content)
    assert all(t.logprob == t.top_logprobs[0].logprob for t in content), "greedy"


def tools():
    function = {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {
                "expression": {"type": "string", "description": "The expression to evaluate, such as 12*7."}
            },
            "required": ["expression"],
        },
    }
    request = {
        **chat,
        "messages": [{"role": "user", "content": "What is 9818*847?"}],
        "tools": [{"type": "function", "function": function}],
    }
    whole = client.chat.completions.create(**request).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
    call = whole.message.tool_calls[0]
    assert call.function.name == "calculator" and "9818*847" in call.function.arguments, call
    with client.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert final.message.tool_calls[0].function.arguments == call.function.arguments, final


def responses():
    ask = dict(model="tiny", input="What is 6 times 7?", temperature=0)
    whole = client.responses.create(**ask)
    assert "42" in whole.output_text and whole.status == "completed" and whole.store is False, whole
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole.usage.output_tokens_details.reasoning_tokens == 0
    kinds = []
    for number, event in enumerate(client.responses.create(**ask, stream=True)):
        assert event.sequence_number == number, event
        kinds.append(event.type)
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    text = ""
    with client.responses.stream(**ask) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
                assert event.snapshot == text, event
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text
    # A conversation goes on by its items.
    items = [{"role": "user", "content": ask["input"]}, *whole.output, {"role": "user", "content": "And 6 times 8?"}]
    assert client.responses.create(**{**ask, "input": items}).output_text
    thinking = client.responses.create(**{**ask, "input": "Search for cow.", "reasoning": {"effort": "high"}})
    assert thinking.output[0].type == "reasoning" and thinking.output[0].content[0].text, thinking
    assert thinking.usage.output_tokens_details.reasoning_tokens > 0
    short = client.responses.create(**ask, max_output_tokens=2)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens", short


def responses_with_tools_and_forms():
    class Count(pydantic.BaseModel):
        kind: typing.Literal["apples", "pears"]
        count: typing.Literal[12, 13]

    try:
        parsed = client.responses.parse(model="tiny", input="Tom has 12 apples.", temperature=0, text_format=Count)
        assert isinstance(parsed.output_parsed, Count), parsed
    except openai.InternalServerError as error:
        assert error.status_code == 501, error
        print("this build has no structured output: skipped")
    tool = {
        "type": "function",
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {
                "expression": {"type": "string", "description": "The expression to evaluate, such as 12*7."}
            },
            "required": ["expression"],
        },
    }
    request = dict(model="tiny", input="What is 9818*847?", temperature=0, tools=[tool])
    call = client.responses.create(**request).output[0]
    assert call.type == "function_call" and json.loads(call.arguments) == {"expression": "9818*847"}, call
    with client.responses.stream(**request) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                assert call.arguments.startswith(event.snapshot), event
        assert stream.get_final_response().output[0].arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "8315846"}
    items = [{"role": "user", "content": request["input"]}, call, result]
    assert client.responses.create(**{**request, "input": items}).status == "completed"
    try:
        client.responses.create(model="tiny", input="x", previous_response_id="resp_1")
        raise AssertionError("no error")
    except openai.BadRequestError as error:
        assert error.param == "previous_response_id" and error.code == "unsupported_parameter", error


def completions():
    answer = client.completions.create(model="tiny", prompt=[question, question], temperature=0, max_tokens=40, n=2)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert len({c.text for c in answer.choices}) == 1 and "27" in answer.choices[0].text
    scored = client.completions.create(model="tiny", prompt=[[0, 50, 60]], echo=True, logprobs=1, max_tokens=1,
                                       temperature=0, seed=1234)
    lists = scored.choices[0].logprobs
    assert len(lists.tokens) == 4 and lists.token_logprobs[0] is None and lists.top_logprobs[0] is None


def errors():
    for kind, call in [
        (openai.NotFoundError, lambda: client.chat.completions.create(**{**chat, "model": "gpt-4"})),
        (openai.BadRequestError, lambda: client.completions.create(model="tiny", prompt="x", temperature=-1)),
        (openai.BadRequestError, lambda: client.completions.create(model="tiny", prompt="x", max_tokens=100000)),
    ]:
        try:
            call()
            raise AssertionError(f"no {kind}")
        except kind as error:
            assert error.type and error.code and error.param and error.body["message"], error


def cancellation():
    stream = client.completions.create(model="tiny", prompt="Hello", max_tokens=1900, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    assert gauge("vllm:num_requests_running") == 1
    stream.close()
    end = time.time() + 5
    while gauge("vllm:num_requests_running") > 0:
        assert time.time() < end, "the request goes on for nobody"
        time.sleep(0.02)


async def many_at_once():
    many = openai.AsyncOpenAI(base_url=url + "/v1", api_key="EMPTY", max_retries=0)

    async def one():
        text = ""
        async for chunk in await many.chat.completions.create(**chat, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    texts = await asyncio.gather(*(one() for _ in range(24)))
    assert len(set(texts)) == 1 and "42" in texts[0], set(texts)


for step in [models, whole_and_streamed_chats, logprobs, tools, responses, responses_with_tools_and_forms, completions,
             errors, cancellation]:
    step()
    print(step.__name__, "ok")
asyncio.run(many_at_once())
print("many_at_once ok")
