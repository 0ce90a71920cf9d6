import { ValidationError } from "../../errors.js";
import { checkSource, openSource } from "../reinforcement/group-source.js";
import type {
  EnvironmentOptions,
  EnvironmentsContext,
  ReinforcementSettings,
} from "../reinforcement/index.js";
import { DEFAULT_GROUPS_PER_BATCH } from "../reinforcement/settings.js";
import { planKind, runReinforcement } from "../reinforcement/train-reinforcement.js";
import { findRenderer, preparationSignal } from "../runs/find-model.js";
import { checkCount, checkRunOptions, type RunOptions } from "../runs/options.js";
import type { FinishedRun, RunPlan } from "../runs/run-training.js";
import {
  type Domain,
  describeTeachers,
  domainsConfig,
  domainsOf,
  type NamedDomain,
  type OneOrSeveral,
  openTeachers,
} from "./domains.js";
import {
  checkPrompts,
  ON_POLICY_KEYS,
  type Prompts,
  promptGroups,
  sharedBatches,
  type TaughtRun,
} from "./prompts.js";
import { checkTeaching, teacherPenalty } from "./teacher-penalty.js";

/** What a student does, and who says what it is worth. */
export interface TaughtPrompts extends Domain {
  readonly prompts?: Prompts | undefined;
  /** What it acts in instead, as for `trainReinforcement`; the rewards there count too. */
  readonly environments?: EnvironmentOptions["environments"] | undefined;
  /** Groups of it in a step. Default: 32. */
  readonly groupsPerBatch?: number | undefined;
}

/**
 * What `trainOnPolicyDistillation` needs: `prompts` and a `teacher`, or several of them as `domains`. Everything else is
 * as for `trainReinforcement`, but that there are 4 answers to each prompt.
 */
export type OnPolicyDistillationOptions = Omit<
  ReinforcementSettings,
  "groupsPerBatch" | "dropConstantGroups" | "penalties"
> &
  OneOrSeveral<TaughtPrompts> & {
    /** What the reverse KL to the teacher is multiplied with. Default: 1. */
    readonly coefficient?: number | undefined;
    /** How much a token answers for the reverse KL of those behind it, from 0 (default) to 1. */
    readonly discount?: number | undefined;
  };

const DOMAIN_KEYS = [
  "prompts",
  "environments",
  "teacher",
  "name",
  "groupsPerBatch",
] satisfies (keyof TaughtPrompts)[];
const OWN_KEYS = [
  ...DOMAIN_KEYS,
  ...ON_POLICY_KEYS,
  ...(["domains", "coefficient", "discount", "advantages", "kl", "loss", "measurePostKl"] as const),
] satisfies Exclude<keyof OnPolicyDistillationOptions, keyof RunOptions>[];
const DEFAULT_GROUP_SIZE = 4;

/**
 * Lets a student answer and learn from what its teacher thinks of each token: those that the teacher would have said too
 * become likelier. Measures `teacher_kl`, the reverse KL of the student to the teacher.
 */
export async function trainOnPolicyDistillation(options: OnPolicyDistillationOptions): Promise<FinishedRun> {
  await using run = await prepareOnPolicy(options);
  return await runReinforcement(run.options, run.kind);
}

/** Decides every setting and finds the teachers, without sampling or training anything. */
export async function planOnPolicyDistillation(options: OnPolicyDistillationOptions): Promise<RunPlan> {
  await using run = await prepareOnPolicy(options);
  return await planKind(run.options, run.kind);
}

async function prepareOnPolicy(given: OnPolicyDistillationOptions): Promise<TaughtRun> {
  checkRunOptions(given, "trainOnPolicyDistillation", OWN_KEYS);
  const { domains: _, prompts, environments, teacher, name, groupsPerBatch, ...rest } = given;
  const { coefficient = 1, discount = 0, ...settings } = rest;
  checkTeaching({ coefficient, discount });
  const domains = domainsOf<TaughtPrompts>(given, DOMAIN_KEYS, checkDomain);
  const signal = preparationSignal(given);
  const student = { ...(await findRenderer(given, signal)), isOwn: typeof given.renderer === "object" };
  const opened = await openTeachers(given.service, domains, student, signal);
  const shares = domains.map((domain) => domain.groupsPerBatch ?? DEFAULT_GROUPS_PER_BATCH);
  const { teachers } = opened;
  return {
    options: {
      ...settings,
      groupSize: settings.groupSize ?? DEFAULT_GROUP_SIZE,
      groupsPerBatch: shares.reduce((sum, share) => sum + share, 0),
      environments: (context) => openDomains(domains, context),
      penalties: () => [
        teacherPenalty({
          teachers: Object.fromEntries(domains.map((domain, index) => [domain.name, teachers[index]!])),
          coefficient,
          discount,
        }),
      ],
    },
    kind: {
      config: {
        teacher_kl_coef: coefficient,
        teacher_kl_discount_factor: discount,
        domains: domainsConfig(domains, opened).map((each, index) => ({
          ...each,
          groups_per_batch: shares[index],
        })),
      },
      described: [["teacher", describeTeachers(domains, opened)]],
    },
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}

function checkDomain({ prompts, environments, groupsPerBatch }: TaughtPrompts, prefix: string): void {
  checkCount({ groupsPerBatch }, "groupsPerBatch", 1, prefix);
  if (environments === undefined) {
    checkPrompts(prompts, `${prefix}prompts`);
    return;
  }
  if (prompts !== undefined) {
    throw new ValidationError(
      `${prefix}prompts`,
      `${prefix}prompts and ${prefix}environments are two ways to say what is done: give one`,
    );
  }
  checkSource({ environments });
}

async function openDomains(domains: readonly NamedDomain<TaughtPrompts>[], context: EnvironmentsContext) {
  const shares = domains.map(async ({ prompts, environments, name, groupsPerBatch }) => ({
    source:
      environments === undefined
        ? await promptGroups(prompts!, context)
        : await openSource({ environments }, context),
    groupsPerBatch: groupsPerBatch ?? DEFAULT_GROUPS_PER_BATCH,
    tag: name,
  }));
  return sharedBatches(await Promise.all(shares));
}
