import type { Hono } from "hono";
import type { RestClient } from "../../clients/index.js";
import { messageOf } from "../../errors.js";
import type { BillingUsageEvent, SessionStatus } from "../../wire/index.js";
import type { ServerAnswer, ServerName } from "../api.js";
import type { DashboardParts } from "./app.js";
import type { TinkerServer } from "./tinker-server.js";

/** Time between requests for values that change slowly. */
const SLOW_MS = 5000;
const MAX_SESSIONS = 20;
const HOUR_MS = 3_600_000;

type SlowAnswer = Pick<ServerAnswer, "models" | "sessions" | "usage" | "problem">;

/** The server as the page names it. */
export function serverName(server: TinkerServer | undefined): ServerName | undefined {
  return server && { address: server.address, isBuiltIn: server.activity !== undefined };
}

/** State of a server and counts of its lists. */
export function addServerRoute(app: Hono, { server }: DashboardParts): void {
  let slow: Promise<SlowAnswer> | undefined;
  let askAgainAt = Number.NEGATIVE_INFINITY;
  app.get("/api/server", async (context) => {
    if (server === undefined) {
      return context.json({ server: undefined, models: [], sessions: [], usage: [] } satisfies ServerAnswer);
    }
    if (slow === undefined || performance.now() > askAgainAt) {
      // A server that is gone answers late: it is not asked again before.
      askAgainAt = Number.POSITIVE_INFINITY;
      slow = readLists(server).finally(() => {
        askAgainAt = performance.now() + SLOW_MS;
      });
    }
    const answer: ServerAnswer = {
      server: serverName(server),
      ...(await slow),
      activity: activityOf(server),
    };
    return context.json(answer);
  });
}

function activityOf({ activity }: TinkerServer): ServerAnswer["activity"] {
  if (activity === undefined) return undefined;
  const { runs, ...counts } = activity.status();
  return {
    ...counts,
    runs: runs.map(({ name, baseModel, rank, steps, loss }) => ({ name, baseModel, rank, steps, loss })),
    memoryBytes: process.memoryUsage.rss(),
    upSeconds: process.uptime(),
  };
}

/** A server without one of these endpoints still answers the others. */
async function readLists(server: TinkerServer): Promise<SlowAnswer> {
  const problems: string[] = [];
  const asked = async <T>(ask: (rest: RestClient) => Promise<T>, otherwise: T): Promise<T> => {
    try {
      return await ask(await server.rest());
    } catch (error) {
      problems.push(messageOf(error));
      return otherwise;
    }
  };
  const models = await asked(async (rest) => {
    const { supportedModels } = await rest.getServerCapabilities();
    return supportedModels.map(({ modelName, maxContextLength }) => ({
      name: modelName ?? "",
      maxLength: maxContextLength ?? undefined,
    }));
  }, []);
  const sessions = await asked(async (rest) => {
    const { items } = await rest.searchSessions({ limit: MAX_SESSIONS });
    return items.map(({ sessionId, displayName, userMetadata, createdAt, status, checkpointsCount }) => ({
      id: sessionId,
      name: userMetadata?.["name"] ?? displayName ?? "",
      createdAt,
      state: stateName(status),
      checkpoints: checkpointsCount,
    }));
  }, []);
  const usage = await asked(async (rest) => {
    const endingBefore = new Date(Math.ceil((Date.now() + 1) / HOUR_MS) * HOUR_MS);
    const startingOn = new Date(endingBefore.getTime() - 24 * HOUR_MS);
    return summed((await rest.getBillingUsage({ startingOn, endingBefore })).data);
  }, []);
  return {
    models,
    sessions,
    usage,
    ...(problems.length === 0 ? {} : { problem: [...new Set(problems)].join(" ") }),
  };
}

function stateName(status: SessionStatus | null | undefined): string {
  if (status === undefined || status === null) return "ended";
  return status.type === "client_finished" ? status.reason.type : status.type;
}

const USAGE_NAMES: Readonly<Record<BillingUsageEvent["eventInfo"]["type"], string>> = {
  training: "training",
  sampling_prefill: "reading prompts",
  sampling_sample: "sampling",
  checkpoint: "checkpoints",
  storage: "storage",
};

/** Usage of a day, by kind and model. */
function summed(events: readonly BillingUsageEvent[]): ServerAnswer["usage"] {
  const sums = new Map<
    string,
    { what: string; model: string; amount: number; unit: string; costUsd?: number }
  >();
  for (const { eventInfo, baseModel, estimatedCostUsd } of events) {
    const what = USAGE_NAMES[eventInfo.type] ?? eventInfo.type;
    const model = baseModel ?? "";
    const [amount, unit] =
      eventInfo.type === "checkpoint"
        ? [eventInfo.count, "saved"]
        : eventInfo.type === "storage"
          ? [eventInfo.gigabyteHours, "GB hours"]
          : [eventInfo.tokenCount, "tokens"];
    const sum = sums.get(`${what} ${model}`) ?? { what, model, amount: 0, unit };
    sum.amount += amount;
    if (typeof estimatedCostUsd === "number") sum.costUsd = (sum.costUsd ?? 0) + estimatedCostUsd;
    sums.set(`${what} ${model}`, sum);
  }
  return [...sums.values()];
}
