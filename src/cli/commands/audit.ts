import { InvalidArgumentError, Option } from "commander";
import type { AuditEventType, AuditLogEntry } from "tinkerts";
import { fromWireJson } from "../../wire/json-keys.js";
import type { CommandModule } from "../context.js";
import { type Column, printList } from "../output/index.js";

type Details = AuditLogEntry["eventDetails"];

interface AuditOptions {
  readonly day?: string;
  readonly type: AuditEventType;
}

const TYPES = [
  "all",
  "checkpoints",
  "projects",
  "teams",
  "organizations",
] as const satisfies AuditEventType[];

const time: Column<AuditLogEntry> = { header: "Time", name: "timestamp", kind: "time", importance: 8 };
const event: Column<AuditLogEntry> = { header: "Event", name: "event", importance: 9 };
const subject: Column<AuditLogEntry> = {
  header: "Subject",
  name: "subject",
  value: (entry) => entry.tinkerPath ?? entry.modelId,
  importance: 7,
  leastWidth: 24,
  cutAt: "middle",
  isOptional: true,
};
const purpose: Column<AuditLogEntry> = {
  header: "Purpose",
  name: "purpose",
  importance: 2,
  leastWidth: 8,
  isOptional: true,
};
const details: Column<AuditLogEntry> = {
  header: "Details",
  name: "eventDetails",
  value: ({ eventDetails = {} }) =>
    Object.keys(eventDetails).length === 0 ? "" : JSON.stringify(eventDetails),
  importance: 3,
  leastWidth: 12,
  isOptional: true,
};
const path: Column<AuditLogEntry> = { header: "Path", name: "tinkerPath" };
const run: Column<AuditLogEntry> = { header: "Run", name: "modelId" };

const COLUMNS = [time, event, subject, purpose, details];
const CSV_COLUMNS = [time, event, path, run, purpose, details];

export const define: CommandModule["define"] = (command, context) => {
  command
    .option("--day <date>", "the day (UTC), as in 2026-01-31 (default: today)", readDay)
    .addOption(new Option("--type <type>", "only events of this type").choices(TYPES).default("all"))
    .action(async ({ day, type }: AuditOptions) => {
      const rest = await context.restClient();
      const { entries } = await rest.getAuditLog({ day, eventType: type });
      // The server's own field names, for programs; in the style of the other commands.
      const events = entries.map((entry) => ({
        ...entry,
        eventDetails: fromWireJson<Details>(entry.eventDetails),
      }));
      printList(context, events, {
        columns: COLUMNS,
        csvColumns: CSV_COLUMNS,
        empty: `no events ${day === undefined ? "today" : `on ${day}`}`,
      });
    });
};

function readDay(text: string): string {
  const time = new Date(`${text}T00:00:00Z`);
  if (Number.isNaN(time.getTime()) || time.toISOString().slice(0, 10) !== text) {
    throw new InvalidArgumentError("It must be a date such as 2026-01-31.");
  }
  return text;
}
