import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { TinkerError, ValidationError } from "../../errors.js";
import { errorCode, FolderLock, syncFolder, writeFileAtomic } from "../../files.node.js";
import { JsonLines, parseJsonObject } from "../../training/json-lines.node.js";
import type { Answered, EvaluationResult, ExampleResult, Outcome } from "./result.js";

type Fields = Readonly<Record<string, unknown>>;

/**
 * The results of an evaluation on disk, in the files and fields of the Tinker cookbook: NAME/trajectories.jsonl,
 * NAME/result.json and summary.json, with NAME/settings.json for the settings they depend on. Only one process at a
 * time may use the folder.
 */
export class ResultsFolder {
  /** Complete results by task: every answer is present and none failed. */
  readonly finished: ReadonlyMap<string, readonly ExampleResult[]>;
  readonly #folder: string;
  readonly #name: string;
  readonly #lock: FolderLock;
  readonly #trajectories: JsonLines;

  private constructor(parts: {
    folder: string;
    name: string;
    lock: FolderLock;
    trajectories: JsonLines;
    finished: ReadonlyMap<string, readonly ExampleResult[]>;
  }) {
    this.#folder = parts.folder;
    this.#name = parts.name;
    this.#lock = parts.lock;
    this.#trajectories = parts.trajectories;
    this.finished = parts.finished;
  }

  /** Opens or creates the folder. Results of other tasks or settings are refused, with the differences. */
  static async open(
    given: string,
    name: string,
    settings: Fields & { readonly numSamples: number },
    taskDigests: Readonly<Record<string, string>>,
  ): Promise<ResultsFolder> {
    const folder = resolve(given);
    const path = join(folder, name);
    await mkdir(path, { recursive: true });
    const lock = await FolderLock.take(path, "results folder");
    try {
      await settleSettings(path, { ...settings, tasks: taskDigests });
      const trajectories = await JsonLines.open(join(path, "trajectories.jsonl"));
      await syncFolder(path);
      const finished = finishedTasks(trajectories.initial, settings.numSamples);
      return new ResultsFolder({ folder, name, lock, trajectories, finished });
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  /** Resolves when the result is on disk. */
  async add(answered: Answered): Promise<void> {
    const lines = answered.examples.map((example) => trajectoryOf(this.#name, answered, example));
    await Promise.all(lines.map((line) => this.#trajectories.append(line)));
  }

  /** Writes the summary of the evaluation. */
  async finish(result: EvaluationResult): Promise<void> {
    const { name, score, numExamples, numCorrect, numErrors, numTruncated, passAtK } = result;
    const counts = { score, num_examples: numExamples, num_correct: numCorrect };
    const line = {
      name,
      ...counts,
      num_errors: numErrors,
      num_truncated: numTruncated,
      // Python's reader accepts no fields but its own; metrics may have any name.
      metrics: {
        ...result.metrics,
        score_completed: result.scoreCompleted,
        num_ungraded: result.numUngraded,
        ...(result.standardError !== undefined && { standard_error: result.standardError }),
      },
      time_seconds: result.seconds,
      pass_at_k: passAtK,
    };
    await writeFileAtomic(join(this.#folder, name, "result.json"), JSON.stringify(line, null, 2));
    const summaryFile = join(this.#folder, "summary.json");
    const summary = {
      ...(await readJson(summaryFile)),
      [name]: { ...counts, ...(Object.keys(passAtK).length > 0 && { pass_at_k: passAtK }) },
    };
    await writeFileAtomic(summaryFile, JSON.stringify(summary, null, 2));
  }

  async close(): Promise<void> {
    await this.#trajectories.close();
    await this.#lock.release();
  }
}

async function settleSettings(path: string, given: Fields): Promise<void> {
  const file = join(path, "settings.json");
  const wanted = JSON.parse(JSON.stringify(given)) as Fields;
  const existing = await readJson(file);
  if (existing === undefined) {
    await writeFileAtomic(file, JSON.stringify(wanted, null, 2));
    return;
  }
  const keys = [...new Set([...Object.keys(existing), ...Object.keys(wanted)])];
  const changes = keys
    .filter((key) => !isDeepStrictEqual(existing[key], wanted[key]))
    .map((key) =>
      key === "tasks" ? changedTasks(existing[key], wanted[key]) : change(key, existing, wanted),
    );
  if (changes.length === 0) return;
  throw new ValidationError(
    "folder",
    `${path} holds the results of another evaluation: ${changes.join("; ")}. ` +
      "Give another folder, or remove this one to start again.",
  );
}

function change(key: string, before: Fields, now: Fields): string {
  const shown = (value: unknown) => (value === undefined ? "not given" : JSON.stringify(value));
  return `${key} was ${shown(before[key])} and is ${shown(now[key])}`;
}

function changedTasks(given: unknown, wanted: unknown): string {
  const [before, now] = [given ?? {}, wanted ?? {}] as [Fields, Fields];
  const counts = {
    added: Object.keys(now).filter((id) => !Object.hasOwn(before, id)),
    removed: Object.keys(before).filter((id) => !Object.hasOwn(now, id)),
    changed: Object.keys(now).filter((id) => Object.hasOwn(before, id) && before[id] !== now[id]),
  };
  return Object.entries(counts)
    .filter(([, ids]) => ids.length > 0)
    .map(([what, ids]) => `${ids.length} ${ids.length === 1 ? "task was" : "tasks were"} ${what} (${ids[0]})`)
    .join(", ");
}

async function readJson(file: string): Promise<Fields | undefined> {
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    if (errorCode(error) !== "ENOENT") throw error;
    return undefined;
  });
  if (text === undefined) return undefined;
  const value = parseJsonObject(text);
  if (value === undefined) throw new TinkerError(`${file} is not a JSON object.`);
  return value;
}

function trajectoryOf(
  benchmark: string,
  { task, index, prompt, seconds }: Answered,
  example: Answered["examples"][number],
): Fields {
  const { sample, reward, text, error, metrics, logs, outcome, promptTokens, tokens, thinking } = example;
  const turn = (role: string, content: string, count: number, metadata: Fields = {}) => ({
    role,
    content,
    token_count: count,
    metadata,
  });
  return {
    idx: index,
    benchmark,
    example_id: task.id,
    sample,
    outcome,
    turns:
      promptTokens === 0
        ? []
        : [
            turn("user", prompt, promptTokens),
            turn("assistant", text, tokens, thinking === "" ? {} : { thinking }),
          ],
    reward,
    metrics,
    logs: { ...(task.answer !== undefined && { expected: task.answer }), ...logs },
    error: error ?? null,
    time_seconds: seconds,
  };
}

/** Examples that failed before are tried again. */
function finishedTasks(
  lines: readonly Fields[],
  numSamples: number,
): ReadonlyMap<string, readonly ExampleResult[]> {
  const byTask = new Map<string, ExampleResult[]>();
  for (const line of lines) {
    const example = exampleOf(line);
    const known = byTask.get(example.id) ?? [];
    known[example.sample] = example;
    byTask.set(example.id, known);
  }
  return new Map(
    [...byTask].filter(
      ([, examples]) => examples.filter(({ error }) => error === undefined).length === numSamples,
    ),
  );
}

function exampleOf(line: Fields): ExampleResult {
  const turns = line["turns"] as readonly { readonly content: string; readonly token_count: number }[];
  const { expected: _, ...logs } = line["logs"] as Fields;
  return {
    id: line["example_id"] as string,
    sample: line["sample"] as number,
    outcome: line["outcome"] as Outcome,
    reward: line["reward"] as number,
    text: turns[1]?.content ?? "",
    error: (line["error"] as string | null) ?? undefined,
    metrics: line["metrics"] as Readonly<Record<string, number>>,
    logs,
    promptTokens: turns[0]?.token_count ?? 0,
    tokens: turns[1]?.token_count ?? 0,
  };
}
