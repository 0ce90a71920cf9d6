import type { FilledExportOptions } from "./options.js";

/** Source of an export: a base model's folder, perhaps an adapter's, and names for both in texts. */
export interface ExportInput {
  readonly baseFolder: string;
  /** The base model's Hugging Face id, or the name of its folder. */
  readonly baseModel: string;
  readonly adapter:
    | {
        readonly folder: string;
        /** A `tinker://` path, or the name of the folder. */
        readonly name: string;
      }
    | undefined;
  /** Absolute path of the file or folder that the export becomes. */
  readonly output: string;
  readonly options: FilledExportOptions;
}

/** Where a target writes, and how it reports what it has written. */
export interface ExportWork {
  /** A hidden folder beside the output. It stays after a crash or an abort, and the next attempt continues in it. */
  readonly folder: string;
  /** How many parts an earlier attempt finished, with the same input and options. */
  readonly finishedParts: number;
  /** Records that this many parts are on disk (synced). The next attempt begins after them. */
  finish(parts: number): Promise<void>;
  /** Counts bytes for the progress, those of finished parts too; throws if the export was aborted. */
  count(bytes: number): void;
  readonly signal: AbortSignal | undefined;
}

/** An export that fits: nothing is written yet. */
export interface PreparedExport {
  /** About how many bytes are written; the disk must have room for them. */
  readonly bytes: number;
  /** Name of the file in the work folder that becomes the output; undefined if the folder does. */
  readonly file: string | undefined;
  /** Commands that use the result, for people to copy. */
  readonly commands: readonly string[];
  write(work: ExportWork): Promise<void>;
  /** Closes what was opened; called in each case. */
  close(): void;
}

/** One thing that a model can be exported to. */
export interface ExportTarget {
  /** Whether there is nothing to export without an adapter. */
  readonly needsAdapter: boolean;
  /** Reads headers and settings, and refuses what does not fit in one sentence. Writes nothing. */
  prepare(input: ExportInput): Promise<PreparedExport>;
}
