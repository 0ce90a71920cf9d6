import { ToolLoopAgent, tool } from "ai7";
import { createOpenAICompatible } from "compatible7";
import * as task from "./tools.mjs";

const provider = createOpenAICompatible({ name: "gateway", baseURL: task.baseURL, apiKey: task.apiKey });
const agent = new ToolLoopAgent({
  model: provider(task.MODEL),
  tools: {
    add: tool({ description: task.description, inputSchema: task.parameters, execute: task.add }),
  },
});
if (task.isStreamed) task.say(await (await agent.stream({ prompt: task.QUESTION })).text);
else task.say((await agent.generate({ prompt: task.QUESTION })).text);
