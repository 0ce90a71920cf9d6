import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import * as task from "./tools.mjs";

const add = createTool({
  ...{ id: "add", description: task.description, inputSchema: task.parameters },
  execute: async (given) => task.add(given.context ?? given),
});
const agent = new Agent({
  ...{ id: "adder", name: "adder", instructions: "You add numbers.", tools: { add } },
  model: { id: `gateway/${task.MODEL}`, url: task.baseURL, apiKey: task.apiKey },
});
if (task.isStreamed) task.say(await (await agent.stream(task.QUESTION)).text);
else task.say((await agent.generate(task.QUESTION)).text);
