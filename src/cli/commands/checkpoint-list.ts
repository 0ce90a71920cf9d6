import type { CommandModule } from "../context.js";
import { found } from "../failure.js";
import { printList } from "../output/index.js";
import { CHECKPOINT_COLUMNS } from "./checkpoint-columns.js";
import { DEFAULT_LIMIT, limitValue, offsetValue, pageSize, takeItems } from "./take-items.js";

interface CheckpointListOptions {
  readonly runId?: string;
  readonly limit: number;
  readonly offset: number;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--run-id <id>", "only the checkpoints of this run")
    .option("--limit <number>", "how many at most; 0 for all", limitValue, DEFAULT_LIMIT)
    .option("--offset <number>", "how many of the latest to leave out", offsetValue, 0)
    .action(async ({ runId, limit, offset }: CheckpointListOptions) => {
      const rest = await context.restClient();
      const ofRun = async (id: string) => {
        const advice = "`tinkerts run list` shows those it has";
        const { items } = await found(context, rest.listCheckpoints(id), `training run ${id}`, advice);
        const { Page } = await import("../../clients/index.js");
        return new Page(items.slice(offset), { totalCount: items.length });
      };
      const list =
        runId === undefined ? rest.listUserCheckpoints({ limit: pageSize(limit), offset }) : ofRun(runId);
      const checkpoints = await takeItems(context, list, { limit, offset });
      const empty = runId === undefined ? "no checkpoints" : `run ${runId} has no checkpoints`;
      printList(context, checkpoints, { columns: Object.values(CHECKPOINT_COLUMNS), empty });
    });
};
