import type { EventContent, EventFile } from "./event-file.node.js";
import type { TrainingLogger } from "./logger.js";

/** Writes event files for TensorBoard: `tensorboard --logdir FOLDER`. A resumed run adds a file. */
export function tensorBoardLogger(folder: string): TrainingLogger {
  let opening: Promise<EventFile> | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const write = (event: EventContent): Promise<void> => {
    opening ??= import("./event-file.node.js").then(({ openEventFile }) => openEventFile(folder));
    const writing = last.then(async () => (await opening!).write(event));
    last = writing.catch(() => {});
    return writing;
  };
  return {
    config: (config) => write({ texts: { config: markdown(config) }, step: 0 }),
    metrics: async (metrics, step) => {
      const scalars = Object.entries(metrics).filter(
        (entry): entry is [string, number] => typeof entry[1] === "number",
      );
      if (scalars.length > 0) await write({ scalars: Object.fromEntries(scalars), step });
    },
    close: async () => {
      await last;
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}

function markdown(config: Readonly<Record<string, unknown>>): string {
  const rows = Object.entries(config).map(([name, value]) => `| ${name} | ${JSON.stringify(value)} |`);
  return ["| setting | value |", "|---|---|", ...rows].join("\n");
}
