// An agent of LangChain, which runs as a graph of LangGraph.
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import * as task from "./tools.mjs";

const add = tool(task.add, { name: "add", description: task.description, schema: task.parameters });
const model = new ChatOpenAI({
  ...{ model: task.MODEL, apiKey: task.apiKey, configuration: { baseURL: task.baseURL } },
  streaming: task.isStreamed,
});
const agent = createAgent({ model, tools: [add] });
const { messages } = await agent.invoke({ messages: [{ role: "user", content: task.QUESTION }] });
task.say(messages.at(-1).content);
