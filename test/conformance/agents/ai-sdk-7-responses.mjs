// The default provider of the AI SDK: the Responses API, with items by reference.
import { ToolLoopAgent, tool } from "ai7";
import { createOpenAI } from "openai7";
import * as task from "./tools.mjs";

const openai = createOpenAI({ baseURL: task.baseURL, apiKey: task.apiKey });
const agent = new ToolLoopAgent({
  model: openai(task.MODEL),
  tools: {
    add: tool({ description: task.description, inputSchema: task.parameters, execute: task.add }),
  },
});
if (task.isStreamed) task.say(await (await agent.stream({ prompt: task.QUESTION })).text);
else task.say((await agent.generate({ prompt: task.QUESTION })).text);
