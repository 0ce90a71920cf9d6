import { namesThatDiffer, rankedRuns, type SweepRecord, type SweepRun } from "../../cookbook/sweeps/index.js";
import type { CommandContext } from "../context.js";
import { type Column, printable, printList } from "../output/index.js";

/** A setting's name as people read it: learningRate is "learning Rate". */
export function settingHeader(name: string): string {
  return name.replaceAll(/[A-Z]/g, " $&");
}

/** Prints the runs of a sweep, the best first: settings that differ, the metric and the folder. */
export function printSweep(context: CommandContext, sweep: SweepRecord, json: object): void {
  const settings = namesThatDiffer(sweep.runs).map(
    (name): Column<SweepRun> => ({
      header: settingHeader(name),
      name,
      value: ({ settings }) => shown(settings[name]),
      importance: 5,
    }),
  );
  const value = (text: (run: SweepRun) => string | number | undefined): Column<SweepRun> => {
    return { header: sweep.metric, name: "value", value: text, importance: 6 };
  };
  const others: readonly Column<SweepRun>[] = [
    { header: "Cost", name: "costUsd", kind: "dollars", isOptional: true },
    { header: "Steps", name: "steps", kind: "number", isOptional: true },
    { header: "Status", name: "status", importance: 4 },
    { header: "Folder", name: "folder", leastWidth: 8, cutAt: "middle" },
    { header: "Problem", name: "error", isOptional: true, leastWidth: 20 },
  ];
  const rounded = value((run) =>
    run.value === undefined ? undefined : String(Number(run.value.toPrecision(4))),
  );
  printList(context, rankedRuns(sweep), {
    columns: [...settings, rounded, ...others],
    csvColumns: [
      ...settings,
      value((run) => run.value),
      ...others,
      { name: "samplerPath" },
      { name: "statePath" },
    ],
    empty: "no runs",
    json,
  });
}

function shown(setting: unknown): string | number | undefined {
  if (setting === undefined || typeof setting === "string" || typeof setting === "number") return setting;
  return JSON.stringify(setting);
}

/** A line about a run whose status has changed. */
export function changeText(run: SweepRun, { runs, metric }: SweepRecord): string {
  const number = runs.findIndex(({ folder }) => folder === run.folder) + 1;
  const result = run.value === undefined ? "" : `  ${metric} ${Number(run.value.toPrecision(4))}`;
  const problem = run.error === undefined ? "" : `: ${run.error}`;
  return printable(`${number}/${runs.length}  ${run.folder}  ${run.status}${result}${problem}`);
}
