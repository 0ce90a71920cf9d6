const CONSOLE = "https://tinker.thinkingmachines.ai";

/** Pages of the hosted service's console. */
export const consoleUrls = {
  sessions: () => `${CONSOLE}/sessions`,
  session: (sessionId: string) => `${CONSOLE}/sessions/${sessionId}`,
  trainingRun: (trainingRunId: string) => `${CONSOLE}/training_runs/${trainingRunId}`,
  checkpoint: (trainingRunId: string, checkpointId: string) =>
    `${CONSOLE}/checkpoints/${encodeURIComponent(trainingRunId)}/${encodeURIComponent(checkpointId)}`,
};
