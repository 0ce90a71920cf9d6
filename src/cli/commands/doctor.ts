import type { CommandContext, CommandModule } from "../context.js";
import type { Check } from "../doctor-checks.js";
import { type Column, printable, printList, stylesFor } from "../output/index.js";

const columns: readonly Column<Check>[] = [
  { header: "Check", name: "name", value: ({ name }) => name },
  { header: "Status", name: "status", value: ({ status }) => status },
  { header: "Detail", name: "detail", value: ({ detail }) => detail },
];

export const define: CommandModule["define"] = (command, context) => {
  command.action(() => doctor(context));
};

async function doctor(context: CommandContext): Promise<void> {
  const { runChecks } = await import("../doctor-checks.js");
  const { format } = context.globals();
  const checks: Check[] = [];
  for await (const check of runChecks(context)) {
    checks.push(check);
    if (format === "table") context.stdout.write(`${line(check, context)}\n`);
  }
  const failed = checks.filter(({ status }) => status === "failed");
  if (format !== "table") {
    printList(context, checks, { columns, empty: "", json: { ok: failed.length === 0, checks } });
  }
  if (failed.length > 0) throw new Error(`not all is well: ${failed.map(({ name }) => name).join(", ")}`);
}

function line({ name, status, detail }: Check, context: CommandContext): string {
  const { green, red, dim } = stylesFor(context, context.stdout);
  const style = { ok: green, failed: red, skipped: dim }[status];
  return `${style(status.padEnd(7))}  ${name.padEnd(7)}  ${printable(detail)}`;
}
