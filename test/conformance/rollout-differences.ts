/** Where our episodes differ from the Python cookbook's on purpose. */
import { isDeepStrictEqual } from "node:util";
import type { GroupCase, PlayedGroup, PlayedRollout, RolloutCase } from "./rollout-scripts.js";

/** One place where ours and the judge's differ. */
interface Difference<Script, Played> {
  readonly script: Script;
  readonly ours: Played;
  readonly theirs: Played;
}

/** A difference that is wanted. One that never occurs any more must leave the list. */
export interface AllowedDifference<Script, Played> {
  readonly name: string;
  readonly reason: string;
  readonly explains: (difference: Difference<Script, Played>) => boolean;
}

export const EPISODE_DIFFERENCES: readonly AllowedDifference<RolloutCase, PlayedRollout>[] = [
  {
    name: "nothing is sampled for an empty prompt",
    reason:
      "where a hook goes on after an environment has ended and given nothing to read, Python samples from an empty prompt",
    explains: ({ ours, theirs }) =>
      ours.error === "TinkerError" &&
      theirs.calls[ours.calls.length]?.[0] === 0 &&
      isDeepStrictEqual(theirs.calls.slice(0, ours.calls.length), ours.calls),
  },
  {
    name: "rewards are numbers",
    reason:
      "Python takes a reward that is not a number, with which all advantages of the group are none either",
    explains: ({ script, ours, theirs }) =>
      ours.error === "TinkerError" &&
      script.script.steps[ours.calls.length - 1]?.reward === "nan" &&
      isDeepStrictEqual(theirs.calls.slice(0, ours.calls.length), ours.calls),
  },
  {
    name: "only our own timeouts are timeouts",
    reason:
      "a TimeoutError of the environment's or the policy's own passes in Python for that of the episode or of the sample",
    explains: ({ ours, theirs }) =>
      ours.error === "TimeoutError" &&
      (theirs.error === "RolloutTimeoutError" || theirs.ok?.end === "rollout_timeout"),
  },
  {
    name: "hooks at the end take their time",
    reason: "in Python the end of an episode is timed out by its last hooks, which are then called again",
    explains: ({ ours, theirs }) =>
      theirs.ok?.end === "rollout_timeout" &&
      theirs.told?.filter(([what]) => what === "end").length === 2 &&
      isDeepStrictEqual(theirs.told.slice(0, -1), ours.told),
  },
];

export const GROUP_DIFFERENCES: readonly AllowedDifference<GroupCase, PlayedGroup>[] = [
  {
    name: "environments are not made for ever",
    reason:
      "where an episode may take so long, the making of environments may not take longer; in Python it may",
    explains: ({ script: { script, strategy }, ours }) =>
      ours.skipped === true &&
      ours.makings === 1 &&
      ours.gradings === 0 &&
      Number(script.making?.delay) > 1000 * strategy.timeout!,
  },
];
