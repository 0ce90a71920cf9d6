import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { CommandContext, CommandModule } from "../context.js";
import { printItem } from "../output/index.js";
import { createDisplay } from "../quickstart/display.js";

interface QuickstartOptions {
  readonly rl?: true;
}

const columns = (
  ["accuracyBefore", "accuracyAfter", "seconds", "tokensPerSecond", "checkpoint"] as const
).map((name) => ({
  header: name,
  name,
  value: (result: Record<typeof name, string | number>) => result[name],
}));

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--rl", "reinforcement learning on addition instead of fine-tuning on Pig Latin")
    .action((options: QuickstartOptions) => quickstart(options, context));
};

async function quickstart(options: QuickstartOptions, context: CommandContext): Promise<void> {
  const { stdout, stderr } = context;
  const run = options.rl
    ? (await import("../quickstart/addition.js")).runAddition
    : (await import("../quickstart/pig-latin.js")).runPigLatin;
  const { format } = context.globals();
  const isForPeople = format === "table";
  const display = createDisplay(isForPeople ? stdout : stderr, stderr);
  const result = await run({ display, signal: context.interruption() });
  if (isForPeople) for (const line of whatNext(options, result.checkpoint)) display.say(line);
  // The last line alone says it all, whatever a program read before it.
  else if (format === "json") stdout.write(`${JSON.stringify(result)}\n`);
  else printItem(context, result, columns);
}

/** Where the program lies, in the repository as in an installed package, seen from here. */
function sourceOf(program: string): string {
  const manifest = import.meta.resolve("tinkerts/package.json");
  const file = new URL(`src/cli/quickstart/${program}.ts`, manifest);
  return relative(process.cwd(), fileURLToPath(file));
}

function whatNext({ rl }: QuickstartOptions, checkpoint: string): string[] {
  const prompt = rl ? "47+38=" : "English: smile\\nPig Latin:";
  return [
    "",
    "What to try next:",
    "- Ask it yourself: run `npx tinkerts serve` in this folder, and in another terminal",
    `  printf '${prompt}' | npx tinkerts sample --base-url http://127.0.0.1:8642 --model-path ${checkpoint} --temperature 0 --stop '\\n'`,
    rl
      ? "- Fine-tuning on examples: npx tinkerts quickstart"
      : "- Reinforcement learning: npx tinkerts quickstart --rl",
    `- Copy the program with the files beside it, change it, and run it with npx tsx: ${sourceOf(rl ? "addition" : "pig-latin")}`,
  ];
}
