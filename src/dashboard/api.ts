/** What travels between the dashboard's server and its page. Everything in it that came from a log or a model is text. */

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
  /** Of the newest line of metrics. */
  readonly step?: number | undefined;
  /** From 0 to 1. */
  readonly progress?: number | undefined;
  /** The newest reward, or the newest loss. */
  readonly headline?: { readonly name: string; readonly value: number | null } | undefined;
  /** When something was written last, in milliseconds since 1970. */
  readonly updatedAt: number;
  readonly hasSamples: boolean;
  /** Changes whenever a checkpoint was added. */
  readonly checkpoints: number;
}

/** All runs of the folders. */
export interface RunList {
  readonly folders: readonly string[];
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

/** What is known of a metric, whatever part of it is delivered. */
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
export interface RunMetrics {
  readonly run: string;
  /** Another one: the file was replaced, and what was read before no longer counts. */
  readonly generation: string;
  /** Lines that were read. */
  readonly rows: number;
  readonly hasTimes: boolean;
  readonly series: Readonly<Record<string, Series>>;
  /** The newest values of what is no number. */
  readonly texts: Readonly<Record<string, string>>;
  /** Lines that are no JSON objects. */
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

/** What a stream of events tells; one stream serves a whole page. */
export type DashboardEvent =
  | { readonly type: "runs"; readonly list: RunList }
  | { readonly type: "metrics"; readonly growth: MetricsGrowth }
  /** What the page has of this run is no longer true, or too far behind: it must be asked for anew. */
  | { readonly type: "stale"; readonly run: string };

/** The steps of a run that have something to show. */
export interface SampleIndex {
  readonly run: string;
  readonly steps: readonly SampleStep[];
}

/** What was kept of one step. */
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
  /** What the model read that was not there in the turn before. */
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
  /** Absent for what is learnt from examples. */
  readonly reward?: number | null | undefined;
  readonly stopReason?: string | undefined;
  readonly turnCount: number;
  /** Sampled, or learnt from. */
  readonly tokenCount: number;
}

/** The same with everything that is known of it. */
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

/** What a server does. */
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

/** What the playground asks of one model. */
export interface ChatRequest {
  /** A name of a base model, or the path of a checkpoint. */
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly temperature: number;
  readonly maxTokens?: number | undefined;
  readonly topP?: number | undefined;
  readonly seed?: number | undefined;
}

/** What comes of it. */
export type ChatEvent =
  | { readonly type: "text" | "thinking"; readonly text: string }
  | {
      readonly type: "answer";
      readonly message: ShownMessage;
      readonly text: string;
      readonly tokens: readonly ShownToken[];
      readonly stopReason: string;
      readonly seconds: number;
    }
  | { readonly type: "error"; readonly message: string };

/** What the page may do, which it asks first. */
export interface DashboardInfo {
  readonly version: string;
  readonly isReadOnly: boolean;
  readonly server: ServerName | undefined;
}
