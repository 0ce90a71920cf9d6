/** Messages between the dashboard's server and its page. Everything in them that came from a log or a model is text. */

/** How a run stands. */
export type RunState = "running" | "finished" | "stopped";

/** A run, as the list shows it. */
export interface RunSummary {
  readonly id: string;
  /** Its folder, seen from the folder that was given. */
  readonly name: string;
  readonly folder: string;
  readonly model?: string | undefined;
  readonly state: RunState;
  /** Step of the newest line of metrics. */
  readonly step?: number | undefined;
  /** Number of steps done. */
  readonly steps?: number | undefined;
  /** From 0 to 1. */
  readonly progress?: number | undefined;
  /** The newest reward, or the newest loss. */
  readonly headline?: { readonly name: string; readonly value: number | null } | undefined;
  /** Values of the headline's metric from the first line to the last, for a small curve. */
  readonly curve: readonly number[];
  /** The best evaluation so far. */
  readonly best?: BestEvaluation | undefined;
  /** Milliseconds since 1970; absent if the log has no times. */
  readonly startedAt?: number | undefined;
  /** From the first line to the last. */
  readonly seconds?: number | undefined;
  /** Dollars so far, where the price is known. */
  readonly costUsd?: number | undefined;
  /** Settings of the run; values that are not numbers, texts or booleans are JSON. */
  readonly config: Readonly<Record<string, SettingValue>>;
  readonly tags: readonly string[];
  readonly note: string;
  /** The newest warnings, in the order of their steps. */
  readonly warnings: readonly ShownWarning[];
  /** The sweep that the run belongs to. */
  readonly sweep?: SweepOfRun | undefined;
  /** When something was written last, in milliseconds since 1970. */
  readonly updatedAt: number;
  readonly hasSamples: boolean;
  /** Changes whenever a checkpoint was added. */
  readonly checkpoints: number;
}

/** The value of a setting, as tables show it. */
export type SettingValue = string | number | boolean | null;

/** The best value of the metric that a run is judged by. */
export interface BestEvaluation {
  readonly metric: string;
  readonly value: number;
  readonly step: number;
  readonly isLowerBetter: boolean;
}

/** Something that the training loop noticed and that may spoil the run. */
export interface ShownWarning {
  readonly step: number;
  /** `loss_rising`, `equal_rewards` and so on. */
  readonly kind: string;
  readonly metric?: string | undefined;
  readonly message: string;
  /** Fields to change. */
  readonly proposal?: string | undefined;
}

/** The sweep of a run: a folder with a `sweep.json`, and a run beside it for each setting. */
export interface SweepOfRun {
  /** Id of the sweep, the same for all its runs. */
  readonly id: string;
  readonly name: string;
  /** Settings that the sweep varies. */
  readonly settings: Readonly<Record<string, SettingValue>>;
}

/** Tags and note that people write about a run, kept in its folder as `notes.json`. */
export interface RunNotes {
  readonly tags: readonly string[];
  readonly note: string;
}

/** All runs of the folders. */
export interface RunList {
  readonly folders: readonly string[];
  /** Folders that can no longer be read, with the reason. */
  readonly problems: readonly string[];
  readonly runs: readonly RunSummary[];
  /** True where there are more folders than are looked through. */
  readonly isCut: boolean;
}

/** One run with its settings. */
export interface RunDetails {
  readonly run: RunSummary;
  readonly config: Readonly<Record<string, unknown>>;
  /** The end of `logs.log`. */
  readonly log: string;
}

/** Summary of a metric over the whole run. */
export interface SeriesStats {
  readonly count: number;
  /** Null: not a finite number. */
  readonly last: number | null;
  readonly lastStep: number;
  readonly min: number | null;
  readonly max: number | null;
  /** Values that are NaN, infinite or null, which no curve can show. */
  readonly notFinite: number;
  readonly firstNotFiniteStep?: number | undefined;
}

/** Points of a curve, in the order of their steps. */
export interface Points {
  readonly steps: readonly number[];
  /** Seconds since the run began; empty for a log without times. */
  readonly times: readonly number[];
  /** Null: not a finite number. */
  readonly values: readonly (number | null)[];
}

/** A metric of a run. */
export interface Series extends Points {
  readonly stats: SeriesStats;
  /** Where there are too many points to deliver: means of neighbours, while `values` holds the least and the greatest of them. */
  readonly means?: (Points & { readonly counts: readonly number[] }) | undefined;
}

/** The metrics of a run. */
export interface RunCurves {
  readonly run: string;
  /** Another one: the file was replaced, and what was read before no longer counts. */
  readonly generation: string;
  /** Lines that were read. */
  readonly rows: number;
  readonly hasTimes: boolean;
  readonly series: Readonly<Record<string, Series>>;
  /** The newest values that are not numbers. */
  readonly texts: Readonly<Record<string, string>>;
  /** Lines that are not JSON objects. */
  readonly badLines: number;
  /** Metrics beyond the number that is kept. */
  readonly leftOut: number;
}

/** Lines that were added to a run's metrics. */
export interface MetricsGrowth {
  readonly run: string;
  readonly generation: string;
  /** The lines from this number on, up to `rows`. */
  readonly from: number;
  readonly rows: number;
  readonly series: Readonly<Record<string, Points & { readonly stats: SeriesStats }>>;
}

/** An event of the stream; one stream serves a whole page. */
export type DashboardEvent =
  /** `ids` are all runs in their order; `list` has those that changed since the event before. */
  | { readonly type: "runs"; readonly ids: readonly string[]; readonly list: RunList }
  | { readonly type: "metrics"; readonly growth: MetricsGrowth }
  /** The page's data of this run is outdated: the page must load it again. */
  | { readonly type: "stale"; readonly run: string }
  /** The command that serves the page has ended; nothing follows. */
  | { readonly type: "ended" };

/** The steps of a run that have something to show. */
export interface SampleIndex {
  readonly run: string;
  readonly steps: readonly SampleStep[];
}

/** The splits and reports that were kept of one step. */
export interface SampleStep {
  readonly step: number;
  /** `train`, `eval_` and the name of an evaluation, or `examples` of a supervised batch. */
  readonly splits: readonly string[];
  /** Reports of the Python cookbook. */
  readonly reports: readonly string[];
}

/** A token that is shown by itself. */
export interface ShownToken {
  readonly text: string;
  readonly id: number;
  readonly logprob?: number | null | undefined;
  readonly advantage?: number | null | undefined;
  /** How much it counts in the loss; 0: it is only read. */
  readonly weight?: number | undefined;
  /** The likeliest tokens at this place, best first. */
  readonly alternatives?: readonly TokenAlternative[] | undefined;
}

/** A token that a model could have drawn. */
export interface TokenAlternative {
  readonly text: string;
  readonly id: number;
  readonly logprob: number;
}

/** A part of a message. */
export type ShownPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly text: string }
  | { readonly type: "call"; readonly name: string; readonly text: string }
  | { readonly type: "other"; readonly text: string };

/** A message of a conversation. */
export interface ShownMessage {
  readonly role: string;
  readonly parts: readonly ShownPart[];
}

/** One turn of an episode. */
export interface ShownTurn {
  readonly reward: number | null;
  readonly observationLength?: number | undefined;
  readonly actionLength?: number | undefined;
  /** The part of the prompt that the turn before did not have. */
  readonly observation?: readonly ShownToken[] | undefined;
  readonly tokens?: readonly ShownToken[] | undefined;
  readonly metrics: Readonly<Record<string, number | null>>;
  readonly logs: Readonly<Record<string, string>>;
}

/** An episode, or an example of a supervised batch, as lists show it. */
export interface SampleSummary {
  /** Its line in the file. */
  readonly place: number;
  readonly group: number;
  readonly index: number;
  readonly tags: readonly string[];
  /** Absent for training examples. */
  readonly reward?: number | null | undefined;
  readonly stopReason?: string | undefined;
  readonly turnCount: number;
  /** Sampled tokens, or tokens that are trained on. */
  readonly tokenCount: number;
  /** First words of what was asked, and of the answer. */
  readonly prompt: string;
  readonly answer: string;
  /** Identifies a prompt across steps and runs. */
  readonly promptKey: string;
}

/** The answers to one prompt in the steps of a run. */
export interface PromptHistory {
  readonly run: string;
  readonly prompt: string;
  readonly steps: readonly { readonly step: number; readonly samples: readonly PromptAnswer[] }[];
  /** True where only some of the steps were read. */
  readonly isCut: boolean;
}

/** An answer to a prompt. */
export interface PromptAnswer extends Omit<SampleSummary, "prompt" | "promptKey"> {
  /** All of it, up to a bound. */
  readonly answer: string;
}

/** One sample with its messages, turns and metrics. */
export interface Sample extends SampleSummary {
  readonly metrics: Readonly<Record<string, number | null>>;
  readonly messages?: readonly ShownMessage[] | undefined;
  readonly turns: readonly ShownTurn[];
  /** Why tokens have no text, where they have none. */
  readonly tokenProblem?: string | undefined;
}

/** The samples of a step. */
export interface SampleList {
  readonly run: string;
  readonly step: number;
  readonly split: string;
  readonly samples: readonly SampleSummary[];
  /** Samples that were read, also those that the search left out. */
  readonly total: number;
  /** True where there are more lines than are shown. */
  readonly isCut: boolean;
  readonly badLines: number;
}

/** A part of a report of the Python cookbook: what it says, never its HTML. */
export interface ReportNode {
  readonly title?: string | undefined;
  readonly text?: string | undefined;
  readonly messages?: readonly ShownMessage[] | undefined;
  readonly rows?: readonly (readonly string[])[] | undefined;
  readonly children?: readonly ReportNode[] | undefined;
}

/** A checkpoint of a folder, of the server, or of both. */
export interface ShownCheckpoint {
  readonly path: string;
  readonly kind: "training" | "sampler" | "external" | (string & {});
  readonly name: string;
  /** The run of the folders that it belongs to. */
  readonly run?: string | undefined;
  readonly step?: number | undefined;
  readonly isFinal?: boolean | undefined;
  readonly note?: string | undefined;
  /** Absent where the server does not have it, or is not asked. */
  readonly server?:
    | {
        readonly time: string;
        readonly sizeBytes?: number | null | undefined;
        readonly expiresAt?: string | null | undefined;
        readonly isPublic: boolean;
      }
    | undefined;
}

/** Checkpoints, and whether the server could be asked. */
export interface CheckpointList {
  readonly checkpoints: readonly ShownCheckpoint[];
  readonly server: ServerName | undefined;
  readonly problem?: string | undefined;
  readonly isCut: boolean;
}

/** Which server the dashboard speaks to. */
export interface ServerName {
  readonly address: string;
  readonly isBuiltIn: boolean;
}

/** A run that a server trains at this moment. */
export interface ServerRun {
  readonly name: string;
  readonly baseModel: string;
  readonly rank: number;
  readonly steps: number;
  readonly loss?: number | null | undefined;
}

/** State of a server. */
export interface ServerAnswer {
  readonly server: ServerName | undefined;
  readonly problem?: string | undefined;
  readonly models: readonly { readonly name: string; readonly maxLength?: number | undefined }[];
  /** Known of the built-in server alone. */
  readonly activity?:
    | {
        readonly runs: readonly ServerRun[];
        readonly trainingRequests: number;
        readonly sequences: number;
        readonly trainedTokensPerSecond: number;
        readonly sampledTokensPerSecond: number;
        readonly memoryBytes: number;
        readonly upSeconds: number;
      }
    | undefined;
  readonly sessions: readonly {
    readonly id: string;
    readonly name: string;
    readonly createdAt: string;
    readonly state: string;
    readonly checkpoints: number;
  }[];
  readonly usage: readonly {
    readonly what: string;
    readonly model: string;
    readonly amount: number;
    readonly unit: string;
    readonly costUsd?: number | undefined;
  }[];
}

/** A request of the playground to one model. */
export interface PlaygroundRequest {
  /** A name of a base model, or the path of a checkpoint. */
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly temperature: number;
  readonly maxTokens?: number | undefined;
  readonly topP?: number | undefined;
  readonly seed?: number | undefined;
  /** Texts that end an answer, beside the model's own end. */
  readonly stop?: readonly string[] | undefined;
  /** Beginning of the answer, which the model continues. */
  readonly prefill?: string | undefined;
  /** Independent answers; the seed of each is one more than that of the one before. */
  readonly numSamples?: number | undefined;
  /** How many of the likeliest tokens come with each token. */
  readonly alternatives?: number | undefined;
}

/** An event of the playground's answers. */
export type ChatEvent =
  | { readonly type: "text" | "thinking"; readonly sample: number; readonly text: string }
  | {
      readonly type: "answer";
      readonly sample: number;
      readonly message: ShownMessage;
      readonly text: string;
      readonly tokens: readonly ShownToken[];
      readonly stopReason: string;
      readonly seconds: number;
    }
  | { readonly type: "error"; readonly sample: number; readonly message: string };

/** A good exchange of the playground, to train on. */
export interface PlaygroundRow {
  readonly messages: PlaygroundRequest["messages"];
}

/** Where rows of the playground are kept. */
export interface SavedRow {
  readonly path: string;
  readonly rows: number;
}

/** Version and permissions of the page, which it asks for first. */
export interface DashboardInfo {
  readonly version: string;
  readonly isReadOnly: boolean;
  readonly server: ServerName | undefined;
  /** Command that shows these runs again after the one that serves the page has ended. */
  readonly showAgain?: string | undefined;
}
