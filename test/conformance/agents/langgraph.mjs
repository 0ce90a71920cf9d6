// A graph of LangGraph over the Responses API.

import { tool } from "@langchain/core/tools";
import { MessagesAnnotation, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import * as task from "./tools.mjs";

const tools = [tool(task.add, { name: "add", description: task.description, schema: task.parameters })];
const model = new ChatOpenAI({
  ...{ model: task.MODEL, apiKey: task.apiKey, configuration: { baseURL: task.baseURL } },
  ...{ useResponsesApi: true, streaming: task.isStreamed },
}).bindTools(tools);
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
  .addNode("tools", new ToolNode(tools))
  .addEdge("__start__", "model")
  .addConditionalEdges("model", toolsCondition)
  .addEdge("tools", "model")
  .compile();
const { messages } = await graph.invoke({ messages: [{ role: "user", content: task.QUESTION }] });
task.say(messages.at(-1).text);
