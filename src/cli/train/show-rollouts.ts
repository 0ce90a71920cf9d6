import { type Trajectory, totalRewards } from "../../cookbook/environments/index.js";
import type { StepRollouts } from "../../cookbook/reinforcement/index.js";
import type { TrainingLogger } from "../../cookbook/runs/index.js";
import { textOf } from "../../renderers/index.js";
import { cutText, printable } from "../output/index.js";
import type { TrainingPlace } from "./run-command.js";

/** Number of steps whose episodes are shown. */
const STEPS_SHOWN = 20;
const WIDTH = 100;

/** Adds a display of episodes to the loggers of a run. */
export function showingRollouts({ loggers = [], ...place }: TrainingPlace) {
  const display = new RolloutDisplay(loggers[0]!);
  return { ...place, loggers: [display, ...loggers], onRollouts: display.show.bind(display) };
}

/** Shows what the model says during a run: at some steps, the best and the worst attempt at a problem. */
class RolloutDisplay implements TrainingLogger {
  readonly #console: TrainingLogger;
  #steps = 0;

  /** Lines go through the logger that draws the progress bar, which knows the cursor's position. */
  constructor(console: TrainingLogger) {
    this.#console = console;
  }

  config(config: Readonly<Record<string, unknown>>): void {
    this.#steps = Number(config["steps"] ?? 0);
  }

  metrics(): void {}

  close(): void {}

  async show({ step, groups }: StepRollouts): Promise<void> {
    if (step % Math.ceil(this.#steps / STEPS_SHOWN) !== 0) return;
    const tries = groups.map(({ group }) => rankedTries(group)).find((ranked) => ranked.length > 0);
    const [best, worst] = [tries?.at(0), tries?.at(-1)];
    for (const shown of best?.reward === worst?.reward ? [best] : [best, worst]) {
      if (shown !== undefined)
        await this.#console.note?.(`  reward ${shown.reward.toFixed(2)}  ${shown.text}`);
    }
  }
}

type Group = StepRollouts["groups"][number]["group"];

/** The attempts of a group with their texts, best first. */
function rankedTries(group: Group): { readonly reward: number; readonly text: string }[] {
  const rewards = totalRewards(group);
  return group.trajectories
    .map((trajectory, place) => ({ reward: rewards[place]!, text: conversationOf(trajectory) }))
    .filter(({ text }) => text !== "")
    .sort((one, two) => two.reward - one.reward);
}

/** The conversation on one line, without system messages. */
function conversationOf({ messages = [] }: Trajectory): string {
  const said = messages
    .filter(({ role }) => role !== "system")
    .map((message) => {
      const calls = (message.toolCalls ?? []).map((call) => `${call.name}(${call.arguments})`);
      return [textOf(message), ...calls].filter((text) => text !== "").join(" ");
    });
  return cutText(printable(said.join(" → ")), WIDTH, "middle");
}
