import type { Env } from "hono";
import { addChatRoutes } from "./chat-completions.js";
import type { ChatHost } from "./chat-host.js";
import { addCompletionRoutes } from "./completions.js";
import { addModelRoutes } from "./models.js";
import { OPENAI_PATHS } from "./openai-errors.js";
import { ParamError } from "./param-error.js";
import { addResponseRoutes } from "./responses/routes.js";
import { addTokenizeRoutes } from "./tokenize.js";

/** Endpoints of OpenAI's API that this server does not have. */
const LEFT_OUT = ["embeddings"] as const;

/** Routes of OpenAI's API: models, responses, chats and completions, from base models and sampler checkpoints. */
export function addOpenAiRoutes<E extends Env>(host: ChatHost<E>): void {
  addModelRoutes(host);
  addChatRoutes(host);
  addCompletionRoutes(host);
  addResponseRoutes(host);
  addTokenizeRoutes(host);
  for (const path of OPENAI_PATHS) {
    for (const left of LEFT_OUT) {
      const refuse = () => {
        const message = `This server does not have OpenAI's ${left}; it has responses, chat/completions, completions and models.`;
        throw new ParamError(404, "unknown_url", message);
      };
      host.app.all(`${path}/${left}`, refuse);
      host.app.all(`${path}/${left}/*`, refuse);
    }
  }
}
