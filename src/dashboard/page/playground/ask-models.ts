import type { ChatEvent, PlaygroundRequest } from "../../api.js";
import { ask, eventsOf } from "../server.js";
import { problemOf } from "../store.js";
import type { Reply } from "./chat.js";
import type { PlaygroundSettings } from "./settings.js";

type Tell = (id: string, change: (reply: Reply) => Reply) => void;

/** Asks a model for these replies, and tells what comes of each. */
export async function askModel(
  request: Pick<PlaygroundRequest, "model" | "messages" | "seed">,
  { temperature, topP, maxTokens, stop, prefill, alternatives }: PlaygroundSettings,
  ids: readonly string[],
  tell: Tell,
  signal: AbortSignal,
): Promise<void> {
  const stops = stop.split("\n").filter((text) => text !== "");
  const body: PlaygroundRequest = {
    ...{ ...request, temperature, topP, maxTokens, alternatives, numSamples: ids.length },
    ...(stops.length > 0 && { stop: stops }),
    ...(prefill !== "" && { prefill }),
  };
  const end = (problem?: string) => {
    for (const id of ids)
      tell(id, (reply) => ({
        ...{ ...reply, isRunning: false },
        ...(problem !== undefined && reply.answer === undefined && { problem }),
      }));
  };
  try {
    const response = await ask("chat", { method: "POST", body: JSON.stringify(body), signal });
    for await (const event of eventsOf<ChatEvent>(response)) {
      const id = ids[event.sample]!;
      if (event.type === "error")
        tell(id, (reply) => ({ ...reply, isRunning: false, problem: event.message }));
      else if (event.type === "answer") tell(id, (reply) => ({ ...reply, isRunning: false, answer: event }));
      else tell(id, (reply) => ({ ...reply, [event.type]: reply[event.type] + event.text }));
    }
    end();
  } catch (error) {
    end(signal.aborted ? undefined : problemOf(error));
  }
}
