import { wrongValue } from "../../wire/index.js";
import { checkWhole } from "../data/rows.js";
import type { Environment, EnvironmentGroup, GroupSource } from "./environment.js";
import { type InOrder, replay } from "./replay.js";

/** Where tasks come from, and the environment that each is done in. */
export interface EnvironmentGroupOptions<T> extends Pick<EnvironmentGroup, "groupRewards"> {
  /** An array is shuffled in each epoch; what else can be iterated comes in its order; a function is asked by number. */
  readonly tasks: InOrder<T>;
  /** Called for each try, and again when a try is repeated. */
  readonly environment: (task: T) => Environment | Promise<Environment>;
  /** Tries at each task, which are compared with each other. */
  readonly groupSize: number;
  /** Decides the order of an array's epochs. Default: 0. */
  readonly seed?: number | undefined;
  /** Names under which metrics are counted too. */
  readonly tags?: readonly string[] | ((task: T) => readonly string[]) | undefined;
}

/** Groups of tries at tasks. How tasks are taken and replayed: see `InOrder`. */
export function environmentGroups<T>(options: EnvironmentGroupOptions<T>): GroupSource {
  const { environment } = options;
  if (typeof environment !== "function") throw wrongValue("environment", "a function of a task", environment);
  return groupsOf("tasks", options, (task) => () => environment(task));
}

/** `prepare` is called once for each group, with the name of the task for errors. */
export function groupsOf<T>(
  field: string,
  { tasks, groupSize, seed = 0, tags = [], groupRewards }: Omit<EnvironmentGroupOptions<T>, "environment">,
  prepare: (task: T, field: string) => () => Environment | Promise<Environment>,
): GroupSource {
  checkWhole("groupSize", groupSize, 1);
  const taken = replay(tasks, { seed, field });
  return {
    length: taken.length,
    group: async (index) => {
      checkWhole("index", index, 0);
      const task = await taken.at(index);
      if (task === undefined) return undefined;
      const make = prepare(task, `${field}[${index}]`);
      return {
        makeEnvironments: () => makeAll(groupSize, make),
        ...(groupRewards && { groupRewards }),
        tags: typeof tags === "function" ? tags(task) : tags,
      };
    },
    close: () => taken.close(),
  };
}

/** All, or none: what was made before one failed is closed. */
async function makeAll(
  count: number,
  make: () => Environment | Promise<Environment>,
): Promise<readonly Environment[]> {
  const made = await Promise.allSettled(Array.from({ length: count }, async () => make()));
  const failed = made.find((each) => each.status === "rejected");
  const environments = made.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  if (failed === undefined) return environments;
  await Promise.allSettled(environments.map(async (environment) => environment.close?.()));
  throw failed.reason;
}
