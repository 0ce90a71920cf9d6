import { once } from "node:events";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { CommandContext, CommandModule } from "../context.js";
import { showRun } from "../dashboard.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { printItem, wrapCommand, wrapText } from "../output/index.js";
import { createDisplay } from "../quickstart/display.js";

interface QuickstartOptions extends DeviceOptions {
  readonly rl?: true;
  /** Undefined: the dashboard is there, and no browser is opened. */
  readonly dashboard?: boolean;
}

const COLUMNS = (
  ["accuracyBefore", "accuracyAfter", "seconds", "tokensPerSecond", "checkpoint"] as const
).map((name) => ({
  header: name,
  name,
  value: (result: Record<typeof name, string | number>) => result[name],
}));

export const define: CommandModule["define"] = (command, context) => {
  addDeviceOptions(command)
    .option("--rl", "reinforcement learning on addition instead of fine-tuning on Pig Latin")
    .option("--dashboard", "open the dashboard in a browser, and keep it there until Ctrl-C")
    .option("--no-dashboard", "start none")
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
  const folder = `runs/${options.rl ? "addition" : "pig-latin"}-${Date.now()}`;
  const signal = context.interruption();
  await using _ =
    options.dashboard === false
      ? undefined
      : await showRun(context, { folder, server: undefined, open: options.dashboard === true });
  const { device, precision } = options;
  const result = await run({ folder, display, signal, computing: { device, precision } });
  if (isForPeople)
    display.say(whatNext(options, result.checkpoint, stdout.isTTY ? stdout.columns || 80 : 120));
  // The last line alone says it all, whatever a program read before it.
  else if (format === "json") stdout.write(`${JSON.stringify(result)}\n`);
  else printItem(context, result, COLUMNS);
  if (options.dashboard === true && !signal.aborted) await once(signal, "abort");
}

/** Where the program lies, in the repository as in an installed package, seen from here. */
function sourceOf(program: string): string {
  const manifest = import.meta.resolve("tinkerts/package.json");
  const file = new URL(`src/cli/quickstart/${program}.ts`, manifest);
  return relative(process.cwd(), fileURLToPath(file));
}

function whatNext({ rl }: QuickstartOptions, checkpoint: string, width: number): string {
  const prompt = rl ? "47+38=" : "English: smile\\nPig Latin:";
  const ask =
    `printf '${prompt}' | npx tinkerts sample --base-url localhost:8642 ` +
    `--model-path ${checkpoint} --temperature 0 --stop '\\n'`;
  const steps = [
    [
      "Ask it yourself. Run `npx tinkerts serve` in this folder, and in another terminal:",
      wrapCommand(ask, width - 2),
    ],
    rl
      ? ["See fine-tuning on examples:", "npx tinkerts quickstart"]
      : ["See reinforcement learning:", "npx tinkerts quickstart --rl"],
    ["Look at its curves:", "npx tinkerts dashboard"],
    [
      "Make it your own. Copy this program with the files beside it, change it, and run it with `npx tsx`:",
      sourceOf(rl ? "addition" : "pig-latin"),
    ],
  ] as const;
  return [
    "\nWhat to try next:",
    ...steps.map(([text, line]) => `${wrapText(text, width)}\n  ${line.replaceAll("\n", "\n  ")}`),
  ].join("\n\n");
}
