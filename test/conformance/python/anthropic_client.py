"""The official anthropic package as a client of the messages endpoint: prints what it was told, as JSON. Run by harnesses.test.ts."""

import json
import os

import anthropic

address = os.environ["TINKER_BASE_URL"] + "/anthropic"
client = anthropic.Anthropic(base_url=address, api_key=os.environ["TINKER_API_KEY"], max_retries=0)
stranger = anthropic.Anthropic(base_url=address, api_key="tml-wrong", max_retries=0)
messages = [{"role": "user", "content": "Weather in Rome?"}]
settings = {"model": os.environ["MODEL"], "max_tokens": 500}
weather = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def status_of(asked, **changes):
    try:
        asked.messages.create(messages=messages, **{**settings, **changes})
    except anthropic.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.body["error"]["type"]]
    return None


def blocks(message):
    return [block.model_dump() for block in message.content]


whole = client.messages.create(messages=messages, **settings)
with client.messages.stream(messages=messages, **settings) as stream:
    texts = "".join(stream.text_stream)
    streamed = stream.get_final_message()
called = client.messages.create(messages=messages, tools=[weather], **settings)
call = next(block for block in called.content if block.type == "tool_use")
result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
history = [
    *messages,
    {"role": "assistant", "content": called.content},
    {"role": "user", "content": [result]},
]
last = client.messages.create(messages=history, tools=[weather], **settings)
counted = client.messages.count_tokens(messages=messages, model=settings["model"])
print(
    json.dumps(
        {
            "whole": blocks(whole),
            "streamed": blocks(streamed),
            "texts": texts,
            "call": call.model_dump(),
            "last": blocks(last),
            "stops": [message.stop_reason for message in (whole, streamed, called, last)],
            "inputTokens": [counted.input_tokens, whole.usage.input_tokens],
            "errors": [
                status_of(client, model="nothing"),
                status_of(client, max_tokens=-1),
                status_of(stranger),
            ],
        }
    )
)
