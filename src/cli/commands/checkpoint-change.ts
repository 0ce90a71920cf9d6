import { type CommandModule, UsageError } from "../context.js";
import { explainNotFound } from "../failure.js";
import { duration } from "../option-values.js";
import { printDone, relativeTime } from "../output/index.js";
import { PATH_ARGUMENT } from "./checkpoint-common.js";

export const publish = visibility(true);
export const unpublish = visibility(false);

function visibility(isPublic: boolean): CommandModule {
  return {
    define: (command, context) => {
      command.argument(...PATH_ARGUMENT).action(async (path: string) => {
        const rest = await context.restClient();
        const answer = isPublic ? rest.publishCheckpoint(path) : rest.unpublishCheckpoint(path);
        await explainNotFound(context, answer, "checkpoint", path);
        const sentence = isPublic ? `anyone can read ${path} now` : `${path} is private again`;
        printDone(context, sentence, { tinkerPath: path, public: isPublic });
      });
    },
  };
}

interface SetTtlOptions {
  /** Lifetime in milliseconds. */
  readonly ttl?: number;
  readonly remove?: true;
}

export const setTtl: CommandModule = {
  define: (command, context) => {
    command
      .argument(...PATH_ARGUMENT)
      .option("--ttl <time>", "expire after this time: seconds, or as in 12h or 30d", duration)
      .option("--remove", "never expire")
      .action(async (path: string, { ttl, remove }: SetTtlOptions) => {
        if ((ttl === undefined) === (remove === undefined)) {
          throw new UsageError(
            "give either --ttl <time> to set when it expires, or --remove to keep it for good",
          );
        }
        const ttlSeconds = ttl === undefined ? null : Math.ceil(ttl / 1000);
        const rest = await context.restClient();
        await explainNotFound(context, rest.setCheckpointTtl(path, ttlSeconds), "checkpoint", path);
        const now = Date.now();
        const expires =
          ttl === undefined
            ? "never expires"
            : `expires ${relativeTime(new Date(now + ttl).toISOString(), now)}`;
        printDone(context, `${path} ${expires}`, { tinkerPath: path, ttlSeconds });
      });
  },
};
