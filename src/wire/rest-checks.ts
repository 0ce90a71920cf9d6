import { ValidationError } from "../errors.js";
import { subfield } from "./check-keys.js";
import { describe } from "./describe.js";
import { checkOptions, type Rule, type Rules, rule, text } from "./option-rules.js";
import type {
  BillingUsageRequest,
  SearchOwner,
  SessionSearchCursor,
  SessionSearchRequest,
  SessionStatusQuery,
} from "./rest-types.js";

const HOUR_MS = 3_600_000;
const MOST_BILLING_MS = 14 * 24 * HOUR_MS;

const texts: Rule = rule(
  "a non-empty list of strings",
  (value) => Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === "string"),
);

const OWNER_RULES: Rules<Extract<SearchOwner, { type: "user" }>> = {
  type: rule(
    '"own", "accessible" or "user"',
    (type) => type === "own" || type === "accessible" || type === "user",
  ),
  ownerUrns: rule(
    "a list of 1 to 10 URNs",
    (value) => Array.isArray(value) && value.length >= 1 && value.length <= 10,
  ),
};

const REASONS: readonly unknown[] = ["success", "errored", "interrupted"];
const STATUSES: readonly unknown[] = ["active", "cancelled", "failed", "client_finished"];

const STATUS_RULES: Rules<Extract<SessionStatusQuery, { type: "client_finished" }>> = {
  type: rule(`one of ${STATUSES.join(", ")}`, (type) => STATUSES.includes(type)),
  reasons: rule(`a non-empty list of ${REASONS.join(", ")}`, (value) => {
    return Array.isArray(value) && value.length > 0 && value.every((item) => REASONS.includes(item));
  }),
};

const CURSOR_RULES: Rules<SessionSearchCursor> = { lastCreatedAt: text, lastSessionId: text };

const SEARCH_RULES: Rules<SessionSearchRequest> = {
  sessionId: text,
  projectIds: texts,
  userMetadata: rule("an object of strings", (value) => {
    return (
      typeof value === "object" &&
      value !== null &&
      Object.values(value).every((item) => typeof item === "string")
    );
  }),
  displayName: text,
  owner: checkOwner,
  statuses: checkStatuses,
  limit: rule("an integer from 1 to 200", (value) => {
    return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 200;
  }),
  cursor: (value, field) => void checkOptions(value, CURSOR_RULES, field, ["lastCreatedAt", "lastSessionId"]),
};

export function checkSessionSearchRequest(request: SessionSearchRequest, field = ""): SessionSearchRequest {
  return checkOptions(request, SEARCH_RULES, field);
}

function checkOwner(value: unknown, field: string): void {
  const owner = checkOptions(value, OWNER_RULES, field, ["type"]);
  if (owner.type === "user") OWNER_RULES.ownerUrns(owner.ownerUrns, subfield(field, "ownerUrns"));
}

function checkStatuses(value: unknown, field: string): void {
  if (!Array.isArray(value) || value.length === 0) {
    throw new ValidationError(field, `${field} must be a non-empty list of statuses, got ${describe(value)}`);
  }
  for (const [index, status] of value.entries())
    checkOptions(status, STATUS_RULES, `${field}[${index}]`, ["type"]);
}

/** Returns the window as ISO 8601 texts; it begins and ends on a UTC hour and spans at most 14 days. */
export function checkBillingUsageRequest(request: BillingUsageRequest): {
  startingOn: string;
  endingBefore: string;
} {
  const start = toHour(request.startingOn, "startingOn");
  const end = toHour(request.endingBefore, "endingBefore");
  if (end <= start || end - start > MOST_BILLING_MS) {
    throw new ValidationError(
      "endingBefore",
      `endingBefore must be after startingOn and at most 14 days later, got ${isoSeconds(start)} to ${isoSeconds(end)}`,
    );
  }
  return { startingOn: isoSeconds(start), endingBefore: isoSeconds(end) };
}

function toHour(value: string | Date, field: string): number {
  const isGiven = typeof value === "string" || value instanceof Date;
  const time = isGiven ? new Date(value).getTime() : Number.NaN;
  if (Number.isNaN(time) || time % HOUR_MS !== 0) {
    const got = isGiven ? String(value) : describe(value);
    throw new ValidationError(field, `${field} must be a time on a full UTC hour, got ${got}`);
  }
  return time;
}

function isoSeconds(time: number): string {
  return new Date(time).toISOString().replace(".000Z", "Z");
}
