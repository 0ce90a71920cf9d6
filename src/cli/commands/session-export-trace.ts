import { createWriteStream } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import type { CommandContext, CommandModule } from "../context.js";
import { explainNotFound } from "../failure.js";
import { humanBytes, printable, printDone, progressBar } from "../output/index.js";

interface ExportOptions {
  readonly output?: string;
  readonly urlOnly?: true;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<id>", "the session's id")
    .option("-o, --output <file>", "file for the trace (default: <id>.pftrace)")
    .option("--url-only", "print a URL that anyone can download the trace from for about an hour")
    .action(async (sessionId: string, { output, urlOnly }: ExportOptions) => {
      const rest = await context.restClient();
      if (context.stderr.isTTY) context.notify("The server builds the trace; this may take a while.");
      const exported = rest.exportSessionTrace(sessionId);
      const url = await explainNotFound(context, exported, "session", sessionId);
      if (urlOnly) {
        if (context.globals().format === "table") context.stdout.write(`${printable(url)}\n`);
        else printDone(context, "", { sessionId, url });
        return;
      }
      const file = resolve(output ?? `${sessionId.replaceAll(/[^\w.-]/g, "_")}.pftrace`);
      const bytes = await download(context, url, file);
      printDone(
        context,
        `${file} holds the trace (${humanBytes(bytes)}): open it at https://ui.perfetto.dev`,
        { sessionId, file, bytes },
      );
    });
};

/** The file appears when it is whole. */
async function download(context: CommandContext, url: string, file: string): Promise<number> {
  const signal = context.interruption();
  const bar = progressBar(context, "downloading", "bytes");
  const partial = `${file}.part`;
  try {
    const response = await fetch(url, { signal });
    if (!response.ok || response.body === null) {
      throw new Error(`the trace could not be downloaded (status ${response.status}): run the command again`);
    }
    const total = Number(response.headers.get("content-length")) || undefined;
    let bytes = 0;
    await mkdir(dirname(file), { recursive: true });
    await pipeline(
      response.body,
      async function* (chunks: AsyncIterable<Uint8Array>) {
        for await (const chunk of chunks) {
          bytes += chunk.length;
          bar.update(bytes, total);
          yield chunk;
        }
      },
      createWriteStream(partial),
    );
    await rename(partial, file);
    return bytes;
  } finally {
    bar.end();
    await rm(partial, { force: true });
  }
}
