/** What commands print: results as table, JSON or CSV, and what is meant for the person at the terminal alone. */

export {
  type Cell,
  type Column,
  type ColumnKind,
  humanBytes,
  metadataColumn,
  relativeTime,
} from "./columns.js";
export { renderCsv, writeCsv } from "./csv.js";
export { printDone, printItem, printJson, printList } from "./print.js";
export { type ProgressBar, progressBar } from "./progress.js";
export { askSecret, canAsk, confirm } from "./prompt.js";
export { type Styles, stylesFor } from "./styles.js";
export { cutText, displayWidth, printable, printableLines, wrapCommand, wrapText } from "./text.js";
