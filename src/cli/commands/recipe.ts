import { readFileSync } from "node:fs";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { consoleLogger } from "../../cookbook/runs/index.js";
import { defaultModel } from "../../local/default-model.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { hasServer, openService } from "../local-service.js";
import { printJson, printList } from "../output/index.js";
import { RECIPES, type Recipe } from "../recipes/index.js";
import { count } from "../train/run-options.js";

interface RecipeOptions extends DeviceOptions {
  readonly source?: true;
  readonly model?: string;
  readonly steps?: number;
  readonly seed?: number;
  readonly folder?: string;
}

export const define: CommandModule["define"] = (command, context) => {
  addDeviceOptions(command)
    .argument("[name]", "a recipe; without one, all are listed")
    .option("--source", "print the program instead of running it")
    .option("--model <name>", `the model that learns (default: ${defaultModel.name})`)
    .option("--steps <number>", "how long it learns (default: what the built-in model needs)", count())
    .option("--seed <number>", "another one gives another run", count(0))
    .option("--folder <folder>", "where runs are kept; the same command goes on where it stopped")
    .action((name: string | undefined, options: RecipeOptions) => recipe(name, options, context));
};

async function recipe(
  name: string | undefined,
  options: RecipeOptions,
  context: CommandContext,
): Promise<void> {
  if (name === undefined) {
    const recipes = Object.entries(RECIPES).map(([recipe, { summary }]) => ({ name: recipe, summary }));
    const columns = (["name", "summary"] as const).map((column) => ({
      header: column,
      name: column,
      value: (item: (typeof recipes)[number]) => item[column],
    }));
    printList(context, recipes, { columns, empty: "no recipes" });
    return;
  }
  const entry = Object.hasOwn(RECIPES, name) ? RECIPES[name] : undefined;
  if (entry === undefined) {
    throw new UsageError(`there is no recipe ${name}; there are ${Object.keys(RECIPES).join(", ")}`);
  }
  const source = sourceOf(name);
  if (options.source) context.stdout.write(readFileSync(source, "utf8"));
  else await cook(name, await entry.load(), source, options, context);
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
  await using server = await openService(context, given ?? defaultModel.name, device);
  const model = server.baseModel ?? defaultModel.name;
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
  // What the bar says is known of the built-in model alone, and of no other number of steps.
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
  if (missed.length > 0) throw new Error(`${name} has not learnt what it should: ${missed.join(", ")}`);
}

/** What of the results is not as good as the bar, in words. */
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

/** Where the program lies, in the repository as in an installed package. */
function sourceOf(name: string): string {
  const manifest = import.meta.resolve("tinkerts/package.json");
  return fileURLToPath(new URL(`src/cli/recipes/${name}.ts`, manifest));
}
