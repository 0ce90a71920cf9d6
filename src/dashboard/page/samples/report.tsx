import type { ReportNode } from "../../api.js";
import { ConversationView } from "../parts/conversation.js";
import { Loaded } from "../parts/pieces.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";

/** A report of the Python cookbook, as text. */
export function Report({
  run,
  step,
  name,
}: {
  readonly run: string;
  readonly step: number;
  readonly name: string;
}) {
  const path = `runs/${run}/reports/${encodeURIComponent(name)}?step=${step}`;
  const asked = useAsked((signal) => askJson<ReportNode>(path, { signal }), [path]);
  return <Loaded asked={asked}>{(node) => <ReportPart node={node} depth={0} />}</Loaded>;
}

function ReportPart({ node, depth }: { readonly node: ReportNode; readonly depth: number }) {
  const { title, text, messages, rows, children = [] } = node;
  const inner = children.map((child, place) => <ReportPart key={place} node={child} depth={depth + 1} />);
  if (messages !== undefined) return <ConversationView messages={messages} />;
  if (text !== undefined) return <p class="text">{text}</p>;
  if (rows !== undefined) {
    return (
      <div class="table-frame">
        <table class="compact">
          <tbody>
            {rows.map((cells, row) => (
              <tr key={row}>
                {cells.map((cell, column) => (
                  <td key={column} class="text">
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    );
  }
  if (title === undefined) return <>{inner}</>;
  return (
    <details class={`plain ${depth <= 1 ? "card padded" : "nested"}`} open={depth < 3}>
      <summary>{title}</summary>
      <div class="report-body">{inner}</div>
    </details>
  );
}
