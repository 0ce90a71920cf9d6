/** Kinds of fields and the tables of options made of them; files with a table import it as `f`, as zod is imported as `z`. */
export * from "./check-keys.js";
export * from "./describe.js";
export * from "./fields.js";
export * from "./options.js";
