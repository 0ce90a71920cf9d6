import type { GroupSource, Problem } from "../../cookbook/environments/index.js";
import type { ReinforcementSettings, SourceOptions } from "../../cookbook/reinforcement/index.js";
import { isRecord } from "../../wire/index.js";
import { UsageError } from "../context.js";

/** Options of `trainReinforcement` that a file exports. */
export type EnvironmentFile = SourceOptions<Problem> & Partial<ReinforcementSettings>;

/** Options of `trainReinforcement` from a file: its exported options, or only environments. */
export function environmentOf(exported: unknown, file: string): EnvironmentFile {
  if (typeof exported === "function") return { environments: exported as () => GroupSource };
  if (isRecord(exported)) {
    if (typeof exported["group"] === "function") return { environments: exported as unknown as GroupSource };
    if ("problems" in exported || "environments" in exported) return exported as unknown as EnvironmentFile;
  }
  throw new UsageError(
    `${file} must export as its default { problems, reward }, environments, or a function that makes them: ` +
      "export default { problems: [{ prompt, answer }], reward: ({ problem, text }) => (text === problem.answer ? 1 : 0) }",
  );
}
