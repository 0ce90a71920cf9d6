import type { App } from "../http/route.js";
import { addChatRoutes, type CompletionServices } from "./chat-completions.js";
import { addCompletionRoutes } from "./completions.js";
import { addModelRoutes } from "./models.js";
import { OPENAI_PATHS, OpenAiError } from "./openai-errors.js";
import { addTokenizeRoutes } from "./tokenize.js";

/** Of OpenAI's API, what clients may look for here and is left out. */
const LEFT_OUT = ["responses", "embeddings"] as const;

/** The OpenAI-compatible door: models, chats and completions in text, from base models and sampler checkpoints. */
export function addOpenAiRoutes(app: App, services: CompletionServices): void {
  addModelRoutes(app, services);
  addChatRoutes(app, services);
  addCompletionRoutes(app, services);
  addTokenizeRoutes(app, services);
  for (const path of OPENAI_PATHS) {
    for (const left of LEFT_OUT) {
      const refuse = () => {
        const message = `This server does not have OpenAI's ${left}; it has chat/completions, completions and models.`;
        throw new OpenAiError(404, "unknown_url", message);
      };
      app.all(`${path}/${left}`, refuse);
      app.all(`${path}/${left}/*`, refuse);
    }
  }
}
