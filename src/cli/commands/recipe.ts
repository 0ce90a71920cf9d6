import { readFileSync } from "node:fs";
import { relative } from "node:path";
import { consoleLogger } from "../../cookbook/runs/index.js";
import { defaultModel } from "../../local/default-model.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { hasServer, openService } from "../local-service.js";
import { wholeNumber } from "../option-values.js";
import { plainColumns, printJson, printList } from "../output/index.js";
import { programSource } from "../program-source.js";
import { RECIPES, type Recipe } from "../recipes/index.js";

interface RecipeOptions extends DeviceOptions {
  readonly source?: true;
  readonly model?: string;
  readonly steps?: number;
  readonly seed?: number;
  readonly folder?: string;
}

const MAX_COUNT = 1_000_000_000;

export const define: CommandModule["define"] = (command, context) => {
  addDeviceOptions(command)
    .argument("[name]", "a recipe; without one, all are listed")
    .option("--source", "print the program instead of running it")
    .option("--model <name>", `model to train (default: ${defaultModel.name})`)
    .option(
      "--steps <number>",
      "training steps (default: what the built-in model needs)",
      wholeNumber(1, MAX_COUNT),
    )
    .option("--seed <number>", "random seed", wholeNumber(0, MAX_COUNT))
    .option("--folder <folder>", "folder for the runs; the same command resumes")
    .action((name: string | undefined, options: RecipeOptions) => recipe(name, options, context));
};

async function recipe(
  name: string | undefined,
  options: RecipeOptions,
  context: CommandContext,
): Promise<void> {
  if (name === undefined) {
    const recipes = Object.entries(RECIPES).map(([recipe, { summary }]) => ({ name: recipe, summary }));
    printList(context, recipes, { columns: plainColumns("name", "summary"), empty: "no recipes" });
    return;
  }
  const entry = Object.hasOwn(RECIPES, name) ? RECIPES[name] : undefined;
  if (entry === undefined) {
    throw new UsageError(`there is no recipe ${name}; there are ${Object.keys(RECIPES).join(", ")}`);
  }
  const source = programSource(`recipes/${name}`);
  if (options.source) context.stdout.write(readFileSync(source, "utf8"));
  else {
    const { packages = [] } = entry;
    const missing = packages.filter((needed) => !isInstalled(needed));
    if (missing.length > 0)
      throw new UsageError(`${name} needs packages that are not installed: npm install ${missing.join(" ")}`);
    await cook(name, await entry.load(), source, options, context);
  }
}

function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(name);
    return true;
  } catch {
    return false;
  }
}

async function cook(
  name: string,
  { bar, run }: Recipe,
  source: string,
  { model: given, steps, seed, folder, ...device }: RecipeOptions,
  context: CommandContext,
): Promise<void> {
  if (given === undefined && hasServer(context)) {
    throw new UsageError("which model? Give --model NAME (see tinkerts models)");
  }
  const started = performance.now();
  const wanted = given ?? defaultModel.name;
  await using server = await openService(context, { name: wanted, baseModel: wanted }, device);
  const model = server.model.baseModel ?? wanted;
  const results = await run({
    service: server.service,
    model,
    steps,
    seed,
    folder,
    loggers: [consoleLogger({ screen: context.stderr })],
    signal: context.interruption(),
  });
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  // The bar applies only to the built-in model and its default number of steps.
  const isJudged = model === defaultModel.name && steps === undefined;
  const missed = isJudged ? missedOf(bar, results) : [];
  if (context.globals().format === "json") printJson(context, { name, ...results, seconds, bar, missed });
  else {
    const lines = Object.entries({ ...results, seconds }).map(([key, value]) => {
      const shown = typeof value === "number" ? String(Math.round(1000 * value) / 1000) : value;
      const limit = isJudged ? bar[key] : undefined;
      return `${key.padEnd(20)} ${limit === undefined ? shown : `${shown.padEnd(8)} (${wantedOf(limit)})`}\n`;
    });
    context.stdout.write(lines.join(""));
    context.notify(
      `\nMake it your own: copy ${relative(process.cwd(), source)}, change it, and run it with \`npx tsx\`.`,
    );
  }
  if (missed.length > 0) throw new Error(`${name} missed its expected results: ${missed.join(", ")}`);
}

/** Describes each result that is below its bar. */
function missedOf(bar: Recipe["bar"], results: Awaited<ReturnType<Recipe["run"]>>): string[] {
  return Object.entries(bar).flatMap(([name, limit]) => {
    const value = Number(results[name]);
    const isMet = "atLeast" in limit ? value >= limit.atLeast : value <= limit.atMost;
    return isMet ? [] : [`${name} is ${value}, and should be ${wantedOf(limit)}`];
  });
}

function wantedOf(limit: Recipe["bar"][string]): string {
  return "atLeast" in limit ? `at least ${limit.atLeast}` : `at most ${limit.atMost}`;
}
