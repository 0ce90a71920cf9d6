import type { Renderer } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import type { Environment, EnvironmentGroup, GroupSource, Player } from "./environment.js";
import { type ItemSource, replay } from "./replay.js";

/** Source of tasks, and the environment of each. */
export interface EnvironmentGroupOptions<T> extends Pick<EnvironmentGroup, "groupRewards"> {
  /**
   * Tasks. An array is shuffled in each epoch; another iterable keeps its order; a function is called with the task's
   * number.
   */
  readonly tasks: ItemSource<T>;
  /** Called for each episode, and again when an episode is repeated. */
  readonly environment: (task: T) => Environment | Promise<Environment>;
  /** Episodes per task, whose rewards are compared. */
  readonly groupSize: number;
  /** Seed of an array's order in each epoch. Default: 0. */
  readonly seed?: number | undefined;
  /** Tags under which metrics are also counted. */
  readonly tags?: readonly string[] | ((task: T) => readonly string[]) | undefined;
  /** Ignored: allows passing on the whole context of `environments`. */
  readonly renderer?: Renderer | undefined;
}

type Groups = EnvironmentGroupOptions<unknown>;
/** The option table of every kind of groups. */
export const GROUP_OPTIONS = {
  groupSize: f.option(f.positiveInteger, "tries at each task, which are compared with each other"),
  seed: f.option(f.withDefault(f.nonNegativeInteger, 0), "seed of the order of an array's epochs"),
  tags: f.option(
    f.optional(f.opaque as f.Field<NonNullable<Groups["tags"]>>),
    "names that metrics are grouped by",
  ),
  groupRewards: f.option(
    f.optional(f.functionOf<NonNullable<Groups["groupRewards"]>>()),
    "rewards that depend on all tries",
  ),
};
/** The option table of `environmentGroups`. */
export const ENVIRONMENT_GROUP_OPTIONS = f.optionTable({
  ...GROUP_OPTIONS,
  tasks: f.option(f.opaque as f.Field<Groups["tasks"]>, "tasks to do"),
  environment: f.option(
    f.functionOf<Groups["environment"]>("a function of a task"),
    "makes the world of a try",
  ),
  renderer: f.option(f.optional(f.opaque as f.Field<Renderer>), "not used"),
} satisfies f.OptionsOf<Groups>);

/** Makes groups of episodes from tasks. `ItemSource` says how tasks are ordered and replayed. */
export function environmentGroups<T>(options: EnvironmentGroupOptions<T>): GroupSource {
  const { environment } = options;
  ENVIRONMENT_GROUP_OPTIONS.check(options, "environmentGroups");
  return groupsOf("tasks", options, (task) => () => environment(task));
}

/** Makes the episode at a place of its group. */
type MakeEpisode = (place: number) => Environment | Player | Promise<Environment | Player>;

/** `prepare` is called once per group, with the name of the task for errors; what it returns makes each episode. */
export function groupsOf<T>(
  field: string,
  { tasks, groupSize, seed = 0, tags = [], groupRewards }: Omit<EnvironmentGroupOptions<T>, "environment">,
  prepare: (task: T, field: string, group: number) => MakeEpisode,
): GroupSource {
  const taken = replay(tasks, { seed, field });
  return {
    length: taken.length,
    group: async (index) => {
      f.nonNegativeInteger.check(index, "index");
      const task = await taken.at(index);
      if (task === undefined) return undefined;
      const make = prepare(task, `${field}[${index}]`, index);
      return {
        makeEnvironments: () => makeAll(groupSize, make),
        ...(groupRewards && { groupRewards }),
        tags: typeof tags === "function" ? tags(task) : tags,
      };
    },
    close: () => taken.close(),
  };
}

/** Makes all environments; if one fails, closes the others. */
async function makeAll(count: number, make: MakeEpisode): Promise<readonly (Environment | Player)[]> {
  const made = await Promise.allSettled(Array.from({ length: count }, async (_, place) => make(place)));
  const failed = made.find((each) => each.status === "rejected");
  const environments = made.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  if (failed === undefined) return environments;
  await Promise.allSettled(environments.map(async (environment) => environment.close?.()));
  throw failed.reason;
}
