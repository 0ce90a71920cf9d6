import { once } from "node:events";
import { relative } from "node:path";
import type { CommandContext, CommandModule } from "../context.js";
import { showRun } from "../dashboard.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { plainColumns, printableJson, printItem, wrapCommand, wrapText } from "../output/index.js";
import { programSource } from "../program-source.js";
import { createDisplay } from "../quickstart/display.js";

interface QuickstartOptions extends DeviceOptions {
  readonly rl?: true;
  /** Undefined: the dashboard starts, but no browser is opened. */
  readonly dashboard?: boolean;
}

const FIELDS = ["accuracyBefore", "accuracyAfter", "seconds", "tokensPerSecond", "checkpoint"] as const;

export const define: CommandModule["define"] = (command, context) => {
  addDeviceOptions(command)
    .option("--rl", "reinforcement learning on addition instead of fine-tuning on Pig Latin")
    .option("--dashboard", "open the dashboard in the browser, until Ctrl-C")
    .option("--no-dashboard", "do not start the dashboard")
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
  // Only the last line is printed, whatever a program read before it.
  else if (format === "json") stdout.write(`${printableJson(result)}\n`);
  else printItem(context, result, plainColumns(...FIELDS));
  if (options.dashboard === true && !signal.aborted) await once(signal, "abort");
}

function whatNext({ rl }: QuickstartOptions, checkpoint: string, width: number): string {
  const prompt = rl ? "47+38=" : "English: smile\\nPig Latin:";
  const ask =
    `printf '${prompt}' | npx tinkerts sample --base-url localhost:8642 ` +
    `--model ${checkpoint} --temperature 0 --stop '\\n'`;
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
      relative(process.cwd(), programSource(`quickstart/${rl ? "addition" : "pig-latin"}`)),
    ],
  ] as const;
  return [
    "\nWhat to try next:",
    ...steps.map(([text, line]) => `${wrapText(text, width)}\n  ${line.replaceAll("\n", "\n  ")}`),
  ].join("\n\n");
}
