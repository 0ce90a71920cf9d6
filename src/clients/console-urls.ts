const CONSOLE = "https://tinker.thinkingmachines.ai";

/** Pages of the hosted service's console. */
export const consoleUrls = {
  /** Page for making a new key with this name. */
  newApiKey: (name: string) => `${CONSOLE}/keys?${new URLSearchParams({ new_key: "true", key_name: name })}`,
  apiKey: (keyId: string) => `${CONSOLE}/keys/${encodeURIComponent(keyId)}`,
  sessions: () => `${CONSOLE}/sessions`,
  session: (sessionId: string) => `${CONSOLE}/sessions/${sessionId}`,
  trainingRun: (trainingRunId: string) => `${CONSOLE}/training_runs/${trainingRunId}`,
  checkpoint: (trainingRunId: string, checkpointId: string) =>
    `${CONSOLE}/checkpoints/${encodeURIComponent(trainingRunId)}/${encodeURIComponent(checkpointId)}`,
};
