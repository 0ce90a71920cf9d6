"""A loop with tools as people write it with Anthropic's package: it knows the gateway by its environment alone."""

import json
import os

from anthropic import Anthropic

QUESTION = "What is 19 + 23 + 8? Add two numbers at a time."
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
TOOL = {"name": "add", "description": "Adds two numbers.", "input_schema": SCHEMA}

client = Anthropic(max_retries=0, auth_token=os.environ["ANTHROPIC_AUTH_TOKEN"])
messages = [{"role": "user", "content": QUESTION}]
while True:
    with client.messages.stream(model="claude", max_tokens=200, messages=messages, tools=[TOOL]) as stream:
        answer = stream.get_final_message()
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])} for call in calls
    ]
    messages.append({"role": "user", "content": results})
print(json.dumps({"text": "".join(block.text for block in answer.content if block.type == "text")}))
