const TIME = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
/** Not the 29th of February, which some years lack. */
const DATE =
  "\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))";
const LABEL = "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?";

/** Patterns all of whose strings have the format; not every string of the format is among them. */
export const FORMAT_PATTERNS: Readonly<Record<string, string>> = {
  date: `^${DATE}$`,
  time: `^${TIME}$`,
  "date-time": `^${DATE}T${TIME}$`,
  uuid: "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
  email: `^[a-z0-9_+-]{1,30}(\\.[a-z0-9_+-]{1,30}){0,3}@(${LABEL}\\.){1,3}[a-z]{2,12}$`,
  ipv4: "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)$",
  hostname: `^${LABEL}(\\.${LABEL}){0,4}$`,
};
