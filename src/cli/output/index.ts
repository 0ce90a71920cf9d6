/** Output of commands: results as table, JSON or CSV, and notes that only a terminal gets. */

export { shellWord } from "../../checkpoints/shell-word.js";
export {
  type Cell,
  type Column,
  humanBytes,
  metadataColumn,
  plainColumns,
  relativeTime,
} from "./columns.js";
export { renderCsv, writeCsv } from "./csv.js";
export { printDone, printItem, printJson, printList } from "./print.js";
export { progressBar } from "./progress.js";
export { askSecret, canAsk, confirm } from "./prompt.js";
export { type Styles, stylesFor } from "./styles.js";
export {
  cutText,
  displayWidth,
  printable,
  printableJson,
  printableLines,
  wrapCommand,
  wrapText,
} from "./text.js";
