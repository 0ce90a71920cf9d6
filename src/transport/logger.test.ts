import { describe, expect, it } from "vitest";
import { createLogger, type LogLevel, logLevelOf } from "./logger.js";

function recording(level: LogLevel) {
  const lines: [string, ...unknown[]][] = [];
  const at =
    (name: string) =>
    (message: string, ...details: unknown[]) =>
      void lines.push([name, message, ...details]);
  const target = { error: at("error"), warn: at("warn"), info: at("info"), debug: at("debug") };
  return { lines, logger: createLogger(target, level) };
}

describe("createLogger", () => {
  it.each<[LogLevel, string[]]>([
    ["off", []],
    ["error", ["error"]],
    ["warn", ["error", "warn"]],
    ["info", ["error", "warn", "info"]],
    ["debug", ["error", "warn", "info", "debug"]],
  ])("at %s passes on %j", (level, expected) => {
    const { lines, logger } = recording(level);
    logger.error("1");
    logger.warn("2");
    logger.info("3");
    logger.debug("4");
    expect(lines.map(([name]) => name)).toEqual(expected);
  });

  it("redacts messages, headers, errors and nested values", () => {
    const { lines, logger } = recording("debug");
    logger.debug(
      "key tml-secret1",
      new Headers({ "x-api-key": "opaque-secret", accept: "text/plain" }),
      new Error("bad tml-secret2"),
      { deep: [{ authorization: "opaque-secret", note: "eyJhbGciOiJub25lIn0.e30.x" }] },
    );
    const shown = JSON.stringify(lines);
    for (const secret of ["tml-secret1", "tml-secret2", "opaque-secret", "eyJhbGci"])
      expect(shown).not.toContain(secret);
    expect(lines[0]?.[2]).toEqual({ accept: "text/plain", "x-api-key": "[redacted]" });
    expect(lines[0]?.[3]).toContain("Error: bad tml-[redacted]");
  });
});

describe("logLevelOf", () => {
  it("takes the option, then the environment, then warn", () => {
    expect(logLevelOf("INFO")).toBe("info");
    expect(logLevelOf("loud")).toBe("warn");
    expect(logLevelOf(undefined)).toBe("warn");
  });
});
