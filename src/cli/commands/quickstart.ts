import type { CommandContext, CommandModule } from "../context.js";
import { createDisplay } from "../quickstart/display.js";

interface QuickstartOptions {
  readonly rl?: true;
  readonly json?: true;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--rl", "reinforcement learning on addition instead of fine-tuning on Pig Latin")
    .option("--json", "print the results as one line of JSON")
    .action((options: QuickstartOptions) => quickstart(options, context));
};

async function quickstart(options: QuickstartOptions, context: CommandContext): Promise<void> {
  const { stdout, stderr } = context;
  const run = options.rl
    ? (await import("../quickstart/addition.js")).runAddition
    : (await import("../quickstart/pig-latin.js")).runPigLatin;
  const display = createDisplay(options.json ? stderr : stdout, stderr);
  const result = await run({ display, signal: context.interruption() });
  if (options.json) stdout.write(`${JSON.stringify(result)}\n`);
  else for (const line of whatNext(options, result.checkpoint)) display.say(line);
}

function whatNext({ rl }: QuickstartOptions, checkpoint: string): string[] {
  const prompt = rl ? "47+38=" : "English: smile\nPig Latin:";
  const request = JSON.stringify({ model: checkpoint, prompt, max_tokens: 20, temperature: 0, stop: ["\n"] });
  return [
    "",
    "What to try next:",
    "- Ask it yourself: run `npx tinkerts serve` in this folder, and in another terminal",
    `  curl http://127.0.0.1:8642/oai/api/v1/completions -H 'content-type: application/json' -d '${request}'`,
    rl
      ? "- Fine-tuning on examples: npx tinkerts quickstart"
      : "- Reinforcement learning: npx tinkerts quickstart --rl",
    `- Copy the program and change it: src/cli/quickstart/${rl ? "addition" : "pig-latin"}.ts in the repository`,
  ];
}
