import { access } from "node:fs/promises";
import { join } from "node:path";
import { HttpError } from "../http/http-error.js";
import { answering, contentResponse, streamPart } from "../http/partial-content.js";
import type { App } from "../http/route.js";
import { type BaseModels, findBaseModel } from "../sessions/base-models.js";
import { openArchive } from "./archive.js";

/** Files that tokenizer libraries read from a model's folder; few models have all of them. */
const TOKENIZER_FILES = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "tokenizer.model",
  "chat_template.jinja",
  "config.json",
];

/** A model's tokenizer as a tar.gz, for clients on other machines whose models are on no hub. */
export function addTokenizerRoute(app: App, { baseModels }: { readonly baseModels: BaseModels }): void {
  app.get("/api/v1/tokenizer", async (call) => {
    const { name, tokenizerPath } = findBaseModel(baseModels, call.req.query("model") ?? "", "model");
    const found = await Promise.all(
      TOKENIZER_FILES.map((file) =>
        access(join(tokenizerPath, file)).then(
          () => [file],
          () => [],
        ),
      ),
    );
    const files = found.flat();
    if (files.length === 0) throw new HttpError(404, `Model ${name} came without a tokenizer.`);
    const archive = await openArchive(tokenizerPath, files, 0);
    return answering(archive.close, () =>
      contentResponse(call.req.raw, {
        sizeBytes: archive.sizeBytes,
        etag: `"${archive.sizeBytes}"`,
        modifiedAt: 0,
        headers: { "content-type": "application/gzip" },
        body: (start, end) => streamPart(archive.bytes(), start, end, archive.close),
      }),
    );
  });
}
