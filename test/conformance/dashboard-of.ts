import type {
  CheckpointList,
  ReportNode,
  RunCurves,
  RunList,
  Sample,
  SampleIndex,
  SampleList,
} from "../../src/dashboard/api.js";
import { createDashboard } from "../../src/dashboard/index.js";

/** What the dashboard shows of the one run in a folder. */
export async function dashboardOf(folder: string) {
  const dashboard = createDashboard({ folders: [folder] });
  const ask = async <T>(path: string) => {
    const headers = { authorization: `Bearer ${dashboard.token}` };
    const response = await dashboard.fetch(new Request(`http://127.0.0.1/api/${path}`, { headers }));
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  };
  const { runs } = await ask<RunList>("runs");
  const [run] = runs;
  const own = `runs/${run!.id}`;
  return {
    run: run!,
    metrics: await ask<RunCurves>(`${own}/metrics`),
    checkpoints: (await ask<CheckpointList>("checkpoints")).checkpoints,
    steps: (await ask<SampleIndex>(`${own}/samples`)).steps,
    samples: (step: number) => ask<SampleList>(`${own}/samples?step=${step}`),
    sample: (step: number, place: number) => ask<Sample>(`${own}/samples/${place}?step=${step}`),
    report: (step: number, name: string) => ask<ReportNode>(`${own}/reports/${name}?step=${step}`),
  };
}
