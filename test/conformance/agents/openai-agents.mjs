import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import * as task from "./tools.mjs";

setTracingDisabled(true);
const add = tool({
  ...{ name: "add", description: task.description, parameters: task.parameters },
  execute: async (given) => task.add(given),
});
const agent = new Agent({ name: "adder", instructions: "You add numbers.", model: task.MODEL, tools: [add] });
const result = await run(agent, task.QUESTION, { stream: task.isStreamed });
if (task.isStreamed) await result.completed;
task.say(result.finalOutput);
