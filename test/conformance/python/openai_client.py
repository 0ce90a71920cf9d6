"""The official openai package as a client of the OpenAI-compatible endpoint: prints what it was told, as JSON."""

import json
import os

import openai

model = os.environ["MODEL"]
client = openai.OpenAI(
    base_url=os.environ["TINKER_BASE_URL"] + "/v1", api_key=os.environ["TINKER_API_KEY"], max_retries=0
)
messages = [{"role": "user", "content": "What is 3 + 4?"}]
settings = {"model": model, "max_tokens": 12, "seed": 7, "temperature": 0.8}


def status_of(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return None


chat = client.chat.completions.create(messages=messages, n=2, logprobs=True, top_logprobs=2, **settings)
pieces = ["", ""]
usage = None
for chunk in client.chat.completions.create(
    messages=messages, n=2, stream=True, stream_options={"include_usage": True}, **settings
):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        pieces[choice.index] += choice.delta.content or ""
texts = client.completions.create(prompt=["One, two,", "A, B,"], echo=True, logprobs=1, **settings)
tokens = client.completions.create(
    prompt=[[72, 105, 33], [65, 66]], echo=True, logprobs=1, **{**settings, "max_tokens": 0}
)
schema = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
structured = client.chat.completions.create(
    messages=messages,
    response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
    model=model,
    max_tokens=40,
)
print(
    json.dumps(
        {
            "models": [entry.id for entry in client.models.list()],
            "model": client.models.retrieve(model).id,
            "chat": [choice.message.content for choice in chat.choices],
            "logprobs": [len(choice.logprobs.content) for choice in chat.choices],
            "streamed": pieces,
            "usage": [usage.total_tokens, chat.usage.total_tokens],
            "texts": [choice.text for choice in texts.choices],
            "first_logprobs": [choice.logprobs.token_logprobs[0] for choice in texts.choices],
            "scored": [[logprob is not None for logprob in choice.logprobs.token_logprobs] for choice in tokens.choices],
            "structured": json.loads(structured.choices[0].message.content),
            "errors": [
                status_of(lambda: client.models.retrieve("nothing")),
                status_of(
                    lambda: client.chat.completions.create(messages=messages, presence_penalty=1, model=model)
                ),
                status_of(lambda: client.completions.create(prompt="x " * 2000, model=model)),
                status_of(lambda: client.embeddings.create(input="x", model=model)),
            ],
        }
    )
)
