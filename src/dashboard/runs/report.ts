import type { ReportNode } from "../api.js";
import { shownMessages } from "./shown-message.js";

const MAX_DEPTH = 24;
const MAX_NODES = 20_000;
const HEADING = /^(?:h[1-6]|summary)$/;
const LEAF = /^(?:p|pre|span|code|li|b|strong|em|i|a|small|td|th)$/;
const UNSEEN = /^(?:style|script|head)$/;
const ENTITIES: Readonly<Record<string, string>> = {
  lt: "<",
  gt: ">",
  amp: "&",
  quot: '"',
  "#x27": "'",
  "#39": "'",
  nbsp: " ",
};

/** A node of the cookbook's report: an element of HTML, with data where it is more than its look. */
interface Element {
  readonly tag?: unknown;
  readonly children?: readonly (Element | string)[];
  readonly data?: { readonly type?: unknown; readonly messages?: unknown } | null;
}

/** A report of the Python cookbook: titles, texts, tables and conversations. Its HTML is dropped. */
export function readReport(report: Readonly<Record<string, unknown>>): ReportNode {
  const budget = { left: MAX_NODES };
  const title = typeof report["title"] === "string" ? report["title"] : undefined;
  const root = nodeOf((report["root"] ?? report) as Element, 0, budget);
  if (root === undefined || root.title === title) return { title, children: root?.children ?? [] };
  return { title, children: [root] };
}

function nodeOf(node: Element | string, depth: number, budget: { left: number }): ReportNode | undefined {
  budget.left -= 1;
  if (budget.left < 0 || depth > MAX_DEPTH) return undefined;
  if (typeof node === "string") return textNode(node);
  if (typeof node !== "object" || node === null || UNSEEN.test(tagOf(node))) return undefined;
  const messages = node.data?.type === "conversation" ? shownMessages(node.data.messages) : undefined;
  if (messages !== undefined) return { messages };
  if (node.tag === "table") return { rows: rowsOf(node) };
  if (LEAF.test(tagOf(node))) return textNode(textIn(node));
  const heading = childrenOf(node).find(
    (child) => typeof child === "object" && child !== null && HEADING.test(tagOf(child)),
  );
  const children = childrenOf(node)
    .filter((child) => child !== heading)
    .map((child) => nodeOf(child, depth + 1, budget))
    .filter((child) => child !== undefined);
  if (heading !== undefined) return { title: textIn(heading), children };
  // An element that adds nothing but its look.
  return children.length > 1 ? { children } : children[0];
}

function textNode(text: string): ReportNode | undefined {
  const plain = plainText(text);
  return plain.trim() === "" ? undefined : { text: plain };
}

function rowsOf(table: Element): readonly (readonly string[])[] {
  const rows: (readonly string[])[] = [];
  const visit = (node: Element | string, depth: number): void => {
    if (typeof node !== "object" || node === null || depth > MAX_DEPTH) return;
    if (node.tag === "tr")
      rows.push(
        childrenOf(node)
          .filter((cell) => typeof cell === "object")
          .map((cell) => textIn(cell)),
      );
    else for (const child of childrenOf(node)) visit(child, depth + 1);
  };
  visit(table, 0);
  return rows;
}

function textIn(node: Element | string, depth = 0): string {
  if (typeof node === "string") return plainText(node);
  if (typeof node !== "object" || node === null || depth > MAX_DEPTH) return "";
  return childrenOf(node)
    .map((child) => textIn(child, depth + 1))
    .join("");
}

function tagOf({ tag }: Element): string {
  return typeof tag === "string" ? tag : "";
}

function childrenOf(node: Element): readonly (Element | string)[] {
  return Array.isArray(node.children) ? node.children : [];
}

/** Texts are HTML there: what is written as an entity is a character, what is a tag is look. */
function plainText(html: string): string {
  return html
    .replaceAll(/<[^<>]*>/g, "")
    .replaceAll(/&(lt|gt|amp|quot|nbsp|#x27|#39);/g, (_, name: string) => ENTITIES[name]!);
}
