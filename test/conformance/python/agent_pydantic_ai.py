"""An agent of pydantic-ai: it knows the gateway by its environment alone."""

import json

from pydantic_ai import Agent

agent = Agent("openai-chat:gpt-4o", instructions="You add numbers.")


@agent.tool_plain
def add(a: float, b: float) -> int:
    """Adds two numbers."""
    return int(a + b)


print(json.dumps({"text": agent.run_sync("What is 19 + 23 + 8? Add two numbers at a time.").output}))
