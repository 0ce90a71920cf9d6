/** What a visit can change, in the page's address: `?device=cpu&steps=50`. */
export interface Settings {
  readonly device: "auto" | "cpu" | "gpu";
  readonly steps: number;
  readonly batchSize: number;
  /** Words that are asked for before and after. */
  readonly words: number;
}

/** What the page asks of the worker. */
export type Request =
  | { kind: "open"; modelAddress: string; settings: Settings }
  | { kind: "train" }
  | { kind: "stop" }
  | { kind: "ask"; word: string };

/** A word, and what the model makes of it. */
export interface Answer {
  readonly word: string;
  readonly text: string;
  readonly isRight: boolean;
}

/** How training goes. */
export interface Progress {
  readonly step: number;
  readonly lossPerWord: number;
  readonly tokensPerSecond: number;
}

/** What the worker tells the page. */
export type News =
  | { kind: "opened"; device: { name: string; note?: string }; parameters: number }
  | { kind: "before" | "after"; answers: Answer[] }
  | { kind: "progress"; progress: Progress }
  | { kind: "answer"; answer: Answer }
  | { kind: "failed"; message: string };
