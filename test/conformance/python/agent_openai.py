"""A loop with tools as people write it with OpenAI's package: it knows the gateway by its environment alone."""

import json

from openai import OpenAI

QUESTION = "What is 19 + 23 + 8? Add two numbers at a time."
PARAMETERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": PARAMETERS}}

client = OpenAI(max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
while True:
    answer = client.chat.completions.create(model="gpt-4o", messages=messages, tools=[TOOL]).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        given = json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])})
print(json.dumps({"text": answer.content}))
