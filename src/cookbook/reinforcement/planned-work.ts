import type { Renderer } from "../../renderers/index.js";
import { addModels, NO_TOKENS, type PlannedTokens, type TokensByModel } from "../costs/index.js";
import type { GroupSource, Problem } from "../environments/index.js";
import { promptOf } from "../environments/problem-groups.js";
import type { DescribedLine } from "../runs/settings.js";
import { lossOf, type TrainReinforcementOptions } from "./options.js";
import type { ReinforcementRunSettings } from "./settings.js";

/** Amount of sampling in a run, counted before it begins. */
export interface PlannedWork {
  readonly config: Readonly<Record<string, number>>;
  readonly described: readonly DescribedLine[];
  /** Tokens of the run, where the prompts are known. */
  readonly tokens?: PlannedTokens | undefined;
}

/** Share of the longest possible answer that the least estimate supposes. */
const SHORT_ANSWER = 0.1;
/** Share of groups with unequal rewards that the least estimate supposes. */
const FEW_TRAINED = 0.5;

/** Number of prompts that are rendered to estimate their length. */
const PROMPTS_MEASURED = 100;

/** Number of episodes of a run; if problems are an array, also the most tokens that they read and sample. */
export async function plannedWork<P extends Problem>(
  options: Pick<TrainReinforcementOptions<P>, "problems" | "agent" | "evaluators">,
  settings: ReinforcementRunSettings,
  { source, renderer, maxLength, readers, promptLengths }: PlanFacts,
): Promise<PlannedWork> {
  const { problems, agent } = options;
  const { steps, groupsPerBatch, groupSize, maxTokens } = settings;
  if (groupSize === undefined) return { config: {}, described: [] };
  const groups = steps * groupsPerBatch;
  const episodes = groups * groupSize;
  const described: DescribedLine[] = [["episodes", number(episodes) + repeats(source, groups, problems)]];
  // An agent's prompts are unknown before it runs.
  if (agent !== undefined) return { config: { episodes }, described };
  const lengths = Array.isArray(problems)
    ? promptLengthsOf(problems as readonly P[], renderer)
    : await promptLengths?.(renderer, PROMPTS_MEASURED);
  if (lengths === undefined || lengths.length === 0) return { config: { episodes }, described };
  const meanPrompt = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  const room = maxLength === undefined ? undefined : Math.max(0, maxLength - Math.min(...lengths));
  const answer = Math.min(maxTokens ?? Number.POSITIVE_INFINITY, room ?? Number.POSITIVE_INFINITY);
  const promptTokens = Math.round(episodes * meanPrompt);
  const read = `about ${number(promptTokens)} read in prompts`;
  if (answer === Number.POSITIVE_INFINITY) {
    described.push(["tokens", read]);
    return { config: { episodes, prompt_tokens: promptTokens }, described };
  }
  const sampled = episodes * answer;
  described.push(["tokens", `at most ${number(sampled)} sampled (${number(answer)} an answer), ${read}`]);
  const tokens = episodeTokens({ episodes, groupSize, prompt: meanPrompt, answer }, settings, readers);
  return {
    config: { episodes, prompt_tokens: promptTokens, max_sampled_tokens: sampled },
    described,
    tokens: {
      ...tokens,
      assumptions: [
        "one turn an episode",
        `answers of ${number(Math.round(answer * SHORT_ANSWER))} to ${number(answer)} tokens`,
        ...(readers.isAllTrained
          ? []
          : ["half or more of the groups have unequal rewards and are trained on"]),
        ...((options.evaluators ?? []).length > 0 ? ["without the evaluators"] : []),
      ],
    },
  };
}

/** Facts that the plan of a run with rewards needs besides its settings. */
export interface PlanFacts {
  readonly source: GroupSource;
  readonly renderer: Renderer;
  readonly maxLength: number | undefined;
  readonly readers: TrajectoryReaders;
  readonly promptLengths: PromptLengths | undefined;
}

/** Lengths of some of the prompts in tokens; undefined if the prompts are unknown. */
export type PromptLengths = (renderer: Renderer, most: number) => Promise<readonly number[] | undefined>;

/** Lengths of the first prompts of a list. */
export function promptLengthsOf(problems: readonly Problem[], renderer: Renderer): readonly number[] {
  return problems
    .slice(0, PROMPTS_MEASURED)
    .map((problem, index) => promptOf(problem, `problems[${index}]`, renderer).length);
}

/** Who reads the sampled episodes besides the trainer. */
export interface TrajectoryReaders {
  /** Base models that score each trained token, such as a reference or a teacher. */
  readonly models: readonly string[];
  /** Whether groups with equal rewards are trained on too. */
  readonly isAllTrained: boolean;
}

/** Tokens of episodes of one turn. */
function episodeTokens(
  { episodes, groupSize, prompt, answer }: Record<"episodes" | "groupSize" | "prompt" | "answer", number>,
  { model, loss }: Pick<ReinforcementRunSettings, "model" | "loss">,
  { models, isAllTrained }: TrajectoryReaders,
): Pick<PlannedTokens, "least" | "most"> {
  // A custom loss needs a forward pass and a backward pass.
  const passes = lossOf(loss).name === "gspo" ? 2 : 1;
  const tokens = (answerTokens: number, trainedShare: number, cachedShare: number): TokensByModel => {
    const sequences = episodes * trainedShare;
    // The last token is only a target.
    const trained = sequences * (prompt + answerTokens - 1);
    const read = episodes * prompt;
    const own = {
      prefill: read * (1 - cachedShare),
      cachedPrefill: read * cachedShare,
      sample: episodes * answerTokens,
      train: passes * trained,
    };
    const scored = { ...NO_TOKENS, prefill: trained + sequences, sample: sequences };
    return [...models.map((reader) => new Map([[reader, scored]]))].reduce<TokensByModel>(
      addModels,
      new Map([[model, own]]),
    );
  };
  const short = Math.max(1, answer * SHORT_ANSWER);
  return {
    // The other answers to a prompt find it in the cache.
    least: tokens(short, isAllTrained ? 1 : FEW_TRAINED, (groupSize - 1) / groupSize),
    most: tokens(answer, 1, 0),
  };
}

/** How often each problem comes, which may surprise if a step has more groups than there are problems. */
function repeats({ length }: GroupSource, groups: number, problems: unknown): string {
  if (length === undefined || length === 0) return "";
  const name = problems === undefined ? "environment" : "problem";
  const what = length === 1 ? `1 ${name}` : `${number(length)} ${name}s`;
  if (groups <= length) return `, of ${what}`;
  const times = `${Number((groups / length).toFixed(1))} times`;
  return length === 1 ? `, of ${what} that comes ${times}` : `, of ${what} that come ${times} each`;
}

const number = (value: number) => value.toLocaleString("en-US");
