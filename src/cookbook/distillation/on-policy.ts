import * as f from "../../wire/fields/index.js";
import { checkSource, openSource, SOURCE_OPTIONS } from "../reinforcement/group-source.js";
import type {
  EnvironmentOptions,
  EnvironmentsContext,
  ReinforcementSettings,
} from "../reinforcement/index.js";
import { REINFORCEMENT_OPTIONS } from "../reinforcement/options.js";
import { promptLengthsOf } from "../reinforcement/planned-work.js";
import { type PlanSampling, planKind, runReinforcement } from "../reinforcement/train-reinforcement.js";
import { findRenderer, preparationSignal } from "../runs/find-model.js";
import type { FinishedRun, RunPlan } from "../runs/run-training.js";
import {
  DOMAIN_OPTIONS,
  type Domain,
  describeTeachers,
  domainOptions,
  domainsConfig,
  domainsOf,
  type NamedDomain,
  type OneOrMoreDomains,
  openTeachers,
} from "./domains.js";
import {
  firstPrompts,
  type Prompts,
  promptGroups,
  promptsField,
  sharedBatches,
  type TaughtRun,
} from "./prompts.js";
import { TEACHER_KL_OPTIONS, teacherPenalty } from "./teacher-penalty.js";

/** Prompts or environments for a student, with the teacher that scores its tokens. */
export interface PromptDomain extends Domain {
  readonly prompts?: Prompts | undefined;
  /** Environments to act in instead of prompts, as for `trainReinforcement`; their rewards count too. */
  readonly environments?: EnvironmentOptions["environments"] | undefined;
  /** Groups of this domain in a step. Default: 32. */
  readonly groupsPerBatch?: number | undefined;
}

/**
 * Options of `trainOnPolicyDistillation`: `prompts` and a `teacher`, or several as `domains`. The other options are
 * those of `trainReinforcement`, but there are 4 answers to each prompt.
 */
export type OnPolicyDistillationOptions = Omit<
  ReinforcementSettings,
  "groupsPerBatch" | "dropConstantGroups" | "penalties"
> &
  OneOrMoreDomains<PromptDomain> & {
    /** Factor of the reverse KL to the teacher. Default: 1. */
    readonly coefficient?: number | undefined;
    /** How much a token is held responsible for the reverse KL of later tokens, from 0 (default) to 1. */
    readonly discount?: number | undefined;
  };

const DOMAIN = f.message(
  {
    ...DOMAIN_OPTIONS,
    prompts: f.option(f.optional(promptsField), "prompts that the student answers"),
    environments: SOURCE_OPTIONS.environments,
    groupsPerBatch: REINFORCEMENT_OPTIONS.groupsPerBatch,
  } satisfies f.OptionsOf<PromptDomain>,
  { rule: checkDomain },
);

const {
  groupsPerBatch: _groupsPerBatch,
  dropConstantGroups: _dropConstantGroups,
  penalties: _penalties,
  ...REST
} = REINFORCEMENT_OPTIONS;

/** The option table of `trainOnPolicyDistillation`. */
export const ON_POLICY_OPTIONS = f.optionTable({
  ...REST,
  ...domainOptions(DOMAIN.shape),
  groupSize: f.defaulting(REINFORCEMENT_OPTIONS.groupSize, 4),
  ...TEACHER_KL_OPTIONS,
} satisfies f.OptionNamesOf<OnPolicyDistillationOptions>);

/**
 * Trains a student on its own answers, with a teacher's score for each token: tokens that the teacher finds likely
 * become likelier. Measures `teacher_kl`, the reverse KL of the student to the teacher.
 */
export async function trainOnPolicyDistillation(options: OnPolicyDistillationOptions): Promise<FinishedRun> {
  await using run = await prepareOnPolicy(options);
  return await runReinforcement(run.options, run.kind);
}

/**
 * Decides every setting, finds the teachers and estimates tokens and dollars without training anything; nothing is
 * sampled either, unless `sampleGroups` is given.
 */
export async function planOnPolicyDistillation(
  options: OnPolicyDistillationOptions,
  sampling: PlanSampling = {},
): Promise<RunPlan> {
  await using run = await prepareOnPolicy(options);
  return await planKind(run.options, run.kind, sampling);
}

async function prepareOnPolicy(given: OnPolicyDistillationOptions): Promise<TaughtRun> {
  const checked = ON_POLICY_OPTIONS.check(given, "trainOnPolicyDistillation");
  const { domains: _, prompts, environments, teacher, name, groupsPerBatch, ...rest } = checked;
  const { coefficient, discount, ...settings } = rest;
  const domains = domainsOf<PromptDomain>(given, DOMAIN);
  const signal = preparationSignal(given);
  const student = { ...(await findRenderer(given, signal)), isOwn: typeof given.renderer === "object" };
  const opened = await openTeachers(given.service, domains, student, signal);
  const shares = domains.map((domain) => domain.groupsPerBatch!);
  const { teachers } = opened;
  return {
    options: {
      ...settings,
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
        ...f.keptOptions(TEACHER_KL_OPTIONS, { coefficient, discount }),
        domains: domainsConfig(domains, opened).map((each, index) => ({
          ...each,
          groups_per_batch: shares[index],
        })),
      },
      described: [["teacher", describeTeachers(domains, opened)]],
      // One teacher reads each episode; of several, the first stands for all.
      readers: teachers.slice(0, 1).map(({ baseModel }) => baseModel),
      promptLengths: async (renderer, most) => {
        if (domains.some(({ environments }) => environments !== undefined)) return undefined;
        const each = domains.map(({ prompts }) => firstPrompts(prompts!, Math.ceil(most / domains.length)));
        return promptLengthsOf((await Promise.all(each)).flat(), renderer);
      },
    },
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}

function checkDomain({ prompts, environments }: Partial<PromptDomain>, path: string): void {
  const field = f.subfield(path, "prompts");
  if (environments === undefined) promptsField.check(prompts, field);
  else if (prompts === undefined) checkSource({ environments });
  else
    throw f.wrongField(
      field,
      `and ${f.subfield(path, "environments")} are two ways to say what is done: give one`,
    );
}

async function openDomains(domains: readonly NamedDomain<PromptDomain>[], context: EnvironmentsContext) {
  const shares = domains.map(async ({ prompts, environments, name, groupsPerBatch }) => ({
    source:
      environments === undefined
        ? await promptGroups(prompts!, context)
        : await openSource({ environments }, context),
    groupsPerBatch: groupsPerBatch!,
    tag: name,
  }));
  return sharedBatches(await Promise.all(shares));
}
