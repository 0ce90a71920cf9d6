import type { SupportedModel } from "tinkerts";
import type { CommandModule } from "../context.js";
import { type Column, printList } from "../output/index.js";

const COLUMNS: readonly Column<SupportedModel>[] = [
  { header: "Model", name: "modelName", importance: 3, leastWidth: 20 },
  { header: "Context", name: "maxContextLength", kind: "number" },
  { header: "Trainable", name: "trainable", kind: "flag" },
  { header: "Sampleable", name: "sampleable", kind: "flag" },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("[part]", "only models whose name contains this, in any case")
    .action(async (part: string | undefined) => {
      const rest = await context.restClient();
      const { supportedModels } = await rest.getServerCapabilities();
      const wanted = part?.toLowerCase() ?? "";
      const models = supportedModels.filter(({ modelName }) =>
        (modelName ?? "").toLowerCase().includes(wanted),
      );
      const empty = part === undefined ? "no models" : `no model's name contains "${part}"`;
      printList(context, models, { columns: COLUMNS, empty });
    });
};
